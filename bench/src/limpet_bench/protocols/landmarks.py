"""Google Landmarks v2 (mAP@100), and revisited Oxford and Paris (easy, medium and hard)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, unknown_name
from limpet.evaluation import NoRelevant, RowLists, no_rows, relevant_by_label
from limpet.evaluation.protocols import Lists, RankingProtocol, lists_of_pairs, rows_of_all
from limpet_bench.datasets.landmarks import LandmarksTruth, Usage
from limpet_bench.datasets.revisited import RevisitedTruth


@dataclass(frozen=True, eq=False, kw_only=True)
class Landmarks(RankingProtocol):
    """Score the first 100 hits (mAP@100); relevant images come from the retrieval solution, or from labels.

    With a solution file, queries that it does not name are left out; most test images of the competition are not named.
    The gallery may hold further images, in any order, but must hold all images that the file names.

    Paper: Weyand et al., Google Landmarks Dataset v2, CVPR 2020.

    Use it for Google Landmarks v2, or if only the first 100 hits matter.

    Args:
        truth: Relevant images of every query; None to derive them from labels.
        usage: Queries of the solution file to use: "Public", "Private" or "both".
        leave_one_out: Exclude the gallery item with the id of the query.
        no_relevant: Score of a query without a relevant item; "zero" as published.

    >>> from limpet import EmbeddingSet, evaluate
    >>> vectors, labels = np.eye(6, dtype=np.float32) + 0.5, np.arange(6) % 2
    >>> items = [EmbeddingSet(vectors, model=name, labels=labels) for name in ("v1", "v2")]
    >>> by_labels = Landmarks.without_ground_truth(leave_one_out=True)
    >>> sorted(evaluate(*items, protocol=by_labels).cross)
    ['map@100', 'recall@1', 'recall@10']
    """

    name: ClassVar[str] = "gldv2"
    description: ClassVar[str] = "mAP@100; a query that nothing answers counts as zero (Google Landmarks v2)"
    metrics: ClassVar[tuple[str, ...]] = ("map@100", "recall@1", "recall@10")
    gate_metric: ClassVar[str] = "map@100"
    ground_truth: ClassVar[str | None] = (
        "retrieval_solution_v2.1.csv or its folder (without it, labels say who answers)"
    )
    ground_truth_needed: ClassVar[bool] = False

    truth: LandmarksTruth | None = field(repr=False)
    usage: Usage = "both"
    no_relevant: NoRelevant = "zero"

    @classmethod
    def read(cls, ground_truth: Path, **options: Any) -> Self:
        """Build from a solution file; see `LandmarksTruth.read`."""
        usage = options.get("usage", "both")
        return cls(truth=LandmarksTruth.read(ground_truth, usage=usage), **options)

    @classmethod
    def without_ground_truth(cls, **options: Any) -> Self:
        """Build for labelled embeddings."""
        return cls(truth=None, **options)

    def asked(self, query: EmbeddingSet) -> NDArray[np.bool_] | None:
        """Return which queries the solution names; None for all, also if relevance comes from labels."""
        return None if self.truth is None else _named_queries(self.truth.query_names, query)

    def answers(self, query: EmbeddingSet, gallery: EmbeddingSet) -> Lists:
        """Return the rows of the relevant images of every query; no image is ignored."""
        nothing = no_rows(len(query))
        if self.truth is None:
            without = [side for side, part in (("queries", query), ("gallery", gallery)) if part.labels is None]
            if without:
                raise DataError(
                    f"Neither labels of the {' and the '.join(without)} nor a solution say which images answer.",
                    expected=f"labels on both sides, or {Landmarks.ground_truth}",
                    to_do="pass --ground-truth PATH.",
                )
            return Lists(relevant_by_label(query, gallery), nothing)
        queries = rows_of_all(self.truth.query_names, query, "queries")
        names = [name for images in self.truth.relevant for name in images]
        owner = np.repeat(queries, [len(images) for images in self.truth.relevant])
        return Lists(lists_of_pairs(owner, rows_of_all(names, gallery, "gallery"), len(query)), nothing)


Difficulty = Literal["easy", "medium", "hard"]

_SOUGHT = {"easy": ("easy",), "medium": ("easy", "hard"), "hard": ("hard",)}
_IGNORED = {"easy": ("junk", "hard"), "medium": ("junk",), "hard": ("junk", "easy")}


@dataclass(frozen=True, eq=False, kw_only=True)
class Revisited(RankingProtocol):
    """Count easy images, hard images, or both as relevant; ignore junk, and hard or easy images that do not count.

    The gallery may hold more images than the ground truth names, such as the million distractors of R1M, in any
    order; these are relevant to no query. Queries that the ground truth does not name are left out.

    Paper: Radenović et al., Revisiting Oxford and Paris, CVPR 2018. Papers on compatibility report "medium".

    Use it for ROxford and RParis, with or without the distractors of R1M.

    Args:
        truth: Easy, hard and junk images of every query.
        difficulty: Relevant images: easy ones for "easy", easy and hard ones for "medium", hard ones for "hard".
        leave_one_out: Exclude the gallery item with the id of the query.
        no_relevant: Score of a query without a relevant image.

    >>> from limpet import EmbeddingSet, evaluate
    >>> v1, v2 = (EmbeddingSet(np.eye(4, dtype=np.float32), model=name) for name in ("v1", "v2"))
    >>> lists = [(np.array([row]),) for row in (0, 1, 2)]  # an easy, a hard and a junk image
    >>> truth = RevisitedTruth(("0", "1", "2", "3"), ("0",), *lists, np.array([[0.0, 0.0, 9.0, 9.0]]))
    >>> round(evaluate((v1[:1], v1), (v2[:1], v2), protocol=Revisited(truth=truth)).cross["map-trapezoid"], 3)
    0.896
    """

    name: ClassVar[str] = "revisited"
    description: ClassVar[str] = "easy and hard images answer, junk is ignored (revisited Oxford and Paris)"
    metrics: ClassVar[tuple[str, ...]] = ("map-trapezoid", "mp@1", "mp@5", "mp@10")
    gate_metric: ClassVar[str] = "map-trapezoid"
    ground_truth: ClassVar[str | None] = "gnd_roxford5k.json or gnd_rparis6k.json, or the folder that holds it"

    truth: RevisitedTruth = field(repr=False)
    difficulty: Difficulty = "medium"

    def __post_init__(self) -> None:
        if self.difficulty not in get_args(Difficulty):
            raise unknown_name("difficulty", self.difficulty, get_args(Difficulty))

    @classmethod
    def read(cls, ground_truth: Path, **options: Any) -> Self:
        """Build from the ground truth file; see `RevisitedTruth`."""
        return cls(truth=RevisitedTruth.read(ground_truth), **options)

    def asked(self, query: EmbeddingSet) -> NDArray[np.bool_] | None:
        """Return which queries the ground truth names; None for all."""
        return _named_queries(self.truth.query_names, query)

    def answers(self, query: EmbeddingSet, gallery: EmbeddingSet) -> Lists:
        """Return the rows of the relevant images of every query, and of the images to ignore."""
        queries = rows_of_all(self.truth.query_names, query, "queries")
        rows = rows_of_all(self.truth.gallery_names, gallery, "gallery")

        def named(kinds: Sequence[str]) -> RowLists:
            lists = zip(*(getattr(self.truth, kind) for kind in kinds), strict=True)
            parts = [np.concatenate(found) for found in lists]
            owner = np.repeat(queries, [len(part) for part in parts])
            return lists_of_pairs(owner, rows[np.concatenate(parts)], len(query))

        return Lists(named(_SOUGHT[self.difficulty]), named(_IGNORED[self.difficulty]))


def _named_queries(names: Sequence[str], query: EmbeddingSet) -> NDArray[np.bool_] | None:
    """Return which queries a ground truth names (Q,), or None where it names them all; see `rows_of_all`."""
    named = np.zeros(len(query), np.bool_)
    named[rows_of_all(names, query, "queries")] = True
    return None if named.all() else named
