"""The losses of pairs and triplets, by hand and against a slow loop of their formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from limpet.data.token_set import alike_in_batch
from limpet.errors import ConfigError
from limpet.geometry import Hypersphere, Lorentz, Space
from limpet.methods.base import View
from limpet.models.pair_losses import PairLoss, RankingLoss, TripletLoss, build_pair_loss

X, Y = [1.0, 0.0], [0.0, 1.0]


def value(loss: PairLoss, rows: Sequence[Sequence[float]], pairs: Sequence[Sequence[int]]) -> Tensor:
    space = Hypersphere(len(rows[0]))
    return loss.loss(View.of(torch.tensor(rows), space), torch.from_numpy(alike_in_batch(np.array(pairs))))


def test_two_pairs_by_hand() -> None:
    # cosines [[1, 0], [0, 1]], times 2: -log(e^2 / (e^2 + e^0)) for both
    found = value(RankingLoss(2, scale=2.0), [X, X, Y, Y], [[0, 1], [2, 3]])
    assert found.item() == pytest.approx(math.log(1 + math.exp(-2)))


def test_negatives_of_all_triplets_count() -> None:
    # anchors X and Y; positives X and Y; negatives Y and Y: rows [2, 0, 0, 0] and [0, 2, 2, 2]
    found = value(RankingLoss(3, scale=2.0), [X, X, Y, Y, Y, Y], [[0, 1, 2], [3, 4, 5]])
    first, second = math.log(1 + 3 * math.exp(-2)), math.log(3 + math.exp(-2))
    assert found.item() == pytest.approx((first + second) / 2)


@pytest.mark.parametrize("pairs", [[[0, 1], [0, 3]], [[0, 1], [2, 1]], [[0, 1], [1, 3]]])
def test_identical_texts_are_no_negatives(pairs: list[list[int]]) -> None:
    assert value(RankingLoss(2), [X, X, X, X], pairs).item() == pytest.approx(0, abs=1e-6)
    assert value(RankingLoss(2), [X, X, X, X], [[0, 1], [2, 3]]).item() == pytest.approx(math.log(2))


def slow_ranking(space: Space, points: Tensor, alike: Tensor, scale: float) -> Tensor:
    losses = []
    for anchor in range(len(points)):
        scores = [scale * space.similarity(points[anchor, :1], points[anchor, 1:2])[0, 0]]
        for column in range(1, points.shape[1]):
            for row in range(len(points)):
                if alike[row, column] != alike[anchor, 0]:
                    scores.append(scale * space.similarity(points[anchor, :1], points[row, column, None])[0, 0])
        losses.append(torch.logsumexp(torch.stack(scores), dim=0) - scores[0])
    return torch.stack(losses).mean()


@pytest.mark.parametrize("space", [Hypersphere(4), Lorentz(4, 1.0)])
@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_formula_on_every_space(space: Space, width: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.permutation(9)[:width] for _ in range(6)])
    features = torch.tensor(rng.normal(size=(6 * width, 4)), dtype=dtype, requires_grad=True)
    view, alike = View.of(features, space), torch.from_numpy(alike_in_batch(pairs))
    found = RankingLoss(width, scale=3.0).loss(view, alike)
    expected = slow_ranking(space, view.points.view(6, width, -1), alike.view(6, width), 3.0)
    torch.testing.assert_close(found, expected)
    assert found.dtype == dtype
    found.backward()
    assert features.grad is not None and torch.isfinite(features.grad).all() and features.grad.any()


def test_triplets_by_hand() -> None:
    far = [-1.0, 0.0]  # X to itself 0, to Y the root of 2, to far 2
    found = value(TripletLoss(3, margin=1.5), [X, X, Y, X, Y, far], [[0, 1, 2], [3, 4, 5]])
    first, second = 1.5 - math.sqrt(2), math.sqrt(2) - 2 + 1.5
    assert found.item() == pytest.approx((first + second) / 2, abs=1e-5)


def test_a_triplet_whose_negative_is_like_its_anchor_is_left_out() -> None:
    rows = [X, X, Y, Y, Y, X]
    own = value(TripletLoss(3, margin=2.0), rows[:3], [[0, 1, 2]])
    pairs = [[0, 1, 2], [3, 2, 1], [3, 1, 9]]  # the second makes its negative and its anchor alike, by the third
    found = value(TripletLoss(3, margin=2.0), [*rows, Y, X, Y], pairs)
    assert found.item() != pytest.approx(own.item())
    assert value(TripletLoss(3), rows, [[0, 1, 2], [0, 2, 1]]).item() == 0


def test_what_cannot_be_built_is_told() -> None:
    assert repr(build_pair_loss("ranking", 2, {"scale": 10.0})) == "RankingLoss(scale=10)"
    for name, width, options, said in [
        ("rankin", 2, {}, "'rankin'. Did you mean 'ranking'"),
        ("ranking", 2, {"margin": 1.0}, "no option 'margin'"),
        ("ranking", 2, {"scale": 0.0}, "scale"),
        ("triplet", 2, {}, "was given pairs"),
        ("triplet", 3, {"margin": math.inf}, "margin"),
    ]:
        with pytest.raises(ConfigError, match=said):
            build_pair_loss(name, width, options)
