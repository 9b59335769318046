"""Terms that need no labels, against slow loops of their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from limpet.methods.d3still import neighbour_order
from limpet.methods.ssp import anchor_agreement, anchors_of


def unit(rows: int, dim: int, seed: int) -> Tensor:
    made = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made / made.norm(dim=1, keepdim=True)


@pytest.mark.parametrize(("items", "neighbours"), [(8, 3), (8, 7), (5, 9), (2, 4), (1, 4)])
def test_the_order_of_neighbours_against_loops(items: int, neighbours: int) -> None:
    new, old = unit(items, 4, 0), unit(items, 4, 1)
    own, inverted, upheld = 0.0, [], []
    for i in range(items):
        c, t = [float(new[i] @ old[j]) for j in range(items)], [float(old[i] @ old[j]) for j in range(items)]
        own += (t[i] - c[i]) ** 2
        near = sorted((j for j in range(items) if j != i), key=lambda j: -t[j])[:neighbours]
        wrong = right = 0.0
        for a in near:
            for b in near:
                d, e = c[a] - c[b], t[a] - t[b]
                deviation = (d - e) / (0.1 + abs(e))
                wrong += deviation**2 if d * e < 0 else 0.0
                right += deviation**2 if d * e > 0 else 0.0
        inverted.append(wrong**0.5 / max(len(near), 1))
        upheld.append(right**0.5 / max(len(near), 1))
    found = neighbour_order(new @ old.T, old @ old.T, neighbours)
    assert found.own.item() == pytest.approx(own**0.5 / items)
    assert found.inverted.item() == pytest.approx(np.mean(inverted))
    assert found.upheld.item() == pytest.approx(np.mean(upheld))


def test_a_wrong_order_is_mended() -> None:
    old = unit(12, 6, 1)
    new = unit(12, 6, 2).requires_grad_()
    optimizer, inverted = torch.optim.Adam([new], lr=0.05), []
    for _ in range(150):
        points = new / new.norm(dim=1, keepdim=True)
        found = neighbour_order(points @ old.T, old @ old.T, 5)
        loss = found.own + found.inverted + found.upheld
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        inverted.append(found.inverted.item())
    assert inverted[0] > 1 and inverted[-1] < 0.05


@pytest.mark.parametrize("own", [0.0, 1.0])
def test_equal_similarities_have_no_order_and_a_finite_gradient(own: float) -> None:
    cross = (own * torch.eye(4)).requires_grad_()
    found = neighbour_order(cross, torch.eye(4), 3)
    sum(found).backward()
    assert found.inverted.item() == found.upheld.item() == 0 and torch.isfinite(cross.grad).all()


def test_agreement_on_anchors_against_loops() -> None:
    new, old, anchors = unit(5, 6, 0), unit(5, 6, 1), unit(12, 2, 2).reshape(3, 4, 2)
    divergences = []
    for i in range(5):
        for part in range(3):
            shares = []
            for points in (new, old):
                piece = points[i, 2 * part : 2 * part + 2]
                piece = piece / piece.norm()
                weights = [float(torch.exp(piece @ anchors[part, k] / 0.3)) for k in range(4)]
                shares.append([weight / sum(weights) for weight in weights])
            divergences.append(sum(p * np.log(p / q) for q, p in zip(*shares, strict=True)))
    assert anchor_agreement(new, old, anchors, 0.3).item() == pytest.approx(np.mean(divergences))
    assert anchor_agreement(old, old, anchors, 0.3).item() == pytest.approx(0, abs=1e-12)


def test_anchors_are_the_centres_of_clusters() -> None:
    centres = torch.tensor([[1.0, 0.0], [-0.6, 0.8]], dtype=torch.float64)
    noise = 0.01 * torch.randn(60, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    first, second = torch.arange(60) % 2, (torch.arange(60) // 2) % 2  # of either part its own cluster
    points = torch.cat([centres[first], centres[second]], dim=1) + noise
    anchors = anchors_of(points, 2, 2, torch.Generator().manual_seed(0))
    assert anchors.shape == (2, 2, 2)
    for part in anchors:
        order = part[:, 0].argsort(descending=True)
        torch.testing.assert_close(part[order], centres, atol=0.02, rtol=0)
    many = anchors_of(points, 2, 500, torch.Generator().manual_seed(0))
    assert many.shape == (2, 60, 2) and torch.isfinite(many).all()
