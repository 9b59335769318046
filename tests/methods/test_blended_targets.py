"""The method `blended_targets`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from limpet.errors import ConfigError
from limpet.geometry import Hypersphere
from limpet.methods.base import OldModel
from limpet.methods.blended_targets import BlendedTargets
from limpet.methods.p2s import P2S

LABELS = [2, 0, 0, 1, 2]


def made(rows: int, dim: int, seed: int) -> Tensor:
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))


def prepared(make_embeddings: Any, head: Any, vectors: Any, labels: list[int], **options: Any) -> BlendedTargets:
    method, embeddings = BlendedTargets(**options), make_embeddings(vectors, labels)
    method.prepare(OldModel(embeddings, classes=()), torch.nn.Identity(), head, embeddings.space)
    return method


def unit(row: np.ndarray) -> np.ndarray:
    return row / math.sqrt(sum(value * value for value in row))


def test_two_items_by_hand(make_step, make_embeddings, plain_head) -> None:
    """Old classes lie on the axes; old embeddings of the batch are turned by right angles to a diagonal half way."""
    head = plain_head(torch.zeros(2, 2))
    options = {"weight": 2.0, "class_share": 0.25, "old_share": 0.5, "temperature": 1.0, "class_temperature": 0.5}
    method = prepared(make_embeddings, head, [[2.0, 0.0], [0.0, 5.0]], [0, 1], **options)
    step = make_step(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), [0, 1], head, torch.tensor([[0.0, 7.0], [0.0, 1.0]]))
    terms = method(step)
    half = math.sqrt(0.5)  # the first target is the diagonal, the second the other axis
    pairs = (math.log(1 + math.exp(0 - half)) + math.log(1 + math.exp(half - 1))) / 2
    torch.testing.assert_close(terms["pairs"], torch.tensor(2.0 * 0.75 * pairs))
    torch.testing.assert_close(terms["classes"], torch.tensor(2.0 * 0.25 * math.log(1 + math.exp(-1 / 0.5))))
    torch.testing.assert_close(terms["task"], torch.tensor(math.log(2)))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_formula_in_a_slow_loop(make_step, make_embeddings, plain_head, share: float) -> None:
    vectors, new, old = made(12, 4, 0), made(5, 4, 1), made(5, 4, 2)
    head = plain_head(torch.zeros(3, 4))
    known = [0, 1, 2] * 4
    terms = prepared(make_embeddings, head, vectors, known, old_share=share)(make_step(new, LABELS, head, old))
    z, v = ([unit(row) for row in rows.double().numpy()] for rows in (new, old))
    rows = [unit(row) for row in vectors.double().numpy()]
    means = [unit(sum(row for row, label in zip(rows, known, strict=True) if label == c)) for c in range(3)]
    targets = [unit(share * v[i] + (1 - share) * means[LABELS[i]]) for i in range(5)]
    pairs = classes = 0.0
    for i, label in enumerate(LABELS):
        others = sum(math.exp(z[i] @ targets[j] / 0.1) for j in range(5) if LABELS[j] != label)
        own = math.exp(z[i] @ targets[i] / 0.1)
        pairs -= math.log(own / (own + others)) / 5
        scores = [math.exp(z[i] @ mean / 0.07) for mean in means]
        classes -= math.log(scores[label] / sum(scores)) / 5
    method = BlendedTargets()
    assert terms["pairs"].item() == pytest.approx(method.weight * (1 - method.class_share) * pairs, rel=1e-4)
    assert terms["classes"].item() == pytest.approx(method.weight * method.class_share * classes, rel=1e-4)


def test_without_pairs_it_is_p2s(make_step, make_embeddings, plain_head) -> None:
    head = plain_head(made(3, 4, 4))
    embeddings = make_embeddings(made(9, 4, 0), [0, 1, 2] * 3)
    step = make_step(made(5, 4, 1), LABELS, head, made(5, 4, 2))
    ours, p2s = BlendedTargets(weight=2.0, class_share=1.0), P2S(weight=2.0)
    for method in (ours, p2s):
        method.prepare(OldModel(embeddings, classes=()), torch.nn.Identity(), head, Hypersphere(4))
    terms, expected = ours(step), p2s(step)
    torch.testing.assert_close(terms["classes"], expected["contrast"])
    torch.testing.assert_close(terms["task"], expected["task"])
    assert terms["pairs"].item() == 0


def test_of_an_old_embedding_counts_what_tells_it_from_its_class_as_far_as_asked(
    make_step, make_embeddings, plain_head
) -> None:
    """With a share of 0 old embeddings of the batch are not looked at; with 1 the means are not."""
    head, new = plain_head(torch.zeros(3, 4)), made(5, 4, 1)

    def pairs(old_seed: int, mean_seed: int, share: float) -> Tensor:
        method = prepared(make_embeddings, head, made(9, 4, mean_seed), [0, 1, 2] * 3, old_share=share)
        return method(make_step(new, LABELS, head, made(5, 4, old_seed)))["pairs"]

    assert pairs(2, 0, 0.0) == pairs(3, 0, 0.0) and pairs(2, 0, 0.0) != pairs(2, 5, 0.0)
    assert pairs(2, 0, 1.0) == pairs(2, 5, 1.0) and pairs(2, 0, 1.0) != pairs(3, 0, 1.0)
    assert pairs(2, 0, 0.5) not in (pairs(3, 0, 0.5), pairs(2, 5, 0.5))


def test_a_batch_of_one_class_tells_pairs_nothing(make_step, make_embeddings, plain_head) -> None:
    head, new = plain_head(made(3, 4, 4)), made(5, 4, 1).requires_grad_()
    method = prepared(make_embeddings, head, made(9, 4, 0), [0, 1, 2] * 3)
    terms = method(make_step(new, [1] * 5, head, made(5, 4, 2)))
    assert terms["pairs"].item() == 0 and torch.isfinite(torch.autograd.grad(sum(terms.values()), new)[0]).all()


@pytest.mark.parametrize(
    "options",
    [{"weight": -0.1}, {"class_share": -0.1}, {"old_share": 1.1}, {"temperature": 0.0}, {"class_temperature": -0.1}],
)
def test_impossible_options(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        BlendedTargets(**options)
