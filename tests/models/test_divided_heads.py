"""Classifiers of which every process has some classes, or of which a step sees some."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from limpet.errors import ConfigError
from limpet.geometry import Hypersphere
from limpet.losses.sharded_softmax import ClassShard
from limpet.methods.base import LossAlone, View
from limpet.models.heads import build_head

HEADS: dict[str, dict[str, Any]] = {"softmax": {"bias": True}, "normalised": {}, "arcface": {"scale": 16.0}}
CLASSES, DIM = 11, 5


def view() -> View:
    features = torch.randn(20, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return View.of(features.requires_grad_(), Hypersphere(DIM))


def test_the_cross_entropy_of_a_shard_of_all_classes_is_that_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (30 * torch.randn(20, CLASSES, generator=generator, dtype=torch.float64)).requires_grad_()
    labels = torch.randint(-1, CLASSES, (20,), generator=generator)
    assert (labels < 0).any()
    wanted = F.cross_entropy(logits, labels, ignore_index=-1)
    shard = ClassShard(CLASSES)
    found = shard.cross_entropy(logits, shard.rows(labels), labels)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)
    nobody = torch.full((20,), -1)
    assert shard.cross_entropy(logits, shard.rows(nobody), nobody) == 0


def test_every_class_is_a_row_of_one_process() -> None:
    labels = torch.tensor([*range(CLASSES), -1])
    rows = torch.stack([ClassShard(CLASSES, rank, 3).rows(labels) for rank in range(3)])
    assert (rows >= 0).sum(dim=0).tolist() == [1] * CLASSES + [0]
    values = torch.arange(CLASSES)
    parts = [ClassShard(CLASSES, rank, 3).part(values) for rank in range(3)]
    assert torch.equal(torch.cat(parts), values)
    assert all(parts[rank][row] == label for label in range(CLASSES) for rank, row in enumerate(rows[:, label])
               if row >= 0)  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_sampled_classes_are_those_of_the_items_and_some_others(name: str) -> None:
    labels = torch.arange(20) % 4
    torch.manual_seed(0)
    head = build_head(name, CLASSES, DIM, {**HEADS[name], "sampled": 0.6}).double()
    loss = head.loss(seen := view(), labels)
    loss.backward()
    weight = head.weight.grad
    assert weight is not None
    rows = weight.abs().sum(dim=1) > 0
    assert rows[:4].all() and rows.sum() == round(0.6 * CLASSES)
    kept = rows.nonzero()[:, 0]  # the loss is that of a classifier of these classes alone
    smaller = build_head(name, len(kept), DIM, HEADS[name]).double()
    smaller.load_state_dict({key: value[kept] for key, value in head.state_dict().items()})
    torch.testing.assert_close(loss, smaller.loss(seen, labels))
    whole = build_head(name, CLASSES, DIM, HEADS[name]).double()
    whole.load_state_dict(head.state_dict())
    torch.testing.assert_close(head.eval().loss(seen, labels), whole.loss(seen, labels))
    few = build_head(name, CLASSES, DIM, {**HEADS[name], "sampled": 0.01}).double()
    few.loss(view(), labels).backward()
    assert few.weight.grad is not None and int((few.weight.grad.abs().sum(dim=1) > 0).sum()) == 4


def test_wrong_shares_and_too_few_classes_are_refused() -> None:
    for share in (0.0, 1.5):
        with pytest.raises(ConfigError):
            build_head("softmax", CLASSES, DIM, {"sampled": share})
    with pytest.raises(ConfigError, match="2 classes for 3 processes"):
        build_head("softmax", 2, DIM, {"divided": True}).divide(0, 3)


def test_methods_see_the_loss_of_divided_classes_alone() -> None:
    head = build_head("normalised", CLASSES, DIM, {"divided": True}).double()
    shown, labels = LossAlone(head), torch.arange(20) % CLASSES
    assert shown.loss(view(), labels) == head.loss(view(), labels) and shown.scale == head.scale and shown.normalised
    assert not list(shown.parameters())
    for read in (lambda: shown.weight, lambda: shown.logits(view())):
        with pytest.raises(ConfigError, match="divided"):
            read()


def test_processes_draw_equally_often_so_that_one_random_state_resumes_all() -> None:
    states = []
    for rank in range(3):  # of 2, 3 and 3 classes
        torch.manual_seed(0)
        ClassShard(8, rank, 3).drawn(torch.tensor([0, -1]), 0.5)
        states.append(torch.get_rng_state())
    assert torch.equal(states[0], states[1]) and torch.equal(states[0], states[2])
