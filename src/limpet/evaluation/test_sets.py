"""One upgrade on several test sets: every set by its own metric, P metrics per set and then averaged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple, Self

from limpet.errors import ConfigError, DataError
from limpet.evaluation.compatibility import (
    PMetrics,
    SelfAndCross,
    Verdict,
    undefined_p_metrics,
    verdict,
)
from limpet.evaluation.first_hits import FirstHits
from limpet.evaluation.results import Evaluation, EvaluationResults, Gate, ProtocolRecord, System
from limpet.evaluation.ties import Ties
from limpet.results import Data, Disagreement, ModelIdentity, Number, NumberInterval, Part, Results

_SYSTEMS: tuple[System, ...] = ("self_old", "self_independent", "self_new", "cross")
_SAME = 1e-9


class SetScores(PMetrics):
    """What the upgrade scores on one test set, in its metric; fractions in [0, 1].

    Args:
        gate: What decides: the "interval" of cross - self_old, or the "point".
        verdict: On this metric, and on what the evaluation guards.
        first_hits: How first hits fare; None where no single answer is right or wrong.
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
    first_hits: FirstHits | None = None
    worse: tuple[str, ...] = ()
    ties: Ties | None = None
    self_old: float
    self_independent: Number
    self_new: float
    cross: float
    interval: tuple[float, float]
    mean_interval: dict[str, tuple[float, float] | None]
    undefined: dict[str, str]

    @property
    def gate_metric(self) -> str:
        """The metric that decides."""
        return self.metric

    @property
    def gain(self) -> float:
        """Cross minus self_old."""
        return self.cross - self.self_old

    def score(self, system: System) -> float | None:
        """Return what a system scores; None where it was not measured."""
        value: float | None = getattr(self, system)
        return value


class Combination(Part):
    """One upgrade on several test sets.

    Args:
        fingerprints: Which models: "old", "new" and "independent", which may be None.
        mapped: Fingerprint of each side of the cross-test that a map or a head made; None without one.
        sets: What it scores, by the name of the test set.
        mean: P metrics averaged over sets; None where that of one set is.
        compatible: Whether the verdict is "compatible" on every set.
    """

    fingerprints: dict[str, ModelIdentity | None]
    mapped: dict[str, str | None] | None
    sets: dict[str, SetScores]
    mean: PMetrics
    compatible: bool


class CombinationResults(Combination, Results):
    """A combination as results.json holds it.

    Args:
        new: Names of the new model.
        sources: What was searched, by the name of the test set.
        protocols: How it was measured, by the name of the test set.
    """

    KIND: ClassVar[str | None] = "combination"
    WRITER: ClassVar[str] = "“limpet evaluate combine”"
    AGAIN: ClassVar[str] = "combine"

    kind: str
    title: str
    new: str
    sources: dict[str, Data]
    protocols: dict[str, ProtocolRecord]

    @classmethod
    def gather(cls, combination: Combination, evaluations: Mapping[str, EvaluationResults], *, title: str) -> Self:
        """Return a combination as results.

        Raises:
            ConfigError: They are not those of the combination.
        """
        return cls.of(
            title=title,
            new=", ".join(dict.fromkeys(name for results in evaluations.values() for name in results.evaluations)),
            **dict(combination),
            sources={name: results.data for name, results in evaluations.items()},
            protocols={name: results.only().protocol for name, results in evaluations.items()},
        )

    def disagreements(self) -> Iterator[Disagreement]:
        """Yield every part that contradicts another."""
        if len(self.sets) < 2:
            yield "sets", list(self.sets), "two test sets or more"
        for part, of_sets in (("sources", self.sources), ("protocols", self.protocols)):
            if set(of_sets) != set(self.sets):
                yield part, list(of_sets), f"one for each of {', '.join(self.sets)}"
        if self.compatible != _compatible(self.sets):
            yield "compatible", self.compatible, f"{not self.compatible}, as the verdicts of the sets say"
        means = dict(PMetrics.mean(list(self.sets.values())).variants())
        for key, given in self.mean.variants():
            wanted = means.get(key)
            if (given is None) != (wanted is None) or (given is not None and abs(given - (wanted or 0)) > _SAME):
                yield f"mean.{key[0]}", given, f"{wanted}, the mean over the sets"


def _compatible(sets: Mapping[str, SetScores]) -> bool:
    return all(scores.verdict == "compatible" for scores in sets.values())


