"""Isotonic regression is that of SciPy, digit for digit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from limpet.adapters.isotonic import isotonic_means


@pytest.mark.parametrize("size", [1, 2, 3, 50, 1000])
def test_isotonic_means_equals_scipy(size: int) -> None:
    rng = np.random.default_rng(size)
    for scale in (0.0, 1.0, 30.0):  # rising by how much over all values, beside noise of 1
        for values in (rng.normal(size=size), rng.integers(0, 4, size).astype(float)):
            values += np.linspace(0, scale, size)
            weights = rng.uniform(0.1, 5, size)
            assert np.array_equal(isotonic_means(values, weights), isotonic_regression(values, weights=weights).x)
            assert np.array_equal(isotonic_means(values), isotonic_regression(values).x)
