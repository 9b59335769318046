"""Consensus with a queue, and the credibility of old embeddings: reference numbers, slow loops, edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from holdfast.geometry.hypersphere import normalise
from holdfast.losses import consensus
from holdfast.losses.consensus import (
    assignment_entropy,
    class_spread,
    consensus_contrast,
    consensus_weights,
    entropy_limit,
    kept_similarity,
    low_entropy_rows,
)

PRECISIONS = [(torch.float64, 1e-7, 1e-7), (torch.float32, 1e-4, 1e-5)]


def queue_of(seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Four anchors, the last none, and six slots, two of them empty."""
    rng = np.random.default_rng(seed)
    new, old, queue = (normalise(tensor(rng.normal(size=(rows, 3)))) for rows in (4, 4, 6))
    return new, old, tensor([0, 1, 0, -1]), queue, tensor([0, 1, -1, 0, 2, -1])


def test_consensus_by_a_slow_loop() -> None:
    new, old, labels, queue, queue_labels = queue_of()
    filled = [0, 1, 3, 4]
    losses = []
    for i in range(3):
        scores = {j: float(new[i] @ queue[j]) / 0.4 for j in filled}
        normaliser = math.log(sum(math.exp(score) for score in scores.values()))
        same = [j for j in filled if queue_labels[j] == labels[i]]
        terms = [(1 + float(old[i] @ queue[j])) / 2 * (normaliser - scores[j]) for j in same]
        losses.append(sum(terms) / len(terms))
    weights = consensus_weights(old, labels, queue, queue_labels)
    found = consensus_contrast(new @ queue.T / 0.4, weights, queue_labels >= 0)
    assert found.item() == pytest.approx(sum(losses) / 3, rel=1e-12)


def test_an_anchor_without_entries_does_not_dilute_the_mean() -> None:
    _, old, labels, queue, queue_labels = queue_of()
    alone = labels.masked_fill(labels == 1, 7)
    whole = consensus_weights(old, alone, queue, queue_labels)
    without = consensus_weights(old[[0, 2]], labels[[0, 2]], queue, queue_labels)
    torch.testing.assert_close(whole[[0, 2]], without)
    assert not whole[[1, 3]].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["empty queue", "no anchor", "no row"])
def test_nothing_to_learn_from_costs_exactly_nothing(case: str, dtype: torch.dtype) -> None:
    new, old, labels, queue, queue_labels = queue_of()
    if case == "empty queue":
        queue, queue_labels = torch.zeros_like(queue), torch.full_like(queue_labels, -1)
    if case == "no anchor":
        labels = torch.full_like(labels, -1)
    rows = slice(0, 0) if case == "no row" else slice(None)
    z = new[rows].to(dtype).requires_grad_()
    weights = consensus_weights(old[rows].to(dtype), labels[rows], queue.to(dtype), queue_labels)
    loss = consensus_contrast(z @ queue.T.to(dtype), weights, queue_labels >= 0)
    loss.backward()
    assert loss.item() == 0 and loss.dtype == dtype and not z.grad.any()


@given(seed=st.integers(0, 10_000))
def test_laws_of_consensus(seed: int) -> None:
    new, old, labels, queue, queue_labels = queue_of(seed)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(6))

    def loss(slots: torch.Tensor) -> torch.Tensor:
        weights = consensus_weights(old, labels, queue[slots], queue_labels[slots])
        assert (weights >= 0).all() and weights.sum() <= 1 + 1e-12
        return consensus_contrast(new @ queue[slots].T, weights, queue_labels[slots] >= 0)

    torch.testing.assert_close(loss(order), loss(torch.arange(6)))
    torch.testing.assert_close(loss(tensor([0, 1, 3, 4])), loss(torch.arange(6)))  # empty slots do not exist
    assert loss(order) >= 0


