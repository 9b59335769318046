"""Evaluation of a chain of models, oldest first: compatibility of queries with earlier galleries, and its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, get_args

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray
from pydantic import Field

from limpet.errors import DataError
from limpet.evaluation.compatibility import (
    TRAINED_SHARE,
    Baseline,
    ChainMetrics,
    Variant,
    Verdict,
    average_compatibility,
    chain_metrics,
    clearly_worse,
    verdict,
    violations,
)
from limpet.evaluation.first_hits import FirstHits
from limpet.evaluation.intervals import Draws, Interval, Resampled, clusters_of
from limpet.evaluation.protocols.base import PerUnit, Protocol
from limpet.evaluation.protocols.by_label import ByLabel
from limpet.evaluation.results import ProtocolRecord
from limpet.evaluation.sides import Sides, check_one_model, check_sides, in_one_order
from limpet.evaluation.ties import Ties, ties_of
from limpet.results import Data, Disagreement, ModelIdentity, Number, Part, Results
from limpet.support.ranges import Share, checked
from limpet.support.wording import INDEPENDENT

_Array = NDArray[np.float64]
_Pair = tuple[int, int]  # rows of the model that asks and of the one whose gallery is searched


class ChainPair(Part):
    """Queries of a newer model on the gallery of an older one.

    Args:
        new: Name of the model of the queries.
        old: Name of the model of the gallery.
        self_old: Score of the older model's queries on this gallery.
        interval: Paired interval of the difference.
        violates: Whether the gain is not above the minimum effect, 0 by default.
        verdict: Verdict of the interval and the guard metrics.
        first_hits: Changes of the first hits; None if no single answer is right or wrong.
        worse: Guard metrics in which the newer model is clearly worse: the whole interval of the difference is below 0.
    """

    new: str
    old: str
    cross: float
    self_old: float
    interval: tuple[float, float]
    violates: bool
    verdict: Verdict
    first_hits: FirstHits | None = None
    worse: tuple[str, ...] = ()

    @property
    def gain(self) -> float:
        """Cross minus self_old."""
        return self.cross - self.self_old


class ChainResults(Results):
    """Evaluation of a chain of T models as stored in results.json; see `ChainEvaluation`.

    Args:
        matrix: Rows are queries, columns galleries; None above the diagonal.
        independent_self: Self score of every model's recipe without alignment (T,).
        trained_shares: Share of the queries that each model was trained on (T,), 0 if unknown.
        pairs: Every newer model on every older gallery.
        guards: Further metrics that must not be clearly worse.
        min_effect: Smallest gain that is called compatible, if set.
        ties: Statistics of ties, by search ("new on old") and by model.
        violations: Number of pairs that violate the criterion.
        compatible: Whether no pair violates it or is clearly worse in a guard metric.
        p_up: P_up of every model (T,), per variant.
        p_comp: P_comp (T, T), per variant and baseline.
        p_score: P_score (T, T), per baseline.
    """

    KIND: ClassVar[str | None] = "chain"
    WRITER: ClassVar[str] = "“limpet evaluate chain”"
    AGAIN: ClassVar[str] = "evaluate the chain"

    kind: str
    title: str
    data: Data
    models: list[str]
    metric: str
    guards: tuple[str, ...]
    min_effect: Number = None
    ties: Ties | None = None
    judged: bool
    protocol: ProtocolRecord
    fingerprints: dict[str, ModelIdentity]
    independent_fingerprints: dict[str, ModelIdentity]
    matrix: list[list[Number]]
    independent_self: list[Number] | None
    trained_shares: list[Share] = Field(default_factory=list)
    pairs: list[ChainPair]
    ac: Number
    am: Number
    violations: int
    compatible: bool
    p_up: dict[Variant, list[Number]] | None
    p_comp: dict[Variant, dict[Baseline, list[list[Number]]]] | None
    p_score: dict[Baseline, list[list[Number]]] | None

    def disagreements(self) -> Iterator[Disagreement]:
        """Yield every part that contradicts another."""
        names, matrix, size = self.models, self.matrix, len(self.models)
        if size < 2 or len(set(names)) < size:
            yield "models", names, "two names or more, each once"
        if [len(row) for row in matrix] != [size] * size:
            yield "matrix", f"of {len(matrix)} rows", f"{size} rows of {size}"
            return
        if any((value is None) != (j > i) for i, row in enumerate(matrix) for j, value in enumerate(row)):
            yield "matrix", matrix, "a number on and below the diagonal, and none above"
        wanted = [(names[i], names[j], matrix[i][j], matrix[j][j]) for i in range(size) for j in range(i)]
        given = [(pair.new, pair.old, pair.cross, pair.self_old) for pair in self.pairs]
        if given != wanted:
            yield "pairs", given, f"what the matrix says: {wanted}"
        if any(pair.violates != (pair.gain <= (self.min_effect or 0)) for pair in self.pairs):
            yield "pairs", "marked otherwise than by their scores", "violations just where no gain counts"
        count = sum(pair.violates for pair in self.pairs)
        if self.violations != count:
            yield "violations", self.violations, f"{count}, as the pairs say"
        held_out = all(share <= TRAINED_SHARE for share in self.trained_shares[1:])
        compatible = self.judged and held_out and not count and not any(pair.worse for pair in self.pairs)
        if self.compatible != compatible:
            yield "compatible", self.compatible, f"{compatible}, as the pairs say"
        if (self.independent_self is None) != (self.p_comp is None):
            yield "p_comp", self.p_comp, "there just where independent models were given"


@dataclass(frozen=True, eq=False, kw_only=True)
class ChainEvaluation:
    """Scores of a chain of T models on one test set, in [0, 1].

    Args:
        names: Display names of the models, oldest first.
        metric: The metric of all scores.
        judged: Whether scores measure correctness; otherwise, no pair is called compatible.
        protocol: Protocol of the measurement: sizes, options, resamples, seed.
        fingerprints: Fingerprint of every model by name, and whether it was declared.
        independent_fingerprints: Fingerprints of the independent models, by the name of the corresponding model.
        matrix: (T, T): queries of model i on the gallery of model j, for j <= i; NaN above.
        interval: Interval of every score, by (i, j).
        gain_interval: Paired interval of M[i, j] - M[j, j], by (i, j) with j < i.
        min_effect: Smallest gain that is called compatible, in place of 0.
        ties: Statistics of ties, by search ("new on old") and by model.
        guards: Further metrics that must not be clearly worse than for the older model's own queries.
        worse: Guard metrics that are clearly worse, by (i, j) with j < i.
        first_hits: Changes of the first hits, by (i, j) with j < i, if single answers are right or wrong.
        ac: Share of pairs with M[i, j] > M[j, j]; see `average_compatibility`.
        violations: (T, T) bool: pairs with M[i, j] - M[j, j] <= min_effect.
        independent_self: Self score of every model's recipe without alignment (T,); for the first model, its own. None
            if no independent models are given.
        p: P metrics per variant and reading of the old model, see `chain_metrics`; None without independent models.
        trained_shares: Share of the queries that each model was trained on (T,), 0 if unknown.
    """

    names: tuple[str, ...]
    metric: str
    judged: bool
    protocol: ProtocolRecord
    fingerprints: Mapping[str, ModelIdentity]
    independent_fingerprints: Mapping[str, ModelIdentity]
    matrix: _Array
    interval: Mapping[_Pair, Interval]
    gain_interval: Mapping[_Pair, Interval]
    ac: float
    am: float
    violations: NDArray[np.bool_]
    ties: Ties
    min_effect: float = 0.0
    guards: tuple[str, ...] = ()
    worse: Mapping[_Pair, tuple[str, ...]] = field(default_factory=dict)
    first_hits: Mapping[_Pair, FirstHits] = field(default_factory=dict)
    independent_self: _Array | None = None
    p: Mapping[Variant, Mapping[Baseline, ChainMetrics]] | None = None
    trained_shares: tuple[float, ...] = ()

    @property
    def compatible(self) -> bool:
        """Whether scores measure correctness, and no pair violates the criterion or is clearly worse elsewhere.

        Only the first model may have been trained on more than `TRAINED_SHARE` of the queries.
        """
        held_out = all(share <= TRAINED_SHARE for share in self.trained_shares[1:])
        return self.judged and held_out and not self.violations.any() and not any(self.worse.values())

    def results(self, *, title: str, data: Data) -> ChainResults:
        """Return results for tables, an HTML page and results.json."""
        return ChainResults.of(
            title=title,
            data=data,
            models=list(self.names),
            metric=self.metric,
            guards=self.guards,
            min_effect=self.min_effect or None,
            ties=self.ties,
            judged=self.judged,
            protocol=self.protocol,
            fingerprints=self.fingerprints,
            independent_fingerprints=self.independent_fingerprints,
            matrix=self.matrix.tolist(),
            independent_self=None if self.independent_self is None else self.independent_self.tolist(),
            trained_shares=list(self.trained_shares),
            pairs=[
                ChainPair(
                    new=self.names[i],
                    old=self.names[j],
                    cross=float(self.matrix[i, j]),
                    self_old=float(self.matrix[j, j]),
                    interval=self.gain_interval[i, j],
                    violates=bool(self.violations[i, j]),
                    verdict=verdict(
                        self.gain_interval[i, j], self.worse.get((i, j), ()), self.min_effect, self.trained_shares[i]
                    )
                    if self.judged
                    else "unlabelled",
                    first_hits=self.first_hits.get((i, j)),
                    worse=self.worse.get((i, j), ()),
                )
                for i, j in zip(*(rows.tolist() for rows in np.tril_indices(len(self.names), -1)), strict=True)
            ],
            ac=self.ac,
            am=self.am,
            violations=int(self.violations.sum()),
            compatible=self.compatible,
            **self._p_metrics(),
        )

    def _p_metrics(self) -> dict[str, Any]:
        if self.p is None:
            return {"p_up": None, "p_comp": None, "p_score": None}
        up = {variant: both["own"].p_up.tolist() for variant, both in self.p.items()}
        comp = {
            variant: {baseline: metrics.p_comp.tolist() for baseline, metrics in both.items()}
            for variant, both in self.p.items()
        }
        scores = {baseline: metrics.p_score for baseline, metrics in self.p["sigmoid"].items()}
        score = {baseline: None if values is None else values.tolist() for baseline, values in scores.items()}
        return {"p_up": up, "p_comp": comp, "p_score": score}


@checked
def evaluate_chain(
    generations: Mapping[str, Sides] | Sequence[Sides],
    *,
    independent: Sequence[Sides] | None = None,
    protocol: Protocol | None = None,
    metric: str | None = None,
    min_effect: Annotated[float, Ge(0), Lt(1)] = 0.0,
    guards: Sequence[str] | None = None,
    resamples: int = 2000,
    resample: Resampled = "auto",
    level: float = 0.95,
    seed: int = 0,
    device: str | None = None,
) -> ChainEvaluation:
    """Evaluate the queries of every model on its own and every earlier gallery, by any protocol.

    The models must have embedded the same items, matched by id. Labels may come with any of them.

    Paper: the compatibility matrix with its averages AC and AM, and P_comp of every pair as HBCT's Fig. 5 and Table IV
    of NDPP compute it; see `chain_metrics` for the two readings.

    Args:
        generations: Queries and gallery of every model, oldest first; the keys of a mapping are their names.
        independent: Queries and gallery of the recipe of every model but the first, trained without alignment, in the
            order of the chain; for P_up and P_comp.
        protocol: Evaluation protocol. Default: by label.
        metric: Name of a metric of the protocol. Default: its gate metric.
        min_effect: Smallest gain in the metric that is called compatible; smaller ones are violations.
        guards: Metrics in which no newer model may be clearly worse than the older one on its gallery. Default: that of
            the first hit; () for none.
        resamples: Number of bootstrap resamples.
        resample: Draw "queries", or whole "classes", whose queries are correlated. "auto" draws classes if several
            queries share one.
        level: Level of the intervals.
        seed: Random seed of the bootstrap.
        device: Device for rankings, such as "cuda"; None for the CPU, without torch.

    Returns:
        The matrix, its summary, and P metrics under both readings. NaN if the independent model is not better than the
        old one; see `ChainMetrics.undefined`.

    Raises:
        ConfigError: A metric or option is unknown.
        DataError: There are fewer than two models, a model occurs twice, or the number of independent models is wrong;
            labels that the protocol needs are missing or contradict each other.
        EmptyOverlapError: The models embedded different items, or no query has a relevant item.
        SpaceMismatchError: Two models of the chain have different spaces.
    """
    protocol = ByLabel() if protocol is None else protocol
    metric = metric or protocol.gate_metric
    guarded = [name for name in (protocol.answer_metrics() if guards is None else guards) if name != metric]
    protocol.check_metrics([metric, *guarded])
    names, models, third = _matched(generations, independent)
    if protocol.needs_labels and any(embeddings.labels is None for embeddings in models[0]):
        raise DataError(
            f"No model of the chain has labels, and the protocol '{protocol.name}' needs them.",
            to_do="add labels, or give a protocol with a ground truth.",
        )
    clusters = clusters_of(protocol.unit_labels(models[0][0]), resample, protocol.units, protocol.name)
    draws = Draws(resamples, level, seed, clusters)
    asked = [metric, *guarded, *protocol.answer_metrics(), *([] if protocol.ties is None else [protocol.ties])]
    measured = {
        (i, j): protocol.measure(models[i][0], models[j][1], asked, device=device)
        for i in range(len(models))
        for j in range(i + 1)
    }
    values = {pair: of_pair[metric] for pair, of_pair in measured.items()}
    alone = [protocol.measure(*sides, [metric], device=device)[metric] for sides in third]
    matrix = np.full((len(models), len(models)), np.nan)
    for pair, of_pair in values.items():
        matrix[pair] = np.nanmean(of_pair)
    own = np.array([matrix[0, 0], *(np.nanmean(of_model) for of_model in alone)]) if third else None
    draws = draws.counting(values[0, 0], resample)
    intervals, gains = _intervals(values, draws)
    worse = _worse(measured, guarded, draws) if protocol.judges else {}
    ac, am = average_compatibility(matrix)
    return ChainEvaluation(
        names=names,
        metric=metric,
        min_effect=min_effect,
        ties=ties_of(
            {f"{names[i]} on {names[j]}": of_pair for (i, j), of_pair in measured.items()},
            dict(zip(names, models, strict=True)),
        ),
        guards=tuple(guarded),
        worse=worse,
        first_hits={
            (i, j): FirstHits.of(answer, measured[j, j][answer], of_pair[answer], draws)
            for answer in protocol.answer_metrics()
            for (i, j), of_pair in measured.items()
            if j < i
        },
        trained_shares=tuple(
            0.0 if query.trained_on is None else float(query.trained_on.mean()) for query, _ in models
        ),
        judged=protocol.judges,
        protocol=ProtocolRecord.of(protocol, models[0], draws, counted=values[0, 0]),
        fingerprints=_fingerprints(names, models),
        independent_fingerprints=_fingerprints(names[1:], third),
        matrix=matrix,
        interval=intervals,
        gain_interval=gains,
        ac=ac,
        am=am,
        violations=violations(matrix, min_effect),
        independent_self=own,
        p=None if own is None else {variant: chain_metrics(matrix, own, variant) for variant in get_args(Variant)},
    )


def _matched(
    generations: Mapping[str, Sides] | Sequence[Sides], independent: Sequence[Sides] | None
) -> tuple[tuple[str, ...], list[Sides], list[Sides]]:
    if isinstance(generations, Mapping):
        named = dict(generations)
    else:
        named = {f"model {number}": sides for number, sides in enumerate(generations, start=1)}
    names, models, third = tuple(named), list(named.values()), list(independent or [])
    if len(models) < 2:
        raise DataError(
            f"{len(models) or 'No'} model{'' if len(models) == 1 else 's'} in a chain.",
            expected="two or more, oldest first",
        )
    if independent is not None and len(third) != len(models) - 1:
        raise DataError(
            f"{len(third)} independent models for a chain of {len(models)}.",
            expected=f"{len(models) - 1}: one for every model but the first, in the order of the chain",
            to_do=f"train the recipe of each later model without alignment: {INDEPENDENT}.",
        )
    called = [*(f"'{name}'" for name in names), *(f"independent '{name}'" for name in names[1 : len(third) + 1])]
    for name, sides in zip(called, [*models, *third], strict=True):
        check_one_model(name, *sides)
    _refuse_repeated(called[: len(models)], models)
    _refuse_repeated(called[len(models) :], third)
    for newer in models[1:]:
        check_sides(newer[0], models[0][1])
    aligned = list(in_one_order(dict(zip(called, [*models, *third], strict=True))).values())
    return names, aligned[: len(models)], aligned[len(models) :]


def _refuse_repeated(names: Sequence[str], models: Sequence[Sides]) -> None:
    first: dict[str, str] = {}
    for name, (_, gallery) in zip(names, models, strict=True):
        before = first.setdefault(gallery.fingerprint, name)
        if before is not name:
            raise DataError(
                f"{before} and {name} have the fingerprint {gallery.fingerprint}: these are the same model.",
                to_do="check which folders or files were given.",
            )


def _intervals(values: Mapping[_Pair, PerUnit], draws: Draws) -> tuple[dict[_Pair, Interval], dict[_Pair, Interval]]:
    columns = {("score", pair): of_pair for pair, of_pair in values.items()}
    columns |= {("gain", (i, j)): of_pair - values[j, j] for (i, j), of_pair in values.items() if j < i}
    intervals = draws.intervals(columns)
    scores = {pair: interval for (kind, pair), interval in intervals.items() if kind == "score"}
    gains = {pair: interval for (kind, pair), interval in intervals.items() if kind == "gain"}
    return scores, gains


def _worse(
    measured: Mapping[_Pair, Mapping[str, PerUnit]], guards: Sequence[str], draws: Draws
) -> dict[_Pair, tuple[str, ...]]:
    """Return in which guarded metrics every pair is clearly worse than the older model on its own gallery."""
    pairs = [(i, j) for i, j in measured if j < i]
    columns = {((i, j), name): measured[i, j][name] - measured[j, j][name] for i, j in pairs for name in guards}
    intervals = draws.intervals(columns) if columns else {}
    return {pair: clearly_worse({name: intervals[pair, name] for name in guards}) for pair in pairs}


def _fingerprints(names: Sequence[str], models: Sequence[Sides]) -> dict[str, ModelIdentity]:
    return {
        name: ModelIdentity(fingerprint=gallery.fingerprint, declared=gallery.declared)
        for name, (_, gallery) in zip(names, models, strict=False)
    }
