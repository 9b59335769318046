from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError
from limpet.evaluation.uncertainty import PoincareDisk, choose_disk, main_directions, on_disk, ring_radius
from limpet.geometry import Hypersphere, Lorentz

CLASSES, ITEMS, DIM = 9, 12, 5
NAMES = [f"c{row}" for row in range(CLASSES)]
Make = Callable[..., EmbeddingSet]


@pytest.fixture
def hyperbolic() -> Make:
    """Clustered points at all distances, with the uncertainty that their space tells."""

    def build(name: str, seed: int, *, curvature: float = 1.0) -> EmbeddingSet:
        rng, space = np.random.default_rng(seed), Lorentz(DIM, curvature)
        labels = np.repeat(np.arange(CLASSES), ITEMS)
        tangents = np.random.default_rng(0).normal(size=(CLASSES, DIM))[labels] + 0.3 * rng.normal(size=(108, DIM))
        points = space.project(torch.tensor(tangents / np.sqrt(curvature), dtype=torch.float32))
        return EmbeddingSet(
            ids=[f"{label}-{row}" for row, label in enumerate(labels)],
            vectors=points.numpy(),
            fingerprint=f"declared:{name}",
            space=space,
            labels=labels,
            class_names=NAMES,
            columns={"uncertainty": space.uncertainty(points).numpy()},
        )

    return build


def chosen(disk: PoincareDisk | None) -> PoincareDisk:
    assert disk is not None
    return disk


@pytest.mark.parametrize("curvature", [0.25, 1.0, 4.0])
def test_the_radius_is_exactly_the_distance_from_the_origin(hyperbolic: Make, curvature: float) -> None:
    """tanh(√K r / 2) with r = acosh(√K t) / √K from the time component t, another way than that of the code."""
    old, new = hyperbolic("old", 1, curvature=curvature), hyperbolic("new", 2, curvature=curvature)
    for group in chosen(choose_disk(old, new)).classes:
        for side, places in ((old, group.old), (new, group.new)):
            points = side.vectors[side.ids.find(group.ids)].astype(np.float64)
            distances = np.arccosh(np.sqrt(1 + curvature * (points**2).sum(axis=1))) / np.sqrt(curvature)
            radii = np.linalg.norm(places, axis=1)
            np.testing.assert_allclose(radii, np.tanh(np.sqrt(curvature) * distances / 2), rtol=1e-9)
            assert (radii < 1).all()


def test_rings_go_through_the_points_of_their_uncertainty(hyperbolic: Make) -> None:
    old, new = hyperbolic("old", 1, curvature=2.0), hyperbolic("new", 2, curvature=2.0)
    group = chosen(choose_disk(old, new)).classes[0]
    rows = old.ids.find(group.ids)
    for side, places in ((old, group.old), (new, group.new)):
        rings = [ring_radius(value) for value in side.columns["uncertainty"][rows]]
        np.testing.assert_allclose(np.linalg.norm(places, axis=1), rings, atol=1e-5)
    assert group.old_uncertainty == pytest.approx(old.columns["uncertainty"][rows].mean())
    assert group.new_uncertainty == pytest.approx(new.columns["uncertainty"][rows].mean())


def test_worked_places() -> None:
    """At curvature 1 and distance 2 artanh(1/2) the radius is 1/2; the third direction turns nothing."""
    length = 2 * np.arctanh(0.5)
    tangents = length * np.array([[1.0, 0, 0], [0.0, -1, 0], [0.6, 0, 0.8], [0, 0, 0]])
    found = on_disk(tangents, np.eye(2, 3), 1.0)
    np.testing.assert_allclose(found, [[0.5, 0], [0, -0.5], [0.5, 0], [0, 0]], atol=1e-12)


def test_in_the_plane_nothing_is_lost() -> None:
    rng = np.random.default_rng(0)
    tangents = rng.normal(size=(20, 2))
    places = on_disk(tangents, main_directions(tangents), 1.0)
    cosines = [(t @ t.T) / np.outer(*[np.linalg.norm(t, axis=1)] * 2) for t in (tangents, places)]
    np.testing.assert_allclose(*cosines, atol=1e-12)


def test_main_directions_are_the_longest_and_have_one_sign() -> None:
    rng = np.random.default_rng(0)
    tangents = rng.normal(size=(50, 6)) * [1, 1, 9, 1, 4, 1]
    found = main_directions(tangents)
    np.testing.assert_allclose(found @ found.T, np.eye(2), atol=1e-12)
    assert np.abs(found).argmax(axis=1).tolist() == [2, 4]
    assert (found.max(axis=1) == np.abs(found).max(axis=1)).all()
    np.testing.assert_allclose(main_directions(-tangents), found, atol=1e-12)
    values = np.linalg.eigvalsh(tangents.T @ tangents)[-2:]
    assert np.sum((tangents @ found.T) ** 2) == pytest.approx(values.sum())


