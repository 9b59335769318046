"""Evaluation of an upgrade in one call: self-tests, cross-test, scores, intervals, flips, curve, verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, get_args

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.embeddings.embedding_set import check_given
from limpet.errors import refuse
from limpet.evaluation.agreement import agreement_of
from limpet.evaluation.class_change import class_change
from limpet.evaluation.compatibility import (
    PMetrics,
    SelfAndCross,
    Variant,
    clearly_worse,
    compatible,
    negative_flip_rate,
    positive_flip_rate,
    undefined_p_metrics,
    verdict,
)
from limpet.evaluation.first_hits import FirstHits
from limpet.evaluation.intervals import Draws, Resampled, clusters_of, p_values
from limpet.evaluation.mixing import measure_mixing
from limpet.evaluation.protocols.base import Protocol
from limpet.evaluation.protocols.by_label import ByLabel
from limpet.evaluation.results import GAIN, Evaluation, Gate, PerQuery, ProtocolRecord, System, TrainedItems
from limpet.evaluation.retrieval import NoRelevant, check_no_relevant
from limpet.evaluation.sides import MatchedModels, Sides, matched
from limpet.evaluation.ties import ties_of
from limpet.evaluation.uncertainty import gallery_uncertainty
from limpet.evaluation.upgrade import UpgradeCurves, upgrade_curves
from limpet.support.ranges import checked

SMALL_GAIN = 0.002
"""A gain below this is compared with what rounding gives."""

DIFFERENCES = (("cross", "self_old"), ("self_new", "self_independent"))


@checked
def evaluate(
    old: EmbeddingSet | Sides,
    new: EmbeddingSet | Sides,
    *,
    independent: EmbeddingSet | Sides | None = None,
    cross: Sides | None = None,
    protocol: Protocol | None = None,
    metrics: Sequence[str] | None = None,
    gate_metric: str | None = None,
    gate: Gate = "interval",
    min_effect: Annotated[float, Ge(0), Lt(1)] = 0.0,
    guards: Sequence[str] | None = None,
    exclude_same_id: bool | None = None,
    no_relevant: NoRelevant = "exclude",
    resamples: int = 2000,
    resample: Resampled = "auto",
    level: float = 0.95,
    seed: int = 0,
    curve: bool = True,
    mixing: float | None = None,
    old_classes: Sequence[str] | None = None,
    device: str | None = None,
) -> Evaluation:
    """Measure whether new queries can search the old gallery, and what re-embedding would gain.

    A model is one set, whose items search each other, or a pair: queries and their gallery. All models must hold the
    same items; they are matched by id. Labels can come with any set. Without labels or a protocol's ground truth, the
    verdict is "unlabelled", and only the agreement of neighbours is measured.

    Args:
        old: Embeddings of the old model.
        new: Embeddings of the new model.
        independent: Embeddings of the new recipe trained without alignment, for P_up and P_comp.
        cross: Queries and gallery of the cross-test if a map or a head links two frozen models: mapped new queries with
            the old gallery, new queries with the mapped old gallery, or both mapped. `new` stays unmapped.
        protocol: Which items answer a query, and what is averaged; see `protocols`. Default: by label.
        metrics: Metrics of the protocol. Default: its own choice. The gate metric is added if it is missing.
        gate_metric: The metric that decides the verdict. Default: the protocol's own.
        gate: "interval" judges the paired interval of cross - self_old, "point" only its sign.
        min_effect: Smallest gain in the gate metric that is called compatible.
        guards: Metrics that must not be clearly worse in the cross-test: if the whole interval of cross - self_old is
            below 0, "compatible" becomes "mixed". Default: every metric, and that of the first hit; () for none.
        exclude_same_id: Without a protocol: leave out the gallery item with the id of the query. Default: if each model
            is one set.
        no_relevant: Without a protocol: whether a query without relevant items is left out ("exclude") or counts as 0
            ("zero").
        resamples: Number of bootstrap resamples.
        resample: Draw "queries", or whole "classes", whose queries are correlated; see `intervals`. "auto" draws
            classes if several queries share one.
        level: Level of the intervals.
        seed: Random seed of the bootstrap and of random backfill orders.
        curve: Whether to measure the upgrade curve, which takes most of the time. It is not measured if ``cross`` maps
            queries, because their scores in two spaces are on two scales; see `ranking.merging`.
        mixing: Largest loss of old queries, as a fraction, in a gallery with vectors of both models; see
            `measure_mixing`. Default: not measured.
        old_classes: Names of the classes that the old model has seen, to report its uncertainty about these and others.
        device: Device for rankings, such as "cuda"; None for the CPU, without torch.

    Raises:
        ConfigError: A metric or option is unknown, a pair is combined with a single set, or mixing cannot be judged.
        DataError: Fingerprints or labels contradict each other, or a side is empty.
        EmptyOverlapError: The models embedded different items, or no query has a relevant item.
        SpaceMismatchError: The models, or the sides of ``cross``, have different spaces.

    >>> rng, labels = np.random.default_rng(0), np.arange(40) % 4
    >>> centres, noise = rng.normal(size=(4, 8)), rng.normal(size=(40, 8))
    >>> old, new = (
    ...     EmbeddingSet((centres[labels] + width * noise).astype(np.float32), model=name, labels=labels)
    ...     for name, width in (("v1", 1.0), ("v2", 0.5))
    ... )
    >>> evaluate(old, new).verdict
    'compatible'
    """
    if exclude_same_id is None:
        exclude_same_id = protocol is None and isinstance(old, EmbeddingSet)
    old, new, third = _sides(old, new, independent)
    protocol = _protocol(protocol, exclude_same_id, no_relevant)
    gate_metric = gate_metric or protocol.gate_metric
    names, guarded = _metrics(protocol, metrics, gate_metric, guards)
    draws = Draws(resamples, level, seed)
    models = matched(old, new, third, cross)
    blind = protocol.needs_labels and not models.labelled
    agreement = None
    if blind or not protocol.judges:
        agreement = agreement_of(models, exclude_same_id=protocol.leaves_itself_out, draws=draws)
    marks = models.trained_on()
    trained = {
        name: mark and TrainedItems(queries=int(mark[0].sum()), gallery=int(mark[1].sum()))
        for name, mark in marks.items()
    }
    share = 0.0 if (of_new := marks["new"]) is None else float(of_new[0].mean())
    about: dict[str, Any] = {
        "trained_on": trained,
        "gate": gate,
        "gate_metric": gate_metric,
        "min_effect": min_effect or None,
        "fingerprints": models.fingerprints(),
        "uncertainty": gallery_uncertainty(models.old[1], models.new[1], old_classes),
        "mapped": models.mapped(),
        "agreement": agreement,
    }
    refuse(
        mixing is not None and (blind or not protocol.judges),
        "Mixed galleries cannot be judged: nothing here says what is right.",
        "labels in any of the sets, or a ground truth",
    )
    if blind:
        refuse(
            bool(guards) or resample == "classes",
            f"{', '.join(guards or ()) or 'Classes'} {'cannot be guarded' if guards else 'cannot be drawn'}: nothing "
            "here says what is right.",
            "labels in any of the sets, or neither --guard nor --resample classes",
        )
        protocol_record = ProtocolRecord.of(protocol, models.old, draws, metrics=names)
        unscored = dict.fromkeys(name for name, field in Evaluation.model_fields.items() if field.is_required())
        return Evaluation(
            **{**unscored, **about, "verdict": "unlabelled", "protocol": protocol_record, "guards": (), "worse": ()}
        )
    classes = protocol.unit_labels(models.old[0])
    draws = replace(draws, clusters=clusters_of(classes, resample, protocol.units, protocol.name))
    asked = [*names, *protocol.answer_metrics(), *([] if protocol.ties is None else [protocol.ties])]
    values = {system: protocol.measure(*sides, asked, device=device) for system, sides in models.systems().items()}
    deciding = values["cross"][gate_metric]
    draws = draws.counting(deciding, resample)
    judgement = _judgement(values, names, gate, gate_metric, guarded, draws, min_effect, share)
    mixed = None
    if mixing is not None:
        mixed = measure_mixing(
            models, protocol, names, gate_metric, guards=guarded, draws=draws, tolerance=mixing, device=device,
            trained_share=share,
        )  # fmt: skip
    change = None
    if classes is not None:
        changes = class_change(values["self_old"][gate_metric], deciding, classes)
        change = changes.summary(gate_metric, models.old[0].class_names)
    has_curve = curve and protocol.has_curve and models.labelled and models.one_space()
    return Evaluation(
        **about,
        protocol=ProtocolRecord.of(protocol, models.old, draws, metrics=names, counted=deciding),
        **_scores(values, names),
        **_flips(values, protocol, draws),
        ties=ties_of(values, {"old": models.old, "new": models.new}),
        rounding=_rounding(values, models, protocol, gate_metric, device),
        **{**judgement, "verdict": judgement["verdict"] if protocol.judges else "unlabelled"},
        class_change=change,
        upgrade_curve=_curve(models, protocol, gate_metric, seed) if has_curve else None,
        mixing=mixed,
    )


def _sides(
    old: EmbeddingSet | Sides, new: EmbeddingSet | Sides, independent: EmbeddingSet | Sides | None
) -> tuple[Sides, Sides, Sides | None]:
    """Return queries and gallery of every model; those of one set are that set."""
    given = {"old": old, "new": new} | ({} if independent is None else {"independent": independent})
    kinds = {isinstance(one, tuple | list) for one in given.values()}
    refuse(len(kinds) > 1, "One set and a pair of sets were given.", "one set of each model, or a pair of each")
    sides: dict[str, Sides] = {}
    for name, one in given.items():
        if isinstance(one, tuple | list):
            refuse(len(one) != 2, f"'{name}' is a {type(one).__name__} of {len(one)}.", "a pair: queries and gallery")
            check_given(**{f"{name} queries": one[0], f"{name} gallery": one[1]})
            sides[name] = one[0], one[1]
        else:
            check_given(**{name: one})
            sides[name] = one, one
    return sides["old"], sides["new"], sides.get("independent")


def _protocol(given: Protocol | None, exclude_same_id: bool, no_relevant: NoRelevant) -> Protocol:
    if given is None:
        check_no_relevant(no_relevant)
        return ByLabel(leave_one_out=exclude_same_id, no_relevant=no_relevant)
    refuse(
        exclude_same_id or no_relevant != "exclude",
        f"The protocol '{given.name}' was given with exclude_same_id or no_relevant.",
        "these as options of the protocol, such as ByLabel(leave_one_out=True)",
    )
    return given


def _metrics(
    protocol: Protocol, metrics: Sequence[str] | None, gate_metric: str, guards: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    asked = protocol.metrics if metrics is None else metrics
    guarded = protocol.answer_metrics() if guards is None else guards
    protocol.check_metrics(asked)
    protocol.check_metrics([gate_metric, *guarded])
    names = list(dict.fromkeys((*asked, gate_metric, *guarded)))
    return names, [name for name in (names if guards is None else guards) if name != gate_metric]


def _scores(values: Mapping[str, PerQuery], names: Sequence[str]) -> dict[str, Any]:
    per_query = {system: {name: of_system[name] for name in names} for system, of_system in values.items()}
    means = {
        system: {name: float(np.nanmean(array)) for name, array in of_system.items()}
        for system, of_system in per_query.items()
    }
    cross, old, new = means["cross"], means["self_old"], means["self_new"]
    independent = means.get("self_independent")
    alone = dict.fromkeys(names, math.nan) if independent is None else independent
    p = {name: PMetrics.of(SelfAndCross(old[name], alone[name], new[name], cross[name])) for name in names}
    reasons = {name: undefined_p_metrics(old[name], alone[name]) for name in names if independent is not None}
    return {
        **{system: means.get(system) for system in get_args(System)},
        "compatible": {name: bool(compatible(cross[name], old[name])) for name in names},
        "p_up": {variant: {name: p[name].p_up[variant] for name in names} for variant in get_args(Variant)},
        "p_comp": {variant: {name: p[name].p_comp[variant] for name in names} for variant in get_args(Variant)},
        "p_score": {"sigmoid": {name: p[name].p_score for name in names}, "raw": None},
        "undefined": None if independent is None else {name: found for name, found in reasons.items() if found},
        "per_query": per_query,
    }


def _flips(values: Mapping[str, PerQuery], protocol: Protocol, draws: Draws) -> dict[str, Any]:
    rates: dict[str, Any] = {"negative_flip_rate": None}
    for answer in protocol.answer_metrics():
        before, now = values["self_old"][answer], {name: values[name][answer] for name in ("cross", "self_new")}
        for rate in (negative_flip_rate, positive_flip_rate):
            rates[rate.__name__] = {name: rate(before, after) for name, after in now.items()}
        rates["first_hits"] = FirstHits.of(answer, before, now["cross"], draws)
    return rates


def _rounding(
    values: Mapping[str, PerQuery], models: MatchedModels, protocol: Protocol, metric: str, device: str | None
) -> float | None:
    """Return how much the score of a query changes, on average, if old vectors are rounded to 16 bits.

    None where the gain is so large that rounding cannot give it, or where there is none.
    """
    old = values["self_old"][metric]
    if not 0 < float(np.nanmean(values["cross"][metric] - old)) < SMALL_GAIN:
        return None
    query, gallery = (one.replace(vectors=_in_16_bits(one.vectors)) for one in models.old)
    return float(np.nanmean(np.abs(protocol.measure(query, gallery, [metric], device=device)[metric] - old)))


def _in_16_bits(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to the 11 significant bits of float16, whatever the size of the numbers."""
    fraction, exponent = np.frexp(vectors)
    rounded: NDArray[np.float32] = np.ldexp(np.rint(fraction * 2048) / 2048, exponent).astype(np.float32)
    return rounded


