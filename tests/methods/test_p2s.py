"""The method `p2s`."""

from __future__ import annotations

import numpy as np
import torch

from limpet.geometry import Hypersphere
from limpet.methods import METHODS
from limpet.methods.base import OldModel


def test_p2s_prototypes_are_normalised_means_of_unit_vectors(golden, plain_head, make_embeddings) -> None:
    g = golden("ndpp")
    method = METHODS["p2s"]()
    old = OldModel(make_embeddings(g["proto_feats"], g["proto_labels"]), classes=())
    method.prepare(old, torch.nn.Identity(), plain_head(torch.zeros(4, 5)), Hypersphere(5))
    np.testing.assert_allclose(method.prototypes, g["proto"], rtol=1e-4, atol=1e-5)


def test_p2s_step(reference, agrees, make_step, plain_head) -> None:
    g = reference("ndpp")
    method = METHODS["p2s"](weight=2.0, temperature=float(g["tau"]))
    method.register_buffer("prototypes", g["P_old"])
    z = g["z_new"].requires_grad_()
    contrast = method(make_step(z, g["labels"], plain_head(z.new_zeros(9, 5))))["contrast"]
    agrees(contrast, 2.0 * g["loss_p2s_mean"])
    agrees(torch.autograd.grad(contrast, z)[0], 2.0 * g["grad_p2s"])
