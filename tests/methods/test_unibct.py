"""UniBCT as the training loop drives it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import tensor

from holdfast.errors import ConfigError
from holdfast.geometry import Hypersphere
from holdfast.geometry.hypersphere import normalise
from holdfast.losses.prototypes import prototype_margin
from holdfast.losses.refinement import refined_prototypes
from holdfast.methods import METHODS
from holdfast.methods.base import Epoch, OldModel, View
from holdfast.methods.unibct import refinement_epochs


def epoch(index: int, total: int, new: torch.Tensor) -> Epoch:
    def pass_over() -> View:
        return View(new, normalise(new), Hypersphere(new.shape[1]))

    return Epoch(index, total, len(new), torch.Generator(), pass_over, lambda: new)


def test_prototypes_are_refined_at_two_epochs_and_silent_before(world, make_step) -> None:
    method = METHODS["unibct"](weight=2.0, propagation=0.5, temperature=0.2)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    means = method.prototypes.clone()
    new = torch.randn(48, 5, generator=torch.Generator().manual_seed(0))
    old = torch.from_numpy(np.array(world.embeddings.vectors))
    step = make_step(new[::8], np.arange(6), world.head, old[::8], epoch=1, epochs=7)
    assert method.on_epoch_start(epoch(1, 7, new)) is None and method(step)["compatibility"] == 0
    measures = method.on_epoch_start(epoch(2, 7, new))
    expected = refined_prototypes(
        normalise(new), normalise(old), tensor(world.labels), 6, propagation=0.5, temperature=0.2
    )
    torch.testing.assert_close(method.prototypes, normalise(expected))
    cosines = (means * method.prototypes).sum(dim=1).clamp(-1, 1)
    assert measures["degrees moved"] == pytest.approx(cosines.acos().rad2deg().mean().item(), rel=1e-2)
    step = make_step(new[::8], np.arange(6), world.head, old[::8], epoch=2, epochs=7)
    wanted = prototype_margin(new[::8], torch.arange(6), method.prototypes, scale=30.0, margin=0.3)
    torch.testing.assert_close(method(step)["compatibility"], 2 * wanted)


def test_without_refinement_class_means_act_from_the_first_step(golden, make_embeddings, make_step, plain_head) -> None:
    """AdvBCT's comparison: on the classes the old model knows, the loss is that of its released code."""
    g = golden("unibct_advbct")
    known = g["labels"] < len(g["center"])
    method = METHODS["unibct"](refine=False, scale=float(g["s"]), margin=float(g["m"]))
    old = OldModel(make_embeddings(g["center"], np.arange(6)), classes=())
    method.prepare(old, torch.nn.Identity(), None, Hypersphere(7))
    assert method.on_epoch_start(epoch(0, 7, torch.eye(7)[:6])) is None
    np.testing.assert_allclose(method.prototypes, normalise(tensor(g["center"])), rtol=1e-4, atol=1e-5)
    method.prototypes = normalise(tensor(g["center"]))
    head = plain_head(tensor(g["W_new"]))
    terms = method(make_step(tensor(g["z_new"])[known], g["labels"][known], head, epochs=35))
    np.testing.assert_allclose(terms["compatibility"], g["compat"], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("epochs", range(1, 40))
def test_short_runs_refine_too(epochs: int) -> None:
    first, second = refinement_epochs(epochs)
    assert 0 <= first <= second and first < epochs


@pytest.mark.parametrize(
    "options",
    [{"weight": -1.0}, {"scale": 0.0}, {"margin": -0.1}, {"propagation": 1.0}, {"propagation": -0.1},
     {"temperature": 0.0}],
)  # fmt: skip
def test_impossible_options(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        METHODS["unibct"](**options)
