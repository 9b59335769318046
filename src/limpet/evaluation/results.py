"""Results of an evaluation, and of several new models evaluated against one old model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, JsonValue

from limpet.errors import ConfigError, DataError
from limpet.evaluation.agreement import Agreement
from limpet.evaluation.class_change import ClassChangeSummary
from limpet.evaluation.compatibility import (
    Variant,
    Verdict,
    clearly_worse,
)
from limpet.evaluation.first_hits import FirstHits
from limpet.evaluation.intervals import Drawn, Draws, groups_drawn
from limpet.evaluation.mixing import Mixing
from limpet.evaluation.ties import Ties
from limpet.evaluation.uncertainty import Uncertainty
from limpet.evaluation.upgrade import UpgradeCurves
from limpet.results import Data, Disagreement, ModelIdentity, Number, NumberInterval, Part, Results
from limpet.support.ranges import Count
from limpet.support.reporting import Charted

if TYPE_CHECKING:
    from limpet.evaluation.protocols.base import Protocol
    from limpet.evaluation.sides import Sides

Gate = Literal["interval", "point"]
System = Literal["self_old", "self_new", "self_independent", "cross", "cross_independent"]
_Values = dict[str, Number]  # metric -> value
PerQuery = Mapping[str, NDArray[np.float64]]  # metric -> one value per query

GAIN = "cross_minus_self_old"
"""The difference that decides."""


class Bootstrap(Part):
    """Bootstrap settings of the intervals.

    Args:
        resamples: Number of resamples.
        level: Level of the intervals.
        seed: Random seed of the draws.
        resample: Unit of resampling, "queries" or "classes".
        groups: Number of these units.
    """

    resamples: int
    level: float
    seed: int
    resample: str
    groups: int


class ProtocolRecord(Part):
    """Protocol of a measurement. Options of the protocol are further attributes, see `options`.

    Args:
        name: A key of `PROTOCOLS`.
        units: Units that scores are averaged over.
        queries: Number of queries.
        gallery: Number of gallery items.
        queries_counted: Number of units with a value in the gate metric; None if nothing was scored.
        metrics: Names of the metrics.
        left_out: Number of items excluded by the rules of the protocol, as text.
        bootstrap: See `Bootstrap`.
    """

    name: str
    units: str
    queries: int
    gallery: int
    queries_counted: int | None
    metrics: list[str]
    left_out: dict[str, int]
    bootstrap: Bootstrap

    @classmethod
    def of(
        cls,
        protocol: Protocol,
        sides: Sides,
        draws: Draws,
        *,
        metrics: Sequence[str] = (),
        counted: NDArray[np.float64] | None = None,
    ) -> Self:
        """Return the record of a measurement.

        Args:
            protocol: Protocol of the measurement.
            sides: Queries and gallery of a model.
            draws: Bootstrap settings.
            metrics: Names of the metrics.
            counted: One value per unit in the gate metric, NaN for excluded units; None if nothing was scored.
        """
        drawn = Drawn("queries", len(sides[0])) if counted is None else groups_drawn(counted, draws.clusters)
        return cls(
            **protocol.record(),
            units=protocol.units,
            queries=len(sides[0]),
            gallery=len(sides[1]),
            queries_counted=None if counted is None else int(np.count_nonzero(~np.isnan(counted))),
            metrics=list(metrics),
            left_out={} if counted is None else protocol.left_out(*sides),
            bootstrap=Bootstrap(
                resamples=draws.resamples,
                level=draws.level,
                seed=draws.seed,
                resample=drawn.resample,
                groups=drawn.groups,
            ),
        )

    @property
    def options(self) -> dict[str, JsonValue]:
        """The options of the protocol, by name."""
        return dict(self.model_extra or {})


class TrainedItems(Part):
    """Number of items of an evaluation that a model was trained or fitted on.

    Args:
        queries: Number of queries among them.
        gallery: Number of gallery items among them.
    """

    queries: Count
    gallery: Count


class Evaluation(Charted, Part):
    """Results of an evaluation. Every score is a mean over queries in [0, 1]; without labels, scores are None.

    Undefined values are None, such as P_comp without an independent model.

    Args:
        verdict: "compatible", "mixed" (better in the gate metric, clearly worse in a guard metric), "inconclusive",
            "not compatible", "not held out" (better, on queries that the new model was trained on), or "unlabelled" if
            nothing could be judged.
        first_hits: Changes of the first hits, if single answers are right or wrong; otherwise None.
        gate: Rule of the verdict: the "interval" of cross - self_old, or the "point".
        gate_metric: Metric of the verdict.
        min_effect: Smallest gain that is called compatible, if set.
        rounding: How much the gate metric of a query changes, on average, if the old vectors are rounded to 16 bits;
            measured if the gain is so small that rounding may explain it.
        ties: Statistics of ties; None if nothing was scored.
        fingerprints: Fingerprints of the models "old", "new" and "independent", which may be None.
        protocol: Protocol of the measurement: sizes, options, resamples, seed.
        uncertainty: Uncertainty of the models on the gallery, if their embeddings include it; see
            `gallery_uncertainty`.
        mapped: Fingerprint of each side of the cross-test, "query" or "gallery", that comes from a map or a head; None
            if the models' own embeddings are compared.
        agreement: Similarity of old and new rankings, if nothing could be judged; see `agreement_of`.
        guards: Further metrics that must not be clearly worse in the cross-test than for old queries.
        worse: Guard metrics that are clearly worse: the whole interval of cross - self_old is below 0.
        self_old: Old queries on the old gallery.
        self_new: New queries on the new gallery.
        self_independent: Independent queries on the independent gallery, if there is an independent model.
        cross: New queries on the old gallery, either of them possibly mapped by a map or a head.
        cross_independent: Independent queries on the old gallery: the cross-test without any alignment.
        compatible: Whether cross > self_old, strictly, per metric.
        interval: Paired intervals of the two differences, per metric.
        mean_interval: Intervals of the scores, per system and metric.
        p_value: p-value of each difference, per metric, by a paired permutation test; see `intervals`.
        p_up: See `compatibility.p_up`, per variant and metric.
        p_comp: See `compatibility.p_comp`, likewise.
        p_score: See `compatibility.p_score`, for "sigmoid"; None for "raw".
        undefined: Reason why "p_up" or "p_comp" is not defined, per metric, if an independent model was evaluated.
        negative_flip_rate: Share of queries right before and wrong now, on the old ("cross") and the new gallery.
        positive_flip_rate: Share of queries wrong before and right now, likewise.
        class_change: Change of each class in the cross-test, in the gate metric.
        upgrade_curve: Quality while the gallery is re-embedded. None if a map or a head maps the queries of the
            cross-test.
        mixing: Queries of both models on galleries that hold vectors of both; None if not measured.
        trained_on: Number of queries and gallery items that each model was trained on, by "old", "new" and
            "independent"; "new" includes the map or head between the models. None if unknown.
        per_query: One value per query, by system and metric, in the order of the old queries; not saved.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    verdict: Verdict
    first_hits: FirstHits | None = None
    gate: Gate
    gate_metric: str
    min_effect: Number = None
    rounding: Number = None
    ties: Ties | None = None
    fingerprints: dict[str, ModelIdentity | None]
    protocol: ProtocolRecord
    uncertainty: Uncertainty | None = None
    mapped: dict[str, str | None] | None = None
    agreement: Agreement | None
    guards: tuple[str, ...]
    worse: tuple[str, ...]
    self_old: _Values | None
    self_new: _Values | None
    self_independent: _Values | None
    cross: _Values | None
    cross_independent: _Values | None
    compatible: dict[str, bool] | None
    interval: dict[str, dict[str, NumberInterval | None]] | None
    mean_interval: dict[str, dict[str, NumberInterval]] | None
    p_value: dict[str, _Values] | None = None
    p_up: dict[Variant, _Values] | None
    p_comp: dict[Variant, _Values] | None
    p_score: dict[Variant, _Values | None] | None
    undefined: dict[str, dict[str, str]] | None = None
    negative_flip_rate: _Values | None
    positive_flip_rate: _Values | None = None
    class_change: ClassChangeSummary | None = None
    upgrade_curve: UpgradeCurves | None
    mixing: Mixing | None = None
    trained_on: dict[str, TrainedItems | None] = Field(default_factory=dict)
    per_query: dict[str, dict[str, NDArray[np.float64]]] = Field(default_factory=dict, exclude=True, repr=False)

    def __eq__(self, other: object) -> bool:
        """Say whether two say the same; values per query, which are never written, do not count."""
        return isinstance(other, Evaluation) and self.to_dict() == other.to_dict()

    @property
    def within_rounding(self) -> bool:
        """Whether rounding the old vectors to 16 bits changes queries by as much as new queries gain."""
        gain = self.gain()
        return gain is not None and self.rounding is not None and 0 < gain <= self.rounding

    @property
    def trained_share(self) -> float | None:
        """Share of the queries that the new model was trained on; None if unknown."""
        items = self.trained_on.get("new")
        return None if items is None else items.queries / max(1, self.protocol.queries)

    @property
    def scored(self) -> bool:
        """Whether anything was scored."""
        return self.self_old is not None

    def score(self, system: System, metric: str | None = None) -> float | None:
        """Return the score of a system, by default in the gate metric; None if it has no score."""
        values: _Values | None = getattr(self, system)
        return None if values is None else values.get(metric or self.gate_metric)

    def score_interval(self, system: System, metric: str | None = None) -> NumberInterval | None:
        """Return the interval of a score; None if undefined."""
        return ((self.mean_interval or {}).get(system) or {}).get(metric or self.gate_metric)

    def gain(self, metric: str | None = None) -> float | None:
        """Return cross - self_old; None if not measured."""
        cross, old = self.score("cross", metric), self.score("self_old", metric)
        return None if cross is None or old is None else cross - old

    def gain_interval(self, metric: str | None = None, difference: str = GAIN) -> NumberInterval | None:
        """Return the paired interval of a difference, by default cross - self_old; None if undefined."""
        return ((self.interval or {}).get(metric or self.gate_metric) or {}).get(difference)

    def chance(self, metric: str | None = None, difference: str = GAIN) -> float | None:
        """Return the p-value of a difference, by default cross - self_old; None if undefined."""
        return ((self.p_value or {}).get(metric or self.gate_metric) or {}).get(difference)

    def p(
        self, name: Literal["p_up", "p_comp", "p_score"], variant: Variant = "raw", metric: str | None = None
    ) -> Number:
        """Return a P metric; None if undefined."""
        return ((getattr(self, name) or {}).get(variant) or {}).get(metric or self.gate_metric)

    def clearly_worse(self) -> tuple[str, ...]:
        """Return the metrics that are clearly worse in the cross-test, among the guards and the gate metric."""
        kept = [*self.guards, *([self.gate_metric] if self.guards else [])]
        return clearly_worse({metric: self.gain_interval(metric) for metric in self.interval or {} if metric in kept})


