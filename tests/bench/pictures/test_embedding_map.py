from __future__ import annotations

import numpy as np
import pytest
import torch

from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.geometry import Hypersphere, Lorentz, Space
from limpet_bench.pictures import embedding_map as module
from limpet_bench.pictures.embedding_map import (
    EmbeddingMap,
    choose_classes,
    embedding_map,
    prototypes_of,
    rows_of_classes,
)


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout that can be redone on paper: the first two numbers of every vector."""
    monkeypatch.setattr(module, "laid_out", lambda points, layout, seed: points.vectors[:, :2].astype(np.float64))


@pytest.fixture
def angles(items):
    """Prototypes of classes a to e at 0, 100, 10, 120 and 200 degrees."""
    turned = np.radians([0, 100, 10, 120, 200])
    return items(np.stack([np.cos(turned), np.sin(turned)], axis=1), range(5), names="abcde").replace(ids=[*"abcde"])


@pytest.mark.parametrize("space", [Hypersphere(2), Lorentz(2)], ids=["hypersphere", "lorentz"])
def test_prototypes_are_the_means_of_classes_that_have_items(items, space: Space) -> None:
    found = prototypes_of(items([[0.6, 0.8], [0.6, -0.8], [0.0, 0.3]], [2, 2, 0], space, names="abc"))
    assert list(found.ids) == list(found.class_names or ()) == ["a", "c"]
    direction = found.vectors / np.linalg.norm(found.vectors, axis=1)[:, None]
    assert np.allclose(direction, [[0, 1], [1, 0]], atol=1e-6)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"drawn": 9}, ["abcde"]),
        ({"similar": 2}, ["ac"]),  # 10 degrees apart
        ({"similar": 4}, ["acbd"]),  # then 20
        ({"similar": 3}, ["acb"]),
        ({"similar": 5}, ["acbde"]),
        ({"similar": 2, "examples": 2}, ["ac", "bd"]),
        ({"similar": 2, "examples": 9}, ["ac", "bd", "e"]),
        ({"nearest": 2, "around": "d"}, ["dbe"]),  # 20 and 80 degrees from it
        ({"nearest": 2, "around": "d", "examples": 2}, ["dbe"]),
        ({"similar": 3, "among": "bde"}, ["bde"]),
        ({"drawn": 2, "among": "ed"}, ["de"]),
    ],
)
def test_classes_are_drawn_the_most_alike_or_those_around_one(angles, asked, expected: list[str]) -> None:
    assert ["".join(classes) for classes in choose_classes(angles, **asked)] == expected


def test_drawn_classes_change_with_the_seed_and_no_example_repeats_another(angles) -> None:
    for way in ({"drawn": 2}, {"nearest": 1}):
        found = [choose_classes(angles, **way, examples=2, seed=seed) for seed in range(8)]
        assert len({tuple(map(tuple, one)) for one in found}) > 1
        assert all(len({*first, *second}) == 4 for first, second in found)
    near = {"a": "c", "c": "a", "b": "d", "d": "b", "e": "d"}
    assert all(near[first[0]] == first[1] for first, _ in found)


@pytest.mark.parametrize("space", [Hypersphere(3), Lorentz(3)], ids=["hypersphere", "lorentz"])
def test_pairs_found_block_by_block_are_those_of_all_pairs(items, space: Space, monkeypatch) -> None:
    monkeypatch.setattr(module, "_CLASSES_AT_ONCE", 3)
    rows = np.random.default_rng(0).normal(size=(11, 3))
    prototypes = prototypes_of(items(rows, range(11), space, names="abcdefghijk"))
    points = torch.from_numpy(np.array(prototypes.vectors, np.float64))
    likeness = space.similarity(points, points).numpy()
    pairs = sorted(((likeness[i, j], i, j) for i in range(11) for j in range(i + 1, 11)), reverse=True)
    expected = list(dict.fromkeys(row for _, i, j in pairs for row in (i, j)))
    for count in range(2, 12):
        (chosen,) = choose_classes(prototypes, similar=count)
        assert chosen == ["abcdefghijk"[row] for row in expected[:count]]


@pytest.mark.parametrize("asked", [{}, {"drawn": 2, "similar": 2}, {"drawn": 2, "around": "a"}])
def test_one_way_to_choose_is_needed(angles, asked) -> None:
    with pytest.raises(ConfigError, match="one of the three"):
        choose_classes(angles, **asked)


def test_an_unknown_class_is_named_and_no_class_refused(angles) -> None:
    with pytest.raises(ConfigError, match="'f'"):
        choose_classes(angles, nearest=2, around="f")
    with pytest.raises(ConfigError, match="no class to draw"):
        choose_classes(angles, drawn=2, among="")


def test_items_are_drawn_by_the_seed_class_after_class(items) -> None:
    found = items(np.ones((9, 2)), [0, 1, 0, 1, 0, 1, 0, 1, 2])
    rows = rows_of_classes(found, ["b", "c"], 2, seed=0)
    assert rows[2] == 8 and set(rows[:2]) < {1, 3, 5, 7} and rows[0] < rows[1]
    assert rows.tolist() == rows_of_classes(found, ["b", "c"], 2, seed=0).tolist()
    drawn = {tuple(rows_of_classes(found, ["b"], 2, seed=seed)) for seed in range(8)}
    assert len(drawn) > 1
    with pytest.raises(DataError, match="no item of the class 'd'"):
        rows_of_classes(found, ["d"], 2, seed=0)


def small(items, show=("old", "new", "old-prototypes")) -> EmbeddingMap:
    old = items([[1, 0], [0.8, 0.6], [0, 1]], [0, 0, 1])
    new = items([[0, -1], [-1, 0], [0.6, 0.8]], [0, 0, 1], model="new")
    return embedding_map(old, {"mine": new}, prototypes_of(old), ["b", "a"], show=show)


@pytest.mark.usefixtures("flat")
def test_every_class_of_every_model_is_a_cluster(items) -> None:
    found = small(items)
    assert [(one.model, one.name, one.ids) for one in found.clusters] == [
        ("old", "b", ["i2"]),
        ("old", "a", ["i0", "i1"]),
        ("mine", "b", ["i2"]),
        ("mine", "a", ["i0", "i1"]),
    ]
    assert found.clusters[1].x == pytest.approx([1, 0.8]) and found.clusters[1].y == pytest.approx([0, 0.6])
    assert found.clusters[3].x == pytest.approx([0, -1]) and found.clusters[3].y == pytest.approx([-1, 0])
    assert list(found.prototypes) == ["b", "a"] and found.prototypes["b"] == pytest.approx((0, 1))
    assert found.prototypes["a"] == pytest.approx((1.8 / 3.6**0.5, 0.6 / 3.6**0.5))


@pytest.mark.usefixtures("flat")
def test_noise_and_an_old_model_apart_are_said_where_old_embeddings_are_shown(items) -> None:
    old, new = items([[1, 0], [0, 1]], [0, 1]), items([[0, -1], [-1, 0]], [0, 1], model="new")
    how = {"apart": True, "noise": ["i1", "elsewhere"]}
    both = embedding_map(old, {"mine": new}, prototypes_of(old), ["a", "b"], **how)
    assert both.apart and both.noise == ["i1"]
    alone = embedding_map(old, {"mine": new}, prototypes_of(old), ["a", "b"], show=["new"], **how)
    assert not alone.apart and not alone.noise


@pytest.mark.usefixtures("flat")
def test_the_table_has_a_row_for_every_point(items) -> None:
    columns, rows = small(items).table()
    assert columns == ["model", "class", "item", "x", "y"]
    assert rows[0] == ["old", "b", "i2", "0.0000", "1.0000"] and len(rows) == 3 + 3 + 2
    assert rows[-2] == ["old prototype", "b", "", "0.0000", "1.0000"]


@pytest.mark.usefixtures("flat")
def test_only_what_is_asked_for_is_laid_out(items) -> None:
    assert {one.model for one in small(items, show=("old",)).clusters} == {"old"}
    alone = small(items, show=("new",))
    assert {one.model for one in alone.clusters} == {"mine"} and not alone.prototypes
    assert small(items, show=("old-prototypes",)).clusters == []
    with pytest.raises(ConfigError, match="A picture of nothing"):
        small(items, show=())
    with pytest.raises(ConfigError, match="'oldest'"):
        small(items, show=("oldest",))


def test_models_that_do_not_fit_are_refused(items) -> None:
    old = items([[1, 0], [0, 1]], [0, 1])
    other = items([[1, 0], [0, 1]], [0, 1], Lorentz(2), model="new")
    with pytest.raises(SpaceMismatchError, match="'mine' on the Lorentz"):
        embedding_map(old, {"mine": other}, prototypes_of(old), ["a"])
    with pytest.raises(DataError, match="embedded different items"):
        embedding_map(old, {"mine": old[[1, 0]]}, prototypes_of(old), ["a"])
    with pytest.raises(DataError, match="have no labels"):
        prototypes_of(old.replace(labels=None, class_names=None))


def test_a_real_layout_puts_both_models_into_one_plane(items) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 10)
    vectors = np.eye(3)[labels] + rng.normal(0, 0.05, (20, 3))
    old, new = items(vectors, labels), items(vectors + rng.normal(0, 0.05, (20, 3)), labels, model="new")
    found = embedding_map(old, {"mine": new}, prototypes_of(old), ["a", "b"], show=module.SHOWN)
    centre = {(one.model, one.name): np.array([np.mean(one.x), np.mean(one.y)]) for one in found.clusters}
    near, far = (np.linalg.norm(centre["old", "a"] - centre["mine", name]) for name in "ab")
    assert near < far / 3
    assert np.linalg.norm(centre["old", "a"] - found.prototypes["a"]) < far / 3
