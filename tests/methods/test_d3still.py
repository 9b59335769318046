"""The method `d3still`."""

from __future__ import annotations

import pytest
import torch

from limpet.errors import ConfigError
from limpet.methods.d3still import D3still, neighbour_order
from limpet.models.heads import NormalisedHead


def test_three_weighted_terms_of_all_items_and_the_task_of_those_with_a_class(make_step) -> None:
    rng = torch.Generator().manual_seed(0)
    new, old = torch.randn(8, 5, generator=rng), torch.randn(8, 5, generator=rng)
    labels, head = torch.tensor([0, -1, 1, -1, 0, 1, -1, 0]), NormalisedHead(2, 5)
    step = make_step(new, labels, head, old)
    terms = D3still(weight=2.0, own=5.0, inverted=3.0, upheld=0.5, neighbours=4)(step)
    points, before = step.new.points, step.old.points
    found = neighbour_order(points @ before.T, before @ before.T, 4)
    assert terms["own"].item() == pytest.approx(10 * found.own.item(), rel=1e-6)
    assert terms["inverted"].item() == pytest.approx(6 * found.inverted.item(), rel=1e-6)
    assert terms["upheld"].item() == pytest.approx(found.upheld.item(), rel=1e-6)
    known = labels >= 0
    alone = make_step(new[known], labels[known], head).new
    assert terms["task"].item() == pytest.approx(head.loss(alone, labels[known]).item())


@pytest.mark.parametrize(("option", "value"), [("weight", -1), ("own", -2), ("inverted", -1), ("neighbours", 1)])
def test_wrong_options_are_refused(option: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{option}={value}"):
        D3still(**{option: value})
