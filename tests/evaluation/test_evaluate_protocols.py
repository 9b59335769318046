from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.protocols import ByLabel, Protocol, Relevance, RelevancePairs, SeenClasses
from limpet.geometry import Hypersphere

QUERIES, ITEMS, CLASSES = 60, 240, 12


def embedded(side: str, noise: float, model: str, *, labelled: bool = True) -> EmbeddingSet:
    """Items around the centres of their classes; a model is told by its noise."""
    count = QUERIES if side == "query" else ITEMS
    labels = np.arange(count) % CLASSES
    rng = np.random.default_rng(count + int(100 * noise))
    centres = np.random.default_rng(0).normal(size=(CLASSES, 16))
    vectors = (centres[labels] + noise * rng.normal(size=(count, 16))).astype(np.float32)
    ids = StringArray.of(f"{side}{row}" for row in range(count))
    return EmbeddingSet(vectors, ids, f"declared:{model}", Hypersphere(16), labels=labels if labelled else None)


def measured(protocol: Protocol | None, *, labelled: bool = True, **options: Any) -> Any:
    old, new = (
        [embedded(side, noise, model, labelled=labelled) for side in ("query", "gallery")]
        for model, noise in (("old", 2.0), ("new", 0.7))
    )
    return evaluate(old, new, protocol=protocol, resamples=200, **options)


def by_class() -> RelevancePairs:
    pairs = [(q, g) for q in range(QUERIES) for g in range(ITEMS) if q % CLASSES == g % CLASSES]
    queries, items = zip(*pairs, strict=True)
    return RelevancePairs(
        StringArray.of(f"query{row}" for row in queries),
        StringArray.of(f"gallery{row}" for row in items),
        np.zeros(len(pairs), np.bool_),
    )


def test_pairs_that_repeat_the_labels_measure_the_same_as_labels() -> None:
    """Whoever says who answers whom: same scores, intervals, p-values and verdict."""
    by_label = measured(ByLabel(), curve=False, resample="queries")  # pairs know no classes
    by_pairs = measured(Relevance(pairs=by_class(), judged=True), labelled=False)
    for name in ("self_old", "self_new", "cross", "interval", "p_value", "negative_flip_rate", "verdict"):
        assert getattr(by_pairs, name) == getattr(by_label, name), name
    assert by_pairs.verdict == "compatible"
    assert by_pairs.upgrade_curve is None and by_pairs.class_change is None
    assert by_pairs.protocol.name == "relevance" and by_pairs.protocol.options["judged"] is True


def test_clicks_are_measured_and_judge_nothing() -> None:
    clicks = measured(Relevance(pairs=by_class()), labelled=False)
    assert clicks.verdict == "unlabelled"
    assert clicks.cross["map"] > clicks.self_old["map"]
    assert clicks.interval["map"]["cross_minus_self_old"][0] > 0
    assert clicks.agreement.cross.overlap.mean < 1


def test_the_protocol_chooses_metrics_and_what_an_unanswered_query_is_worth() -> None:
    found = measured(SeenClasses(), curve=False)
    assert list(found.cross) == ["recall@1", "recall@2", "recall@4"]
    assert found.gate_metric == "recall@1" and found.protocol.options["no_relevant"] == "zero"
    assert list(measured(SeenClasses(), curve=False, metrics=["map"]).cross) == ["map", "recall@1"]


def test_flips_in_both_directions_add_up_to_the_change_of_right_answers() -> None:
    found = measured(ByLabel(), curve=False)
    gained = found.positive_flip_rate["cross"] - found.negative_flip_rate["cross"]
    assert gained == pytest.approx(found.cross["recall@1"] - found.self_old["recall@1"])


def test_options_of_two_masters_are_refused() -> None:
    with pytest.raises(ConfigError, match="given with exclude_same_id or no_relevant"):
        measured(ByLabel(), exclude_same_id=True)
    with pytest.raises(ConfigError, match="the queries of the protocol 'relevance' have none"):
        measured(Relevance(pairs=by_class(), judged=True), labelled=False, resample="classes")


def test_a_device_gives_the_same_numbers() -> None:
    assert measured(ByLabel(), curve=False, device="cpu").cross == measured(ByLabel(), curve=False).cross
