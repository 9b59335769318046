from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.adapters import Adapter, build_adapter
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError
from limpet.evaluation.upgrade import label_margins
from limpet.galleries import Gallery, expected_gain
from limpet.galleries.expected_gain import (
    SMALLEST_PILOT,
    lorentz_uncertainty,
    margin_estimate,
    pilot_ids,
    predicted_disagreement,
)
from limpet.galleries.orders import ORDERS, Backlog, class_balanced, order_ids
from limpet.geometry import Hypersphere, Lorentz, Space

Sets = tuple[EmbeddingSet, EmbeddingSet]


def unit(rows: Any) -> np.ndarray:
    rows = np.asarray(rows, np.float64)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def points(vectors: Any, model: str, ids: list[str] | None = None, space: Space | None = None) -> EmbeddingSet:
    vectors = np.asarray(vectors, np.float32)
    names = [f"i{row:04d}" for row in range(len(vectors))] if ids is None else ids
    return EmbeddingSet(names, vectors, f"declared:{model}", space or Hypersphere(vectors.shape[1]))  # type: ignore[arg-type]


def opened(old: EmbeddingSet, new_space: Space | None = None, labels: Any = None) -> Gallery:
    """A gallery of old vectors with a generation g2 to fill."""
    gallery = Gallery.create(
        "memory://", fingerprint=old.fingerprint, space=old.space, columns={} if labels is None else {"label": "text"}
    )
    gallery.add(old, metadata=None if labels is None else {"label": labels})
    gallery.prepare("declared:new", new_space or old.space)
    return gallery


def fill(gallery: Gallery, new: EmbeddingSet, ids: list[str]) -> None:
    gallery.backfill(Known(new, ids))


class Known:
    """A source of some vectors that are there."""

    def __init__(self, embeddings: EmbeddingSet, ids: list[str] | None = None) -> None:
        self.embeddings = embeddings if ids is None else embeddings.select(embeddings.ids.find(ids))
        self.fingerprint, self.space = embeddings.fingerprint, embeddings.space
        self.asked: list[str] = []

    def embed(self, ids: Any) -> EmbeddingSet:
        self.asked += ids
        rows = self.embeddings.ids.find(ids)
        return self.embeddings.select(rows[rows >= 0])


@pytest.fixture(scope="module")
def two_regions() -> Sets:
    """600 items in two regions of the old space; the new model agrees in one, and turns the other up side down."""
    rng = np.random.default_rng(0)
    region = np.arange(600) % 2
    old = unit(np.where(region[:, None], [1.0, 0, 0, 0], [0, 1.0, 0, 0]) + 0.2 * rng.normal(size=(600, 4)))
    turn = np.diag([1.0, -1, 1, 1])
    return points(old, "old"), points(unit(old @ turn), "new")


def backlog(ids: list[str], **known: Any) -> Backlog:
    unknown = lambda: np.zeros(len(ids))  # noqa: E731
    values = {"classes": list, "traffic": dict, "gains": unknown, "variances": unknown}
    return Backlog(ids, **{**values, **{name: (lambda found=found: found) for name, found in known.items()}})


@pytest.mark.parametrize("order", [name for name in ORDERS if name != "variance"])  # which needs mapped vectors
def test_every_order_holds_every_item_once_and_depends_on_the_seed_alone(order: str, two_regions: Sets) -> None:
    old, new = two_regions
    gallery = opened(old, labels=[f"c{row % 3}" for row in range(len(old))])
    gallery.store.add_traffic({"i0004": 3})
    done = list(old.ids)[::4]
    fill(gallery, new, done)
    found = [order_ids(gallery.store, gallery.state, "g2", order, seed=seed) for seed in (0, 0, 1)]
    assert sorted(found[0]) == sorted(set(old.ids) - set(done))
    assert found[0] == found[1]
    assert (found[0] != found[2]) == (order in ("random", "class-balanced"))


