"""The method `independent`."""

from __future__ import annotations

import torch

from limpet.methods import METHODS


def test_independent_is_the_head_alone(world, make_step) -> None:
    new = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    step = make_step(new, [0, 1, 2, 3], world.head)
    terms = METHODS["independent"]()(step)
    assert list(terms) == ["task"]
    assert terms["task"] == torch.nn.functional.cross_entropy(new @ world.head.weight.T, step.labels)
