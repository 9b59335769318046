from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.geometry.hypersphere import normalise
from holdfast.losses.replayed_embedding import AGGREGATIONS, SessionSums

NAMES = {"item_mean": "E_code", "session_mean": "E_paper_present", "literal": "E_paper_literal"}


def summed(g: dict[str, torch.Tensor], num_classes: int) -> SessionSums:
    sums = SessionSums.empty(g["gallery"].shape[1], g["gallery"].dtype)
    for session in range(int(g["session"].max()) + 1):
        own = g["session"] == session
        sums = sums.with_session(g["gallery"][own], g["labels"][own], num_classes)
    return sums


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_every_aggregation_has_its_reference_numbers(reference: Any, agrees: Any, dtype: Any, aggregation: str) -> None:
    g = reference("cvs_replayed_embedding")
    expected = g[NAMES[aggregation]]
    found, seen = summed(g, len(expected)).embeddings(aggregation)
    assert seen.all() and found.dtype == dtype
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if aggregation == "item_mean" and dtype == torch.float64 else {}
    agrees(found, expected.to(dtype), **tolerance)


def test_the_three_by_hand() -> None:
    east, north = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0]])
    sums = SessionSums.empty(2).with_session(east.repeat(3, 1), torch.tensor([0, 0, 0]), 1)
    sums = sums.with_session(torch.cat([north, north]), torch.tensor([0, 1]), 2)
    assert sums.embeddings()[0].tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert sums.embeddings("session_mean")[0].tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert sums.embeddings("literal")[0].tolist() == [[0.5, 0.5], [0.0, 0.5]]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_by_a_slow_loop_over_a_gallery_that_grows(aggregation: str) -> None:
    rng = np.random.default_rng(0)
    sums, galleries = SessionSums.empty(3, torch.float64), []
    for known in (2, 4, 7):
        vectors, labels = torch.from_numpy(rng.normal(size=(20, 3))), torch.from_numpy(rng.integers(0, known, 20))
        labels[labels == 1] = 0 if known == 4 else 1
        galleries.append((normalise(vectors), labels))
        sums = sums.with_session(vectors, labels, known)
    found, seen = sums.embeddings(aggregation)
    for c in range(7):
        parts = [points[labels == c] for points, labels in galleries]
        means = [part.mean(dim=0) for part in parts if len(part)]
        assert seen[c] == bool(means)
        if not means:
            continue
        expected = {
            "item_mean": torch.cat(parts).mean(dim=0),
            "session_mean": sum(means) / len(means),
            "literal": sum(means) / 3,
        }[aggregation]
        torch.testing.assert_close(found[c], expected)


def test_all_agree_where_every_session_is_alike() -> None:
    vectors, labels = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    sums = SessionSums.empty(4)
    for _ in range(3):
        sums = sums.with_session(vectors, labels, 3)
    for aggregation in AGGREGATIONS:
        torch.testing.assert_close(sums.embeddings(aggregation)[0], sums.embeddings()[0])


def test_its_size_is_that_of_classes_and_sessions_and_it_keeps_no_graph() -> None:
    vectors = torch.randn(500, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    first = SessionSums.empty(4).with_session(vectors, torch.arange(500) % 5, 5)
    second = first.with_session(vectors, torch.arange(500) % 5, 8)
    assert second.sums.shape == (2, 8, 4) and second.counts.shape == (2, 8)
    assert first.sums.shape == (1, 5, 4)
    assert not second.sums.requires_grad
    assert second.counts.tolist() == [[100.0] * 5 + [0.0] * 3] * 2


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_classes_without_an_embedding_are_zero_and_named(aggregation: str) -> None:
    sums = SessionSums.empty(2).with_session(torch.ones(1, 2), torch.tensor([1]), 3)
    found, seen = sums.embeddings(aggregation)
    assert seen.tolist() == [False, True, False]
    assert found[~seen].tolist() == [[0.0, 0.0]] * 2 and torch.isfinite(found).all()
    nothing, none = SessionSums.empty(2).embeddings(aggregation)
    assert nothing.shape == (0, 2) and none.shape == (0,)
    empty = SessionSums.empty(2).with_session(torch.empty(0, 2), torch.empty(0, dtype=torch.int64), 2)
    assert empty.embeddings(aggregation)[0].tolist() == [[0.0, 0.0]] * 2


def test_zero_vectors_stay_finite() -> None:
    sums = SessionSums.empty(2).with_session(torch.zeros(2, 2), torch.tensor([0, 0]), 1)
    assert sums.embeddings()[0].tolist() == [[0.0, 0.0]]


def test_what_does_not_fit_is_refused() -> None:
    sums = SessionSums.empty(2).with_session(torch.ones(1, 2), torch.tensor([1]), 3)
    with pytest.raises(ConfigError, match=r"num_classes = 2\.\n.*at least 3"):
        sums.with_session(torch.ones(1, 2), torch.tensor([1]), 2)
    with pytest.raises(ConfigError, match=r"num_classes = 3\.\n.*at least 4"):
        sums.with_session(torch.ones(1, 2), torch.tensor([3]), 3)
    with pytest.raises(ConfigError, match=r"3 dimensions\.\n.*2 as before"):
        sums.with_session(torch.ones(1, 3), torch.tensor([1]), 3)
    with pytest.raises(ConfigError, match="Did you mean 'session_mean'"):
        sums.embeddings("sesion_mean")
