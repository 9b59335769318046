"""One upgrade on several test sets: every set by its own metric, P metrics per set and then averaged."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple, get_args

from holdfast.errors import ConfigError, DataError
from holdfast.evaluation.bootstrap import Interval
from holdfast.evaluation.compatibility import Variant, Verdict, clearly_worse, verdict
from holdfast.evaluation.evidence import Evaluation, Gate, plain
from holdfast.evaluation.p_metrics import PMetrics, SelfAndCross, p_metrics

Record = Mapping[str, Any]  # an Evaluation as plain values

_SYSTEMS = ("self_old", "self_independent", "self_new", "cross")
NO_INDEPENDENT = "no independent model was evaluated"


@dataclass(frozen=True, kw_only=True)
class SetScores:
    """What the upgrade scores on one test set, in its metric; fractions in [0, 1].

    Args:
        metric: The metric.
        gate: What decides: the "interval" of cross - self_old, or the "point".
        verdict: On this metric, and on what the evaluation guards.
        worse: Guarded metrics that are clearly worse in the cross-test.
        self_old: Old queries on the old gallery.
        self_independent: The independent model on its own gallery; None where there is none.
        self_new: New queries on the new gallery.
        cross: New queries on the old gallery.
        interval: Paired interval of cross - self_old.
        mean_interval: Intervals of the scores, by their names.
        undefined: Why P_up or P_comp is not defined, by name.
    """

    metric: str
    gate: Gate
    verdict: Verdict
    worse: tuple[str, ...]
    self_old: float
    self_independent: float | None
    self_new: float
    cross: float
    interval: Interval
    mean_interval: Mapping[str, Interval | None]
    undefined: Mapping[str, str]


@dataclass(frozen=True, eq=False, kw_only=True)
class Combination:
    """One upgrade on several test sets.

    Args:
        fingerprints: Which models: "old", "new" and "independent", which may be None.
        mapped: Fingerprint of each side of the cross-test that a map or a head made; None without one.
        sets: What it scores, by the name of the test set.
        p: P metrics of every set and their averages, per variant; None without an independent model. An average is
            NaN where that of one set is.
    """

    fingerprints: Mapping[str, Any]
    mapped: Mapping[str, str] | None
    sets: Mapping[str, SetScores]
    p: Mapping[Variant, PMetrics] | None

    @property
    def compatible(self) -> bool:
        """Whether the verdict is "compatible" on every set."""
        return all(scores.verdict == "compatible" for scores in self.sets.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with NaN as None."""
        record: dict[str, Any] = plain({
            "fingerprints": self.fingerprints,
            "mapped": self.mapped,
            "sets": {name: {**asdict(scores), **self._of_set(name)} for name, scores in self.sets.items()},
            "mean": self._means(),
            "compatible": self.compatible,
        })  # fmt: skip
        return record

    def _of_set(self, name: str) -> dict[str, Any]:
        def found(key: str, variant: Variant) -> float | None:
            return None if self.p is None else self.p[variant].of_sets[key][name]

        by_variant = {
            key: {variant: found(key, variant) for variant in get_args(Variant)} for key in ("p_up", "p_comp")
        }
        return {**by_variant, "p_score": found("p_score", "sigmoid")}

    def _means(self) -> dict[str, Any]:
        def found(key: str) -> dict[str, float | None]:
            return {variant: None if self.p is None else getattr(self.p[variant], key) for variant in get_args(Variant)}

        return {"p_up": found("p_up"), "p_comp": found("p_comp"), "p_score": found("p_score")["sigmoid"]}


def combine(evaluations: Mapping[str, Evaluation | Record], metric: str | None = None) -> Combination:
    """Put evaluations of one upgrade on several test sets side by side, with P metrics per set and on average.

    Papers: AdvBCT and NDPP average P_up, P_comp and P_1 over test sets, each computed per set; a P metric of averaged
    scores would be another number.

    Args:
        evaluations: By the name of the test set: what `evaluate` returned, or the same as plain values.
        metric: One metric for all sets, which decides their verdicts too; each set's own gate metric when left out.

    Returns:
        NaN, with a warning that names the test set, where a P metric is not defined.

    Raises:
        ConfigError: A set was not measured in ``metric``.
        DataError: Fewer than two sets, one without scores, or evaluations of different models.
    """
    records = {name: found.to_dict() if isinstance(found, Evaluation) else found for name, found in evaluations.items()}
    if len(records) < 2:
        raise DataError(f"{len(records)} evaluations to combine.", expected="two test sets or more")
    _refuse_others(records)
    sets = {name: _scores(name, record, metric or record["gate_metric"]) for name, record in records.items()}
    first = next(iter(records.values()))
    return Combination(fingerprints=first["fingerprints"], mapped=first.get("mapped"), sets=sets, p=_p_metrics(sets))


class _Identity(NamedTuple):
    """What must be the same in all evaluations, in words and as it is."""

    what: str
    found: str | None


