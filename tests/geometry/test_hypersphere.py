from __future__ import annotations

import numpy as np
import pytest
import torch

from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import mean_direction, normalise
from limpet.geometry.segments import segment_mean


def test_zero_has_no_direction_and_stays_zero() -> None:
    assert Hypersphere(3).check(np.zeros((2, 3), np.float32)).tolist() == [0, 1]
    assert normalise(torch.zeros(1, 3)).tolist() == [[0.0, 0.0, 0.0]]


def test_length_does_not_count() -> None:
    x = torch.tensor([[3.0, 4.0]])
    torch.testing.assert_close(
        Hypersphere(2).paired_similarity(*map(Hypersphere(2).project, (x, 7 * x))), torch.ones(1)
    )
    assert len(Hypersphere(2).check(np.array([[300.0, 400.0]], np.float32))) == 0


def test_mean_direction_counts_every_vector_once_whatever_its_length() -> None:
    points = torch.tensor([[9.0, 0.0], [0.0, 1.0]])
    means, _ = mean_direction(points, torch.zeros(2, dtype=torch.int64), 1)
    torch.testing.assert_close(means, torch.full((1, 2), 2**-0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_segment_mean_by_a_slow_loop(dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(40, 3, generator=generator, dtype=dtype)
    labels = torch.randint(0, 5, (40,), generator=generator)
    means, counts = segment_mean(values, labels, 6)
    for c in range(6):
        rows = values[labels == c]
        assert counts[c] == len(rows)
        torch.testing.assert_close(means[c], rows.mean(0) if len(rows) else torch.zeros(3, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_zero_stays_zero_and_other_vectors_get_length_one_in_every_type(dtype: torch.dtype) -> None:
    found = normalise(torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0], [0.6, 0.8]], dtype=dtype))
