"""The method `lwf`."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from limpet.errors import ConfigError
from limpet.geometry import Hypersphere
from limpet.losses.distillation import dark_knowledge
from limpet.methods import METHODS
from limpet.methods.base import CompatibilityMethod, Head, OldModel, View

SPACE = Hypersphere(5)


@pytest.fixture
def golden_step(reference, make_step, make_embeddings, cosine_head) -> Any:
    """One step of a session after the first, from the file of CVS."""
    g = reference("cvs_step")
    known, labels = int(g["C_old"]), g["labels"]
    names = [f"c{row}" for row in range(len(g["W_new"]))]
    embeddings = make_embeddings(g["z_old"], labels, names=names)
    old = OldModel(embeddings, names[:known], cosine_head(g["W_old"], g["temp"]), own_training=embeddings[[]])
    head, z = cosine_head(g["W_new"], g["temp"]), g["z_new"].clone().requires_grad_()
    step = make_step(z, labels, head, g["z_old"], old_labels=labels.masked_fill(labels >= known, -1))
    return g, old, step


def ready(method: CompatibilityMethod, old: OldModel, head: Head, dtype: torch.dtype) -> CompatibilityMethod:
    method.prepare(old, nn.Identity(), head, old.embeddings.space)
    return method.to(dtype)


def test_lwf_of_cvs(golden_step, agrees, dtype) -> None:
    g, old, step = golden_step
    method = ready(METHODS["lwf"](), old, step.head, dtype)
    with torch.no_grad():
        method.student.weight.copy_(g["W_lwf_head"])
    terms = method(step)
    agrees(terms["distillation"], g["lwf_term"])
    agrees(torch.autograd.grad(sum(terms.values()), step.new.features)[0], g["grad_lwf"])


def test_lwf_keeps_the_scores_of_the_old_classifier(second, predecessor, two_sessions) -> None:
    after, kept = two_sessions[1], []
    with torch.no_grad():
        wanted = predecessor.head.logits(View.of(predecessor.encoder(after.images), SPACE))
    for method in (METHODS["finetune"](), METHODS["lwf"](weight=3.0)):
        found = second(method).embed(after)
        student = method.student if hasattr(method, "student") else predecessor.head
        kept.append(dark_knowledge(student.logits(View.of(found, SPACE)), wanted).item())
    assert kept[1] < 0.7 * kept[0]
    assert torch.equal(method.teacher.weight, predecessor.head.weight)
    assert not torch.equal(method.student.weight, predecessor.head.weight)


def test_the_copied_classifier_of_lwf_trains_and_the_frozen_one_does_not(world, make_step) -> None:
    method = METHODS["lwf"]()
    method.prepare(world.old, nn.Identity(), world.head, world.space)
    new, old = (torch.randn(4, 5, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    method(make_step(new, [0, 1, 2, 3], world.head, old))["distillation"].backward()
    assert [name for name, value in method.named_parameters() if value.requires_grad] == ["student.weight"]
    assert method.student.weight.grad.any() and method.teacher.weight.grad is None
    assert world.old.head.weight.grad is None and world.head.weight.grad is None


def test_distillation_is_weighed_softened_and_left_out(world, make_step) -> None:
    new, old = (torch.randn(4, 5, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    step = make_step(new, [4, 5, 4, 5], world.head, old, old_labels=torch.full((4,), -1))
    for name, option in (("lwf", "weight"), ("mmd", "distillation_weight")):
        found = []
        for options in ({}, {option: 3.0}, {"temperature": 4.0}, {option: 0.0}):
            method = METHODS[name](**options)
            method.prepare(world.old, nn.Identity(), world.head, world.space)
            found.append(method(step))
        torch.testing.assert_close(found[1]["distillation"], 3 * found[0]["distillation"])
        assert found[2]["distillation"] != found[0]["distillation"] and "distillation" not in found[3]
        with pytest.raises(ConfigError, match=f"method-options.{option.replace('_', '-')} 0"):
            METHODS[name]().prepare(dataclasses.replace(world.old, head=None), nn.Identity(), world.head, world.space)