def _identities(record: Record) -> list[_Identity]:
    models = record["fingerprints"]
    found = [_Identity(f"{name} model", (models.get(name) or {}).get("fingerprint"))
             for name in ("old", "new", "independent")]  # fmt: skip
    return [*found, *(_Identity(f"{side} of a map", (record.get("mapped") or {}).get(side))
                      for side in ("query", "gallery"))]  # fmt: skip


def _refuse_others(records: Mapping[str, Record]) -> None:
    for (first_name, first), (name, other) in pairwise(records.items()):
        for one, two in zip(_identities(first), _identities(other), strict=True):
            if one.found != two.found:
                declared = all(str(found).startswith("declared:") for found in (one.found, two.found))
                raise DataError(
                    f"The evaluations '{first_name}' and '{name}' have another {one.what}: "
                    f"{one.found or 'none'} and {two.found or 'none'}.",
                    expected="evaluations of one upgrade: the same old, new and independent model on every test set",
                    to_do="name the models of files of vectors: --old-model, --new-model and --independent-model."
                    if declared
                    else "evaluate all test sets with the same models, or combine the others only.",
                )


def _scores(name: str, record: Record, metric: str) -> SetScores:
    """Return the scores of one test set in a metric."""
    if record["self_old"] is None:
        raise DataError(
            f"The evaluation '{name}' has no scores: its data had no labels.",
            expected="evaluations with scores",
            to_do="evaluate it with labels or a ground truth, or leave it out.",
        )
    if metric not in record["self_old"]:
        raise ConfigError(
            f"The evaluation '{name}' was not measured in {metric}.",
            expected=f"one of its metrics: {', '.join(record['self_old'])}",
            to_do=f"evaluate it again with --metrics {metric}, or leave --metric out.",
        )
    means: dict[str, Any] = {system: (record[system] or {}).get(metric) for system in _SYSTEMS}
    around = ((record["interval"] or {}).get(metric) or {}).get("cross_minus_self_old")
    if around is None:
        raise DataError(
            f"The evaluation '{name}' has no interval in {metric}.",
            expected="evaluations with the interval of the gate, as `holdfast evaluate` writes it",
            to_do="evaluate it again.",
        )
    worse = tuple(name for name in worse_of(record) if name != metric)
    return SetScores(
        metric=metric,
        gate=record["gate"],
        verdict=_verdict(record, metric, around, worse),
        worse=worse,
        **means,
        interval=(around[0], around[1]),
        mean_interval={system: (record["mean_interval"] or {}).get(system, {}).get(metric) for system in means},
        undefined=_undefined(means),
    )


def _verdict(record: Record, metric: str, around: Interval, worse: Sequence[str]) -> Verdict:
    """Return the verdict on a metric, as the evaluation's own gate and guards speak it."""
    if record["verdict"] == "unlabelled":
        return "unlabelled"
    if record["gate"] == "point":
        gain = record["cross"][metric] - record["self_old"][metric]
        return verdict((gain, gain), worse)
    return verdict(around, worse)


def worse_of(record: Record) -> tuple[str, ...]:
    """Return the metrics that are clearly worse in the cross-test of an evaluation: those it guards, and its gate's.

    Evaluations of earlier versions guard every metric that they measured.
    """
    intervals = {metric: pairs.get("cross_minus_self_old") for metric, pairs in (record["interval"] or {}).items()}
    guards = record.get("guards")
    kept: list[str] = list(intervals) if guards is None else [*guards, *([record["gate_metric"]] if guards else [])]
    return clearly_worse({metric: intervals[metric] for metric in intervals if metric in kept})


def _undefined(means: Mapping[str, float | None]) -> dict[str, str]:
    old, independent = means["self_old"], means["self_independent"]
    if old is None or independent is None:
        return dict.fromkeys(("p_up", "p_comp"), NO_INDEPENDENT)
    found = {"p_up": "the independent model scores 0"} if independent <= 0 else {}
    if independent <= old:
        found["p_comp"] = (
            f"the independent model is not better than the old one ({_written(independent)} against {_written(old)})"
        )
    return found


def _written(score: float) -> str:
    return f"{score:.4g}"


def _p_metrics(sets: Mapping[str, SetScores]) -> dict[Variant, PMetrics] | None:
    if all(found.self_independent is None for found in sets.values()):
        return None
    scores = {
        name: SelfAndCross(found.self_old, _or_nan(found.self_independent), found.self_new, found.cross)
        for name, found in sets.items()
    }
    sigmoid = p_metrics(scores, "sigmoid")
    with warnings.catch_warnings():  # what is not defined is so in both variants, and warned of once
        warnings.simplefilter("ignore", RuntimeWarning)
        return {"raw": p_metrics(scores, "raw"), "sigmoid": sigmoid}


def _or_nan(score: float | None) -> float:
    return math.nan if score is None else score
