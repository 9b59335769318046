"""Groups of options that several commands share, each with what it means for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from limpet.cli.console import console
from limpet.cli.models import Model, releases_of
from limpet.cli.pages import Report
from limpet.cli.parameters import RARE, Named, Options
from limpet.cli.places import Place
from limpet.cli.settings import data_root
from limpet.errors import ConfigError, UnusableVectorsError, refuse, shown
from limpet.support.options import bound, option_types

if TYPE_CHECKING:
    from limpet.data.image_set import ImageSet
    from limpet.data.item_facts import FactsOf
    from limpet.data.retrieval_data import RetrievalData
    from limpet.data.text_files import OnEmpty
    from limpet.data.text_pairs import TextPairs
    from limpet.data.text_set import TextData, TextSet
    from limpet.embeddings import EmbeddingSet
    from limpet.embeddings.sides import QueriesAndGallery
    from limpet.evaluation.protocols import Protocol
    from limpet.models.release import Release
    from limpet.models.specs import EncoderSpec
    from limpet.support.progress import Progress, Told
    from limpet.upgrade.filling import FillOptions

Similarity = Literal["cosine", "inner-product", "euclidean"]

FITTED_ON = ("train", "embeddings", "gallery")
"""The files of a folder to fit a link on: what is not searched with or among, if that is there."""


@dataclass(frozen=True)
class Output(Options):
    """Output files.

    Args:
        out: Output folder for results.json and report.html.
        report: html writes the page report.html, none does not. Default: html if its packages are installed (`pip
            install '.[report]'`).
    """

    out: Path = Path("runs/evaluation")
    report: Report | None = None

    def refuse_over(self, places: Sequence[Place]) -> None:
        """Refuse to write results into a folder that they are made of.

        Raises:
            ConfigError: The folder for results is, or holds, one of the places.
        """
        if self.out.resolve() in {place.folder.resolve() for place in places if place.folder is not None}:
            raise ConfigError(
                f"The results would be written to '{self.out}', over what is read there.",
                expected="a folder of its own for them",
                to_do="--out FOLDER.",
            )


@contextmanager
def leaving_out(place: object, skip: bool | None) -> Iterator[list[str] | None]:
    """Collect the items of a place that are left out since their vector cannot be used, and say which.

    Args:
        place: Where they are.
        skip: Whether --skip-unusable was given; None where the command has no such option.

    Yields:
        The list for their ids; None where they are not left out.

    Raises:
        UnusableVectorsError: There are such items, and they are not left out; it names the option, if there is one.
    """
    unusable: list[str] | None = [] if skip else None
    try:
        yield unusable
    except UnusableVectorsError as error:
        if skip is None:
            raise
        to_do = "embed these items again, or leave them out with --skip-unusable."
        raise UnusableVectorsError(error.given, error.expected, to_do, intact=error.intact) from error
    if unusable:
        console.print(
            f"{place}: left out {len(unusable):,} item{'s' * (len(unusable) > 1)} whose vector is zero, NaN or "
            f"infinite: {shown(unusable)}."
        )


@dataclass(frozen=True)
class Reading(Options):
    """Options for reading precomputed vectors.

    Args:
        skip_unusable: Skip items whose vector is zero, NaN or infinite, and list their ids. In an evaluation, all
            models skip them.
    """

    skip_unusable: Annotated[bool, RARE] = False

    def sides(
        self, places: Sequence[Place], name: str | None = None, similarity: Similarity | None = None
    ) -> QueriesAndGallery:
        """Open queries and gallery of one model; see `limpet.load_sides`."""
        from limpet.engines.reading import load_sides

        with leaving_out(" ".join(map(str, places)), self.skip_unusable) as unusable:
            found = load_sides(
                *(place.given for place in places), model=name, similarity=similarity, verify=True, unusable=unusable
            )
        self.left_out.update(unusable or ())
        return found

    def part(self, place: Place, name: str | None = None, *, parts: Sequence[str] = FITTED_ON) -> EmbeddingSet:
        """Open embeddings, of a folder the first of its parts that is there; see `limpet.load_embeddings`."""
        from limpet.engines.reading import load_embeddings

        with leaving_out(place, self.skip_unusable) as unusable:
            found = load_embeddings(place.given, model=name, parts=parts, verify=True, unusable=unusable)
        self.left_out.update(unusable or ())
        return found

    @cached_property
    def left_out(self) -> set[str]:
        """Ids of items that were left out so far, since a vector of theirs cannot be used."""
        return set()


@dataclass(frozen=True)
class DataSets(Options):
    """Options for reading data.

    Args:
        data_options: Options of the data set, such as label_column of a file of texts, or image_size of images: 224, or
            256x128 for height and width. Default size: that of the release, if any.
    """

    data_options: Annotated[Named, RARE] = field(default_factory=dict)

    def images(self, data: str, encoder: EncoderSpec | None = None, *, exactly: bool = False) -> RetrievalData:
        """Open a data set of images by name, path or URL, showing that it is being read.

        Args:
            data: Its name or path; or the URL of a table or collection with a column of paths.
            encoder: Reads them as this one wants its images, where the options do not say otherwise.
            exactly: Whatever the options say.
        """
        from limpet.data.datasets import load_dataset, option_names

        options, address = self.data_options, Place(data).address
        if encoder is not None:
            wanted = {"image_size": encoder.image_size, "channels": encoder.channels, "fit": encoder.fit}
            accepted = wanted if address is not None else option_names(data)
            of_encoder = {name: value for name, value in wanted.items() if name in accepted}
            options = {**options, **of_encoder} if exactly else {**of_encoder, **options}
        if address is not None:
            from limpet.engines.images import images_of
            from limpet.engines.sources import open_source

            with console.status(f"reading {Place(data)}"):
                return images_of(open_source(address), **bound(images_of, options, f"images of {Place(data)}"))
        with console.status(f"reading {data}"):
            return load_dataset(data, data_root(), **options)

    def pairs(self, texts: str) -> TextPairs | None:
        """Open pairs or triplets of texts, showing that they are being read; None for texts of another kind."""
        from limpet.data.texts import load_pairs

        with console.status(f"reading {texts}"):
            return load_pairs(texts, **self.data_options)

    def texts(self, texts: str, *, on_empty: OnEmpty = "fail") -> TextData | TextSet:
        """Open texts by name, file or URL, showing that they are being read; see `limpet.data.text_files.texts`."""
        from limpet.data.texts import load_texts

        address = Place(texts).address
        if address is not None:
            from limpet.engines.reading import texts_of
            from limpet.engines.sources import open_source

            with console.status(f"reading {Place(texts)}"):
                return texts_of(open_source(address), on_empty=on_empty)
        with console.status(f"reading {texts}"):
            return load_texts(texts, data_root(), on_empty=on_empty, **self.data_options)


@dataclass(frozen=True)
class FillLimits(Options):
    """Size and speed of a backfill.

    Args:
        batch: Items to embed and write at a time. Default: 4,096 in a gallery, 512 in a table; measured for a
            collection.
        budget: Stop after embedding this many items.
        rate: Maximum number of items embedded per second.
        share: Maximum share of the time spent on writing, such as 0.1: pause after every write, longer if the database
            is busy.
        seconds: Start no new batch after this many seconds.
    """

    batch: Annotated[int | None, RARE] = None
    budget: int | None = None
    rate: Annotated[float | None, RARE] = None
    share: Annotated[float | None, RARE] = None
    seconds: Annotated[float | None, RARE] = None

    def options(self, progress: Progress[Told]) -> FillOptions:
        """Return the options of a backfill that tells its progress."""
        return {
            "batch": self.batch, "budget": self.budget, "rate": self.rate, "share": self.share,
            "seconds": self.seconds, "progress": progress,
        }  # fmt: skip


@dataclass(frozen=True)
class StartingModel(Options):
    """A pretrained model to train from, and the code for modules of your own.

    Args:
        model: Pretrained network and weights, instead of --backbone and --weights: hf:FOLDER, timm:FOLDER,
            package:NAME, release:FOLDER, or FILE.py:FUNCTION, your function that returns
            limpet.Release.from_module(...). The model defines image preprocessing.
        over: FILE.py:FUNCTION (or hf:FOLDER, ...) that returns the module of a release in --old or --model, if that
            release contains weights and no code.
    """

    model: Model | None = None
    over: Annotated[Model | None, RARE] = None

    def refuse_unused(self, old: Model | None) -> None:
        """Refuse code that no release needs."""
        from limpet.models.named_models import needs_module

        named = [name for name in (old, self.model) if name is not None]
        refuse(
            self.over is not None and not any(needs_module(name) for name in named),
            f"--over {self.over}, and no release needs it.",
            "it only where --old or --model is a release that was made of a module of yours",
        )

    def opened(self, network: Network) -> tuple[Release, EncoderSpec] | tuple[None, None]:
        """Open it, if there is one, and say how it takes images.

        Args:
            network: Of which only what such a model leaves open may be said.

        Raises:
            ConfigError: There is no such model, or something else says what it is.
            ReleaseError: It takes no images.
        """
        if self.model is None:
            return None, None
        from limpet.models.named_models import image_spec, needs_module

        said = sorted(network.changed & {"backbone", "backbone_options", "centre_crop", "mean", "std", "weights"})
        options = ", ".join(f"--{name.replace('_', '-')}" for name in said)
        refuse(bool(said), f"--model {self.model} with {options}.", "the model alone: it says so itself")
        with console.status(f"opening {self.model}"):
            release = releases_of([self.model], self.over if needs_module(self.model) else None)[self.model]
        return release, image_spec(release, self.model.place)


@dataclass(frozen=True)
class Network(Options):
    """The network to train.

    Args:
        backbone: Backbone: convnet, resnet18, resnet50, iresnet18, iresnet50, vit_s or vit_b. Default: that of the
            scenario, or convnet.
        dim: Embedding dimension.
        projection: Projection from backbone to embedding: linear, linear-bn, mlp, residual or none. Default: linear;
            linear-bn in lorentz space.
        backbone_options: Options of the backbone, such as filters of convnet.
        centre_crop: Size in pixels of the centre crop that the network sees, such as 224 or 256x128, as in papers that
            read images at 256 pixels. Default: the whole image.
        mean: Value to subtract from each channel, after pixels are scaled to [0, 1].
        std: Value to divide each channel by.
        weights: Local folder of published backbone weights.
        freeze_backbone: Train only the projection and the classifier.
    """

    backbone: str | None = None
    dim: int = 128
    projection: Annotated[str | None, RARE] = None
    backbone_options: Annotated[Named, RARE] = field(default_factory=dict)
    centre_crop: Annotated[str | None, RARE] = None
    mean: Annotated[list[float], RARE] = field(default_factory=lambda: [0.5])
    std: Annotated[list[float], RARE] = field(default_factory=lambda: [0.5])
    weights: Annotated[Path | None, RARE] = None
    freeze_backbone: Annotated[bool, RARE] = False

    def encoder(
        self, images: ImageSet, projection: str, zeta: float | None = None, start: EncoderSpec | None = None
    ) -> EncoderSpec:
        """Return the encoder that these describe, for images like the given ones.

        Args:
            projection: From backbone to embedding, settled.
            zeta: Distance from the origin to which points of a space that has one reach.
            start: The model that it goes on from, which says the rest.
        """
        from limpet.models.specs import encoder_spec

        if start is not None:
            return start.going_on(dim=self.dim, projection=projection, zeta=zeta)

        channels, height, width = images.shape
        return encoder_spec(
            backbone=self.backbone or "convnet",
            dim=self.dim,
            projection=projection,
            backbone_options=self.backbone_options,
            channels=channels,
            image_size=(height, width),
            centre_crop=self.centre_crop,
            fit=images.fit or "crop",
            mean=tuple(self.mean),
            std=tuple(self.std),
            zeta=zeta,
        )


@dataclass(frozen=True)
class Answers(Options):
    """How relevance is defined and scores are averaged.

    Args:
        protocol: How relevance is defined and scores are averaged; `limpet evaluate protocols` lists the choices.
            Default: by label.
        ground_truth: Ground truth of the protocol: a file or folder.
        relevant: Pairs of a query and a relevant item, such as clicks: a .parquet or .csv file with the columns query
            and item. Short for --protocol relevance --ground-truth.
        protocol_options: Options of the protocol, such as no-relevant, the score of a query without a relevant item:
            exclude or zero.
    """

    protocol: str | None = None
    ground_truth: Annotated[Path | None, RARE] = None
    relevant: Path | None = None
    protocol_options: Annotated[Named, RARE] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.protocol is None:
            return
        from limpet.evaluation.protocols import PROTOCOLS

        if self.protocol not in PROTOCOLS:
            raise PROTOCOLS.unknown(self.protocol)

    def opened(self, leave_one_out: bool) -> Protocol:
        """Return the protocol that was asked for, with its options and its ground truth.

        Args:
            leave_one_out: Whether queries and gallery are one set; a protocol that can leaves every query itself out.

        Raises:
            ConfigError: An unknown protocol or option, or a ground truth too many or too few.
            DataError: The ground truth cannot be used.
        """
        from limpet.evaluation.protocols import PROTOCOLS

        name, truth = self.protocol, self.ground_truth
        if self.relevant is not None:
            refuse(
                name not in (None, "relevance") or truth is not None,
                "--relevant was given with another protocol or --ground-truth.",
                "--relevant PAIRS alone, which is --protocol relevance --ground-truth PAIRS",
            )
            name, truth = "relevance", self.relevant
        protocol = PROTOCOLS[name or "labels"]
        options = dict(self.protocol_options)
        if leave_one_out and "leave_one_out" in option_types(protocol):
            options.setdefault("leave_one_out", True)
        return protocol.opened(truth, **bound(protocol, options, f"protocol '{protocol.name}'"))


@dataclass(frozen=True)
class Judging(Options):
    """How the verdict is computed.

    Args:
        gate_metric: Metric that decides the verdict. Default: that of the protocol.
        min_effect: Minimum gain in the gate metric for the verdict "compatible", as a fraction such as 0.005.
        guard: Metrics, such as recall@1,recall@5, that must not be clearly worse than today (the whole interval of
            cross - self_old below 0), whatever the gate metric says; none: the gate metric alone decides. Default:
            every metric and the first hit; for a chain, only the first hit.
        resamples: Number of bootstrap resamples for the intervals.
        resample: Resample queries or whole classes, whose queries are correlated. auto: classes if several queries
            share one.
        device: Device for ranking: cpu, cuda, cuda:1, mps.
        workers: Number of processes that rank, each for a part of the gallery; the results are the same. Default: this
            process alone, with one thread per core.
        seed: Random seed for the bootstrap, the random backfill orders and the choice of examples.
    """

    gate_metric: str | None = None
    min_effect: float = 0.0
    guard: list[str] = field(default_factory=list)
    resamples: Annotated[int, RARE] = 2000
    resample: Annotated[Literal["auto", "queries", "classes"], RARE] = "auto"
    device: Annotated[str, RARE] = "cpu"
    workers: Annotated[int, RARE] = 1
    seed: Annotated[int, RARE] = 0

    def __post_init__(self) -> None:
        refuse(self.seed < 0, f"--seed {self.seed}.", "a whole number of at least 0")
        refuse(self.workers < 1, f"--workers {self.workers}.", "at least 1")
        guarded(self.guard)

    @property
    def guards(self) -> tuple[str, ...] | None:
        """The guarded metrics; None for the usual ones."""
        return guarded(self.guard)

    @property
    def placed(self) -> str | None:
        """The device, None for the CPU."""
        return None if self.device == "cpu" else self.device


def guarded(guard: Sequence[str]) -> tuple[str, ...] | None:
    """Return the guarded metrics of --guard; None for the usual ones.

    >>> guarded(["map,recall@1"]), guarded(["none"]), guarded([])
    (('map', 'recall@1'), (), None)
    """
    named = tuple(name for word in guard for name in word.split(",") if name)
    refuse("none" in named and len(named) > 1, f"--guard {' '.join(guard)}.", "metrics, or none alone")
    return () if named == ("none",) else named or None


@dataclass(frozen=True)
class Shown(Options):
    """Items to show in the report.

    Args:
        data: Data set or folder that was embedded, to show example images in the report.
        texts: Texts of the items, to show beside their ids in the report: a .csv, .parquet or .jsonl file with a column
            of ids and further columns (text, title, price, ...), a .txt file of texts, texts by name (clinc150), or the
            URL of a table or collection. Further columns of embedding files are shown without this option.
    """

    data: str | None = None
    texts: str | None = None

    def images(self, sets: DataSets) -> RetrievalData | None:
        """Open the data set, if one was named."""
        return None if self.data is None else sets.images(self.data)

    def facts(self, sets: DataSets, embeddings: Sequence[EmbeddingSet]) -> FactsOf:
        """Return what finds texts and metadata of the items of these embeddings."""
        from limpet.data.item_facts import facts_of

        address = None if self.texts is None else Place(self.texts).address
        if address is None:
            return facts_of(self.texts, data_root(), list(embeddings))
        from limpet.engines.reading import SourceFacts
        from limpet.engines.sources import open_source

        return facts_of(None, None, list(embeddings), SourceFacts(open_source(address)))
