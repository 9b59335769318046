"""High-order compatibility against reference numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import tensor

from limpet.errors import ConfigError
from limpet.methods import METHODS
from limpet.methods.hoc import HOC

PRECISIONS = [(torch.float64, 1e-7, 1e-7), (torch.float32, 1e-4, 1e-5)]


@pytest.mark.parametrize("form", ["strict", "infonce", "reference"])
@pytest.mark.parametrize(("dtype", "rtol", "atol"), PRECISIONS)
def test_reference_numbers(golden, make_step, plain_head, form, dtype, rtol, atol) -> None:
    """The file's gradient is that at unit rows as they are; seen from raw features its radial part is gone."""
    g = golden("hoc")
    z = tensor(g["z_new"], dtype=dtype).requires_grad_()
    method = METHODS["hoc"](scale=float(g["mu"]), task_share=0.0, form=form)
    step = make_step(z, g["labels"], plain_head(torch.ones(4, 4, dtype=dtype)), tensor(g["z_old"], dtype=dtype))
    terms = method(step)
    np.testing.assert_allclose(terms["contrast"].detach(), g[form], rtol=rtol, atol=atol)
    gradient = torch.autograd.grad(sum(terms.values()), z)[0]
    radial = (g[f"grad_{form}"] * g["z_new"]).sum(axis=1, keepdims=True) * g["z_new"]
    np.testing.assert_allclose(gradient, g[f"grad_{form}"] - radial, rtol=rtol, atol=atol)


def test_the_shares_of_task_and_contrast_sum_to_one(world, make_step) -> None:
    new = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    step = make_step(new, torch.arange(6), world.head, new.flip(0))
    whole = {share: HOC(task_share=share)(step) for share in (0.0, 0.25, 1.0)}
    assert whole[0.0]["task"] == 0 and whole[1.0]["contrast"] == 0
    torch.testing.assert_close(whole[1.0]["task"], world.head.loss(step.new, step.labels))
    torch.testing.assert_close(whole[0.25]["task"], 0.25 * whole[1.0]["task"])
    torch.testing.assert_close(whole[0.25]["contrast"], 0.75 * whole[0.0]["contrast"])


def test_a_comparison_tunes_the_share_of_the_task() -> None:
    assert HOC.balance == "task_share" and HOC.old_view == "same"  # as in its public code


@pytest.mark.parametrize(
    "options", [{"scale": 0.0}, {"scale": -1.0}, {"task_share": -0.1}, {"task_share": 1.1}, {"form": "loose"}]
)
def test_impossible_options(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        HOC(**options)
