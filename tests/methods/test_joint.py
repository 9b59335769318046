"""The method `joint`: the upper bound of learning in sessions."""

from __future__ import annotations

import torch

from limpet.methods import METHODS


def test_the_task_alone_on_everything_with_the_gallery_embedded_again(world, make_step) -> None:
    new = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    step = make_step(new, [0, 1, 2, 3], world.head, old=torch.ones(4, 5))
    method = METHODS["joint"]()
    terms = method(step)
    assert list(terms) == ["task"]
    assert terms["task"] == torch.nn.functional.cross_entropy(new @ world.head.weight.T, step.labels)
    assert (method.memory, method.gallery_policy, method.bound) == ("everything", "reindex", "upper")