def combine(evaluations: Mapping[str, Evaluation], metric: str | None = None) -> Combination:
    """Put evaluations of one upgrade on several test sets side by side, with P metrics per set and on average.

    Papers: AdvBCT and NDPP average P_up, P_comp and P_1 over test sets, each computed per set; a P metric of averaged
    scores would be another number.

    Args:
        evaluations: By the name of the test set.
        metric: One metric for all sets, which decides their verdicts too; each set's own gate metric when left out.

    Returns:
        None where a P metric is not defined; `SetScores.undefined` says why.

    Raises:
        ConfigError: A set was not measured in ``metric``.
        DataError: Fewer than two sets, one without scores or with undefined ones, or evaluations of different models.
    """
    if len(evaluations) < 2:
        raise DataError(f"{len(evaluations)} evaluations to combine.", expected="two test sets or more")
    _refuse_others(evaluations)
    sets = {name: _scores(name, one, metric or one.gate_metric) for name, one in evaluations.items()}
    first = next(iter(evaluations.values()))
    return Combination(
        fingerprints=first.fingerprints,
        mapped=first.mapped,
        sets=sets,
        mean=PMetrics.mean(list(sets.values())),
        compatible=_compatible(sets),
    )


class _Identity(NamedTuple):
    """What must be the same in all evaluations, in words and as it is."""

    what: str
    fingerprint: str | None


def _identities(evaluation: Evaluation) -> list[_Identity]:
    models = {name: evaluation.fingerprints.get(name) for name in ("old", "new", "independent")}
    own = [_Identity(f"{name} model", None if model is None else model.fingerprint) for name, model in models.items()]
    return [*own, *(_Identity(f"{side} of a map", (evaluation.mapped or {}).get(side))
                      for side in ("query", "gallery"))]  # fmt: skip


def _refuse_others(evaluations: Mapping[str, Evaluation]) -> None:
    for (first_name, first), (name, other) in pairwise(evaluations.items()):
        for one, two in zip(_identities(first), _identities(other), strict=True):
            if one.fingerprint != two.fingerprint:
                declared = all(str(given).startswith("declared:") for given in (one.fingerprint, two.fingerprint))
                raise DataError(
                    f"The evaluations '{first_name}' and '{name}' have another {one.what}: "
                    f"{one.fingerprint or 'none'} and {two.fingerprint or 'none'}.",
                    expected="evaluations of one upgrade: the same old, new and independent model on every test set",
                    to_do="name the models of files of vectors: --old-name, --new-name and --independent-name."
                    if declared
                    else "evaluate all test sets with the same models, or combine the others only.",
                )


def _scores(name: str, evaluation: Evaluation, metric: str) -> SetScores:
    if evaluation.self_old is None:
        raise DataError(
            f"The evaluation '{name}' has no scores: its data had no labels.",
            to_do="evaluate it with labels or a ground truth, or leave it out.",
        )
    if metric not in evaluation.self_old:
        raise ConfigError(
            f"The evaluation '{name}' was not measured in {metric}.",
            expected=f"one of its metrics: {', '.join(evaluation.self_old)}",
            to_do=f"evaluate it again with --metrics {metric}, or leave --metric out.",
        )
    around = evaluation.gain_interval(metric)
    if around is None:
        raise DataError(
            f"The evaluation '{name}' has no interval in {metric}.",
            expected="evaluations with the interval of the gate, as `limpet evaluate` writes it",
            to_do="evaluate it again.",
        )
    old, independent, new, cross = (evaluation.score(system, metric) for system in _SYSTEMS)
    spreads = {system: evaluation.score_interval(system, metric) for system in _SYSTEMS}
    ends = [end for interval in (around, *spreads.values()) for end in interval or ()]
    if old is None or new is None or cross is None or None in ends:
        raise DataError(
            f"The evaluation '{name}' has a score or an interval in {metric} that is not defined.",
            expected="numbers for the old model, the new one and the cross-test, and for both ends of every interval",
            to_do="evaluate it again.",
        )
    worse = tuple(name for name in evaluation.clearly_worse() if name != metric)
    return SetScores.model_validate({
        **dict(PMetrics.of(SelfAndCross(old, math.nan if independent is None else independent, new, cross))),
        "metric": metric,
        "gate": evaluation.gate,
        "verdict": _verdict(evaluation, metric, around, worse),
        "first_hits": evaluation.first_hits,
        "worse": worse,
        "ties": evaluation.ties,
        "self_old": old,
        "self_independent": independent,
        "self_new": new,
        "cross": cross,
        "interval": around,
        "mean_interval": spreads,
        "undefined": undefined_p_metrics(old, independent),
    })  # fmt: skip


def _verdict(evaluation: Evaluation, metric: str, around: NumberInterval, worse: Sequence[str]) -> Verdict:
    if evaluation.verdict == "unlabelled":
        return "unlabelled"
    gain = evaluation.gain(metric)
    low, high = (gain, gain) if evaluation.gate == "point" else around
    if low is None or high is None:
        return "inconclusive"
    least = (evaluation.min_effect or 0.0) if metric == evaluation.gate_metric else 0.0
    return verdict((low, high), worse, least, evaluation.trained_share or 0.0)
