"""The record of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.evaluation.bootstrap import Interval
from holdfast.evaluation.compatibility import Verdict

Gate = Literal["interval", "point"]
Values = Mapping[str, float]  # metric -> value
PerQuery = Mapping[str, NDArray[np.float64]]  # metric -> one value per query


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """What was measured; every score is a mean over queries, a fraction in [0, 1]. Without labels scores are None.

    Args:
        verdict: "compatible", "mixed" (better by the metric that decides, clearly worse by a guard), "inconclusive",
            "not compatible", or "unlabelled" where nothing could be judged.
        gate: What decides: the "interval" of cross - self_old, or the "point".
        gate_metric: The metric that decides.
        guards: Further metrics, none of which may be clearly worse in the cross-test than old queries were.
        worse: Those of them that are: the whole interval of cross - self_old is below 0.
        protocol: How it was measured: sizes, options, resamples, seed.
        fingerprints: Which models: fingerprint, and whether it was declared.
        self_old: Old queries on the old gallery.
        self_new: New queries on the new gallery.
        self_independent: The same for the independent model, where there is one.
        cross: New queries on the old gallery, or what a map or a head made of either.
        cross_independent: Independent queries on the old gallery: what cross is without any alignment.
        compatible: Whether cross > self_old, strictly, per metric.
        interval: Paired intervals of the two differences, per metric.
        mean_interval: Intervals of the scores, per system and metric.
        p_up: See `compatibility.p_up`, per variant and metric; NaN without an independent model.
        p_comp: See `compatibility.p_comp`, likewise.
        p_score: See `compatibility.p_score`, for "sigmoid"; None for "raw".
        negative_flip_rate: Share of queries right before and wrong now, on the old ("cross") and the new gallery.
        positive_flip_rate: Share of queries wrong before and right now, likewise.
        p_value: Of each difference being 0, per metric, by a paired permutation test; see `significance`.
        class_change: How each class fares in the cross-test, by the gate metric; see `class_change_record`.
        upgrade_curve: Quality while the gallery is re-embedded; see `curve.record`. None where a map or a head made the
            queries of the cross-test.
        agreement: Where nothing could be judged: how alike old and new rankings are; see `agreement_of`.
        uncertainty: How uncertain the models are of the gallery, where their embeddings say; see `uncertainty_record`.
        mapped: Fingerprint of each side of the cross-test, "query" or "gallery", that a map or a head made; None where
            the models' own embeddings meet.
        per_query: One value per query, by system and metric, in the order of the old queries; not in `to_dict`.
    """

    verdict: Verdict
    gate: Gate
    gate_metric: str
    protocol: Mapping[str, Any]
    fingerprints: Mapping[str, Any]
    guards: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()
    self_old: Values | None = None
    self_new: Values | None = None
    self_independent: Values | None = None
    cross: Values | None = None
    cross_independent: Values | None = None
    compatible: Mapping[str, bool] | None = None
    interval: Mapping[str, Mapping[str, Interval | None]] | None = None
    mean_interval: Mapping[str, Mapping[str, Interval]] | None = None
    p_up: Mapping[str, Values] | None = None
    p_comp: Mapping[str, Values] | None = None
    p_score: Mapping[str, Values | None] | None = None
    negative_flip_rate: Values | None = None
    positive_flip_rate: Values | None = None
    p_value: Mapping[str, Mapping[str, float | None]] | None = None
    class_change: Mapping[str, Any] | None = None
    upgrade_curve: Mapping[str, Any] | None = None
    agreement: Mapping[str, Any] | None = None
    uncertainty: Mapping[str, Any] | None = None
    mapped: Mapping[str, str] | None = None
    per_query: Mapping[str, PerQuery] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with NaN as None."""
        names = [definition.name for definition in fields(self) if definition.name != "per_query"]
        return {name: plain(getattr(self, name)) for name in names}


def plain(value: Any) -> Any:
    """Return plain values for JSON: mappings and lists of them, with NaN as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value
