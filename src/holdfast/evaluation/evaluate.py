"""The whole evidence about an upgrade in one call: self-tests, cross-test, scores, intervals, flips, curve, verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError, unknown_name
from holdfast.evaluation import compatibility
from holdfast.evaluation.bootstrap import mean_interval, mean_intervals
from holdfast.evaluation.compatibility import Variant
from holdfast.evaluation.curve import record, upgrade_curves
from holdfast.evaluation.evidence import Evaluation, Gate, PerQuery, Values
from holdfast.evaluation.matched_models import MatchedModels, Sides, matched
from holdfast.evaluation.metrics import metrics_named
from holdfast.evaluation.retrieval import NoRelevant, rank_metrics, top_k
from holdfast.evaluation.uncertainty import uncertainty_record

__all__ = ["Evaluation", "evaluate"]

Resampled = Literal["queries", "classes"]

OVERLAP_AT = 10  # neighbours compared where there are no labels
SYSTEMS = ("self_old", "self_new", "self_independent", "cross", "cross_independent")
DIFFERENCES = (("cross", "self_old"), ("self_new", "self_independent"))
_FLIPS = "recall@1"


def evaluate(
    old_query: EmbeddingSet,
    old_gallery: EmbeddingSet,
    new_query: EmbeddingSet,
    new_gallery: EmbeddingSet,
    *,
    independent_query: EmbeddingSet | None = None,
    independent_gallery: EmbeddingSet | None = None,
    cross: Sides | None = None,
    metrics: Sequence[str] = ("recall@1", "recall@5", "map", "map@r"),
    gate_metric: str = "map",
    gate: Gate = "interval",
    exclude_same_id: bool = False,
    no_relevant: NoRelevant = "exclude",
    resamples: int = 2000,
    resample: Resampled = "queries",
    level: float = 0.95,
    seed: int = 0,
    curve: bool = True,
    old_classes: Sequence[str] | None = None,
) -> Evaluation:
    """Measure whether new queries may search the old gallery, and what the upgrade is worth.

    The sets of all models must hold the same items, matched by id. Labels may come with any of them. Without labels
    nothing can be judged: the verdict is "unlabelled", and only the agreement of neighbours is measured.

    Args:
        old_query: Queries embedded by the old model.
        old_gallery: Gallery embedded by the old model.
        new_query: The same queries embedded by the new model.
        new_gallery: The same gallery embedded by the new model.
        independent_query: The same queries by the new recipe trained without alignment, for P_up and P_comp.
        independent_gallery: The gallery by that model.
        cross: Queries and gallery that answer the cross-test where a map or a head links two frozen models, whose own
            spaces may then differ: mapped new queries with the old gallery, new queries with the mapped old gallery,
            or both mapped; the same items. `new_query` and `new_gallery` stay those of the frozen model.
        metrics: Names that `rank_metrics` knows; the gate metric is added where it is missing.
        gate_metric: The metric that decides the verdict.
        gate: "interval" judges the paired interval of cross - self_old, "point" only its sign.
        exclude_same_id: Leave out the gallery item with the id of the query (leave-one-out).
        no_relevant: What a query without relevant items is worth: "exclude" or "zero".
        resamples: Bootstrap resamples.
        resample: Draw "queries" or whole "classes", whose queries are correlated; see `bootstrap`.
        level: Level of the intervals.
        seed: Seed of the bootstrap and of the random backfill orders.
        curve: Whether to measure the upgrade curve, by far the longest part. Where ``cross`` maps the old gallery
            alone, mapped and re-embedded items lie in the new model's space and the curve is that of the mixture.
            Where it maps queries, every query is asked in two spaces, whose scores are on two scales: it is not
            measured; `mixed_generations` compares ways of merging the two results.
        old_classes: Names of the classes that the old model has seen, to tell its uncertainty of these and of others.

    Raises:
        ConfigError: An unknown metric or option, or half an independent model.
        DataError: Fingerprints or labels contradict each other, or a side is empty.
        EmptyOverlapError: The models embedded different items, or no query has a relevant item.
        SpaceMismatchError: Old and new model have different spaces, and ``cross`` is missing; or its sides have.
    """
    names = list(metrics_named(metrics) | metrics_named((gate_metric,)))
    _check_options(gate, resample, level)
    third = independent_query, independent_gallery
    models = matched((old_query, old_gallery), (new_query, new_gallery), third, cross)
    protocol: dict[str, Any] = {
        "queries": len(old_query),
        "gallery": len(old_gallery),
        "leave_one_out": exclude_same_id,
        "no_relevant": no_relevant,
        "metrics": names,
        "bootstrap": {"resamples": resamples, "level": level, "seed": seed, "resample": resample},
    }
    head: dict[str, Any] = {
        "gate": gate,
        "gate_metric": gate_metric,
        "fingerprints": models.fingerprints(),
        "protocol": protocol,
        "uncertainty": uncertainty_record(models.old[1], models.new[1], old_classes),
        "mapped": models.mapped(),
    }
    draws: dict[str, Any] = {"resamples": resamples, "level": level, "seed": seed}
    if not models.labelled:
        return Evaluation(verdict="unlabelled", agreement=_agreement(models, exclude_same_id, draws), **head)
    options: dict[str, Any] = {"exclude_same_id": exclude_same_id, "no_relevant": no_relevant}
    values = {system: rank_metrics(*sides, [*names, _FLIPS], **options) for system, sides in models.systems().items()}
    protocol["queries_counted"] = int(np.count_nonzero(~np.isnan(values["cross"][gate_metric])))
    return Evaluation(
        **head,
        **_scores(values, names),
        **_judgement(values, names, gate, gate_metric, {**draws, "clusters": _clusters(models, resample)}),
        upgrade_curve=_curve(models, gate_metric, seed, options) if curve and models.one_space() else None,
    )


def _check_options(gate: str, resample: str, level: float) -> None:
    for kind, given, known in (("gate", gate, get_args(Gate)), ("resample", resample, get_args(Resampled))):
        if given not in known:
            raise unknown_name(kind, given, known)
    if not 0 < level < 1:
        raise ConfigError(f"An interval at level {level:g}.", expected="a level between 0 and 1, such as 0.95")


def _scores(values: Mapping[str, PerQuery], names: Sequence[str]) -> dict[str, Any]:
    """Return the means of every system and what follows from them alone."""
    per_query = {system: {name: of_system[name] for name in names} for system, of_system in values.items()}
    means = {
        system: {name: float(np.nanmean(array)) for name, array in of_system.items()}
        for system, of_system in per_query.items()
    }
    cross, old = means["cross"], means["self_old"]
    return {
        **{system: means.get(system) for system in SYSTEMS},
        "compatible": {name: bool(compatibility.compatible(cross[name], old[name])) for name in names},
        **_p_metrics(means, names),
        "negative_flip_rate": {
            system: compatibility.negative_flip_rate(values["self_old"][_FLIPS], values[system][_FLIPS])
            for system in ("cross", "self_new")
        },
        "per_query": per_query,
    }


def _p_metrics(means: Mapping[str, Values], names: Sequence[str]) -> dict[str, Any]:
    """Return P_up and P_comp in both variants and P_score of the sigmoid one; NaN without an independent model."""
    if "self_independent" not in means:
        nothing = dict.fromkeys(names, float("nan"))
        both = dict.fromkeys(get_args(Variant), nothing)
        return {"p_up": both, "p_comp": both, "p_score": {"sigmoid": nothing, "raw": None}}
    new, old, cross, independent = (
        np.array([means[system][name] for name in names])
        for system in ("self_new", "self_old", "cross", "self_independent")
    )
    up: dict[str, Any] = {}
    comp: dict[str, Any] = {}
    for variant in get_args(Variant):
        up[variant] = compatibility.p_up(new, independent, variant, test_sets=names)
        comp[variant] = compatibility.p_comp(cross, old, independent, variant, test_sets=names)
    score = compatibility.p_score(comp["sigmoid"], up["sigmoid"])

    def by_name(array: Any) -> Values:
        return dict(zip(names, array.tolist(), strict=True))

    return {
        "p_up": {variant: by_name(array) for variant, array in up.items()},
        "p_comp": {variant: by_name(array) for variant, array in comp.items()},
        "p_score": {"sigmoid": by_name(score), "raw": None},
    }


def _judgement(
    values: Mapping[str, PerQuery], names: Sequence[str], gate: str, gate_metric: str, draws: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the intervals of scores and differences, and the verdict on the gate metric."""
    columns = {(system, name): of_system[name] for system, of_system in values.items() for name in names}
    for first, second in DIFFERENCES:
        if second in values:
            columns |= {(f"{first}_minus_{second}", name): values[first][name] - values[second][name] for name in names}
    intervals = mean_intervals(columns, **draws)
    gain = intervals["cross_minus_self_old", gate_metric]
    if gate == "point":
        point = float(np.nanmean(values["cross"][gate_metric])) - float(np.nanmean(values["self_old"][gate_metric]))
        gain = (point, point)
    return {
        "verdict": compatibility.verdict(gain),
        "interval": {
            name: {
                f"{first}_minus_{second}": intervals.get((f"{first}_minus_{second}", name))
                for first, second in DIFFERENCES
            }
            for name in names
        },
        "mean_interval": {system: {name: intervals[system, name] for name in names} for system in values},
    }


def _clusters(models: MatchedModels, resample: str) -> NDArray[np.int64] | None:
    return models.old[0].labels if resample == "classes" else None


def _curve(models: MatchedModels, metric: str, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
    seeds = (seed, seed + 1, seed + 2)
    return record(upgrade_curves(*models.linked(), models.new[1], metric=metric, seeds=seeds, **options))


def _agreement(models: MatchedModels, exclude_same_id: bool, draws: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mean share of the first items that self_old and the cross-test both find."""
    k = min(OVERLAP_AT, len(models.old[1]))
    old, new = (top_k(*sides, k, exclude_same_id=exclude_same_id).rows for sides in (models.old, models.linked()))
    found = np.maximum((old >= 0).sum(axis=1), 1)
    shared = [np.isin(new_rows[new_rows >= 0], old_rows).sum() for old_rows, new_rows in zip(old, new, strict=True)]
    overlap = np.array(shared) / found
    return {f"overlap@{k}": float(overlap.mean()), "interval": mean_interval(overlap, **draws)}
