"""The whole evidence about an upgrade in one call: self-tests, cross-test, scores, intervals, flips, curve, verdict."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError, refuse, unknown_name
from holdfast.evaluation import compatibility
from holdfast.evaluation.agreement import agreement_of
from holdfast.evaluation.class_change import ClassChangeSummary, class_change
from holdfast.evaluation.compatibility import Variant
from holdfast.evaluation.intervals import Resampled, clusters_of, counted_clusters, drawn, mean_intervals, p_values
from holdfast.evaluation.protocols.base import Protocol
from holdfast.evaluation.protocols.by_label import ByLabel
from holdfast.evaluation.results import GAIN, Evaluation, Gate, PerQuery, Values
from holdfast.evaluation.retrieval import NoRelevant, check_no_relevant
from holdfast.evaluation.sides import MatchedModels, Sides, matched
from holdfast.evaluation.uncertainty import gallery_uncertainty
from holdfast.evaluation.upgrade import UpgradeCurves, upgrade_curves

__all__ = ["Evaluation", "evaluate"]

SYSTEMS = ("self_old", "self_new", "self_independent", "cross", "cross_independent")
DIFFERENCES = (("cross", "self_old"), ("self_new", "self_independent"))


def evaluate(
    old_query: EmbeddingSet,
    old_gallery: EmbeddingSet,
    new_query: EmbeddingSet,
    new_gallery: EmbeddingSet,
    *,
    independent_query: EmbeddingSet | None = None,
    independent_gallery: EmbeddingSet | None = None,
    cross: Sides | None = None,
    protocol: Protocol | None = None,
    metrics: Sequence[str] | None = None,
    gate_metric: str | None = None,
    gate: Gate = "interval",
    guards: Sequence[str] | None = None,
    exclude_same_id: bool = False,
    no_relevant: NoRelevant = "exclude",
    resamples: int = 2000,
    resample: Resampled = "auto",
    level: float = 0.95,
    seed: int = 0,
    curve: bool = True,
    old_classes: Sequence[str] | None = None,
    device: str | None = None,
) -> Evaluation:
    """Measure whether new queries may search the old gallery, and what the upgrade is worth.

    The sets of all models must hold the same items, matched by id. Labels may come with any of them. Without labels
    nothing can be judged, unless a protocol brings a ground truth: the verdict is "unlabelled", and only the agreement
    of neighbours is measured.

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
        protocol: Who answers what, and what is averaged, see `protocols`; by label when left out.
        metrics: Names that the protocol knows, its own choice when left out; the gate metric is added where missing.
        gate_metric: The metric that decides the verdict; the protocol's own when left out.
        gate: "interval" judges the paired interval of cross - self_old, "point" only its sign.
        guards: Metrics that must not be clearly worse in the cross-test, whatever the gate metric says: the whole
            interval of cross - self_old below 0 turns "compatible" into "mixed". Every metric, and that of the first
            hit, when left out; () for none.
        exclude_same_id: Without a protocol: leave out the gallery item with the id of the query (leave-one-out).
        no_relevant: Without a protocol: what a query without relevant items is worth, "exclude" or "zero".
        resamples: Bootstrap resamples.
        resample: Draw "queries" or whole "classes", whose queries are correlated; see `intervals`. "auto": classes
            where several queries share one.
        level: Level of the intervals.
        seed: Seed of the bootstrap and of the random backfill orders.
        curve: Whether to measure the upgrade curve, by far the longest part. Where ``cross`` maps the old gallery
            alone, mapped and re-embedded items lie in the new model's space and the curve is that of the mixture.
            Where it maps queries, every query is asked in two spaces, whose scores are on two scales: it is not
            measured; `ranking.merging` makes one list of two results.
        old_classes: Names of the classes that the old model has seen, to tell its uncertainty of these and of others.
        device: Where rankings are computed, such as "cuda"; None for the processor, without torch.

    Raises:
        ConfigError: An unknown metric or option, or half an independent model.
        DataError: Fingerprints or labels contradict each other, or a side is empty.
        EmptyOverlapError: The models embedded different items, or no query has a relevant item.
        SpaceMismatchError: Old and new model have different spaces, and ``cross`` is missing; or its sides have.
    """
    protocol = _protocol(protocol, exclude_same_id, no_relevant)
    gate_metric = gate_metric or protocol.gate_metric
    protocol.check_metrics(protocol.metrics if metrics is None else metrics)
    guarded = protocol.answer_metrics() if guards is None else guards
    protocol.check_metrics([gate_metric, *guarded])
    names = list(dict.fromkeys((*(protocol.metrics if metrics is None else metrics), gate_metric, *guarded)))
    guarded = [name for name in (names if guards is None else guards) if name != gate_metric]
    _check_options(gate, resample, level)
    third = independent_query, independent_gallery
    models = matched((old_query, old_gallery), (new_query, new_gallery), third, cross)
    described: dict[str, Any] = {
        **protocol.record(),
        "units": protocol.units,
        "queries": len(old_query),
        "gallery": len(old_gallery),
        "metrics": names,
    }
    head: dict[str, Any] = {
        **dict.fromkeys(Evaluation.model_fields, None),
        "guards": (),
        "worse": (),
        "per_query": {},
        "gate": gate,
        "gate_metric": gate_metric,
        "fingerprints": models.fingerprints(),
        "protocol": described,
        "uncertainty": gallery_uncertainty(models.old[1], models.new[1], old_classes),
        "mapped": models.mapped(),
    }
    draws: dict[str, Any] = {"resamples": resamples, "level": level, "seed": seed}
    described["bootstrap"] = {**draws, "resample": "queries", "groups": len(old_query)}
    blind = protocol.needs_labels and not models.labelled
    if blind or not protocol.judges:
        head["agreement"] = agreement_of(models, exclude_same_id=protocol.leaves_itself_out, draws=draws)
    if blind:
        refuse(
            bool(guards) or resample == "classes",
            f"{', '.join(guards or ()) or 'Classes'} {'cannot be guarded' if guards else 'cannot be drawn'}: nothing "
            "here says what is right.",
            "labels in any of the sets, or neither --guard nor --resample classes",
        )
        return Evaluation(**(head | {"verdict": "unlabelled"}))
    classes = protocol.unit_labels(models.old[0])
    draws["clusters"] = clusters_of(classes, resample, protocol.units, protocol.name)
    asked = [*names, *protocol.answer_metrics()]
    values = {system: protocol.measure(*sides, asked, device=device) for system, sides in models.systems().items()}
    described["queries_counted"] = int(np.count_nonzero(~np.isnan(values["cross"][gate_metric])))
    described["left_out"] = protocol.left_out(*models.old)
    draws["clusters"] = counted_clusters(draws["clusters"], resample, values["cross"][gate_metric])
    described["bootstrap"] |= drawn(values["cross"][gate_metric], draws["clusters"])
    found: dict[str, Any] = {
        **_scores(values, names, protocol),
        **_judgement(values, names, gate, (gate_metric, guarded), draws),
    }
    found["class_change"] = _class_change(values, gate_metric, classes, models.old[0])
    if not protocol.judges:
        found["verdict"] = "unlabelled"
    if curve and protocol.has_curve and models.labelled and models.one_space():
        found["upgrade_curve"] = _curve(models, protocol, gate_metric, seed)
    return Evaluation(**(head | found))


def _protocol(given: Protocol | None, exclude_same_id: bool, no_relevant: NoRelevant) -> Protocol:
    """Return the protocol, which says itself what is left out and what an unanswered query is worth."""
    if given is None:
        check_no_relevant(no_relevant)
        return ByLabel(leave_one_out=exclude_same_id, no_relevant=no_relevant)
    refuse(
        exclude_same_id or no_relevant != "exclude",
        f"The protocol '{given.name}' was given with exclude_same_id or no_relevant.",
        "these as options of the protocol, such as ByLabel(leave_one_out=True)",
    )
    return given


def _check_options(gate: str, resample: str, level: float) -> None:
    for kind, given, known in (("gate", gate, get_args(Gate)), ("resample", resample, get_args(Resampled))):
        if given not in known:
            raise unknown_name(kind, given, known)
    if not 0 < level < 1:
        raise ConfigError(f"An interval at level {level:g}.", expected="a level between 0 and 1, such as 0.95")


def _scores(values: Mapping[str, PerQuery], names: Sequence[str], protocol: Protocol) -> dict[str, Any]:
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
        **_flips(values, protocol),
        "per_query": per_query,
    }


def _flips(values: Mapping[str, PerQuery], protocol: Protocol) -> dict[str, Any]:
    """Return how many answers turned wrong, and right, where single answers are right or wrong."""
    rates: dict[str, Any] = {}
    for answer in protocol.answer_metrics():
        before, now = values["self_old"][answer], {name: values[name][answer] for name in ("cross", "self_new")}
        for kind in (compatibility.negative_flip_rate, compatibility.positive_flip_rate):
            rates[kind.__name__] = {name: kind(before, after) for name, after in now.items()}
    return rates


def _p_metrics(means: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> dict[str, Any]:
    """Return P_up and P_comp in both variants, P_score of the sigmoid one, and why one of them is not defined."""
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
    with warnings.catch_warnings():  # what is not defined says why in `Evaluation.undefined`
        warnings.simplefilter("ignore", RuntimeWarning)
        for variant in get_args(Variant):
            up[variant] = compatibility.p_up(new, independent, variant)
            comp[variant] = compatibility.p_comp(cross, old, independent, variant)
    score = compatibility.p_score(comp["sigmoid"], up["sigmoid"])
    reasons = {name: compatibility.undefined_p_metrics(means["self_old"][name], means["self_independent"][name])
               for name in names}  # fmt: skip

    def by_name(array: Any) -> Values:
        return dict(zip(names, array.tolist(), strict=True))

    return {
        "p_up": {variant: by_name(array) for variant, array in up.items()},
        "p_comp": {variant: by_name(array) for variant, array in comp.items()},
        "p_score": {"sigmoid": by_name(score), "raw": None},
        "undefined": {name: found for name, found in reasons.items() if found},
    }


def _judgement(
    values: Mapping[str, PerQuery],
    names: Sequence[str],
    gate: str,
    judged: tuple[str, Sequence[str]],
    draws: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the intervals of scores and differences, and the verdict on the gate metric and its guards."""
    gate_metric, guards = judged
    columns = {(system, name): of_system[name] for system, of_system in values.items() for name in names}
    for first, second in DIFFERENCES:
        if second in values:
            columns |= {(f"{first}_minus_{second}", name): values[first][name] - values[second][name] for name in names}
    intervals = mean_intervals(columns, **draws)
    drawn = {key: draws[key] for key in ("seed", "clusters")}
    chances = p_values({key: column for key, column in columns.items() if "_minus_" in key[0]}, **drawn)
    gain = intervals[GAIN, gate_metric]
    if gate == "point":
        point = float(np.nanmean(values["cross"][gate_metric])) - float(np.nanmean(values["self_old"][gate_metric]))
        gain = (point, point)

    def by_name(found: Mapping[tuple[str, str], Any]) -> dict[str, dict[str, Any]]:
        pairs = [f"{first}_minus_{second}" for first, second in DIFFERENCES]
        return {name: {pair: found.get((pair, name)) for pair in pairs} for name in names}

    worse = compatibility.clearly_worse({name: intervals[GAIN, name] for name in guards})
    return {
        "verdict": compatibility.verdict(gain, worse),
        "guards": tuple(guards),
        "worse": worse,
        "interval": by_name(intervals),
        "mean_interval": {system: {name: intervals[system, name] for name in names} for system in values},
        "p_value": by_name(chances),
    }


def _class_change(
    values: Mapping[str, PerQuery], metric: str, classes: NDArray[np.int64] | None, query: EmbeddingSet
) -> ClassChangeSummary | None:
    """Return how each class fares with new queries on the old gallery, where units have classes."""
    if classes is None:
        return None
    names = None if query.class_names is None else list(query.class_names)
    before, after = values["self_old"][metric], values["cross"][metric]
    return class_change(before, after, classes).summary(metric, names)


def _curve(models: MatchedModels, protocol: Protocol, metric: str, seed: int) -> UpgradeCurves:
    """Measure the queries that are asked on the items that are searched, so that both ends are what `measure` says."""
    query, gallery = protocol.taking_part(*models.linked())
    _, new_gallery = protocol.taking_part(*models.new)
    options = protocol.curve_options(query, gallery)
    seeds = (seed, seed + 1, seed + 2)
    return UpgradeCurves.of(upgrade_curves(query, gallery, new_gallery, metric=metric, seeds=seeds, **options))
