"""The method `keep`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limpet.errors import ConfigError
from limpet.geometry import Hypersphere, Lorentz, Space
from limpet.methods.base import View
from limpet.methods.keep import Keep
from limpet.models.heads import NormalisedHead


def unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


def made(rows: int, dim: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))


def test_worked_numbers(make_step) -> None:
    new, old = torch.tensor([[1.0, 0.0], [0.6, 0.8], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    head = NormalisedHead(2, 2, temperature=1.0)
    terms = Keep(weight=10.0)(make_step(new, torch.tensor([-1, -1, 0]), head, old))
    assert terms["keep"].item() == pytest.approx(10 * 2 * 0.6**2 / 4)  # two of the four similarities differ, by 0.6


@pytest.mark.parametrize("labels", [[0, -1, 1, -1, -1, 2], [-1] * 6, [0, 1, 2, 0, 1, 2]])
def test_against_loops(make_step, labels: list[int]) -> None:
    new, old, head = made(6, 4, 0), made(6, 4, 1), NormalisedHead(3, 4, temperature=0.5)
    found = Keep(weight=3.0)(make_step(new, torch.tensor(labels), head, old))
    unknown = [row for row, label in enumerate(labels) if label < 0]
    squares = [float(unit(new)[i] @ unit(new)[j] - unit(old)[i] @ unit(old)[j]) ** 2 for i in unknown for j in unknown]
    weights, losses = unit(head.weight.detach()), []
    for row, label in enumerate(labels):
        if label >= 0:
            scores = (unit(new)[row] @ weights.T / 0.5).double()
            losses.append(float(scores.exp().sum().log() - scores[label]))
    assert found["keep"].item() == pytest.approx(3 * np.mean(squares) if squares else 0.0, rel=1e-5)
    assert found["task"].item() == pytest.approx(np.mean(losses) if losses else 0.0, rel=1e-5)


def test_only_items_without_a_class_are_kept(make_step) -> None:
    new, old = made(8, 5, 0).requires_grad_(), made(8, 5, 1)
    labels = torch.tensor([0, 1, -1, -1, 0, -1, 1, -1])
    terms = Keep()(make_step(new, labels, NormalisedHead(2, 5), old))
    kept, told = (torch.autograd.grad(terms[name], new, retain_graph=True)[0].norm(dim=1) for name in ("keep", "task"))
    assert (kept[labels < 0] > 0).all() and (kept[labels >= 0] == 0).all()
    assert (told[labels >= 0] > 0).all() and (told[labels < 0] == 0).all()


def test_the_term_is_zero_where_nothing_moved_or_only_turned(make_step) -> None:
    rows, labels = made(6, 4, 0), torch.full((6,), -1)
    turned, _ = torch.linalg.qr(made(4, 4, 3))
    for moved in (rows, rows @ turned):
        assert Keep()(make_step(moved, labels, NormalisedHead(2, 4), rows))["keep"].item() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("chosen", [Hypersphere(4), Lorentz(4)])
def test_on_both_spaces(make_step, chosen: Space) -> None:
    new, old = 0.3 * made(5, 4, 0), 0.3 * made(5, 4, 1)
    views = View.of(new, chosen), View.of(old, chosen)
    wanted = chosen.similarity(views[0].points, views[0].points) - chosen.similarity(views[1].points, views[1].points)
    step = make_step(new, torch.full((5,), -1), NormalisedHead(2, 4), old, space=chosen)
    assert Keep(weight=1.0)(step)["keep"].item() == pytest.approx(wanted.square().mean().item(), rel=1e-5)


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ConfigError, match="weight=-1"):
        Keep(weight=-1)
