"""A chain of models, oldest first: which queries may search which earlier gallery, and what keeping that up cost."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings.same_items import with_common_labels
from holdfast.errors import DataError
from holdfast.evaluation.bootstrap import Interval, Resampled, clusters_of, counted_clusters, drawn, mean_intervals
from holdfast.evaluation.compatibility import Variant, average_compatibility, verdict, violations
from holdfast.evaluation.evidence import plain
from holdfast.evaluation.matched_models import Sides, check_one_model
from holdfast.evaluation.matching import check_sides, in_order_of
from holdfast.evaluation.p_metrics import Baseline, Chain, ChainMetrics, chain_metrics
from holdfast.evaluation.protocols.base import PerUnit, Protocol
from holdfast.evaluation.protocols.by_label import ByLabel

Array = NDArray[np.float64]
Pair = tuple[int, int]  # rows of the model that asks and of the one whose gallery is searched


@dataclass(frozen=True, eq=False, kw_only=True)
class ChainEvaluation:
    """What a chain of T models scores on one test set; scores are fractions in [0, 1].

    Args:
        names: What people call the models, oldest first.
        metric: The metric of all scores.
        judged: Whether a score says what is right; without it no pair is called compatible.
        protocol: How it was measured: sizes, options, resamples, seed.
        fingerprints: Of every model by name, and whether a person declared it.
        independent_fingerprints: The same of the independent models, by the name of the model each belongs to.
        matrix: (T, T): queries of model i on the gallery of model j, for j <= i; NaN above.
        interval: Of every score, by (i, j).
        gain_interval: Paired interval of M[i, j] - M[j, j], by (i, j) with j < i.
        ac: Share of pairs with M[i, j] > M[j, j]; see `average_compatibility`.
        am: Mean of the triangle.
        violations: (T, T) bool: pairs with M[i, j] <= M[j, j].
        independent_self: (T,) self score of every model's recipe without alignment, that of the first model its own;
            None where no independent models were given.
        p: P metrics per variant and reading of the old model, see `chain_metrics`; None without independent models.
    """

    names: tuple[str, ...]
    metric: str
    judged: bool
    protocol: Mapping[str, Any]
    fingerprints: Mapping[str, Mapping[str, Any]]
    independent_fingerprints: Mapping[str, Mapping[str, Any]]
    matrix: Array
    interval: Mapping[Pair, Interval]
    gain_interval: Mapping[Pair, Interval]
    ac: float
    am: float
    violations: NDArray[np.bool_]
    independent_self: Array | None = None
    p: Mapping[Variant, Mapping[Baseline, ChainMetrics]] | None = None

    @property
    def compatible(self) -> bool:
        """Whether no pair violates the criterion, and scores say what is right."""
        return self.judged and not self.violations.any()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with NaN as None; pairs are listed with their names."""
        kept = ("metric", "judged", "protocol", "fingerprints", "independent_fingerprints", "ac", "am")
        found = {name: getattr(self, name) for name in kept}
        matrices = {"matrix": self.matrix.tolist(), "independent_self": _listed(self.independent_self)}
        record: dict[str, Any] = plain(
            {"models": list(self.names), **found, **matrices, "pairs": self._pairs(), **self._p_metrics()}
        )
        return record | {"violations": int(self.violations.sum()), "compatible": self.compatible}

    def _pairs(self) -> list[dict[str, Any]]:
        """Return every pair of a newer and an older model with what decides about it."""
        return [
            {
                "new": self.names[i],
                "old": self.names[j],
                "cross": float(self.matrix[i, j]),
                "self_old": float(self.matrix[j, j]),
                "interval": self.gain_interval[i, j],
                "violates": bool(self.violations[i, j]),
                "verdict": verdict(self.gain_interval[i, j]) if self.judged else "unlabelled",
            }
            for i, j in zip(*(rows.tolist() for rows in np.tril_indices(len(self.names), -1)), strict=True)
        ]

    def _p_metrics(self) -> dict[str, Any]:
        if self.p is None:
            return {"p_up": None, "p_comp": None, "p_score": None}
        up = {variant: both["own"].p_up.tolist() for variant, both in self.p.items()}
        comp = {
            variant: {baseline: found.p_comp.tolist() for baseline, found in both.items()}
            for variant, both in self.p.items()
        }
        score = {baseline: _listed(found.p_score) for baseline, found in self.p["sigmoid"].items()}
        return {"p_up": up, "p_comp": comp, "p_score": score}


