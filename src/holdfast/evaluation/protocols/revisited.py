"""Revisited Oxford and Paris: images of a landmark by how hard they are to find, with junk that counts for nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from holdfast.data.revisited_truth import RevisitedTruth
from holdfast.embeddings import EmbeddingSet
from holdfast.errors import unknown_name
from holdfast.evaluation.protocols.base import Lists, RankingProtocol
from holdfast.evaluation.protocols.names import lists_of_pairs, named_queries, rows_of_all
from holdfast.evaluation.ranking.row_lists import RowLists

Difficulty = Literal["easy", "medium", "hard"]

_SOUGHT = {"easy": ("easy",), "medium": ("easy", "hard"), "hard": ("hard",)}
_IGNORED = {"easy": ("junk", "hard"), "medium": ("junk",), "hard": ("junk", "easy")}


@dataclass(frozen=True, eq=False, kw_only=True)
class Revisited(RankingProtocol):
    """Rank the images that the ground truth calls easy, hard or both; leave out its junk and the other kind.

    The gallery may hold more images than the ground truth names, such as the million distractors of R1M, in any
    order: they answer nobody. Queries beyond those of the ground truth are not asked.

    Paper: Radenović et al., Revisiting Oxford and Paris, CVPR 2018. Papers on compatibility report "medium".

    Args:
        truth: Who answers whom.
        difficulty: Which images are sought: "easy", both for "medium", or "hard".
        leave_one_out: Leave out the gallery item with the id of the query.
        no_relevant: What a query without any sought image is worth.
    """

    name: ClassVar[str] = "revisited"
    description: ClassVar[str] = "easy and hard images answer, junk counts for nobody (revisited Oxford and Paris)"
    metrics: ClassVar[tuple[str, ...]] = ("map-trapezoid", "mp@1", "mp@5", "mp@10")
    gate_metric: ClassVar[str] = "map-trapezoid"
    ground_truth: ClassVar[str | None] = "gnd_roxford5k.pkl or gnd_rparis6k.pkl, or the folder that holds it"

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
        """Return which queries the ground truth names."""
        return named_queries(self.truth.query_names, query)

    def answers(self, query: EmbeddingSet, gallery: EmbeddingSet) -> Lists:
        """Return the rows of the sought images of every query, and of its junk."""
        queries = rows_of_all(self.truth.query_names, query, "queries")
        rows = rows_of_all(self.truth.gallery_names, gallery, "gallery")

        def named(kinds: Sequence[str]) -> RowLists:
            lists = zip(*(getattr(self.truth, kind) for kind in kinds), strict=True)
            parts = [np.concatenate(found) for found in lists]
            owner = np.repeat(queries, [len(part) for part in parts])
            return lists_of_pairs(owner, rows[np.concatenate(parts)], len(query))

        return Lists(named(_SOUGHT[self.difficulty]), named(_IGNORED[self.difficulty]))
