"""The method `ssp`."""

from __future__ import annotations

import pytest
import torch

from limpet.errors import ConfigError
from limpet.geometry import Hypersphere
from limpet.methods.base import OldModel
from limpet.methods.ssp import SSP, anchor_agreement
from limpet.models.heads import NormalisedHead


def test_the_divergence_of_all_items_and_the_task_of_those_with_a_class(make_step, make_embeddings) -> None:
    rng = torch.Generator().manual_seed(0)
    vectors, new = torch.randn(40, 6, generator=rng), torch.randn(8, 6, generator=rng)
    labels, head = torch.tensor([0, -1, 1, -1, 0, 1, -1, 0]), NormalisedHead(2, 6)
    method = SSP(weight=2.0, parts=4, anchors=5, temperature=0.2)
    known = OldModel(make_embeddings(vectors, torch.arange(40) % 2), ["c0", "c1"])
    method.prepare(known, torch.nn.Identity(), head, Hypersphere(6))
    assert method.anchor_points.shape == (3, 5, 2)  # 4 does not divide 6
    step = make_step(new, labels, head, vectors[:8])
    terms = method(step)
    agreement = anchor_agreement(step.new.points, step.old.points, method.anchor_points, 0.2)
    assert terms["anchors"].item() == pytest.approx(2 * agreement.item(), rel=1e-6)
    chosen = labels >= 0
    alone = make_step(new[chosen], labels[chosen], head).new
    assert terms["task"].item() == pytest.approx(head.loss(alone, labels[chosen]).item())


@pytest.mark.parametrize(("option", "value"), [("weight", -1), ("parts", 0), ("anchors", 1), ("temperature", 0)])
def test_wrong_options_are_refused(option: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{option}={value}"):
        SSP(**{option: value})
