"""The method `ndpp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import tensor

from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.losses.prototypes import prototype_contrast
from limpet.methods import METHODS
from limpet.methods.base import Epoch, OldModel, View

close = {"rtol": 1e-7, "atol": 1e-7}


def epoch(index: int, new: torch.Tensor, training_size: int = 48, total: int = 3) -> Epoch:
    generator = torch.Generator().manual_seed(index)
    return Epoch(index, total, training_size, generator, lambda: View(new, new, Hypersphere(new.shape[1])), lambda: new)


def as_predecessor(prototypes: np.ndarray, make_embeddings) -> OldModel:
    """A predecessor with one embedding per class, so that its prototypes are these."""
    return OldModel(make_embeddings(prototypes, np.arange(len(prototypes))), classes=())


def prepared(name: str, g: dict[str, np.ndarray], make_embeddings, **options: Any):
    method = METHODS[name](**options)
    method.prepare(as_predecessor(g["P_old"], make_embeddings), torch.nn.Identity(), None, Hypersphere(5))
    return method


def ndpp_of(g: dict[str, Any], make_embeddings, dtype: torch.dtype = torch.float64, **options: Any):
    """NDPP with the file's settings, its prototypes in the precision under test."""
    method = prepared("ndpp", g, make_embeddings, neighbours=int(g["K"]), alpha_old=float(g["alpha1"]),
                      alpha_new=float(g["alpha2"]), temperature=float(g["tau"]), **options)  # fmt: skip
    np.testing.assert_allclose(method.targets, g["p_hat"], rtol=1e-4, atol=1e-5)
    method.prototypes = torch.as_tensor(g["P_old"]).to(dtype)
    method.start = method.prototypes + method.alpha_old * method.push(method.prototypes, method.prototypes)
    method.targets = method.start.clone()
    return method


@pytest.mark.parametrize(("accumulate", "name"), [(False, "p_hat_t2_eq8"), (True, "p_hat_t2_accum")])
def test_ndpp_over_two_epochs(reference, agrees, dtype, make_embeddings, accumulate: bool, name: str) -> None:
    g = reference("ndpp")
    method = ndpp_of(g, make_embeddings, dtype, accumulate=accumulate)
    agrees(method.targets, g["p_hat"])
    method.on_epoch_start(epoch(0, g["P_new"]))
    agrees(method.targets, g["p_hat_t"])
    method.on_epoch_start(epoch(1, g["P_new2"]))
    agrees(method.targets, g[name])


def test_ndpp_step(golden, make_embeddings, make_step, plain_head) -> None:
    g = golden("ndpp")
    method = ndpp_of(g, make_embeddings, weight=2.0)
    method.on_epoch_start(epoch(0, tensor(g["P_new"])))
    z = tensor(g["z_new"]).requires_grad_()
    terms = method(make_step(z, g["labels"], plain_head(torch.zeros(9, 5).double())))
    np.testing.assert_allclose(terms["contrast"].detach(), 2 * g["loss_ndpp_mean"], **close)
    np.testing.assert_allclose(torch.autograd.grad(terms["contrast"], z)[0], 2 * g["grad_ndpp"], **close)


def test_ndpp_of_old_neighbours_only(golden, make_embeddings, make_step, plain_head) -> None:
    g = golden("ndpp")
    for options in ({"old_only": True}, {"new_start_epoch": 5}):
        method = ndpp_of(g, make_embeddings, **options)
        measures = method.on_epoch_start(epoch(0, tensor(g["P_new"])))
        np.testing.assert_allclose(method.targets, g["p_hat"], **close)
        step = make_step(tensor(g["z_new"]), g["labels"], plain_head(torch.zeros(9, 5).double()))
        np.testing.assert_allclose(method(step)["contrast"], g["loss_ndpp_old"].mean(), **close)
        cosines = (normalise(tensor(g["p_hat"])) * tensor(g["P_old"])).sum(1)
        assert measures["degrees moved"] == pytest.approx(cosines.acos().mean().rad2deg().item(), rel=1e-6)


def test_running_means_travel_with_a_checkpoint(world, make_step) -> None:
    method = METHODS["ndpp"](new_prototypes="running")
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    method(make_step(torch.randn(6, 5), torch.arange(6), world.head))
    again = METHODS["ndpp"](new_prototypes="running")
    again.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    again.load_state_dict(method.state_dict())
    torch.testing.assert_close(again.new.sums, method.new.sums)
    assert again.new.counts.sum() == 6


def test_without_a_push_ndpp_is_p2s(world, make_step) -> None:
    new, labels = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)), torch.arange(6)
    losses = []
    for name, options in (("p2s", {}), ("ndpp", {"alpha_old": 0.0, "alpha_new": 0.0})):
        method = METHODS[name](**options)
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        method.on_epoch_start(epoch(0, torch.eye(5)[[0, 1, 2, 3, 4, 0]]))
        losses.append(method(make_step(new, labels, world.head))["contrast"])
    torch.testing.assert_close(losses[0], losses[1])
    expected = prototype_contrast(new, labels, method.prototypes, 0.07)
    torch.testing.assert_close(losses[0], expected)