@given(seed=st.integers(0, 10_000), kept=st.integers(1, 7))
def test_kept_similarity_is_that_of_rows_with_zeros(seed: int, kept: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    values, columns = torch.randn(5, 7, generator=generator, dtype=torch.float64).topk(kept, dim=1)
    dense = torch.zeros(5, 7, dtype=torch.float64).scatter(1, columns, values)
    upstream = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    found, expected = kept_similarity(logits, values, columns), logits @ dense.T
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((rows * upstream).sum(), logits)[0] for rows in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("dtype", "rtol", "atol"), PRECISIONS)
def test_credibility(golden, dtype: torch.dtype, rtol: float, atol: float) -> None:
    g = golden("nccl_credibility")
    features, centres, variances = (tensor(g[name]).to(dtype) for name in ("feat", "center", "var"))
    entropy = assignment_entropy(features, centres, variances)
    np.testing.assert_allclose(entropy, g["entropy"], rtol=rtol, atol=atol)
    np.testing.assert_allclose(entropy_limit(len(centres)), g["U"], rtol=1e-7)
    np.testing.assert_array_equal(entropy <= entropy_limit(len(centres)), g["credible"].astype(bool))
    found = class_spread(features, tensor(g["labels"]), len(centres))
    for values, name in zip(found, ("center", "var"), strict=True):
        np.testing.assert_allclose(values, g[name], rtol=rtol, atol=atol)


def test_credibility_block_by_block(golden, monkeypatch) -> None:
    g = golden("nccl_credibility")
    arguments = tensor(g["feat"]), tensor(g["labels"]), len(g["center"])
    whole = (low_entropy_rows(*arguments), *class_spread(*arguments))
    monkeypatch.setattr(consensus, "ELEMENTS", 21)  # three rows of seven numbers
    for first, second in zip(whole, (low_entropy_rows(*arguments), *class_spread(*arguments)), strict=True):
        assert torch.equal(first, second)
    np.testing.assert_array_equal(whole[0], g["credible"].astype(bool))


def test_a_block_never_holds_more_than_its_share(monkeypatch) -> None:
    sizes: list[int] = []
    block_entropy = consensus._block_entropy

    def watch(rows: torch.Tensor, centres: torch.Tensor, variances: torch.Tensor) -> torch.Tensor:
        sizes.append(len(rows) * len(centres))
        return block_entropy(rows, centres, variances)

    monkeypatch.setattr(consensus, "_block_entropy", watch)
    monkeypatch.setattr(consensus, "ELEMENTS", 1000)
    points = torch.randn(70, 5, generator=torch.Generator().manual_seed(0))
    assignment_entropy(points, points[:60], torch.ones(60))
    assert sum(sizes) == 70 * 60 and max(sizes) <= 1000


def test_small_classes_and_tight_ones_take_the_mean_spread_of_the_others() -> None:
    rows = tensor([0.0, 0, 6, 0, 0, 12, 1, 2, 5, 5, 5, 9]).double()[:, None]
    labels = tensor(
        [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4]
    )  # the third has two items, the fourth no spread, the fifth one
    _, variances = class_spread(rows, labels, 6)
    mean = (8 / 9 + 32 / 9) / 2  # distances 2, 2, 4 and 4, 4, 8
    torch.testing.assert_close(variances, tensor([8 / 9, 32 / 9, mean, mean, mean, mean]).double())
    _, alone = class_spread(rows[6:], labels[6:], 6)
    assert alone.tolist() == [pytest.approx(1e-6)] * 6


def test_single_items_of_different_classes_are_credible_and_coinciding_classes_are_not() -> None:
    apart, labels = torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)
    assert low_entropy_rows(apart, labels, 3).all()
    assert not low_entropy_rows(torch.ones(6, 3) / 3**0.5, labels, 3).any()


def test_classes_without_items_do_not_count() -> None:
    rng = np.random.default_rng(2)
    labels = torch.arange(4).repeat(10)
    points = normalise(tensor(rng.normal(size=(4, 5)))[labels] + 0.9 * tensor(rng.normal(size=(40, 5))))
    plain = low_entropy_rows(points, labels, 4)
    assert plain.any() and not plain.all()
    assert torch.equal(plain, low_entropy_rows(points, 2 * labels, 9))


def test_one_class_is_always_credible() -> None:
    points = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert low_entropy_rows(points, torch.zeros(5, dtype=torch.int64), 1).all()


def test_entropy_survives_classes_far_apart() -> None:
    entropy = assignment_entropy(torch.eye(3), torch.eye(3), torch.full((3,), 1e-6))
    assert entropy.tolist() == [0.0, 0.0, 0.0]
