"""Hot-Refresh against reference numbers, and over several processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import tensor

from limpet.errors import ConfigError
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