def test_an_unknown_order_or_column_is_refused_with_those_there_are(two_regions: Sets) -> None:
    gallery = opened(two_regions[0], labels=["a"] * 600)
    with pytest.raises(ConfigError, match="Did you mean 'random'"):
        order_ids(gallery.store, gallery.state, "g2", "randon")
    with pytest.raises(ConfigError, match=r"column 'lable'(.|\n)*one of label"):
        order_ids(gallery.store, gallery.state, "g2", "class-balanced", class_column="lable")


def test_the_most_retrieved_come_first() -> None:
    ids = ["a", "b", "c", "d"]
    assert ORDERS["traffic"](backlog(ids, traffic={"d": 2, "c": 7, "x": 9}), 0) == ["c", "d", "a", "b"]
    with pytest.raises(ConfigError, match="count_traffic=True"):
        ORDERS["traffic"](backlog(ids), 0)
    assert ORDERS["traffic"](backlog([]), 0) == []


def mapped(old: EmbeddingSet, new: EmbeddingSet, adapter: Adapter) -> Gallery:
    """A gallery of old vectors, mapped by an adapter, with a generation to fill."""
    gallery = Gallery.create("memory://", fingerprint=old.fingerprint, space=old.space)
    gallery.add(old)
    gallery.prepare(new.fingerprint, new.space, adapter=adapter)
    return gallery


def test_what_is_mapped_worst_comes_first_as_the_adapter_learnt_it(two_regions: Sets) -> None:
    old, new = two_regions
    noise = (np.arange(600) % 2)[:, None] * np.random.default_rng(1).normal(size=(600, 4))  # in one region
    new = new.replace(vectors=unit(new.vectors + 0.5 * noise))
    options = {"direction": "old_to_new", "epochs": 20, "hidden": 8, "learning_rate": 0.01, "batch_size": 64}
    fitted = build_adapter("fastfill", options).fit(old, new)
    gallery = mapped(old, new, fitted)
    target = gallery.state.target
    done = list(old.ids)[:7]
    fill(gallery, new, done)
    found = order_ids(gallery.store, gallery.state, target, "variance", seed=3)
    rest = old.select(old.ids.find([name for name in old.ids if name not in done]))
    variances = dict(zip(rest.ids, fitted.variances(rest.vectors), strict=True))
    assert sorted(found) == list(rest.ids)
    told = [variances[name] for name in found]
    assert all(first >= second - 1e-6 for first, second in pairwise(told)) and told[0] > 2 * told[-1]
    gallery.backfill(Known(new), order="variance", batch=100)
    assert gallery.store.pointer().covered([target]) == len(old)


def test_the_order_of_variances_is_refused_where_nothing_learnt_them(two_regions: Sets) -> None:
    old, new = two_regions
    plain = build_adapter("ridge", {"direction": "old_to_new"}).fit(old, new)
    for gallery in (opened(old), mapped(old, new, plain)):
        with pytest.raises(ConfigError, match=r"'variance'(.|\n)*fastfill"):
            order_ids(gallery.store, gallery.state, gallery.state.target, "variance")


@settings(deadline=None, max_examples=60)
@given(classes=st.lists(st.sampled_from(["x", "y", "z", None]), max_size=40), seed=st.integers(0, 5))
def test_every_prefix_of_the_balanced_order_is_balanced(classes: list[str | None], seed: int) -> None:
    ids = [f"{row:02d}" for row in range(len(classes))]
    order = class_balanced(backlog(ids, classes=classes), seed)
    assert sorted(order) == ids
    found = [classes[int(name)] for name in order]
    totals, there = Counter(classes), Counter[Any]()
    for name in found:
        there[name] += 1
        for one in totals:
            behind = one is not None and there[one] < totals[one]  # has items left
            assert not behind or all(there[one] >= there[other] - 1 for other in totals), found
            assert not (behind and there[None]), "items without a class come last"


def test_the_item_of_a_class_that_comes_first_is_drawn() -> None:
    ids = [f"{row:02d}" for row in range(40)]
    firsts = {class_balanced(backlog(ids, classes=["x"] * 40), seed)[0] for seed in range(20)}
    assert len(firsts) > 5