def _listed(array: Array | None) -> list[Any] | None:
    return None if array is None else array.tolist()


def evaluate_chain(
    generations: Mapping[str, Sides] | Sequence[Sides],
    *,
    independent: Sequence[Sides] | None = None,
    protocol: Protocol | None = None,
    metric: str | None = None,
    resamples: int = 2000,
    resample: Resampled = "auto",
    level: float = 0.95,
    seed: int = 0,
    device: str | None = None,
) -> ChainEvaluation:
    """Measure the queries of every model on its own and every earlier gallery, by any protocol.

    The models must have embedded the same items, matched by id. Labels may come with any of them.

    Paper: the compatibility matrix with its averages AC and AM, and P_comp of every pair as HBCT's Fig. 5 and Table IV
    of NDPP compute it; see `chain_metrics` for the two readings.

    Args:
        generations: Queries and gallery of every model, oldest first; the keys of a mapping are their names.
        independent: Queries and gallery of the recipe of every model but the first, trained without alignment, in the
            order of the chain; for P_up and P_comp.
        protocol: Who answers what, and what is averaged; by label when left out.
        metric: A name that the protocol knows; its own gate metric when left out.
        resamples: Bootstrap resamples.
        resample: Draw "queries", or whole "classes", whose queries are correlated. "auto": classes where several
            queries share one.
        level: Level of the intervals.
        seed: Seed of the bootstrap.
        device: Where rankings are computed, such as "cuda"; None for the processor, without torch.

    Returns:
        The matrix, its summary, and P metrics under both readings. NaN, with a warning, where the independent model is
        not better than the old one.

    Raises:
        ConfigError: An unknown metric or option.
        DataError: Fewer than two models, one of them twice, or another number of independent models; labels that the
            protocol needs are missing or contradict each other.
        EmptyOverlapError: The models embedded different items, or no query has a relevant item.
        SpaceMismatchError: Two models of the chain have different spaces.
    """
    protocol = ByLabel() if protocol is None else protocol
    metric = metric or protocol.gate_metric
    protocol.check_metrics([metric])
    names, models, third = _matched(generations, independent)
    _check_labels(protocol, models[0])
    clusters = clusters_of(protocol.unit_labels(models[0][0]), resample, protocol.units, protocol.name)
    values = _values(models, protocol, metric, device)
    alone = [protocol.measure(*sides, [metric], device=device)[metric] for sides in third]
    matrix = np.full((len(models), len(models)), np.nan)
    for pair, found in values.items():
        matrix[pair] = np.nanmean(found)
    own = np.array([matrix[0, 0], *(np.nanmean(found) for found in alone)]) if third else None
    draws: dict[str, Any] = {"resamples": resamples, "level": level, "seed": seed}
    clusters = counted_clusters(clusters, resample, values[0, 0])
    intervals, gains = _intervals(values, draws, clusters)
    ac, am = average_compatibility(matrix)
    described = {
        **protocol.record(),
        "units": protocol.units,
        "queries": len(models[0][0]),
        "gallery": len(models[0][1]),
        "queries_counted": int(np.count_nonzero(~np.isnan(values[0, 0]))),
        "left_out": protocol.left_out(*models[0]),
        "bootstrap": {**draws, **drawn(values[0, 0], clusters)},
    }
    return ChainEvaluation(
        names=names,
        metric=metric,
        judged=protocol.judges,
        protocol=described,
        fingerprints=_fingerprints(names, models),
        independent_fingerprints=_fingerprints(names[1:], third),
        matrix=matrix,
        interval=intervals,
        gain_interval=gains,
        ac=ac,
        am=am,
        violations=violations(matrix),
        independent_self=own,
        p=None if own is None else _p_metrics(matrix, own, metric),
    )


