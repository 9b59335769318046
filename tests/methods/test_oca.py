"""The method `oca`."""

from __future__ import annotations

import math

import torch

from limpet.geometry import Hypersphere
from limpet.methods import METHODS
from limpet.methods.base import OldModel


def padded_old(make_embeddings, vectors, labels, dim: int) -> OldModel:
    return OldModel(make_embeddings(vectors, labels), classes=()).padded(Hypersphere(dim))


def test_two_items_by_hand(make_step, make_embeddings, plain_head) -> None:
    """Old classes lie on the two axes; the third dimension is free, however long it is."""
    head = plain_head(torch.zeros(2, 3))
    method = METHODS["oca"](weight=2.0, temperature=1.0)
    method.prepare(padded_old(make_embeddings, [[2.0, 0.0], [0.0, 5.0]], [0, 1], 3), torch.nn.Identity(), head,
                   Hypersphere(3))  # fmt: skip
    step = make_step(torch.tensor([[3.0, 4.0, 100.0], [0.0, 1.0, 0.0]]), [0, 1], head)
    terms = method(step)
    first = math.log(1 + math.exp(0.8 - 0.6))  # cosines .6 and .8 of the block with the axes
    second = math.log(1 + math.exp(0.0 - 1.0))
    torch.testing.assert_close(terms["contrast"], torch.tensor(2.0 * (first + second) / 2))
    torch.testing.assert_close(terms["task"], torch.tensor(math.log(2)))


def test_the_formula_in_a_slow_loop(make_step, make_embeddings, plain_head) -> None:
    generator = torch.Generator().manual_seed(0)
    old, new = torch.randn(12, 4, generator=generator), torch.randn(5, 7, generator=generator).requires_grad_()
    labels, own = [0, 1, 2] * 4, [2, 0, 0, 1, 2]
    head = plain_head(torch.zeros(3, 7))
    method = METHODS["oca"]()
    method.prepare(padded_old(make_embeddings, old, labels, 7), torch.nn.Identity(), head, Hypersphere(7))
    means = []
    for c in range(3):
        total = torch.zeros(4)
        for row, label in zip(old, labels, strict=True):
            total = total + (row / row.norm() if label == c else 0)
        means.append(total / total.norm())
    loss = torch.zeros(())
    for row, label in zip(new, own, strict=True):
        block = row[:4] / row[:4].norm()
        scores = [torch.dot(block, mean) / 0.07 for mean in means]
        loss = loss - torch.log(torch.exp(scores[label]) / sum(torch.exp(score) for score in scores)) / len(new)
    contrast = method(make_step(new, own, head))["contrast"]
    torch.testing.assert_close(contrast, loss)
    (gradient,) = torch.autograd.grad(contrast, new)
    assert gradient[:, :4].abs().sum() > 0
    assert not gradient[:, 4:].any()  # what is free does not answer to the old model


def test_a_trained_classifier_undoes_an_orthogonal_layer() -> None:
    """Why the paper's layer between embedding and classifier is left out."""
    generator = torch.Generator().manual_seed(1)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=generator)).Q
    features, rows = torch.randn(9, 6, generator=generator), torch.randn(4, 6, generator=generator)
    torch.testing.assert_close((features @ turn.T) @ rows.T, features @ (rows @ turn).T)
    torch.testing.assert_close((rows @ turn).norm(dim=1), rows.norm(dim=1))
