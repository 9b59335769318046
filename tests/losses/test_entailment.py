from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.geometry import lorentz
from holdfast.losses.entailment import entailment


def points(count: int, seed: int, k: float = 1.0) -> torch.Tensor:
    u = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return lorentz.exp_map0(u, curvature=k)


def test_worked_numbers() -> None:
    old = torch.tensor([[1.0, 0.0]]).expand(3, 2).double()
    behind, origin, beyond = [2.0, 0.0], [0.0, 0.0], [-1.0, 0.0]
    found = [entailment(torch.tensor([new]).double(), old[:1]).item() for new in (behind, origin, beyond)]
    outside = math.pi - math.asin(0.2)  # the cone opens by asin(2 · 0.1 / 1) to either side
    assert found == pytest.approx([0.0, outside, outside], abs=2e-6)
    together = entailment(torch.tensor([behind, origin, beyond]).double(), old)
    assert together.item() == pytest.approx(2 * outside / 3, abs=2e-6)


def test_min_radius_and_curvature_open_the_cone() -> None:
    old, new = torch.tensor([[0.0, 1.0]]).double(), torch.tensor([[1.0, 0.5]]).double()
    narrow, wide = entailment(new, old), entailment(new, old, min_radius=0.3)
    assert (narrow - wide).item() == pytest.approx(math.asin(0.6) - math.asin(0.2), rel=1e-12)
    flat = entailment(new / 10, old / 10, curvature=100.0)  # the same figure, ten times smaller
    assert flat.item() == pytest.approx(narrow.item(), rel=1e-12)


@given(seed=st.integers(0, 10_000), k=st.sampled_from([0.4, 1.0, 2.5]))
@settings(max_examples=30)
def test_by_a_slow_loop_of_the_printed_formula(seed: int, k: float) -> None:
    new, old, expected = points(6, seed, k), points(6, seed + 1, k), 0.0
    for n, o in zip(new, old, strict=True):
        times = [math.sqrt(1 / k + float(p @ p)) for p in (n, o)]
        c = k * (float(n @ o) - times[0] * times[1])
        length = float(o.norm())
        angle = math.acos(max(-1, min(1, (times[0] + times[1] * c) / (length * math.sqrt(c * c - 1)))))
        aperture = math.asin(min(1.0, 0.2 / (math.sqrt(k) * length)))
        expected += max(0.0, angle - aperture) / 6
    assert entailment(new, old, curvature=k).item() == pytest.approx(expected, rel=1e-6, abs=1e-5)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(entailment(new[order], old[order], curvature=k), entailment(new, old, curvature=k))
    assert 0 <= entailment(new, old, curvature=k) < math.pi


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [0.0, 1e-9, 1e-7, 9e-5])
def test_close_pairs_cost_nothing(gap: float, precision: torch.dtype) -> None:
    old = torch.tensor([[0.6, 0.8]], dtype=precision)
    new = (old - gap * old).requires_grad_()  # towards the origin: the far side of every cone
    loss = entailment(new, old)
    loss.backward()
    assert loss.item() == 0 and new.grad.tolist() == [[0.0, 0.0]]
    far = entailment(old - 1e-3 * old, old)
    assert far.item() == pytest.approx(math.pi - math.asin(0.2), abs=3e-3)


EDGES = {
    "no row": (torch.zeros(0, 3), torch.zeros(0, 3)),
    "coinciding points": (torch.ones(3, 3), torch.ones(3, 3)),
    "apex at the origin": (torch.eye(3), torch.zeros(3, 3)),
    "apex all but at the origin": (torch.eye(3), 1e-12 * torch.ones(3, 3)),
    "new point at the origin": (torch.zeros(3, 3), torch.eye(3)),
    "one line": (torch.eye(3) * torch.tensor([2.0, 0.5, -1.0]), torch.eye(3)),
    "far away": (2e4 * torch.eye(3), -2e4 * torch.eye(3)),
}


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("edge", EDGES)
def test_finite_at_the_edges(edge: str, precision: torch.dtype) -> None:
    new, old = (values.to(precision).clone() for values in EDGES[edge])
    loss = entailment(new.requires_grad_(), old)
    loss.backward()
    assert loss.dtype == precision and torch.isfinite(loss) and torch.isfinite(new.grad).all()
    assert loss.item() == 0 or edge not in ("no row", "coinciding points", "apex at the origin")


def test_the_gradient_turns_the_new_point_into_the_cone() -> None:
    old = torch.tensor([[1.0, 0.0]]).double()
    new = torch.tensor([[1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    loss = entailment(new, old)
    (gradient,) = torch.autograd.grad(loss, new)
    assert 0 < entailment(new - 0.1 * gradient, old) < loss
    learned = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda n, k: entailment(n, old, curvature=k), [new, learned])
