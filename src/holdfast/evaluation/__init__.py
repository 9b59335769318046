"""Measuring retrieval and compatibility; importable without torch."""

from holdfast.evaluation.bootstrap import mean_interval, paired_interval
from holdfast.evaluation.compatibility import (
    average_compatibility,
    compatibility_matrix,
    compatible,
    negative_flip_rate,
    p_comp,
    p_score,
    p_up,
    verdict,
)
from holdfast.evaluation.curve import Curve, margin_order, random_order, reverse, upgrade_curve, upgrade_curves
from holdfast.evaluation.evaluate import Evaluation, evaluate
from holdfast.evaluation.metrics import METRICS
from holdfast.evaluation.ranking import Ranked
from holdfast.evaluation.retrieval import Neighbours, rank_metrics, top_k

__all__ = [
    "METRICS",
    "Curve",
    "Evaluation",
    "Neighbours",
    "Ranked",
    "average_compatibility",
    "compatibility_matrix",
    "compatible",
    "evaluate",
    "margin_order",
    "mean_interval",
    "negative_flip_rate",
    "p_comp",
    "p_score",
    "p_up",
    "paired_interval",
    "random_order",
    "rank_metrics",
    "reverse",
    "top_k",
    "upgrade_curve",
    "upgrade_curves",
    "verdict",
]
