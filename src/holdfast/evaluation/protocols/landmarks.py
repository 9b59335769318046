"""Google Landmarks v2: the first hundred images of every query, and a query that nothing answers counts as zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from holdfast.data.landmarks_truth import LandmarksTruth, Usage
from holdfast.embeddings import EmbeddingSet
from holdfast.errors import DataError
from holdfast.evaluation.protocols.base import Lists, RankingProtocol
from holdfast.evaluation.protocols.names import lists_of_pairs, named_queries, rows_of_all
from holdfast.evaluation.ranking.engine import no_rows
from holdfast.evaluation.retrieval import NoRelevant
from holdfast.evaluation.sides import relevant_by_label


@dataclass(frozen=True, eq=False, kw_only=True)
class Landmarks(RankingProtocol):
    """Score the first 100 places (mAP@100); images that the solution names answer a query, or those of its class.

    With a solution, queries that it does not name are not asked: most test images of the competition count for
    nobody. The gallery may hold more images than it names, in any order; none of those it names may be missing.

    Paper: Weyand et al., Google Landmarks Dataset v2, CVPR 2020.

    Args:
        truth: Who answers whom; None where labels say it.
        usage: Which queries of a solution file count: its "Public" or "Private" ones, or "both".
        leave_one_out: Leave out the gallery item with the id of the query.
        no_relevant: What a query without any relevant item is worth; "zero" as published.
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
        """Return which queries the solution names; all where labels say who answers."""
        return None if self.truth is None else named_queries(self.truth.query_names, query)

    def answers(self, query: EmbeddingSet, gallery: EmbeddingSet) -> Lists:
        """Return the rows of the images that answer every query; nothing is ignored."""
        nothing = no_rows(len(query))
        if self.truth is None:
            _refuse_unlabelled(query, gallery)
            return Lists(relevant_by_label(query, gallery), nothing)
        queries = rows_of_all(self.truth.query_names, query, "queries")
        names = [name for images in self.truth.relevant for name in images]
        owner = np.repeat(queries, [len(images) for images in self.truth.relevant])
        return Lists(lists_of_pairs(owner, rows_of_all(names, gallery, "gallery"), len(query)), nothing)


def _refuse_unlabelled(query: EmbeddingSet, gallery: EmbeddingSet) -> None:
    without = [side for side, part in (("queries", query), ("gallery", gallery)) if part.labels is None]
    if without:
        raise DataError(
            f"Neither labels of the {' and the '.join(without)} nor a solution say which images answer.",
            expected=f"labels on both sides, or {Landmarks.ground_truth}",
            to_do="pass --ground-truth PATH.",
        )
