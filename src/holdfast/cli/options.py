"""Groups of options that several commands share, each with what it means for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast.cli.choices import data_root, open_data, write_settings
from holdfast.cli.evidence import Sides, open_file, open_sides
from holdfast.cli.pages import Report
from holdfast.config import Options, Settings
from holdfast.embeddings import EmbeddingSet
from holdfast.embeddings.file_columns import FileColumns
from holdfast.errors import ConfigError, refuse
from holdfast.evaluation.protocols import PROTOCOLS, Protocol
from holdfast.options import bound, option_types

if TYPE_CHECKING:
    from holdfast.data.item_facts import FactsOf
    from holdfast.data.retrieval_data import RetrievalData


@dataclass(frozen=True)
class Output(Options):
    """Where results go.

    Args:
        out: Folder for results.json and report.html.
        report: Whether to write the page report.html: html or none. When left out it is written where its packages are
            installed (`pip install 'holdfast[report]'`).
        json: Print one JSON document with all numbers.
    """

    out: Path = Path("runs/evaluation")
    report: Report | None = None
    json: bool = False

    def refuse_over(self, paths: Sequence[Path]) -> None:
        """Refuse to write results into a folder that they are made of.

        Raises:
            ConfigError: The folder for results is, or holds, one of the paths.
        """
        if self.out.resolve() in {(path if path.is_dir() else path.parent).resolve() for path in paths}:
            raise ConfigError(
                f"The results would be written to '{self.out}', over what is read there.",
                expected="a folder of its own for them",
                to_do="--out FOLDER.",
            )

    def write_settings(self, settings: Settings) -> None:
        """Write all settings beside the results."""
        write_settings(self.out, "evaluate.yaml", settings)


@dataclass(frozen=True)
class Reading(Options):
    """How files of vectors made elsewhere are read.

    Args:
        similarity: How vectors of .npz, .npy and .parquet files are compared; by the cosine when left out.
        cast: Accept other floating types than float32 in .npz, .npy and .parquet files.
        vector_column: What .npz and .parquet files call the vectors, where it is not "vectors" and "vector"; of several
            names the first counts that a file has.
        id_column: The same of the ids, "ids" and "id".
        label_column: The same of the labels, "labels" and "label".
    """

    similarity: Literal["cosine", "inner-product", "euclidean"] | None = None
    cast: bool = False
    vector_column: list[str] = field(default_factory=list)
    id_column: list[str] = field(default_factory=list)
    label_column: list[str] = field(default_factory=list)

    @property
    def columns(self) -> FileColumns:
        """What files call vectors, ids and labels."""
        return FileColumns(tuple(self.vector_column), tuple(self.id_column), tuple(self.label_column))

    def sides(self, path: Path, name: str | None = None) -> Sides:
        """Open queries and gallery of one model; see `open_sides`."""
        return open_sides(path, cast=self.cast, name=name, similarity=self.similarity, columns=self.columns)

    def file(self, path: Path, name: str | None) -> EmbeddingSet:
        """Open one file; see `open_file`."""
        return open_file(path, cast=self.cast, name=name, similarity=self.similarity, columns=self.columns)


@dataclass(frozen=True)
class Answers(Options):
    """Who answers what.

    Args:
        protocol: Who answers what, and what is averaged; `holdfast evaluate --protocol list` shows them. By label when
            left out.
        ground_truth: The file or folder of the protocol's ground truth.
        relevant: Pairs of a query and an item that answers it, .parquet or .csv with the columns query and item, such
            as clicks. Short for --protocol relevance --ground-truth.
        protocol_options: Options of the protocol.
        no_relevant: What a query without any relevant item is worth; the protocol's own rule when left out.
    """

    protocol: str | None = None
    ground_truth: Path | None = None
    relevant: Path | None = None
    protocol_options: dict[str, Any] = field(default_factory=dict)
    no_relevant: Literal["exclude", "zero"] | None = None

    def opened(self, leave_one_out: bool) -> Protocol:
        """Return the protocol that was asked for, with its options and its ground truth.

        Args:
            leave_one_out: Whether queries and gallery are one set; a protocol that can leaves every query itself out.

        Raises:
            ConfigError: An unknown protocol or option, or a ground truth too many or too few.
            DataError: The ground truth cannot be used.
        """
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
        if self.no_relevant is not None:
            options.setdefault("no_relevant", self.no_relevant)
        if leave_one_out and "leave_one_out" in option_types(protocol):
            options.setdefault("leave_one_out", True)
        return protocol.opened(truth, bound(protocol, options, f"protocol '{protocol.name}'"))


@dataclass(frozen=True)
class Judging(Options):
    """How the verdict is found.

    Args:
        gate_metric: The metric that decides the verdict; the protocol's own when left out.
        guard: Metrics, such as recall@1,recall@5, that must not be clearly worse than today (their whole interval of
            cross - self_old below 0), whatever the gate metric says; every metric and the first hit when left out, of a
            chain the first hit alone.
        no_guard: Let the gate metric alone decide.
        resamples: Bootstrap resamples for the intervals.
        resample: Draw queries, or whole classes, whose queries are correlated; "auto" draws classes where several
            queries share one.
        device: Where to rank: cpu, cuda, cuda:1, mps.
        seed: Of the bootstrap, the random backfill orders and the choice of examples.
    """

    gate_metric: str | None = None
    guard: list[str] = field(default_factory=list)
    no_guard: bool = False
    resamples: int = 2000
    resample: Literal["auto", "queries", "classes"] = "auto"
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        refuse(self.seed < 0, f"--seed {self.seed}.", "a whole number of at least 0")
        refuse(bool(self.guard) and self.no_guard, "--guard and --no-guard were given.", "one of them")

    @property
    def guards(self) -> tuple[str, ...] | None:
        """The guarded metrics; None for the usual ones."""
        return () if self.no_guard else tuple(name for word in self.guard for name in word.split(",") if name) or None

    @property
    def placed(self) -> str | None:
        """The device, None for the CPU."""
        return None if self.device == "cpu" else self.device


@dataclass(frozen=True)
class Shown(Options):
    """What items are, for whoever reads the report.

    Args:
        data: The data set or folder that was embedded, to show example images in the report.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set, such as image_size.
        texts: What the items are, to show beside their ids in the report: a .csv, .parquet or .jsonl file with a column
            of ids and further columns (text, title, price, ...), a .txt file of texts, or texts by name (clinc150).
            Further columns of files of embeddings are shown as they are.
    """

    data: str | None = None
    data_root: Path | None = None
    data_options: dict[str, Any] = field(default_factory=dict)
    texts: str | None = None

    def images(self) -> RetrievalData | None:
        """Open the data set, if one was named."""
        return None if self.data is None else open_data(self.data, self.data_root, self.data_options)

    def facts(self, sets: Sequence[EmbeddingSet]) -> FactsOf:
        """Return what finds texts and metadata of the items of these sets."""
        from holdfast.data.item_facts import facts_of

        return facts_of(self.texts, data_root(self.data_root), list(sets))