@pytest.mark.parametrize("curvature", [0.1, 1.0, 4.0])
def test_the_uncertainty_is_that_of_the_space(curvature: float) -> None:
    space = Lorentz(6, curvature)
    lengths = np.linspace(0, 3.9 / curvature**0.5, 50)[:, None]
    features = torch.from_numpy(unit(np.random.default_rng(0).normal(size=(50, 6))) * lengths).float()
    found = space.project(features)
    ours = lorentz_uncertainty(found.numpy(), curvature)
    np.testing.assert_allclose(ours, space.uncertainty(found).numpy(), rtol=1e-5)
    assert np.isfinite(ours).all() and (ours > 0).all() and (ours <= 1).all()


def test_on_the_lorentz_space_the_most_uncertain_come_first() -> None:
    space = Lorentz(3, 2.0)
    old = points(np.array([[0.5, 0, 0], [0, 0.1, 0], [0, 0, 2.0], [0, 0.1, 0]]), "old", space=space)
    gallery = opened(old)
    assert pilot_ids(gallery.store, gallery.state, "g2") == []
    assert order_ids(gallery.store, gallery.state, "g2", "uncertainty") == ["i0001", "i0003", "i0000", "i0002"]


def test_the_predicted_disagreement_is_the_mean_over_the_nearest_of_the_pilot(monkeypatch: Any) -> None:
    rng = np.random.default_rng(1)
    pilot, others, disagreement = unit(rng.normal(size=(30, 5))), unit(rng.normal(size=(70, 5))), rng.random(30)
    expected = [disagreement[np.argsort(-(pilot @ row))[:4]].mean() for row in others]
    for at_once in (1, 100, 10**6):  # a row at a time, a few, all
        monkeypatch.setattr(expected_gain, "_SCORES_AT_ONCE", at_once)
        found = predicted_disagreement(pilot, disagreement, neighbours=4)(others, np.arange(70))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    few = predicted_disagreement(pilot[:2], disagreement[:2])(others[:1], np.arange(1))
    np.testing.assert_allclose(few, disagreement[:2].mean())


def test_the_label_estimate_is_minus_the_margin_of_the_evaluation(monkeypatch: Any) -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 7, 90)
    embeddings = points(unit(np.eye(7)[labels] + 0.7 * rng.normal(size=(90, 7))), "old").replace(labels=labels)
    parts = [(np.arange(90)[rows], embeddings.vectors[rows]) for rows in (slice(0, 33), slice(33, 33), slice(33, 90))]
    for at_once in (1, 10**6):
        monkeypatch.setattr(expected_gain, "_SCORES_AT_ONCE", at_once)
        found = margin_estimate(iter(parts), labels)(embeddings.vectors, np.arange(90))
        np.testing.assert_allclose(found, -label_margins(embeddings), atol=1e-6)


def test_an_item_without_a_class_has_no_label_estimate() -> None:
    vectors, codes = unit(np.eye(3)), np.array([0, -1, 1])
    found = margin_estimate(iter([(np.arange(3), vectors)]), codes)(vectors, np.arange(3))
    assert np.isnan(found).tolist() == [False, True, False]
    np.testing.assert_allclose(found[[0, 2]], -1.0)


def test_a_class_of_which_no_vector_was_seen_is_nobodys_neighbour() -> None:
    """Its mean has no direction; a cosine of 0 to it would be the largest here."""
    vectors, codes = unit([[1.0, 0], [-1, 0.1]]), np.array([0, 2, 1])
    found = margin_estimate(iter([(np.arange(2), vectors)]), codes)(vectors, np.arange(2))
    np.testing.assert_allclose(found, 2 * [vectors[0] @ vectors[1] - 1], atol=1e-6)


def test_a_pilot_tells_which_region_the_new_model_sees_otherwise(two_regions: Sets) -> None:
    old, new = two_regions
    gallery = opened(old)
    pilot = pilot_ids(gallery.store, gallery.state, "g2", 0.1, seed=3)
    assert len(pilot) == 60 and {int(name[1:]) % 2 for name in pilot} == {0, 1}
    fill(gallery, new, pilot)
    order = order_ids(gallery.store, gallery.state, "g2", "uncertainty", seed=3)
    agreement = dict(zip(old.ids, (old.vectors * new.vectors).sum(axis=1), strict=True))
    first, last = (np.mean([agreement[name] for name in part]) for part in (order[:270], order[270:]))
    assert first < -0.5 and last > 0.7


