"""Measuring retrieval and compatibility; importable without torch. The names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.support.lazy import on_first_use

if TYPE_CHECKING:
    from limpet.evaluation.compatibility import (
        Baseline,
        PMetrics,
        SelfAndCross,
        Variant,
        Verdict,
        clearly_worse,
        mean_of,
        verdict,
    )
    from limpet.evaluation.first_hits import FirstHits
    from limpet.evaluation.intervals import Draws, clusters_of, groups_drawn
    from limpet.evaluation.metrics import metrics_named, recall_at
    from limpet.evaluation.ranking.engine import Ranked, no_rows, rank
    from limpet.evaluation.ranking.row_lists import RowLists
    from limpet.evaluation.ranking.scores import repeated_rows
    from limpet.evaluation.ranking.sharded import sharded
    from limpet.evaluation.ranking.vector_rows import EmbeddingRows, JoinedRows
    from limpet.evaluation.retrieval import NoRelevant, top_k
    from limpet.evaluation.sides import check_sides, class_names_of, relevant_by_label
    from limpet.evaluation.thresholds import NewThreshold, Thresholds
    from limpet.evaluation.uncertainty import Histogram, histogram, seen_items, uncertainty_of
    from limpet.support.workers import available_cores

__all__ = [
    "Baseline", "Draws", "EmbeddingRows", "FirstHits", "Histogram", "JoinedRows", "NewThreshold", "NoRelevant",
    "PMetrics", "Ranked", "RowLists", "SelfAndCross", "Thresholds", "Variant", "Verdict", "available_cores",
    "check_sides", "class_names_of", "clearly_worse", "clusters_of", "groups_drawn", "histogram", "mean_of",
    "metrics_named", "no_rows", "rank", "recall_at", "relevant_by_label", "repeated_rows", "seen_items", "sharded",
    "top_k", "uncertainty_of", "verdict",
]  # fmt: skip

__getattr__, __dir__ = on_first_use(__name__)
