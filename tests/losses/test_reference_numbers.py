"""Losses against numbers computed by the authors' public code or, independently, from the papers' formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import tensor

from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise, root
from limpet.geometry.segments import segment_mean
from limpet.losses.alignment import distance_alignment
from limpet.losses.boundary import class_boundaries
from limpet.losses.denoising import credible_rows, denoising_form
from limpet.losses.influence import mean_cross_entropy
from limpet.losses.margin import arcface_logits
from limpet.losses.prototypes import prototype_contrast
from limpet.methods.advbct import boundary_violation, elastic_radius, reversal_strength, reverse_gradient
from limpet.methods.lce import squared_alignment


def leaf(values: torch.Tensor) -> torch.Tensor:
    return values.clone().requires_grad_()


def test_prototype_contrast_and_its_gradient(reference, agrees) -> None:
    g = reference("ndpp")
    z, labels, tau = leaf(g["z_new"]), g["labels"], float(g["tau"])
    loss = prototype_contrast(z, labels, g["P_old"], tau)
    agrees(loss, g["loss_p2s_mean"])
    agrees(torch.autograd.grad(loss, z)[0], g["grad_p2s"])
    for row, expected in enumerate(g["loss_p2s"]):
        agrees(prototype_contrast(z[row : row + 1], labels[row : row + 1], g["P_old"], tau), expected)


def test_prototype_contrast_with_perturbed_targets(reference, agrees) -> None:
    g = reference("ndpp")
    z = leaf(g["z_new"])
    loss = prototype_contrast(z, g["labels"], g["P_old"], float(g["tau"]), g["p_hat_t"])
    agrees(loss, g["loss_ndpp_mean"])
    agrees(torch.autograd.grad(loss, z)[0], g["grad_ndpp"])


def test_influence_leaves_out_unseen_classes(reference, agrees) -> None:
    g = reference("bct_influence")
    for run, labels in enumerate((g["y_mixed"], g["y_all_old"])):
        targets = torch.where(labels < len(g["W_old"]), labels, -1)
        agrees(mean_cross_entropy(g["z_new"] @ g["W_old"].T, targets), g["influence"][run])


@pytest.mark.parametrize("name", ["l2_p1", "l2_p1_hinge", "l2_topall"])
def test_alignment(reference, agrees, name: str) -> None:
    g = reference("hotrefresh_losses")
    z, old = leaf(g["z_new"]), normalise(g["z_old"])
    losses = {
        "l2_p1": lambda x: distance_alignment(root((x - old).square().sum(dim=1))),
        "l2_p1_hinge": lambda x: distance_alignment(root((x - old).square().sum(dim=1)), float(g["hinge"])),
        "l2_topall": lambda x: squared_alignment(x, old),
    }
    loss = losses[name](normalise(z))
    agrees(loss, g[name])
    agrees(torch.autograd.grad(loss, z)[0], g[f"grad_{name}"])


@pytest.mark.parametrize(("name", "guard"), [("plain", False), ("guard", True)])
def test_arcface(reference, agrees, name: str, guard: bool) -> None:
    g = reference("margin_softmax")
    options = {"scale": float(g[f"s_{name}"]), "margin": float(g[f"m_{name}"]), "guard": guard}
    agrees(arcface_logits(g["cos"], g["labels"], **options), g[f"arcface_{name}"])


def test_arcface_gradient_is_finite_at_the_edges() -> None:
    cosines = torch.tensor([[1.0, 0.2], [-1.0, 0.3]], requires_grad=True)
    arcface_logits(cosines, torch.tensor([0, 0]), scale=64.0, margin=0.5).sum().backward()
    assert torch.isfinite(cosines.grad).all()


def test_class_boundaries_of_distances_and_angles(reference, agrees, dtype) -> None:
    g = reference("advbct_class_meta")
    unit, labels = normalise(g["feats"]), g["labels"]
    assert unit.dtype == dtype
    centres, _ = segment_mean(unit, labels, len(g["center"]))
    agrees(centres, g["center"], rtol=1e-5, atol=1e-5)
    angles = (unit * normalise(centres)[labels]).sum(1).clamp(-1, 1).acos()
    distances = (unit - centres[labels]).norm(dim=1)
    single = labels.bincount() == 1
    for values, reach_name, kept_name in ((distances, "r_max", "n_kept"), (angles, "theta_max", "n_kept_theta")):
        reach, kept = class_boundaries(values, labels, len(centres))
        np.testing.assert_array_equal(kept.numpy(), g[kept_name])
        agrees(reach[~single], g[reach_name][~single], rtol=1e-5, atol=1e-5)
        agrees(reach[single], g[reach_name][single], rtol=0, atol=1e-3)


def test_class_boundaries_by_a_slow_loop() -> None:
    rng = np.random.default_rng(0)
    labels, distances = rng.integers(0, 7, 60), rng.gamma(2.0, size=60)
    reach, kept = class_boundaries(tensor(distances), tensor(labels), 8)
    for c in range(8):
        own = sorted(distances[labels == c])
        if len(own) >= 4:
            q1, q3 = own[len(own) // 4], own[3 * len(own) // 4]
            own = [d for d in own if q1 - 1.5 * (q3 - q1) <= d <= q3 + 1.5 * (q3 - q1)]
        assert kept[c] == len(own)
        assert reach[c] == (max(own) if own else 0.0)


def test_class_boundaries_of_nothing() -> None:
    reach, kept = class_boundaries(torch.empty(0), torch.empty(0, dtype=torch.int64), 3)
    assert reach.tolist() == [0, 0, 0] and kept.tolist() == [0, 0, 0]


def test_elastic_radius(reference, agrees) -> None:
    g = reference("advbct_elastic_boundary")
    agrees(elastic_radius(g["w"][None], g["r_max"][:, None], float(g["t"])), g["code"])


@pytest.mark.parametrize("run", [0, 1, 2])
def test_reversal_and_boundary_violation(reference, agrees, run: int) -> None:
    g = reference("advbct_loss")
    strength = reversal_strength(int(g["epoch"][run]) / int(g["n_epoch"]))
    assert strength == pytest.approx(float(g["grl_alpha"][run]), abs=1e-7)
    ones = torch.ones(3, requires_grad=True)
    reverse_gradient(ones, strength).sum().backward()
    assert ones.grad.tolist() == pytest.approx([-strength] * 3)
    labels = g["y_all_old" if run == 2 else "y_mixed"]
    known = labels.clamp_max(len(g["center"]) - 1)
    valid = (labels < len(g["center"])) & (g["n_kept"][known] > 1)
    radii = elastic_radius(g["w_raw"].sigmoid()[labels], g["r_max"][known], float(g["t"][run]))
    agrees(boundary_violation(normalise(g["z_new"]), g["center"][known], radii, valid), g["p2s"][run])


def test_denoising(reference, agrees) -> None:
    g = reference("mixbct_denoise")
    features, labels = g["feat"], g["labels"]
    agrees(denoising_form(features), g["normed"])
    for share in (65, 90, 100):
        found = credible_rows(features, labels, int(labels.max()) + 1, share / 100)
        np.testing.assert_array_equal(found.numpy(), g[f"credible_T{share}"].bool())


def test_denoising_does_not_need_sorted_labels(golden) -> None:
    g = golden("mixbct_denoise")
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(g["labels"])))
    features, labels = tensor(g["feat"]), tensor(g["labels"])
    plain = credible_rows(features, labels, int(labels.max()) + 1, 0.65)
    shuffled = credible_rows(features[order], labels[order], int(labels.max()) + 1, 0.65)
    assert torch.equal(plain[order], shuffled)


def test_alignment_gradient_is_zero_where_rows_coincide() -> None:
    z = torch.tensor([[1.0, 0.0]], requires_grad=True)
    distance_alignment(Hypersphere(2).paired_distance(z, torch.tensor([[1.0, 0.0]]))).backward()
    assert z.grad.tolist() == [[0.0, 0.0]]
