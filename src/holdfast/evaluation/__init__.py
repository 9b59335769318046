"""Measuring retrieval and compatibility; importable without torch."""

from holdfast.evaluation.agreement import overlap, rank_biased_overlap
from holdfast.evaluation.bootstrap import mean_interval, paired_interval
from holdfast.evaluation.chain import evaluate_chain
from holdfast.evaluation.class_change import ClassChange, class_change
from holdfast.evaluation.combined import combine
from holdfast.evaluation.compatibility import (
    average_compatibility,
    compatibility_matrix,
    compatible,
    negative_flip_rate,
    p_comp,
    p_score,
    p_up,
    positive_flip_rate,
    verdict,
)
from holdfast.evaluation.curve import Curve, margin_order, random_order, reverse, upgrade_curve, upgrade_curves
from holdfast.evaluation.evaluate import Evaluation, evaluate
from holdfast.evaluation.metrics import METRICS
from holdfast.evaluation.p_metrics import Chain, PMetrics, SelfAndCross, chain_metrics, p_metrics
from holdfast.evaluation.protocols import PROTOCOLS, Protocol
from holdfast.evaluation.ranking import Ranked
from holdfast.evaluation.retrieval import Neighbours, rank_metrics, top_k
from holdfast.evaluation.significance import p_values, paired_p_value

__all__ = [
    "METRICS",
    "PROTOCOLS",
    "Chain",
    "ClassChange",
    "Curve",
    "Evaluation",
    "Neighbours",
    "PMetrics",
    "Protocol",
    "Ranked",
    "SelfAndCross",
    "average_compatibility",
    "chain_metrics",
    "class_change",
    "combine",
    "compatibility_matrix",
    "compatible",
    "evaluate",
    "evaluate_chain",
    "margin_order",
    "mean_interval",
    "negative_flip_rate",
    "overlap",
    "p_comp",
    "p_metrics",
    "p_score",
    "p_up",
    "p_values",
    "paired_interval",
    "paired_p_value",
    "positive_flip_rate",
    "random_order",
    "rank_biased_overlap",
    "rank_metrics",
    "reverse",
    "top_k",
    "upgrade_curve",
    "upgrade_curves",
    "verdict",
]
