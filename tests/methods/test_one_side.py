"""The method `one_side`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from limpet.errors import ConfigError
from limpet.methods.one_side import OneSide
from limpet.models.heads import NormalisedHead


def unit(rows: Any) -> Any:
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def cross_entropy(points: Any, weights: Any, labels: list[int]) -> float:
    losses = []
    for point, label in zip(points, labels, strict=True):
        if label >= 0:
            scores = [float(point @ weight) / 0.5 for weight in weights]
            losses.append(np.log(sum(map(np.exp, scores))) - scores[label])
    return float(np.mean(losses)) if losses else 0.0


@pytest.mark.parametrize("labels", [[0, -1, 1, -1, -1, 2, 0], [-1] * 7, [0, 1, 2, 0, 1, 2, 0]])
def test_against_loops(make_step: Any, labels: list[int]) -> None:
    generator = torch.Generator().manual_seed(1)
    new, old = (torch.randn((7, 4), generator=generator) for _ in range(2))
    head = NormalisedHead(3, 4, temperature=0.5)
    torch.nn.init.normal_(head.weight, generator=generator)
    new.requires_grad_()
    terms = OneSide(weight=2.0, scale=5.0)(make_step(new, torch.tensor(labels), head, old))
    sum(terms.values()).backward()
    z, v, weights = (unit(one.detach().double().numpy()) for one in (new, old, head.weight))
    contrasts = []
    for i in range(7):
        others = [j for j in range(7) if j == i or labels[i] < 0 or labels[j] != labels[i]]
        scores = [5 * float(z[i] @ v[j]) for j in others]
        contrasts.append(np.log(sum(map(np.exp, scores))) - 5 * float(z[i] @ v[i]))
    assert terms["task"].item() == pytest.approx(cross_entropy(z, weights, labels), rel=1e-5)
    assert terms["old_task"].item() == pytest.approx(cross_entropy(v, weights, labels), rel=1e-5)
    assert terms["contrast"].item() == pytest.approx(2 * np.mean(contrasts), rel=1e-5)
    assert new.grad is not None and new.grad.abs().sum() > 0 and old.grad is None


@pytest.mark.parametrize("options", [{"weight": -1.0}, {"scale": 0.0}])
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        OneSide(**options)