def test_a_backfill_by_uncertainty_asks_for_the_pilot_first_and_fills_everything(two_regions: Sets) -> None:
    old, new = two_regions
    gallery, source = opened(old), Known(new)
    pilot = pilot_ids(gallery.store, gallery.state, "g2", 0.1)
    assert gallery.backfill(source, order="uncertainty", pilot=0.1, batch=50).lacking == 0
    assert source.asked[: len(pilot)] == pilot and sorted(source.asked) == sorted(old.ids)
    wrong_way = [int(name[1:]) % 2 == 0 for name in source.asked[len(pilot) :]]
    assert np.mean(wrong_way[:270]) == 1.0


def test_a_resumed_pilot_is_the_same_less_what_was_embedded(two_regions: Sets) -> None:
    old, new = two_regions
    gallery = opened(old)
    pilot = pilot_ids(gallery.store, gallery.state, "g2", 0.1, seed=1)
    fill(gallery, new, [*pilot[10:30], *(name for name in old.ids if name not in pilot)])
    assert pilot_ids(gallery.store, gallery.state, "g2", 0.1, seed=1) == pilot[:10] + pilot[30:]
    assert set(pilot) != set(pilot_ids(opened(old).store, gallery.state, "g2", 0.1, seed=2))


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.02, 60), (0.4, 240), (1.0, 300)])
def test_the_size_of_a_pilot(share: float, expected: int, two_regions: Sets, monkeypatch: Any) -> None:
    monkeypatch.setattr(expected_gain, "MOST_PAIRS", 300)
    gallery = opened(two_regions[0])
    assert len(pilot_ids(gallery.store, gallery.state, "g2", share)) == expected
    with pytest.raises(ConfigError, match="from 0 to 1"):
        pilot_ids(gallery.store, gallery.state, "g2", 1.5)


def test_a_small_gallery_has_a_pilot_that_is_large_enough(two_regions: Sets) -> None:
    gallery = opened(two_regions[0].select(slice(0, 70)))
    assert len(pilot_ids(gallery.store, gallery.state, "g2")) == SMALLEST_PILOT
    few = opened(two_regions[0].select(slice(0, 7)))
    assert len(pilot_ids(few.store, few.state, "g2")) == 7


@pytest.mark.parametrize("other_space", [False, True])
def test_labels_help_where_models_cannot_be_compared(other_space: bool) -> None:
    labels = np.arange(40) % 2
    vectors = np.eye(2)[labels] + 0.01 * np.arange(40)[:, None]
    vectors[7] = [1.0, 0.2]  # a "b" among those of "a"
    old = points(unit(vectors), "old")
    gallery = opened(old, Hypersphere(5) if other_space else None, labels=["ab"[label] for label in labels])
    if other_space:
        assert pilot_ids(gallery.store, gallery.state, "g2") == []
    order = order_ids(gallery.store, gallery.state, "g2", "uncertainty")
    expected = np.argsort(label_margins(old.replace(labels=labels)), kind="stable")
    assert order[0] == "i0007" and order[:20] == [f"i{row:04d}" for row in expected[:20]]


def test_without_any_hint_the_order_is_refused_and_says_what_else_there_is(two_regions: Sets) -> None:
    gallery = opened(two_regions[0], Hypersphere(9), labels=[None] * 600)
    with pytest.raises(ConfigError, match=r"at least 20 items(.|\n)*random, traffic"):
        order_ids(gallery.store, gallery.state, "g2", "uncertainty")
    full = opened(two_regions[0])
    fill(full, two_regions[1], list(two_regions[0].ids))
    assert order_ids(full.store, full.state, "g2", "uncertainty") == []


