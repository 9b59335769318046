from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError
from limpet.galleries import Gallery
from limpet.galleries.orders import ORDERS, Backlog, lorentz_uncertainty, order_ids, uncertainties
from limpet.geometry import Hypersphere, Lorentz, Space

Sets = tuple[EmbeddingSet, EmbeddingSet]


def unit(rows: Any) -> np.ndarray:
    rows = np.asarray(rows, np.float64)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def points(vectors: Any, model: str, ids: list[str] | None = None, space: Space | None = None) -> EmbeddingSet:
    vectors = np.asarray(vectors, np.float32)
    names = [f"i{row:04d}" for row in range(len(vectors))] if ids is None else ids
    return EmbeddingSet(vectors, names, f"declared:{model}", space or Hypersphere(vectors.shape[1]))  # type: ignore[arg-type]


def opened(old: EmbeddingSet, new_space: Space | None = None, labels: Any = None) -> Gallery:
    """A gallery of old vectors with a generation g2 to fill."""
    gallery = Gallery.create(
        "memory://", fingerprint=old.fingerprint, space=old.space, columns={} if labels is None else {"label": "text"}
    )
    gallery.add(old, metadata=None if labels is None else {"label": labels})
    gallery.start("declared:new", new_space or old.space)
    return gallery


def fill(gallery: Gallery, new: EmbeddingSet, ids: list[str]) -> None:
    gallery.backfill(Known(new, ids))


class Known:
    """A source of some vectors that are there."""

    def __init__(self, embeddings: EmbeddingSet, ids: list[str] | None = None) -> None:
        self.embeddings = embeddings if ids is None else embeddings[embeddings.ids.find(ids)]
        self.fingerprint, self.space = embeddings.fingerprint, embeddings.space
        self.asked: list[str] = []

    def embed(self, ids: Any) -> EmbeddingSet:
        self.asked += ids
        rows = self.embeddings.ids.find(ids)
        return self.embeddings[rows[rows >= 0]]


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
    values = {"traffic": dict, "uncertainty": unknown}
    return Backlog(ids, **{**values, **{name: (lambda found=found: found) for name, found in known.items()}})


@pytest.mark.parametrize("order", [name for name in ORDERS if name != "uncertainty"])  # which these vectors lack
def test_every_order_holds_every_item_once_and_depends_on_the_seed_alone(order: str, two_regions: Sets) -> None:
    old, new = two_regions
    gallery = opened(old, labels=[f"c{row % 3}" for row in range(len(old))])
    gallery.store.add_traffic({"i0004": 3})
    done = list(old.ids)[::4]
    fill(gallery, new, done)
    found = [order_ids(gallery.store, gallery.state, "g2", order, seed=seed) for seed in (0, 0, 1)]
    assert sorted(found[0]) == sorted(set(old.ids) - set(done))
    assert found[0] == found[1]
    assert (found[0] != found[2]) == (order == "random")


def test_an_unknown_order_is_refused_with_those_there_are(two_regions: Sets) -> None:
    gallery = opened(two_regions[0], labels=["a"] * 600)
    with pytest.raises(ConfigError, match="Did you mean 'random'"):
        order_ids(gallery.store, gallery.state, "g2", "randon")


def test_the_most_retrieved_come_first() -> None:
    ids = ["a", "b", "c", "d"]
    assert ORDERS["traffic"](backlog(ids, traffic={"d": 2, "c": 7, "x": 9}), 0) == ["c", "d", "a", "b"]
    with pytest.raises(ConfigError, match="count_traffic=True"):
        ORDERS["traffic"](backlog(ids), 0)
    assert ORDERS["traffic"](backlog([]), 0) == []


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
    assert order_ids(gallery.store, gallery.state, "g2", "uncertainty") == ["i0001", "i0003", "i0000", "i0002"]


def test_uncertainty_is_refused_in_a_space_without_one(two_regions: Sets) -> None:
    gallery = opened(two_regions[0])
    with pytest.raises(ConfigError, match="carry no uncertainty"):
        order_ids(gallery.store, gallery.state, "g2", "uncertainty")
    full = opened(two_regions[0])
    fill(full, two_regions[1], list(two_regions[0].ids))
    assert order_ids(full.store, full.state, "g2", "uncertainty") == []


def test_a_third_model_finds_items_of_two_generations() -> None:
    """Those of g1 are judged by g1, newer ones by g2."""
    space = Lorentz(2)
    lengths = np.array([0.1, 0.5, 1.0, 1.5, 0.2, 0.6, 1.1, 1.6])
    old = points(np.stack([lengths, 0 * lengths], axis=1), "old", space=space)
    new = points(np.stack([3 * lengths, 0 * lengths], axis=1), "new", space=space)
    gallery = opened(old)
    fill(gallery, new, list(old.ids[[1, 3, 5, 7]]))
    gallery.swap(force="trial")
    gallery.start("declared:third", space)
    order = order_ids(gallery.store, gallery.state, "g3", "uncertainty")
    newest = np.where(np.arange(8) % 2, 3 * lengths, lengths)
    assert order == [f"i{row:04d}" for row in np.argsort(newest, kind="stable")]


def test_items_without_any_vector_come_first(two_regions: Sets) -> None:
    old = points(np.array([[2.0], [1.0], [0.5]]), "old", space=Lorentz(1))
    gallery = opened(old)
    found = uncertainties(gallery.store, gallery.state, "g2", ["bare", "i0000", "i0001", "i0002"])
    assert found.argmax() == 0 and np.isinf(found[0]) and (np.diff(found[1:]) > 0).all()


def test_vectors_that_newer_ones_replaced_say_nothing() -> None:
    """Every item of the Lorentz g1 has a vector of g2, and those cannot be compared with a third model's."""
    old = points(np.array([[0.5, 0], [0, 1.0]]), "old", space=Lorentz(2))
    gallery = opened(old, Hypersphere(3))
    fill(gallery, points(np.eye(3)[:2], "new"), list(old.ids))
    gallery.swap()
    gallery.start("declared:third", Hypersphere(5))
    with pytest.raises(ConfigError, match="carry no uncertainty"):
        order_ids(gallery.store, gallery.state, "g3", "uncertainty")


def test_progress_is_told(two_regions: Sets) -> None:
    gallery, told = opened(points(np.ones((30, 2)), "old", space=Lorentz(2))), []
    progress: Callable[[dict[str, Any]], None] = told.append
    order_ids(gallery.store, gallery.state, "g2", "uncertainty", progress=progress)
    assert told[-1] == {"step": "reading g1", "done": 30, "total": 30}
