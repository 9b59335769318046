from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.methods.hbct import info_nce, robust_contrast


def batch(size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores (B, B + 2), at most 0 and the positives on the diagonal, some excluded, and uncertainties (B,)."""
    generator = torch.Generator().manual_seed(seed)
    scores = -3 * torch.rand(size, size + 2, generator=generator, dtype=torch.float64)
    excluded = torch.rand(size, size + 2, generator=generator) < 0.3
    scores = scores.masked_fill(excluded.fill_diagonal_(False), -torch.inf)
    return scores, 0.002 + 0.998 * torch.rand(size, generator=generator, dtype=torch.float64)


def test_worked_numbers() -> None:
    scores = torch.tensor([[0.0, math.log(3.0)]])  # the positive counts 1, the sum 4
    positive = scores[:, 0]
    assert info_nce(positive, scores).item() == pytest.approx(math.log(4))
    # q = 1: −1 + 4β; q = 1/2: 2 (−1 + √(4β))
    assert robust_contrast(positive, scores, torch.ones(1), 0.25).item() == pytest.approx(0.0, abs=1e-6)
    assert robust_contrast(positive, scores, torch.full((1,), 0.5), 0.01).item() == pytest.approx(2 * (-1 + 0.2))
    both = robust_contrast(positive.expand(2), scores.expand(2, 2), torch.tensor([1.0, 0.5]), 0.01)
    assert both.item() == pytest.approx((-0.96 - 1.6) / 2)


@given(seed=st.integers(0, 10_000), size=st.integers(1, 6), beta=st.sampled_from([0.01, 0.5]))
@settings(max_examples=30)
def test_by_a_slow_loop_of_the_printed_formula(seed: int, size: int, beta: float) -> None:
    scores, uncertainty = batch(size, seed)
    robust = plain = 0.0
    for row in range(size):
        positive, q = float(scores[row, row]), float(uncertainty[row])
        total = sum(math.exp(score) for score in scores[row].tolist())
        robust += (-math.exp(q * positive) + (beta * total) ** q) / q / size
        plain -= math.log(math.exp(positive) / total) / size
    positives = scores.diagonal()
    assert robust_contrast(positives, scores, uncertainty, beta).item() == pytest.approx(robust, rel=1e-9, abs=1e-9)
    assert info_nce(positives, scores).item() == pytest.approx(plain, rel=1e-9, abs=1e-12)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    found = robust_contrast(positives[order], scores[order], uncertainty[order], beta)
    torch.testing.assert_close(found, robust_contrast(positives, scores, uncertainty, beta))


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_a_vanishing_exponent_gives_info_nce_and_a_constant(seed: int) -> None:
    scores, _ = batch(4, seed)
    found = robust_contrast(scores.diagonal(), scores, torch.zeros(4, dtype=torch.float64), 0.1)
    assert (found - math.log(0.1) - info_nce(scores.diagonal(), scores)).abs() < 0.02
    least = robust_contrast(scores.diagonal(), scores, torch.full((4,), 1e-3, dtype=torch.float64), 0.1)
    assert found == least
    most = robust_contrast(scores.diagonal(), scores, torch.full((4,), 7.0, dtype=torch.float64), 0.1)
    assert most == robust_contrast(scores.diagonal(), scores, torch.ones(4, dtype=torch.float64), 0.1)


def test_small_exponents_keep_their_digits_in_float32() -> None:
    scores, _ = batch(6, 0)
    q = torch.full((6,), 1e-3, dtype=torch.float64)
    found = [robust_contrast(s.diagonal(), s, q.to(s.dtype), 0.01).item() for s in (scores, scores.float())]
    assert found[1] == pytest.approx(found[0], rel=1e-6)  # exp in place of expm1 is off by 1e-5 to 1e-4


def test_an_uncertain_pair_far_apart_pulls_less() -> None:
    """Figure 4 of HBCT: the gradient of a far positive falls with q, that of a near one rises."""

    def pull(distance: float, q: float) -> float:
        positive = torch.tensor([-distance], dtype=torch.float64, requires_grad=True)
        scores = torch.cat([positive[:, None], torch.tensor([[-4.0]], dtype=torch.float64)], dim=1)
        loss = robust_contrast(positive, scores, torch.tensor([q], dtype=torch.float64), 0.01)
        return abs(torch.autograd.grad(loss, positive)[0].item())

    assert pull(5.0, 0.9) < pull(5.0, 0.5) < pull(5.0, 0.1)
    assert pull(0.1, 0.9) > pull(0.1, 0.5) > pull(0.1, 0.1)


EDGES = {
    "no row": torch.zeros(0, 0),
    "no row, a gallery": torch.zeros(0, 5),
    "one row, itself alone": torch.zeros(1, 1),
    "all others excluded": torch.full((3, 3), -torch.inf).fill_diagonal_(-1.0),
    "identical": torch.zeros(4, 4),
    "far apart": torch.full((3, 3), -1e4),
}


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("edge", EDGES)
def test_finite_at_the_edges(edge: str, precision: torch.dtype) -> None:
    scores = EDGES[edge].to(precision).clone().requires_grad_()
    rows = len(scores)
    for q in (0.0, 1e-3, 0.5, 1.0):
        uncertainty = torch.full((rows,), q, dtype=precision)
        for loss in (
            robust_contrast(scores.diagonal(), scores, uncertainty, 0.01),
            info_nce(scores.diagonal(), scores),
        ):
            (gradient,) = torch.autograd.grad(loss, scores)
            assert loss.dtype == precision and torch.isfinite(loss) and torch.isfinite(gradient).all()
            assert rows or loss.item() == 0
    if edge == "all others excluded":
        assert info_nce(scores.diagonal(), scores).item() == 0
