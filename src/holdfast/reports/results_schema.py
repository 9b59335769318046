"""What a results.json of evaluations must hold; see `results`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from holdfast.evaluation.compatibility import Verdict
from holdfast.evaluation.evidence import Gate

_Values = dict[str, float | None]
_Interval = tuple[float | None, float | None]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")  # later versions may add keys; those of a version stay


class _Data(_Part):
    name: str
    description: str
    numbers: dict[str, Any]


class _Group(_Part):
    items: int
    mean: float
    counts: list[int]


class _Histogram(_Part):
    edges: list[float]
    groups: dict[str, _Group]


class _Uncertainty(_Part):
    old: _Histogram | None
    new: _Histogram | None


class _ClassScore(_Part):
    name: str
    queries: int
    before: float
    after: float
    change: float
    p_value: float | None
    clear: bool


class _ClassChange(_Part):
    metric: str
    systems: tuple[str, str]
    classes: int
    queries: int
    better: float
    same: float
    worse: float
    clearly_better: int
    clearly_worse: int
    testable: int
    false_discoveries: float
    curve: list[float]
    worst: list[_ClassScore]
    best: list[_ClassScore]


class _Mean(_Part):
    mean: float
    interval: _Interval


class _Alike(_Part):
    overlap: _Mean
    rank_biased_overlap: _Mean
    first_changed: _Mean


class _Agreement(_Part):
    k: int
    persistence: float
    queries: int
    cross: _Alike
    self_new: _Alike


class _EarlierAgreement(_Part):
    """The overlap alone, as earlier versions wrote it."""

    interval: _Interval


class _Protocol(_Part):
    queries: int
    gallery: int
    metrics: list[str]
    bootstrap: dict[str, Any]
    name: str = "labels"  # this and the rest are absent in documents of earlier versions
    units: str = "queries"
    left_out: dict[str, int] = {}


class _Record(_Part):
    """An `Evaluation` as plain values."""

    verdict: Verdict
    gate: Gate
    gate_metric: str
    protocol: _Protocol
    fingerprints: dict[str, dict[str, Any] | None]
    self_old: _Values | None
    self_new: _Values | None
    self_independent: _Values | None
    cross: _Values | None
    cross_independent: _Values | None
    compatible: dict[str, bool] | None
    interval: dict[str, dict[str, _Interval | None]] | None
    mean_interval: dict[str, dict[str, _Interval]] | None
    p_up: dict[str, _Values] | None
    p_comp: dict[str, _Values] | None
    p_score: dict[str, _Values | None] | None
    negative_flip_rate: _Values | None
    upgrade_curve: dict[str, Any] | None
    agreement: _Agreement | _EarlierAgreement | None
    mapped: dict[str, str | None] | None = None
    uncertainty: _Uncertainty | None = None  # absent, like the rest, in documents of earlier versions
    positive_flip_rate: _Values | None = None
    p_value: dict[str, _Values] | None = None
    class_change: _ClassChange | None = None
    guards: list[str] | None = None
    worse: list[str] = []


class Results(_Part):
    """A whole document."""

    schema_version: int
    holdfast: str
    title: str
    data: _Data
    models: dict[str, dict[str, Any]]
    evaluations: dict[str, _Record]
