"""Losses against numbers computed by the authors' public code or, independently, from the papers' formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import tensor

from holdfast.geometry.hypersphere import normalise, segment_mean
from holdfast.losses.alignment import distance_alignment, squared_alignment
from holdfast.losses.boundary import class_boundaries, elastic_radius
from holdfast.losses.denoising import credible_rows, denoising_form
from holdfast.losses.influence import mean_cross_entropy
from holdfast.losses.margin import arcface_logits
from holdfast.losses.prototypes import prototype_contrast

close = {"rtol": 1e-7, "atol": 1e-7}


def leaf(values: np.ndarray) -> torch.Tensor:
    return tensor(values).requires_grad_()


def agrees(found: torch.Tensor, expected: np.ndarray, **tolerance: float) -> None:
    np.testing.assert_allclose(found.detach().numpy(), expected, **(tolerance or close))


def test_prototype_contrast_and_its_gradient(golden) -> None:
    g = golden("ndpp")
    z = leaf(g["z_new"])
    loss = prototype_contrast(z, tensor(g["labels"]), tensor(g["P_old"]), float(g["tau"]))
    agrees(loss, g["loss_p2s_mean"])
    agrees(torch.autograd.grad(loss, z)[0], g["grad_p2s"])
    for row, expected in enumerate(g["loss_p2s"]):
        single = prototype_contrast(
            z[row : row + 1], tensor(g["labels"][row : row + 1]), tensor(g["P_old"]), float(g["tau"])
        )
        agrees(single, expected)


def test_prototype_contrast_with_perturbed_targets(golden) -> None:
    g = golden("ndpp")
    z = leaf(g["z_new"])
    loss = prototype_contrast(z, tensor(g["labels"]), tensor(g["P_old"]), float(g["tau"]), tensor(g["p_hat_t"]))
    agrees(loss, g["loss_ndpp_mean"])
    agrees(torch.autograd.grad(loss, z)[0], g["grad_ndpp"])


def test_influence_leaves_out_unseen_classes(golden) -> None:
    g = golden("bct_influence")
    for run, labels in enumerate((g["y_mixed"], g["y_all_old"])):
        targets = np.where(labels < len(g["W_old"]), labels, -1)
        agrees(mean_cross_entropy(tensor(g["z_new"]) @ tensor(g["W_old"]).T, tensor(targets)), g["influence"][run])


@pytest.mark.parametrize("name", ["l2_p1", "l2_p1_hinge", "l2_topall"])
def test_alignment(golden, name: str) -> None:
    g = golden("hotrefresh_losses")
    z, old = leaf(g["z_new"]), normalise(tensor(g["z_old"]))
    losses = {
        "l2_p1": lambda x: distance_alignment(x, old),
        "l2_p1_hinge": lambda x: distance_alignment(x, old, float(g["hinge"])),
        "l2_topall": lambda x: squared_alignment(x, old),
    }
    loss = losses[name](normalise(z))
    agrees(loss, g[name])
    agrees(torch.autograd.grad(loss, z)[0], g[f"grad_{name}"])


@pytest.mark.parametrize(("name", "guard"), [("plain", False), ("guard", True)])
def test_arcface(golden, name: str, guard: bool) -> None:
    g = golden("margin_softmax")
    options = {"scale": float(g[f"s_{name}"]), "margin": float(g[f"m_{name}"]), "guard": guard}
    agrees(arcface_logits(tensor(g["cos"]), tensor(g["labels"]), **options), g[f"arcface_{name}"])


def test_arcface_gradient_is_finite_at_the_edges() -> None:
    cosines = torch.tensor([[1.0, 0.2], [-1.0, 0.3]], requires_grad=True)
    arcface_logits(cosines, torch.tensor([0, 0]), scale=64.0, margin=0.5).sum().backward()
    assert torch.isfinite(cosines.grad).all()


def test_class_boundaries_of_distances_and_angles(golden) -> None:
    g = golden("advbct_class_meta")
    unit, labels = normalise(tensor(g["feats"])), tensor(g["labels"])
    centres, _ = segment_mean(unit, labels, len(g["center"]))
    agrees(centres, g["center"], rtol=1e-5, atol=1e-5)
    angles = (unit * normalise(centres)[labels]).sum(1).clamp(-1, 1).acos()
    distances = (unit - centres[labels]).norm(dim=1)
    single = np.bincount(g["labels"]) == 1
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


def test_elastic_radius(golden) -> None:
    g = golden("advbct_elastic_boundary")
    agrees(elastic_radius(tensor(g["w"])[None], tensor(g["r_max"])[:, None], float(g["t"])), g["code"])


def test_denoising(golden) -> None:
    g = golden("mixbct_denoise")
    features, labels = tensor(g["feat"]), tensor(g["labels"])
    agrees(denoising_form(features), g["normed"])
    for share in (65, 90, 100):
        found = credible_rows(features, labels, int(labels.max()) + 1, share / 100)
        np.testing.assert_array_equal(found.numpy(), g[f"credible_T{share}"].astype(bool))


def test_denoising_does_not_need_sorted_labels(golden) -> None:
    g = golden("mixbct_denoise")
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(g["labels"])))
    features, labels = tensor(g["feat"]), tensor(g["labels"])
    plain = credible_rows(features, labels, int(labels.max()) + 1, 0.65)
    shuffled = credible_rows(features[order], labels[order], int(labels.max()) + 1, 0.65)
    assert torch.equal(plain[order], shuffled)


def test_alignment_gradient_is_zero_where_rows_coincide() -> None:
    z = torch.tensor([[1.0, 0.0]], requires_grad=True)
    distance_alignment(z, torch.tensor([[1.0, 0.0]])).backward()
    assert z.grad.tolist() == [[0.0, 0.0]]
