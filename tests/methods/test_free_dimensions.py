"""The method `free_dimensions`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from limpet.errors import ConfigError
from limpet.geometry import Hypersphere
from limpet.methods import METHODS
from limpet.methods.base import OldModel
from limpet.methods.free_dimensions import orthonormal


def prepared(make_embeddings, head, vectors, labels, dim: int, **options: Any) -> Any:
    method = METHODS["free_dimensions"](**options)
    old = OldModel(make_embeddings(vectors, labels), classes=()).padded(Hypersphere(dim))
    method.prepare(old, torch.nn.Identity(), head, Hypersphere(dim))
    return method


@pytest.fixture
def turned() -> Callable[..., Tensor]:
    """Turn the basis of a method, and return its first vectors."""

    def turn(method: Any, seed: int) -> Tensor:
        with torch.no_grad():
            method.turn.normal_(generator=torch.Generator().manual_seed(seed))
        vectors = orthonormal(method.turn.detach())
        torch.testing.assert_close(vectors @ vectors.T, torch.eye(len(vectors)), atol=1e-5, rtol=0)
        return vectors

    return turn


def test_two_items_by_hand(make_step, make_embeddings, plain_head) -> None:
    """Old embeddings lie on two axes; the task reads the plane of the second axis and the third."""
    head = plain_head(torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]))  # the first row speaks of what is not read
    old = torch.eye(2)
    method = prepared(make_embeddings, head, old, [0, 1], 3, weight=10.0, prototype_weight=0.3, temperature=1.0)
    with torch.no_grad():
        method.turn.copy_(torch.tensor([[1.0], [0.0]]))  # a right angle from the first axis to the third
    torch.testing.assert_close(orthonormal(method.turn.detach()).abs(), torch.tensor([[0.0, 0, 1], [0, 1, 0]]))
    new = torch.tensor([[3.0, 4.0, 7.0], [0.0, 1.0, 0.0]])
    terms = method(make_step(new, [0, 1], head, torch.nn.functional.pad(old, (0, 1))))
    near = math.sqrt((0.6 - 1) ** 2 + 0.8**2)  # from (.6, .8) to the first axis; the second item is where it was
    torch.testing.assert_close(terms["alignment"], torch.tensor(10.0 * near / 2))
    contrast = (math.log(1 + math.exp(0.8 - 0.6)) + math.log(1 + math.exp(-1.0))) / 2
    torch.testing.assert_close(terms["contrast"], torch.tensor(3.0 * contrast))
    task = (math.log(1 + math.exp(8.0)) + math.log(1 + math.exp(-2.0))) / 2  # scores (0, 8) and (0, 2)
    torch.testing.assert_close(terms["task"], torch.tensor(task))


def test_the_formula_in_a_slow_loop(make_step, make_embeddings, plain_head, turned) -> None:
    generator = torch.Generator().manual_seed(0)
    old, new = torch.randn(5, 4, generator=generator), torch.randn(5, 7, generator=generator).requires_grad_()
    labels = [0, 1, 2, 1, 0]
    head = plain_head(torch.randn(3, 7, generator=generator))
    method = prepared(make_embeddings, head, old, labels, 7, prototype_weight=0.0, task_dim=3)
    vectors = turned(method, 4)
    terms = method(make_step(new, labels, head, torch.nn.functional.pad(old, (0, 3))))
    task, alignment = torch.zeros(()), torch.zeros(())
    for row, before, label in zip(new, old, labels, strict=True):
        seen = torch.zeros(7)
        for vector in vectors:
            seen = seen + torch.dot(row, vector) * vector
        scores = [torch.dot(seen, weights) for weights in head.weight]
        task = task - torch.log(torch.exp(scores[label]) / sum(torch.exp(score) for score in scores)) / 5
        alignment = alignment + (row[:4] / row[:4].norm() - before / before.norm()).norm() / 5
    assert set(terms) == {"task", "alignment"}
    torch.testing.assert_close(terms["task"], task)
    torch.testing.assert_close(terms["alignment"], alignment)
    (of_alignment,) = torch.autograd.grad(terms["alignment"], new, retain_graph=True)
    assert not of_alignment[:, 4:].any()
    (of_task,) = torch.autograd.grad(terms["task"], new)
    torch.testing.assert_close(of_task @ vectors.T @ vectors, of_task)  # the task moves nothing outside its part


def test_the_basis_stays_orthonormal_and_moves(make_step, make_embeddings, plain_head) -> None:
    generator = torch.Generator().manual_seed(2)
    old = torch.randn(12, 4, generator=generator)
    labels = [0, 1, 2] * 4
    head = plain_head(torch.randn(3, 6, generator=generator))
    method = prepared(make_embeddings, head, old, labels, 6)
    torch.testing.assert_close(orthonormal(method.turn.detach()), torch.eye(6)[:4])
    optimizer = torch.optim.SGD([*method.parameters(), *head.parameters()], lr=0.5)
    new = torch.randn(12, 6, generator=generator)
    for _ in range(5):
        optimizer.zero_grad()
        method(make_step(new, labels, head, torch.nn.functional.pad(old, (0, 2))))["task"].backward()
        optimizer.step()
    vectors = orthonormal(method.turn.detach())
    torch.testing.assert_close(vectors @ vectors.T, torch.eye(4), atol=1e-5, rtol=0)
    assert (vectors - torch.eye(6)[:4]).abs().max() > 0.01


def test_the_released_classifier_reads_embeddings_as_they_are(make_step, make_embeddings, plain_head, turned) -> None:
    generator = torch.Generator().manual_seed(3)
    old = torch.randn(6, 3, generator=generator)
    labels = [0, 1, 2, 0, 1, 2]
    head = plain_head(torch.randn(3, 5, generator=generator))
    method = prepared(make_embeddings, head, old, labels, 5)
    turned(method, 5)
    step = make_step(torch.randn(6, 5, generator=generator), labels, head, torch.nn.functional.pad(old, (0, 2)))
    task = method(step)["task"]
    assert abs(head.loss(step.new, step.labels).item() - task.item()) > 1e-3
    method.on_training_end(head)
    torch.testing.assert_close(head.loss(step.new, step.labels), task)
    method.on_training_end(head)
    torch.testing.assert_close(head.loss(step.new, step.labels), task)


def test_without_free_dimensions_the_task_reads_everything(make_step, make_embeddings, plain_head) -> None:
    head = plain_head(torch.eye(2))
    method = prepared(make_embeddings, head, torch.eye(2), [0, 1], 2)
    step = make_step(torch.tensor([[1.0, 2.0], [0.5, 1.0]]), [0, 1], head, torch.eye(2))
    assert method.turn is None and not list(method.parameters())
    torch.testing.assert_close(method(step)["task"], head.loss(step.new, step.labels))


def test_more_dimensions_for_the_task_than_there_are(make_embeddings, plain_head) -> None:
    with pytest.raises(ConfigError, match="task_dim=4 for embeddings of 3") as error:
        prepared(make_embeddings, plain_head(torch.zeros(2, 3)), torch.eye(2), [0, 1], 3, task_dim=4)
    assert "at most 3" in error.value.expected
