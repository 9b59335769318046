"""What every space promises, run over all of `SEARCH_SPACES`, whether models are trained there or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from limpet.errors import ConfigError
from limpet.geometry import SEARCH_SPACES, Hypersphere, space_from_record
from limpet.geometry.space import Side
from limpet.testing import failures, space_contract


@pytest.mark.parametrize("name", sorted(SEARCH_SPACES))
def test_every_space_keeps_its_promises(name: str, subtests: pytest.Subtests) -> None:
    for check in space_contract(SEARCH_SPACES[name](6)):  # type: ignore[call-arg]
        with subtests.test(str(check)):
            check()


class NotNormalised(Hypersphere):
    def project(self, features: Tensor) -> Tensor:
        return features


class OtherWayRound(Hypersphere):
    def similarity(self, x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
        return -super().similarity(x, y, scale)


class LooksAtTheWholeBlock(Hypersphere):
    def index_form(self, points: NDArray[np.float32], side: Side) -> NDArray[np.float32]:
        return super().index_form(points - points[:1], side) if len(points) else super().index_form(points, side)


class MeansOfTheFirst(Hypersphere):
    def mean(self, points: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        first = [points[labels == label][:1] for label in range(classes)]
        found = [rows[0] if len(rows) else torch.zeros_like(points[0]) for rows in first]
        return torch.stack(found), torch.bincount(labels, minlength=classes).to(points)


class TakesWhatIsNotFinite(Hypersphere):
    def check(self, points: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.empty(0, np.int64)


BROKEN: dict[type[Any], str] = {
    NotNormalised: "points come back from what a gallery stores",
    OtherWayRound: "a point is most similar to itself",
    LooksAtTheWholeBlock: "a block has the index form that it has in the whole",
    MeansOfTheFirst: "class means are points that do not depend on the order",
    TakesWhatIsNotFinite: "rows that are not finite are no points",
}


@pytest.mark.parametrize("space", BROKEN)
def test_a_broken_space_is_found_out(space: type[Any]) -> None:
    assert BROKEN[space] in {failure.check.promise for failure in failures(space_contract(space(6)))}


def test_unknown_space_and_impossible_dimension() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'hypersphere'"):
        space_from_record({"name": "hyperspher", "dim": 3})
    with pytest.raises(ConfigError, match="dim=0"):
        space_from_record({"name": "hypersphere", "dim": 0})
    with pytest.raises(ConfigError, match="do not describe"):
        space_from_record({"name": "hypersphere", "dim": 3, "colour": "red"})
