"""Evaluation protocols: relevant items of a query, items ignored in its ranking, and units to average over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypedDict

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, refuse
from limpet.evaluation.metrics import TIED, metrics_named
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.retrieval import NoRelevant, rank_metrics
from limpet.evaluation.sides import same_id

PerUnit = NDArray[np.float64]  # one value per unit, NaN where the protocol leaves the unit out


class Lists(NamedTuple):
    """Relevant and ignored gallery rows of every query."""

    relevant: RowLists
    ignore: RowLists

    def answering(self) -> NDArray[np.int64]:
        """Count for every query the relevant rows that are not ignored (Q,).

        >>> Lists(RowLists.of([[4, 0], [1], []]), RowLists.of([[0, 2], [], [1]])).answering().tolist()
        [1, 1, 0]
        """
        return self.relevant.counts - _in_both(self.relevant, self.ignore)


def _in_both(relevant: RowLists, ignore: RowLists) -> NDArray[np.int64]:
    """Count for every query the rows that are in both of its lists (Q,)."""
    values, width = relevant.values, 1 + max(relevant.values.max(initial=0), ignore.values.max(initial=0))
    owner, rows = ignore.flat()
    place = np.full(width, -1)
    place[values] = np.arange(len(values))
    if np.array_equal(place[values], np.arange(len(values))):  # slices of classes: nothing need be written out
        inside = (place[rows] >= relevant.starts[owner]) & (place[rows] < relevant.stops[owner])
        return np.bincount(owner[inside], minlength=len(relevant))
    asked, answers = relevant.flat()
    inside = np.isin(asked * width + answers, owner * width + rows)
    return np.bincount(asked[inside], minlength=len(relevant))


class CurveOptions(TypedDict, total=False):
    """Options of `upgrade_curves` that a protocol sets; see there."""

    relevant: RowLists
    ignore: RowLists
    no_relevant: NoRelevant


@dataclass(frozen=True, eq=False, kw_only=True)
class Protocol(ABC):
    """A way of scoring queries on a gallery; its fields are its options.

    A score is the mean over units of one value per unit, so that intervals, tests and differences between systems come
    from the same resampled units. Units are the same, in the same order, for every system that holds the same items.
    """

    name: ClassVar[str]
    """What people type, and a key of `PROTOCOLS`."""
    description: ClassVar[str]
    """One line for people."""
    metrics: ClassVar[tuple[str, ...]]
    """Default metrics."""
    gate_metric: ClassVar[str]
    """The one of them that decides the verdict."""
    units: ClassVar[str] = "queries"
    """What the values are averaged over."""
    needs_labels: ClassVar[bool] = False
    """Whether the labels of the embeddings say who answers what."""
    has_curve: ClassVar[bool] = False
    """Whether a gallery that is half old and half new can be measured; see `curve_options`."""
    ties: ClassVar[str | None] = None
    """The metric that says of every unit whether it hangs on the order of tied items; None where none does."""
    ground_truth: ClassVar[str | None] = None
    """Which file or folder says who answers what; None where the embeddings say it."""
    ground_truth_needed: ClassVar[bool] = True
    """Whether there is no other way than by that file or folder, where there can be one."""

    @classmethod
    def opened(cls, ground_truth: Path | None, **options: Any) -> Self:
        """Build the protocol from command-line values.

        Args:
            ground_truth: Path of the ground truth; None if not given.
            **options: Options of the protocol, already converted to their types.

        Raises:
            ConfigError: A ground truth is missing or not supported, or an option is invalid.
            DataError: The ground truth cannot be used.
        """
        if cls.ground_truth is None:
            refuse(ground_truth is not None, f"The protocol '{cls.name}' was given '{ground_truth}'.",
                   "no ground truth: the embeddings' own labels and columns say it")  # fmt: skip
            return cls(**options)
        if ground_truth is None:
            if not cls.ground_truth_needed:
                return cls.without_ground_truth(**options)
            raise ConfigError(
                f"The protocol '{cls.name}' needs a ground truth, and none was given.",
                expected=cls.ground_truth,
                to_do="pass --ground-truth PATH.",
            )
        return cls.read(ground_truth, **options)

    @classmethod
    def read(cls, ground_truth: Path, **options: Any) -> Self:
        """Build the protocol from a ground-truth file or folder, if it has one."""
        raise NotImplementedError(f"{cls.name} reads no ground truth")

    @classmethod
    def without_ground_truth(cls, **options: Any) -> Self:
        """Build the protocol from options alone, if it can also read a ground truth."""
        raise NotImplementedError(f"{cls.name} needs a ground truth")

    @abstractmethod
    def measure(
        self,
        query: EmbeddingSet,
        gallery: EmbeddingSet,
        metrics: Sequence[str],
        *,
        block: int | None = None,
        device: str | None = None,
    ) -> dict[str, PerUnit]:
        """Return one value per unit and metric.

        Raises:
            ConfigError: The protocol does not support a metric.
            DataError: A column or label that the protocol needs is missing.
            EmptyOverlapError: No unit has a value.
        """

    @abstractmethod
    def check_metrics(self, metrics: Sequence[str]) -> None:
        """Raise an error for unsupported metrics, before anything is computed.

        Raises:
            ConfigError: No names, or an unknown one.
        """

    @property
    def judges(self) -> bool:
        """Whether scores measure correctness, so that a verdict is possible."""
        return True

    @property
    def leaves_itself_out(self) -> bool:
        """Whether every query ignores the gallery item with its own id."""
        return False

    def answer_metrics(self) -> tuple[str, ...]:
        """Return the metric that is 1 for a correctly answered unit and 0 otherwise, if there is one."""
        return ()

    def taking_part(self, query: EmbeddingSet, gallery: EmbeddingSet) -> tuple[EmbeddingSet, EmbeddingSet]:
        """Return the queries that are used, and the gallery items that any of them ranks."""
        return query, gallery

    def curve_options(self, query: EmbeddingSet, gallery: EmbeddingSet) -> CurveOptions:
        """Return the options of `upgrade_curves` that match this protocol, for the queries and items used."""
        return {}

    def unit_labels(self, query: EmbeddingSet) -> NDArray[np.int64] | None:
        """Return the class of every unit, as numbers of the query set, or None where units have none."""
        return query.labels

    def left_out(self, query: EmbeddingSet, gallery: EmbeddingSet) -> dict[str, int]:
        """Count the items excluded by the rules of the protocol, for the report."""
        return {}

    def record(self) -> dict[str, JsonValue]:
        """Return the name and the options, as plain values."""
        own = {option.name: getattr(self, option.name) for option in fields(self) if option.repr}
        return {"name": self.name, **own}


@dataclass(frozen=True, eq=False, kw_only=True)
class RankingProtocol(Protocol):
    """A protocol in which every query ranks the whole gallery except ignored items.

    Args:
        leave_one_out: Ignore the gallery item with the id of the query, if one set is both queries and gallery.
        no_relevant: Score of a query without any relevant item: "exclude" or "zero".
    """

    metrics: ClassVar[tuple[str, ...]] = ("recall@1", "recall@5", "map", "map@r")
    gate_metric: ClassVar[str] = "map"
    has_curve: ClassVar[bool] = True
    ties: ClassVar[str | None] = TIED

    leave_one_out: bool = False
    no_relevant: NoRelevant = "exclude"

    @property
    def leaves_itself_out(self) -> bool:
        """Whether every query ignores the gallery item with its own id."""
        return self.leave_one_out

    def answer_metrics(self) -> tuple[str, ...]:
        """Return recall@1: whether the first hit is relevant."""
        return ("recall@1",)

    def curve_options(self, query: EmbeddingSet, gallery: EmbeddingSet) -> CurveOptions:
        """Return the lists of these queries and this gallery, and what an unanswered query is worth."""
        relevant, ignore = self.lists(query, gallery)
        return {"relevant": relevant, "ignore": ignore, "no_relevant": self.no_relevant}

    def lists(self, query: EmbeddingSet, gallery: EmbeddingSet) -> Lists:
        """Return the relevant and the ignored gallery rows of each query."""
        relevant, ignore = self.answers(query, gallery)
        return Lists(relevant, ignore.union(same_id(query, gallery)) if self.leave_one_out else ignore)

    @abstractmethod
    def answers(self, query: EmbeddingSet, gallery: EmbeddingSet) -> Lists:
        """Return both by the protocol's own rules; `lists` ignores the item of the query itself."""

    def asked(self, query: EmbeddingSet) -> NDArray[np.bool_] | None:
        """Return which queries are used (Q,), with or without relevant items; None for all. Others have no value."""
        return None

    def searched(self, gallery: EmbeddingSet) -> NDArray[np.bool_] | None:
        """Return which gallery items any query ranks (N,); None for all.

        `lists` ignores the others too; removing them first avoids a long list for every query.
        """
        return None

    def taking_part(self, query: EmbeddingSet, gallery: EmbeddingSet) -> tuple[EmbeddingSet, EmbeddingSet]:
        """Return the queries that are `asked`, and the items that are `searched`."""
        asked, searched = self.asked(query), self.searched(gallery)
        return (
            query if asked is None else query[asked],
            gallery if searched is None else gallery[searched],
        )

    def measure(
        self,
        query: EmbeddingSet,
        gallery: EmbeddingSet,
        metrics: Sequence[str],
        *,
        block: int | None = None,
        device: str | None = None,
    ) -> dict[str, PerUnit]:
        """Rank the gallery, and return one value per query and metric; see `rank_metrics`."""
        self.check_metrics(metrics)
        asked = self.asked(query)
        asking, searching = self.taking_part(query, gallery)
        relevant, ignore = self.lists(asking, searching)
        values = rank_metrics(
            asking,
            searching,
            metrics,
            relevant=relevant,
            ignore=ignore,
            no_relevant=self.no_relevant,
            block=block,
            device=device,
        )
        return values if asked is None else {name: _spread(value, asked) for name, value in values.items()}

    def check_metrics(self, metrics: Sequence[str]) -> None:
        """Raise an error for metrics that `metrics_named` does not know."""
        metrics_named(metrics)

    def left_out(self, query: EmbeddingSet, gallery: EmbeddingSet) -> dict[str, int]:
        """Count the queries without a relevant item, and the items that rankings leave out."""
        asked, searched = self.asked(query), self.searched(gallery)
        lists = self.lists(*self.taking_part(query, gallery))
        return {
            **({} if asked is None else {"queries not asked": int((~asked).sum())}),
            "queries without relevant items": int((lists.answering() == 0).sum()),
            **({} if searched is None else {"gallery items that no query ranks": int((~searched).sum())}),
            "gallery items ignored, over all queries": int(lists.ignore.counts.sum()),
        }


def _spread(values: PerUnit, asked: NDArray[np.bool_]) -> PerUnit:
    """Return one value per query (Q,), NaN for those that were not asked."""
    every = np.full(len(asked), np.nan)
    every[asked] = values
    return every
