"""Contrasts within a batch against slow loops of their formulas, and at their edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.losses.contrast import high_order_contrast
from limpet.methods.hot_refresh import hard_negative_contrast, hard_negative_triplet, hardest

LABELS = [0, 1, 0, 2, 0, 0, 1]  # two, four, five and six negatives


def batch(labels: list[int] = LABELS, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    new, old = (normalise(tensor(rng.normal(size=(len(labels), 3)))) for _ in range(2))
    return new, old, tensor(labels)


def blocks_of(new: torch.Tensor, old: torch.Tensor, labels: torch.Tensor, count: int) -> list[torch.Tensor]:
    other = labels[:, None] != labels
    return [hardest(new @ old.T, other, count), hardest(new @ new.T, other, count)]


def contrast(new: torch.Tensor, old: torch.Tensor, blocks: list[torch.Tensor], temperature: float) -> torch.Tensor:
    return hard_negative_contrast((new * old).sum(dim=1), blocks, temperature)


def triplet(new: torch.Tensor, old: torch.Tensor, blocks: list[torch.Tensor], margin: float) -> torch.Tensor:
    space = Hypersphere(new.shape[1])
    return hard_negative_triplet(space.paired_distance(new, old), [space.distance(block) for block in blocks], margin)


def high_order(new: torch.Tensor, old: torch.Tensor, labels: torch.Tensor, scale: float, form: str) -> torch.Tensor:
    return high_order_contrast(scale * (old @ new.T), labels, form)


def negatives_of(row: int, new: torch.Tensor, keys: torch.Tensor, labels: torch.Tensor, count: int) -> list[int]:
    """The rows of other classes, the most similar first, as many as asked for."""
    rows = [key for key in range(len(labels)) if labels[key] != labels[row]]
    rows.sort(key=lambda key: -float(new[row] @ keys[key]))
    return rows[: count or None]


@pytest.mark.parametrize("count", [0, 1, 3, 5, 100])
def test_contrast_by_a_slow_loop(count: int) -> None:
    new, old, labels = batch()
    expected = 0.0
    for row in range(len(labels)):
        positive = math.exp(float(new[row] @ old[row]) / 0.3)
        total = positive
        for keys in (old, new):
            total += sum(math.exp(float(new[row] @ keys[k]) / 0.3) for k in negatives_of(row, new, keys, labels, count))
        expected -= math.log(positive / total) / len(labels)
    found = contrast(new, old, blocks_of(new, old, labels, count), 0.3)
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", [0, 1, 3, 5, 100])
def test_triplet_by_a_slow_loop_averages_the_negatives_that_exist(count: int) -> None:
    new, old, labels = batch()
    expected = 0.0
    for row in range(len(labels)):
        near = float((new[row] - old[row]).norm())
        for keys in (old, new):
            rows = negatives_of(row, new, keys, labels, count)
            excess = [max(0.0, near - float((new[row] - keys[k]).norm()) + 0.4) for k in rows]
            expected += sum(excess) / len(excess) / len(labels)
    found = triplet(new, old, blocks_of(new, old, labels, count), 0.4)
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("form", ["strict", "infonce", "reference"])
@pytest.mark.parametrize("labels", [LABELS, [4, 4, 4]])
def test_high_order_contrast_by_a_slow_loop(form: str, labels: list[int]) -> None:
    new, old, _ = batch(labels)
    expected = 0.0
    for i, own in enumerate(labels):
        scores = [3.0 * float(old[i] @ new[j]) for j in range(len(labels))]
        others = [math.exp(scores[j]) for j in range(len(labels)) if labels[j] != own]
        if form == "reference":
            others += [1.0] * labels.count(own)
        if form == "infonce":
            others += [math.exp(scores[i])]
        expected += (math.log(sum(others)) - scores[i]) / len(labels) if others else 0.0
    found = high_order(new, old, tensor(labels), 3.0, form)
    assert found.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("dtype", "rtol", "atol"), [(torch.float64, 1e-7, 1e-7), (torch.float32, 1e-4, 1e-5)])
@pytest.mark.parametrize("form", ["strict", "infonce", "reference"])
def test_high_order_contrast_and_its_gradient(golden, form: str, dtype: torch.dtype, rtol: float, atol: float) -> None:
    g = golden("hoc")
    z = tensor(g["z_new"], dtype=dtype).requires_grad_()  # unit rows
    loss = high_order(z, tensor(g["z_old"], dtype=dtype), tensor(g["labels"]), float(g["mu"]), form)
    np.testing.assert_allclose(loss.detach(), g[form], rtol=rtol, atol=atol)
    np.testing.assert_allclose(torch.autograd.grad(loss, z)[0], g[f"grad_{form}"], rtol=rtol, atol=atol)


def test_worked_numbers() -> None:
    new, old = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    other = torch.tensor([[False, True], [True, False]])
    blocks = [hardest(new @ old.T, other, 1)]
    assert blocks[0].tolist() == [[0.0], [1.0]]
    # both positives and negatives tie: ln 2 each; distances: sqrt 2 and 0 to both, so the margin alone remains
    torch.testing.assert_close(contrast(new, old, blocks, 0.5), torch.tensor(math.log(2)))
    torch.testing.assert_close(triplet(new, old, blocks, 0.25), torch.tensor(0.25))
    # S = [[0, μ], [0, μ]]: rows −0 + μ and −μ + 0
    torch.testing.assert_close(high_order(new, old, torch.tensor([0, 1]), 6.0, "strict"), torch.tensor(0.0))


LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "contrast": lambda new, old, y: contrast(new, old, blocks_of(new, old, y, 3), 0.01),
    "triplet": lambda new, old, y: triplet(new, old, blocks_of(new, old, y, 3), 0.3),
    "strict": lambda new, old, y: high_order(new, old, y, 10.0, "strict"),
    "infonce": lambda new, old, y: high_order(new, old, y, 10.0, "infonce"),
    "reference": lambda new, old, y: high_order(new, old, y, 10.0, "reference"),
}
SINGLE = [name for name in LOSSES if name != "reference"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("size", [1, 4])
def test_a_batch_of_one_class_costs_exactly_nothing(name: str, size: int, dtype: torch.dtype) -> None:
    z = torch.randn(size, 3, generator=torch.Generator().manual_seed(0), dtype=dtype, requires_grad=True)
    old = normalise(torch.randn(size, 3, generator=torch.Generator().manual_seed(1), dtype=dtype))
    labels = torch.arange(size) if name == "infonce" and size == 1 else torch.zeros(size, dtype=torch.int64)
    loss = LOSSES[name](normalise(z), old, labels)
    loss.backward()
    assert loss.item() == 0 and loss.dtype == dtype and z.grad.tolist() == [[0.0] * 3] * size


EDGES = {
    "no row": (torch.zeros(0, 3), torch.zeros(0, 3), []),
    "one row": (torch.ones(1, 3), torch.eye(3)[:1], [0]),
    "coinciding points of two classes": (torch.ones(4, 3), torch.ones(4, 3), [0, 0, 1, 1]),
    "opposite points": (torch.ones(2, 3), -torch.ones(2, 3), [0, 1]),
    "zero vectors": (torch.zeros(3, 3), torch.eye(3), [0, 1, 1]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", LOSSES)
def test_finite_at_the_edges(name: str, edge: str, dtype: torch.dtype) -> None:
    new, old, labels = EDGES[edge]
    z = new.to(dtype).clone().requires_grad_()
    loss = LOSSES[name](normalise(z), normalise(old.to(dtype)), torch.tensor(labels, dtype=torch.int64))
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(z.grad).all()


@given(seed=st.integers(0, 10_000), size=st.integers(1, 9), classes=st.integers(1, 4))
def test_laws(seed: int, size: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    new, old, labels = batch(rng.integers(0, classes, size).tolist(), seed)
    order = torch.from_numpy(rng.permutation(size))
    for loss in LOSSES.values():
        torch.testing.assert_close(loss(new[order], old[order], labels[order]), loss(new, old, labels))
    contrasts = [contrast(new, old, blocks_of(new, old, labels, count), 0.2) for count in (1, 3, 0)]
    assert 0 <= contrasts[0] <= contrasts[1] + 1e-12 and contrasts[1] <= contrasts[2] + 1e-12
    assert 0 <= LOSSES["triplet"](new, old, labels) <= 2 * 2.3
    assert LOSSES["infonce"](new, old, labels) >= 0 and LOSSES["strict"](new, old, labels) >= -20
