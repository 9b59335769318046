from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from limpet.adapters import ADAPTERS, build_adapter
from limpet.adapters.fastfill import gaussian_likelihood
from limpet.adapters.moments import unit_rows
from limpet.adapters.storage import load_adapter, save_adapter


def two_regions(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The target agrees with the source where its first value is above 0, and is mostly noise elsewhere."""
    rng = np.random.default_rng(seed)
    source = unit_rows(rng.normal(size=(900, 5)))
    noise = np.where(source[:, :1] > 0, 0.05, 1.0) * rng.normal(size=(900, 7))
    return source, unit_rows(source @ np.random.default_rng(9).normal(size=(5, 7)) + noise)


@pytest.fixture(scope="module")
def trained(make_set):
    source, target = two_regions()
    options = {"epochs": 15, "hidden": 16, "learning_rate": 5e-3, "batch_size": 64}
    return build_adapter("fastfill", options).fit(make_set(target, "old"), make_set(source, "new"))


def test_the_variance_tells_where_images_are_wrong(trained) -> None:
    source, target = two_regions(seed=1)
    errors = ((trained.map(source) - target) ** 2).sum(axis=1)
    variances = trained.variances(source)
    assert spearmanr(variances, errors).statistic > 0.6
    sure = source[:, 0] > 0
    assert variances[~sure].mean() > 8 * variances[sure].mean()
    assert variances[~sure].mean() == pytest.approx(errors[~sure].mean(), rel=0.35)


def test_the_variance_against_a_loop(trained) -> None:
    state, rows = trained.fitted.state, two_regions()[0][:4]
    for row, found in zip(rows, trained.variances(3 * rows), strict=True):
        log_variance = float(state["spread_offset"])
        for place, value in enumerate(row):
            log_variance += value * state["spread"][place]
        for unit in range(16):
            inner = sum(value * state["inner"][place, unit] for place, value in enumerate(row))
            inner += state["inner_offset"][unit]
            log_variance += inner * (1 + math.erf(inner / math.sqrt(2))) / 2 * state["spread_inner"][unit]
        assert found == pytest.approx(math.exp(log_variance), rel=1e-6)


def test_a_saved_one_tells_the_same(trained, tmp_path) -> None:
    again, rows = load_adapter(save_adapter(trained, tmp_path / "adapter")), two_regions()[0][:9]
    np.testing.assert_array_equal(again.variances(rows), trained.variances(rows))
    assert trained.variances(rows[:0]).shape == (0,)


def test_the_others_learn_none(make_set) -> None:
    source, target = two_regions()
    fitted = build_adapter("ridge", {}).fit(make_set(target, "old"), make_set(source, "new"))
    assert fitted.variances(source) is None and not ADAPTERS["fastfill"].usual


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
