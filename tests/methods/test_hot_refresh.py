"""Hot-Refresh against reference numbers, and over several processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import tensor

from limpet.errors import ConfigError
from limpet.geometry.hypersphere import normalise
from limpet.methods import METHODS
from limpet.methods.hot_refresh import HotRefresh

PRECISIONS = [(torch.float64, 1e-7, 1e-7), (torch.float32, 1e-4, 1e-5)]
CASES = {
    "contra_topall": {"negatives": 0, "new_to_new": False},
    "contra_top3": {"negatives": 3, "new_to_new": False},
    "contra_ract_topall": {"negatives": 0},
    "contra_ract_top3": {"negatives": 3},
    "triplet_top3": {"negatives": 3, "new_to_new": False, "form": "triplet"},
    "triplet_ract_top3": {"negatives": 3, "form": "triplet"},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "rtol", "atol"), PRECISIONS)
def test_reference_numbers(golden, make_step, plain_head, case, dtype, rtol, atol) -> None:
    g = golden("hotrefresh_losses")
    z = tensor(g["z_new"], dtype=dtype).requires_grad_()
    method = METHODS["hot_refresh"](weight=2.0, temperature=float(g["temp"]), margin=float(g["margin"]), **CASES[case])
    step = make_step(z, g["labels"], plain_head(torch.ones(5, 7, dtype=dtype)), tensor(g["z_old"], dtype=dtype))
    contrast = method(step)["contrast"]
    np.testing.assert_allclose(contrast.detach(), 2.0 * g[case], rtol=rtol, atol=atol)
    gradient = torch.autograd.grad(contrast, z)[0]
    np.testing.assert_allclose(gradient, 2.0 * g[f"grad_{case}"], rtol=rtol, atol=atol)


def test_the_task_loss_is_the_heads(world, make_step) -> None:
    new = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    step = make_step(new, torch.arange(6), world.head, new.flip(0))
    assert HotRefresh()(step)["task"] == world.head.loss(step.new, step.labels)


@pytest.mark.parametrize("form", ["contrast", "triplet"])
@pytest.mark.parametrize("negatives", [0, 2])
def test_negatives_of_all_processes(make_step, plain_head, form: str, negatives: int) -> None:
    """Two processes find together what one finds in the whole batch."""
    generator = torch.Generator().manual_seed(0)
    new, old = (normalise(torch.randn(8, 5, generator=generator, dtype=torch.float64)) for _ in range(2))
    labels, head = torch.tensor([0, 1, 2, 0, 1, 2, 3, 3]), plain_head(torch.ones(4, 5).double())
    method = HotRefresh(form=form, negatives=negatives, temperature=0.2)
    whole = method(make_step(new, labels, head, old))["contrast"]
    halves = []
    for rows in (slice(0, 4), slice(4, 8)):

        def gather(part: torch.Tensor, rows: slice = rows) -> torch.Tensor:
            everything = (values for values in (new, old, labels) if values.shape[1:] == part.shape[1:])
            return next(values for values in everything if torch.allclose(values[rows], part))

        halves.append(method(make_step(new[rows], labels[rows], head, old[rows], gather=gather))["contrast"])
    torch.testing.assert_close(sum(halves) / 2, whole)


@pytest.mark.parametrize("processes", [1, 2])
def test_new_negatives_carry_a_gradient_in_one_process_alone(make_step, plain_head, processes: int) -> None:
    z, old, labels = torch.eye(5)[:2].clone().requires_grad_(), torch.eye(5)[3:], torch.tensor([0, 1])
    head = plain_head(torch.ones(2, 5))
    step = make_step(z, labels, head, old, gather=lambda rows: torch.cat([rows.detach()] * processes))
    new_block = HotRefresh(negatives=1).negative_blocks(step)[1]
    gradient = torch.autograd.grad(new_block.sum(), z)[0]
    sides = 2 if processes == 1 else 1  # each row is anchor and negative, or anchor alone
    torch.testing.assert_close(gradient[:, :2], sides * torch.eye(2).flip(0))


def test_without_new_negatives_there_is_one_block(make_step, plain_head) -> None:
    step = make_step(torch.eye(5), torch.arange(5), plain_head(torch.ones(5, 5)), torch.eye(5))
    assert len(HotRefresh().negative_blocks(step)) == 2
    assert len(HotRefresh(new_to_new=False).negative_blocks(step)) == 1


def test_the_old_model_sees_the_same_augmented_items() -> None:
    assert HotRefresh.old_view == "same"


@pytest.mark.parametrize(
    "options",
    [{"weight": -1.0}, {"temperature": 0.0}, {"negatives": -1}, {"margin": -0.1}, {"form": "quadruplet"}],
)
def test_impossible_options(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        HotRefresh(**options)