def _matched(
    generations: Mapping[str, Sides] | Sequence[Sides], independent: Sequence[Sides] | None
) -> tuple[tuple[str, ...], list[Sides], list[Sides]]:
    """Return names, chain and independent models, all in the order of the first model's items, with common labels."""
    named = generations if isinstance(generations, Mapping) else _numbered(generations)
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
            to_do="train the recipe of each later model without alignment: `holdfast train --method independent`.",
        )
    called = [*(f"'{name}'" for name in names), *(f"independent '{name}'" for name in names[1 : len(third) + 1])]
    for name, sides in zip(called, [*models, *third], strict=True):
        check_one_model(name, *sides)
    _refuse_repeated(called[: len(models)], models)
    _refuse_repeated(called[len(models) :], third)
    for newer in models[1:]:
        check_sides(newer[0], models[0][1])
    queries, galleries = (
        with_common_labels([
            in_order_of(models[0][side], sides[side], (f"{called[0]} {what}", f"{name} {what}"))
            for name, sides in zip(called, [*models, *third], strict=True)
        ])
        for side, what in enumerate(("queries", "gallery"))
    )  # fmt: skip
    found = list(zip(queries, galleries, strict=True))
    return names, found[: len(models)], found[len(models) :]


def _numbered(generations: Sequence[Sides]) -> dict[str, Sides]:
    return {f"model {number}": sides for number, sides in enumerate(generations, start=1)}


def _refuse_repeated(names: Sequence[str], models: Sequence[Sides]) -> None:
    first: dict[str, str] = {}
    for name, (_, gallery) in zip(names, models, strict=True):
        before = first.setdefault(gallery.fingerprint, name)
        if before is not name:
            raise DataError(
                f"{before} and {name} have the fingerprint {gallery.fingerprint}: these are the same model.",
                expected="every model of a chain once",
                to_do="check which folders or files were given.",
            )


def _check_labels(protocol: Protocol, sides: Sides) -> None:
    if protocol.needs_labels and any(embeddings.labels is None for embeddings in sides):
        raise DataError(
            f"No model of the chain has labels, and the protocol '{protocol.name}' needs them.",
            expected="labels with the queries and the gallery of one model at least",
            to_do="add labels, or give a protocol with a ground truth.",
        )


def _values(models: Sequence[Sides], protocol: Protocol, metric: str, device: str | None) -> dict[Pair, PerUnit]:
    """Return one value per unit for every entry of the lower triangle."""
    return {
        (i, j): protocol.measure(models[i][0], models[j][1], [metric], device=device)[metric]
        for i in range(len(models))
        for j in range(i + 1)
    }


def _intervals(
    values: Mapping[Pair, PerUnit], draws: Mapping[str, Any], clusters: NDArray[np.int64] | None
) -> tuple[dict[Pair, Interval], dict[Pair, Interval]]:
    """Return the intervals of all scores, and of what every pair gains, over the same resampled units."""
    columns = {("score", pair): found for pair, found in values.items()}
    columns |= {("gain", (i, j)): found - values[j, j] for (i, j), found in values.items() if j < i}
    intervals = mean_intervals(columns, clusters=clusters, **draws)
    scores, gains = ({pair: found for (kind, pair), found in intervals.items() if kind == wanted}
                     for wanted in ("score", "gain"))  # fmt: skip
    return scores, gains


def _fingerprints(names: Sequence[str], models: Sequence[Sides]) -> dict[str, dict[str, Any]]:
    return {
        name: {"fingerprint": gallery.fingerprint, "declared": gallery.declared}
        for name, (_, gallery) in zip(names, models, strict=False)
    }


def _p_metrics(matrix: Array, independent_self: Array, metric: str) -> dict[Variant, Mapping[Baseline, ChainMetrics]]:
    """Return both variants; what is not defined is so in both, and warned of once."""
    chain = {metric: Chain(matrix, independent_self)}
    raw = chain_metrics(chain, "raw")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return {"raw": raw, "sigmoid": chain_metrics(chain, "sigmoid")}