@pytest.mark.parametrize("shape", [(1, 4), (3, 1), (1, 1)])
def test_too_few_points_or_dimensions_leave_a_direction_empty(shape: tuple[int, int]) -> None:
    found = main_directions(np.ones(shape))
    assert found.shape == (2, shape[1])
    assert (found[1] == 0).all()
    assert (main_directions(np.zeros(shape)) == 0).all()
    assert (on_disk(np.zeros(shape), main_directions(np.zeros(shape)), 1.0) == 0).all()


def test_both_models_show_the_same_items_in_any_order(hyperbolic: Make) -> None:
    old, new = hyperbolic("old", 1), hyperbolic("new", 2)
    straight = chosen(choose_disk(old, new))
    order = np.random.default_rng(0).permutation(len(new))
    bare = new[order].replace(labels=None, class_names=None)
    for first, other in zip(straight.classes, chosen(choose_disk(old, bare)).classes, strict=True):
        assert first.ids == other.ids
        np.testing.assert_array_equal(first.new, other.new)
    again = chosen(choose_disk(old, new))
    assert all(np.array_equal(a.old, b.old) for a, b in zip(straight.classes, again.classes, strict=True))
    assert [group.ids for group in straight.classes] != [
        group.ids for group in chosen(choose_disk(old, new, seed=1)).classes
    ]


def test_the_directions_are_those_of_the_old_model_alone(hyperbolic: Make) -> None:
    old = hyperbolic("old", 1)
    first, other = (chosen(choose_disk(old, hyperbolic("new", seed))) for seed in (2, 3))
    for one, another in zip(first.classes, other.classes, strict=True):
        np.testing.assert_array_equal(one.old, another.old)
        assert not np.allclose(one.new, another.new)


@pytest.mark.parametrize(
    ("known", "seen"), [(9, [True] * 4), (5, [True] * 2 + [False] * 2), (1, [True] + [False] * 3), (0, [False] * 4)]
)
def test_half_of_the_classes_are_unseen_where_there_are_enough(hyperbolic: Make, known: int, seen: list[bool]) -> None:
    old_classes = NAMES[:known] or ["elsewhere"]
    disk = chosen(choose_disk(hyperbolic("old", 1), hyperbolic("new", 2), old_classes=old_classes, classes=4, items=7))
    assert [group.seen for group in disk.classes] == seen
    assert [group.name in old_classes for group in disk.classes] == seen
    assert all(len(set(group.ids)) == 7 == len(group.old) == len(group.new) for group in disk.classes)
    assert all(name.startswith(group.name[1:]) for group in disk.classes for name in group.ids)


def test_small_galleries_are_shown_whole(hyperbolic: Make) -> None:
    disk = chosen(choose_disk(hyperbolic("old", 1), hyperbolic("new", 2), classes=50, items=50))
    assert [group.name for group in disk.classes] == NAMES
    assert {group.seen for group in disk.classes} == {None}
    assert all(len(group.ids) == ITEMS for group in disk.classes)


def test_shares_are_those_of_the_squared_lengths(hyperbolic: Make) -> None:
    disk = chosen(choose_disk(hyperbolic("old", 1), hyperbolic("new", 2)))
    assert 2 / DIM < disk.old_share < 1
    assert 0 < disk.new_share < 1
    flat = hyperbolic("old", 1)
    flat = flat.replace(vectors=flat.vectors * np.array([1, 1, 0, 0, 0], np.float32))
    other = flat.replace(fingerprint="declared:other")
    both = chosen(choose_disk(flat, other))
    assert (both.old_share, both.new_share) == pytest.approx((1.0, 1.0))


def test_features_are_lifted_first(hyperbolic: Make) -> None:
    old, new = hyperbolic("old", 1), hyperbolic("new", 2)
    features = new.replace(
        form="features",
        vectors=np.random.default_rng(3).normal(size=new.vectors.shape).astype(np.float32) * np.float32(0.5),
    )
    for group in chosen(choose_disk(old, features)).classes:
        lengths = np.linalg.norm(features.vectors[features.ids.find(group.ids)], axis=1)
        np.testing.assert_allclose(np.linalg.norm(group.new, axis=1), np.tanh(lengths / 2), rtol=1e-5)


def test_without_uncertainty_curvature_or_labels_there_is_no_disk(hyperbolic: Make) -> None:
    old, new = hyperbolic("old", 1), hyperbolic("new", 2)
    assert choose_disk(old.replace(columns={}), new) is None
    assert choose_disk(old, new.replace(columns={})) is None
    flat = [side.replace(space=Hypersphere(DIM)) for side in (old, new)]
    assert choose_disk(*flat) is None
    assert choose_disk(*(side.replace(labels=None, class_names=None) for side in (old, new))) is None
    numbered = chosen(choose_disk(*(side.replace(class_names=None) for side in (old, new)), old_classes=["c0"]))
    assert all(group.name.isdigit() and group.seen is None for group in numbered.classes)


@pytest.mark.parametrize("wrong", [{"classes": 0}, {"items": 0}])
def test_counts_below_one_are_refused(hyperbolic: Make, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        choose_disk(hyperbolic("old", 1), hyperbolic("new", 2), **wrong)
