from __future__ import annotations

import numpy as np
import pytest

from limpet.embeddings.embedding_set import with_uncertainty
from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.geometry import Hypersphere, Lorentz, Space
from limpet_bench.pictures.histograms import MEASURES, angles, histograms, radii

HYPERBOLIC = [Lorentz(2), Lorentz(2, 0.25)]


def lifted(space: Lorentz, tangents: list[list[float]]) -> np.ndarray:
    import torch

    return space.project(torch.tensor(tangents, dtype=torch.float64)).numpy()


@pytest.mark.parametrize("space", [Hypersphere(2), *HYPERBOLIC], ids=str)
def test_angles_are_those_between_directions(items, space: Space) -> None:
    first, second = ([[0.5, 0], [0.5, 0], [0.5, 0], [0.3, 0.3]], [[0.9, 0], [0, 0.2], [-0.4, 0], [0, 0.7]])
    old, new = (items(rows, [0, 0, 1, 1], space, model=name) for rows, name in ((first, "old"), (second, "new")))
    assert angles(old, new) == pytest.approx([0, 90, 180, 45], abs=1e-4)


def test_small_angles_keep_their_digits(items) -> None:
    old, new = items([[1, 0]], [0]), items([[1, 1e-6]], [0], model="new")
    assert angles(old, new)[0] == pytest.approx(np.degrees(1e-6), rel=1e-3)


@pytest.mark.parametrize("space", HYPERBOLIC, ids=str)
def test_radii_are_geodesic_distances_from_the_origin(items, space: Lorentz) -> None:
    points = items(lifted(space, [[0.3, 0.4], [0, -1.2], [0, 0]]), [0, 0, 1], space)
    assert radii(points) == pytest.approx([0.5, 1.2, 0.0], abs=1e-6)


def test_items_are_apart_by_what_the_old_model_has_seen(items) -> None:
    old, new = items([[1, 0], [1, 0], [1, 0]], [0, 1, 1]), items([[1, 0], [0, 1], [-1, 0]], [0, 1, 1], model="new")
    found = histograms("angle", old, {"mine": new}, ["a", "c"])
    assert found.split and list(found.panels) == ["mine"]
    groups = found.panels["mine"].groups
    assert {name: (group.items, group.mean) for name, group in groups.items()} == {
        "seen": (1, pytest.approx(0)),
        "unseen": (2, pytest.approx(135)),
    }
    assert found.panels["mine"].edges[0] == 0 and found.panels["mine"].edges[-1] == 180
    assert not (whole := histograms("angle", old, {"mine": new})).split
    assert whole.panels["mine"].groups["all"].items == 3
    assert found.table()[1][0] == ["mine", "seen", "0", "5", "1"]


@pytest.mark.parametrize("space", HYPERBOLIC, ids=str)
@pytest.mark.parametrize("quantity", ["uncertainty", "radius"])
def test_what_one_model_says_has_a_panel_for_every_model(items, space: Lorentz, quantity: str) -> None:
    old = with_uncertainty(items(lifted(space, [[0.1, 0], [0.2, 0]]), [0, 1], space))
    new = with_uncertainty(items(lifted(space, [[1.0, 0], [1.1, 0]]), [0, 1], space, model="new"))
    found = histograms(quantity, old, {"mine": new})
    assert list(found.panels) == ["old", "mine"] and found.words == MEASURES[quantity].words
    before, after = (found.panels[name].groups["all"].mean for name in ("old", "mine"))
    if quantity == "radius":
        assert (before, after) == (pytest.approx(0.15, abs=1e-5), pytest.approx(1.05, abs=1e-5))
    assert (before < after) == (quantity == "radius")


@pytest.mark.parametrize("quantity", ["uncertainty", "radius"])
def test_a_space_of_directions_has_neither(items, quantity: str) -> None:
    points = items([[1, 0], [0, 1]], [0, 1])
    with pytest.raises(DataError, match="lorentz"):
        histograms(quantity, points, {})


def test_what_does_not_fit_together_is_refused(items) -> None:
    old = items([[1, 0], [0, 1]], [0, 1])
    with pytest.raises(DataError, match="embedded different items"):
        histograms("angle", old, {"mine": old[[1, 0]]})
    with pytest.raises(DataError, match="0 items by 2 models"):
        histograms("angle", old[[]], {"mine": old[[]]})
    with pytest.raises(DataError, match="2 items by 1 models"):
        histograms("angle", old, {})
    with pytest.raises(SpaceMismatchError, match="one space"):
        histograms("angle", old, {"mine": items([[1, 0], [0, 1]], [0, 1], Lorentz(2), model="new")})
    with pytest.raises(ConfigError, match="unknown which"):
        histograms("angle", old.replace(class_names=None), {"mine": old}, ["a"])
