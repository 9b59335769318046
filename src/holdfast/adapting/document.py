"""The document of `holdfast adapt`: all that was measured between two frozen models, as plain values for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from holdfast.adapters import SuspectPairs
from holdfast.adapting.comparison import Comparison, Directions, Failed, Loss, Mean, Measured, Unseen
from holdfast.adapting.held_out import HeldOut
from holdfast.adapting.learning_curve import LearningCurve
from holdfast.adapting.recommendation import Recommendation
from holdfast.embeddings import EmbeddingSet

SCHEMA_VERSION = 1


class Names(NamedTuple):
    """What people call the data and the two models."""

    data: str
    old: str
    new: str


def document(
    held_out: HeldOut,
    comparison: Comparison,
    recommendation: Recommendation,
    *,
    title: str,
    names: Names,
    direction: Directions,
    pair_sentences: Sequence[str] = (),
    suspects: SuspectPairs | None = None,
    curve: LearningCurve | None = None,
    score_map: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the document: plain values only, and None for whatever is unknown, NaN or infinite.

    Args:
        held_out: The pairs, as they were split.
        comparison: What was measured with them.
        recommendation: What follows.
        title: Title of the run.
        names: What data and models are called.
        direction: What the adapters map; "both" where every one was fitted in both directions.
        pair_sentences: What was odd about the pairs.
        suspects: Which share of them does not belong together.
        curve: How many pairs are needed; one without any point is left out.
        score_map: The map of scores, as "error", "text" and "knots".
    """
    best, adapter, head = comparison.best, comparison.best_adapter, comparison.best_head
    content = {
        "schema_version": SCHEMA_VERSION,
        "kind": "adapt",
        "title": title,
        "data": _data(held_out, names.data, pair_sentences),
        "models": {"old": _model(names.old, held_out.old), "new": _model(names.new, held_out.new)},
        "suspects": _suspects(suspects),
        "protocol": _protocol(comparison, direction),
        "systems": {"self_old": _mean(comparison.self_old), "self_new": _mean(comparison.self_new)},
        "candidates": [_candidate(one) for one in comparison.candidates],
        "best_adapter": adapter and adapter.name,
        "best_head": head and head.name,
        "best": best and best.name,
        "learning_curve": _curve(curve),
        "score_map": score_map,
        "recommendation": {
            "action": recommendation.action,
            "candidate": recommendation.candidate,
            "sentences": recommendation.sentences,
            "worse": [_loss(loss) for loss in recommendation.worse],
        },
    }
    return {key: plain(value) for key, value in content.items()}


def _data(held_out: HeldOut, name: str, sentences: Sequence[str]) -> dict[str, Any]:
    return {
        "name": name,
        "pairs": held_out.pairs,
        "labelled": held_out.labelled,
        "classes": held_out.classes,
        "sentences": sentences,
    }


def _model(name: str, embeddings: EmbeddingSet) -> dict[str, Any]:
    return {"name": name, "fingerprint": embeddings.fingerprint, "dim": embeddings.dim}


def _suspects(suspects: SuspectPairs | None) -> dict[str, Any] | None:
    if suspects is None:
        return None
    return {
        "share": suspects.share,
        "low": suspects.low,
        "high": suspects.high,
        "tested": suspects.tested,
        "sentence": suspects.sentence(),
    }


def _protocol(comparison: Comparison, direction: Directions) -> dict[str, Any]:
    draws = comparison.draws
    return {
        "fitted_on": comparison.fitted_on,
        "held_out": comparison.held_out,
        "unseen_classes": comparison.unseen_classes,
        "metric": comparison.metric,
        "direction": direction,
        "level": draws.level,
        "resamples": draws.resamples,
        "seed": draws.seed,
        "resample": "queries" if draws.clusters is None else "classes",
        "guards": comparison.guards,
    }


def _candidate(one: Measured | Failed) -> dict[str, Any]:
    found = one if isinstance(one, Measured) else None
    return {
        "name": one.name,
        "kind": one.kind,
        "direction": one.direction,
        "seconds": one.seconds,
        "cross": found and _mean(found.cross),
        "cross_minus_self_old": found and _mean(found.cross_minus_self_old),
        "self_new_minus_cross": found and _mean(found.self_new_minus_cross),
        "recovered": found and found.recovered,
        "own": _mean(found.own) if found and found.own else None,
        "unseen": _unseen(found.unseen) if found and found.unseen else None,
        "worse": [_loss(loss) for loss in found.worse] if found else [],
        "as_best": found and found.as_best,
        "failed": one.reason if isinstance(one, Failed) else None,
    }


def _unseen(found: Unseen) -> dict[str, Any]:
    return {**found._asdict(), "gain": found.gain and _mean(found.gain)}


def _loss(loss: Loss) -> dict[str, Any]:
    return {**loss._asdict(), "gain": _mean(loss.gain)}


def _mean(mean: Mean) -> dict[str, Any]:
    return {"mean": mean.mean, "interval": mean.interval}


def _curve(curve: LearningCurve | None) -> dict[str, Any] | None:
    if curve is None or not curve.points:
        return None
    points = [{"pairs": pairs, "cross": _mean(cross)} for pairs, cross in curve.points]
    return {"candidate": curve.candidate, "points": points, "enough": curve.enough}


def plain(value: Any) -> Any:
    """Return mappings, sequences and NumPy values as plain ones, with None for numbers that JSON cannot write.

    >>> plain({"a": (np.float32(0.5), float("nan")), "b": np.array([1, 2])})
    {'a': [0.5, None], 'b': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