class EvaluationResults(Results):
    """Evaluations of one or more new models against the same old one.

    Args:
        data: Searched data.
        models: Metadata of each model by name ("old", and the names below): backbone, dim, method, options, seed.
        evaluations: Evaluation by display name of the new model, such as its method.
    """

    KIND: ClassVar[str | None] = None
    WRITER: ClassVar[str] = "an evaluation of an upgrade, “limpet evaluate”"

    title: str
    data: Data
    models: dict[str, dict[str, Any]]
    evaluations: dict[str, Evaluation]

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return the results of comparable evaluations.

        Raises:
            ConfigError: No evaluation is given, or a part of ``data`` is missing.
            DataError: The evaluations have different old models, data or protocols.
        """
        results = super().of(**values)
        for (first_name, first), (name, other) in pairwise(results.evaluations.items()):
            for what, a, b in (
                ("old model", first.fingerprints["old"], other.fingerprints["old"]),
                ("gate", (first.gate, first.gate_metric), (other.gate, other.gate_metric)),
                ("protocol", first.protocol, other.protocol),
            ):
                if a != b:
                    shown = " and ".join(str(one.to_dict() if isinstance(one, Part) else one) for one in (a, b))
                    raise DataError(
                        f"The evaluations of '{first_name}' and '{name}' have another {what}: {shown}.",
                        expected="one old model, one gate and one protocol in a report",
                        to_do="evaluate both alike, or write one report for each.",
                    )
        return results

    def disagreements(self) -> Iterator[Disagreement]:
        """Yield every part that is inconsistent with another."""
        if not self.evaluations:
            yield "evaluations", "empty: no evaluation", "at least one new model"

    @property
    def first(self) -> Evaluation:
        """The first evaluation; old model, gate and protocol are the same in all evaluations."""
        return next(iter(self.evaluations.values()))

    def only(self, where: str = "These results") -> Evaluation:
        """Return the one evaluation.

        Args:
            where: Name of these results in messages.

        Raises:
            ConfigError: There are several evaluations.
        """
        if len(self.evaluations) != 1:
            raise ConfigError(
                f"{where}: evaluations of {len(self.evaluations)} new models, {', '.join(self.evaluations)}.",
                expected="results of one new model on one test set, as `limpet evaluate` writes them",
                to_do="evaluate the new model alone: `limpet evaluate --old EMBEDDINGS --new EMBEDDINGS`.",
            )
        return self.first
