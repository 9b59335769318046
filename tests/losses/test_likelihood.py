from __future__ import annotations

import math

import pytest
import torch

from holdfast.losses.likelihood import gaussian_likelihood


def test_it_is_the_density_of_a_gaussian_against_a_loop() -> None:
    dim, rng = 4, torch.Generator().manual_seed(0)
    errors, logs = torch.randn(6, dim, generator=rng), torch.randn(6, generator=rng)
    losses = []
    for error, log_variance in zip(errors.tolist(), logs.tolist(), strict=True):
        variance = math.exp(log_variance) / dim  # of one dimension
        density = 1.0
        for value in error:
            density *= math.exp(-(value**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
        losses.append(-math.log(density) / dim - 0.5 * math.log(2 * math.pi / dim))
    found = gaussian_likelihood(errors.square().sum(dim=1), logs)
    assert found.item() == pytest.approx(sum(losses) / 6, rel=1e-5)


def test_the_likeliest_variance_is_the_squared_error() -> None:
    squares = torch.tensor([0.3, 4.0])
    logs = squares.log().requires_grad_()
    gaussian_likelihood(squares, logs).backward()
    torch.testing.assert_close(logs.grad, torch.zeros(2), atol=1e-7, rtol=0)
    assert gaussian_likelihood(squares[:0], logs[:0]).item() == 0
