from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.geometry import lorentz
from limpet.models.heads import hyperplane_logits


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_the_logit_of_a_plane_through_the_origin_is_a_signed_distance_times_the_length() -> None:
    points = torch.tensor([[0.75, 5.0], [-0.75, 0.0], [0.0, 3.0]])
    # the plane s₁ = 0: asinh(3/4) = ln 2 away, whatever the other component
    found = hyperplane_logits(points, torch.tensor([[3.0, 0.0]]), torch.zeros(1))
    torch.testing.assert_close(found, torch.tensor([[3 * math.log(2)], [-3 * math.log(2)], [0.0]]))


@pytest.mark.parametrize("k", [0.4, 1.0, 2.5])
def test_an_offset_moves_the_plane_along_its_normal(k: float) -> None:
    normal, offset = torch.tensor([[0.0, 2.0]]).double(), 0.7
    points = lorentz.exp_map0(torch.tensor([[0.0, 0.7], [0.0, 1.0], [0.0, 0.0]]).double(), curvature=k)
    found = hyperplane_logits(points, normal, torch.tensor([offset]).double(), curvature=k)
    torch.testing.assert_close(found[:, 0], 2 * torch.tensor([0.0, 0.3, -0.7]).double())


@given(seed=st.integers(0, 10_000), k=st.sampled_from([0.3, 1.0, 2.5]))
@settings(max_examples=30)
def test_by_a_slow_loop_of_the_printed_formula(seed: int, k: float) -> None:
    points, normals = lorentz.exp_map0(random(4, 3, seed=seed), curvature=k), random(5, 3, seed=seed + 1)
    offsets, root = random(5, seed=seed + 2), math.sqrt(k)
    found = hyperplane_logits(points, normals, offsets, curvature=k)
    for row, point in enumerate(points):
        for column, (normal, offset) in enumerate(zip(normals, offsets.tolist(), strict=True)):
            length, rise = float(normal.norm()), math.cosh(root * offset)
            timelike = math.sinh(root * offset) * length
            alpha = -timelike * float(lorentz.time(point, curvature=k)) + rise * float(normal @ point)
            beta = math.sqrt((rise * length) ** 2 - timelike**2)
            expected = beta * math.asinh(root * alpha / beta) / root
            assert found[row, column].item() == pytest.approx(expected, rel=1e-8, abs=1e-10)


@given(seed=st.integers(0, 10_000), factor=st.sampled_from([0.25, 4.0]))
@settings(max_examples=20)
def test_laws(seed: int, factor: float) -> None:
    points, normals, offsets = random(4, 3, seed=seed), random(5, 3, seed=seed + 1), random(5, seed=seed + 2)
    logits = hyperplane_logits(points, normals, offsets)
    torch.testing.assert_close(hyperplane_logits(points, -normals, -offsets), -logits)  # the other side
    torch.testing.assert_close(hyperplane_logits(points, factor * normals, offsets), factor * logits)
    scaled = hyperplane_logits(factor * points, normals, factor * offsets, curvature=1 / factor**2)
    torch.testing.assert_close(scaled, factor * logits)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(hyperplane_logits(points, normals[order], offsets[order]), logits[:, order])


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_finite_at_the_edges(precision: torch.dtype, learned: bool) -> None:
    k: float | torch.Tensor = torch.tensor(0.3, requires_grad=True) if learned else 0.3
    rows = [[0.0, 0.0], [1e-40, 0.0], [1e-20, 1e-20], [1.0, -2.0], [1e4, 1e4]]
    normals = torch.tensor(rows, dtype=precision, requires_grad=True)
    offsets = torch.tensor([0.0, 3.0, -3.0, 100.0, -1e6], dtype=precision, requires_grad=True)
    points = torch.tensor([*rows[:4], [3e4, 0.0]], dtype=precision, requires_grad=True)
    logits = hyperplane_logits(points, normals, offsets, curvature=k)
    leaves = [points, normals, offsets, *([k] if isinstance(k, torch.Tensor) else [])]
    gradients = torch.autograd.grad(logits.sum(), leaves)
    assert logits.dtype == precision and torch.isfinite(logits).all() and (logits[:, 0] == 0).all()
    assert all(torch.isfinite(gradient).all() for gradient in gradients) and (gradients[1][0] == 0).all()
    assert hyperplane_logits(points[:0], normals, offsets, curvature=k).shape == (0, 5)


def test_gradients() -> None:
    points, normals, offsets = random(3, 2, seed=0), random(4, 2, seed=1), random(4, seed=2)
    k = torch.tensor(0.7, dtype=torch.float64)
    leaves = [value.requires_grad_() for value in (points, normals, offsets, k)]
    assert torch.autograd.gradcheck(lambda p, z, a, k: hyperplane_logits(p, z, a, curvature=k), leaves)