def test_a_third_model_finds_items_of_two_generations() -> None:
    """Those of g1 are judged by g1, newer ones by g2; both start with what their own space is least sure of."""
    space = Lorentz(2)
    lengths = np.array([0.1, 0.5, 1.0, 1.5, 0.2, 0.6, 1.1, 1.6])
    old = points(np.stack([lengths, 0 * lengths], axis=1), "old", space=space)
    new = points(np.stack([3 * lengths, 0 * lengths], axis=1), "new", space=space)
    gallery = opened(old)
    fill(gallery, new, list(old.ids[[1, 3, 5, 7]]))
    gallery.swap(force="trial")
    gallery.prepare("declared:third", space)
    order = order_ids(gallery.store, gallery.state, "g3", "uncertainty")
    assert order == ["i0000", "i0001", "i0004", "i0005", "i0002", "i0003", "i0006", "i0007"][: len(order)]
    assert set(order[:2]) == {"i0000", "i0001"}  # the least of g1, and the least of g2 although it is far longer


def test_items_without_any_vector_come_first(two_regions: Sets) -> None:
    old = points(np.array([[2.0], [1.0], [0.5]]), "old", space=Lorentz(1))
    gains = expected_gain.expected_gains
    gallery = opened(old)
    found = gains(gallery.store, gallery.state, "g2", ["bare", "i0000", "i0001", "i0002"], None)
    assert found.argmax() == 0 and np.isinf(found[0]) and (np.diff(found[1:]) > 0).all()


def test_vectors_that_newer_ones_replaced_say_nothing() -> None:
    """Every item of the Lorentz g1 has a vector of g2, and those cannot be compared with a third model's."""
    old = points(np.array([[0.5, 0], [0, 1.0]]), "old", space=Lorentz(2))
    gallery = opened(old, Hypersphere(3))
    fill(gallery, points(np.eye(3)[:2], "new"), list(old.ids))
    gallery.swap()
    gallery.prepare("declared:third", Hypersphere(5))
    with pytest.raises(ConfigError, match="nothing tells"):
        order_ids(gallery.store, gallery.state, "g3", "uncertainty")


def test_items_without_a_class_come_last_where_only_labels_help(two_regions: Sets) -> None:
    gallery = opened(two_regions[0].select(slice(0, 4)), Hypersphere(9))
    ids, codes = ["bare", "i0000", "i0001", "i0002", "i0003"], np.array([0, 0, -1, 0, 1])
    found = expected_gain.expected_gains(gallery.store, gallery.state, "g2", ids, codes)
    assert found.argmax() == 0 and found[2] == -np.inf and np.isfinite(found[[1, 3, 4]]).all()


def test_a_few_pairs_say_less_than_labels(two_regions: Sets) -> None:
    old, new = two_regions
    labels = np.arange(600) // 300
    gallery, unlabelled = (opened(old, labels=found) for found in (["ab"[label] for label in labels], None))
    for one in (gallery, unlabelled):
        fill(one, new, list(old.ids[:19]))
    left = old.replace(labels=labels).select(slice(19, None))
    order = order_ids(gallery.store, gallery.state, "g2", "uncertainty")
    assert order == [left.ids[row] for row in np.argsort(label_margins(left), kind="stable")]
    with pytest.raises(ConfigError, match="at least 20 items"):
        order_ids(unlabelled.store, unlabelled.state, "g2", "uncertainty")
    fill(unlabelled, new, [old.ids[19]])
    assert len(order_ids(unlabelled.store, unlabelled.state, "g2", "uncertainty")) == 580


def test_items_that_only_the_new_model_embedded_are_no_pilot(two_regions: Sets) -> None:
    old, new = two_regions
    gallery = opened(old)
    gallery.upsert(new.select(slice(0, 300)))
    assert len(pilot_ids(gallery.store, gallery.state, "g2", 0.2)) == 60


def test_progress_is_told(two_regions: Sets) -> None:
    gallery, told = opened(points(np.ones((30, 2)), "old", space=Lorentz(2))), []
    on_step: Callable[[dict[str, Any]], None] = told.append
    order_ids(gallery.store, gallery.state, "g2", "uncertainty", on_step=on_step)
    assert told[-1] == {"step": "reading g1", "done": 30, "total": 30}