def _judgement(
    values: Mapping[str, PerQuery],
    names: Sequence[str],
    gate: Gate,
    gate_metric: str,
    guards: Sequence[str],
    draws: Draws,
    min_effect: float,
    trained_share: float,
) -> dict[str, Any]:
    differences = {f"{first}_minus_{second}": (first, second) for first, second in DIFFERENCES}
    scores = {(system, name): of_system[name] for system, of_system in values.items() for name in names}
    gains = {
        (difference, name): values[first][name] - values[second][name]
        for difference, (first, second) in differences.items()
        if second in values
        for name in names
    }
    intervals = draws.intervals({**scores, **gains})
    chances = p_values(gains, seed=draws.seed, clusters=draws.clusters)
    gain = intervals[GAIN, gate_metric]
    if gate == "point":
        point = float(np.nanmean(values["cross"][gate_metric])) - float(np.nanmean(values["self_old"][gate_metric]))
        gain = (point, point)
    worse = clearly_worse({name: intervals[GAIN, name] for name in guards})
    return {
        "verdict": verdict(gain, worse, min_effect, trained_share),
        "guards": tuple(guards),
        "worse": worse,
        "interval": {name: {one: intervals.get((one, name)) for one in differences} for name in names},
        "mean_interval": {system: {name: intervals[system, name] for name in names} for system in values},
        "p_value": {name: {one: chances.get((one, name)) for one in differences} for name in names},
    }


def _curve(models: MatchedModels, protocol: Protocol, metric: str, seed: int) -> UpgradeCurves:
    """Measure the queries that are asked on the items that are searched, so that both ends are what `measure` says."""
    query, gallery = protocol.taking_part(*models.linked())
    _, new_gallery = protocol.taking_part(*models.new)
    options = protocol.curve_options(query, gallery)
    seeds = (seed, seed + 1, seed + 2)
    return UpgradeCurves.of(upgrade_curves(query, gallery, new_gallery, metric=metric, seeds=seeds, **options))
