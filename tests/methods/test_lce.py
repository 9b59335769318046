"""LCE against the numbers of two public codes, and its statistics by a slow loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import tensor

from limpet.errors import ConfigError, EmptyOverlapError
from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.methods.base import Head, OldModel, Step, View
from limpet.methods.lce import LCE, angle_excess, cosine_shortfall, direction_gap, squared_alignment


def with_statistics(method: LCE, centres: torch.Tensor, limits: torch.Tensor, valid: torch.Tensor, classes: int) -> LCE:
    """Give a method the centres of the first classes; the others are new to the data."""
    missing = classes - len(centres)
    method.centres = torch.cat([normalise(centres), centres.new_zeros(missing, centres.shape[1])])
    method.limits = torch.cat([limits, limits.new_zeros(missing)])
    method.valid = torch.cat([valid, torch.zeros(missing, dtype=torch.bool)])
    method.known = torch.arange(classes) < len(centres)
    return method


def test_the_angular_form(reference, agrees, make_step, plain_head) -> None:
    g = reference("lce_advbct")
    method = with_statistics(LCE(), g["center"], g["theta_max"], g["n_kept_theta"] > 1, len(g["W_new"]))
    z = g["z_new"].requires_grad_()
    terms = method(make_step(z, g["labels"], plain_head(g["W_new"])))
    assert list(terms) == ["task", "alignment", "boundary"]
    agrees(terms["task"], g["cls"])
    agrees(terms["boundary"], g["boundary"])
    agrees(terms["alignment"], g["alignment"])
    total = sum(terms.values())
    agrees(total, g["total"])
    agrees(torch.autograd.grad(total, z)[0], g["grad_z_new"])


class CosineHead(Head):
    """Cosines that normalise whatever they are given, as the reference does."""

    normalised = True

    def __init__(self, weight: torch.Tensor, scale: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.scale = scale

    def logits(self, view: View) -> torch.Tensor:
        return self.scale * normalise(view.features) @ normalise(self.weight).T


def step_of_points(points: torch.Tensor, labels: torch.Tensor, head: Head) -> Step:
    """A step whose points are leaves: the reference's gradient is that of unit rows, not of features."""
    nothing = torch.zeros_like(labels)
    return Step(
        View(points, points, Hypersphere(points.shape[1])),
        None,
        labels,
        labels,
        nothing,
        nothing > 0,
        head,
        0.0,
        0,
        1,
        torch.Generator(),
    )


def test_the_cosine_form(reference, agrees) -> None:
    g = reference("lce_meng")
    options = {"alignment_weight": float(g["lambda_a"]), "boundary_weight": float(g["lambda_b"])}
    everything = torch.ones(len(g["old_center"]), dtype=torch.bool)
    method = with_statistics(LCE("cosine", **options), g["old_center"], g["old_cosmin"], everything, len(g["W_new"]))
    z, weight = g["z_new"].requires_grad_(), g["W_new"].requires_grad_()
    terms = method(step_of_points(z, g["labels"], CosineHead(weight, float(g["cls_scale"]))))
    close = {"rtol": 1e-6, "atol": 1e-6} if z.dtype == torch.float64 else {}
    agrees(terms["task"], g["cls"], **close)
    agrees(terms["alignment"], options["alignment_weight"] * g["align"], **close)
    agrees(terms["boundary"], options["boundary_weight"] * g["bound"], **close)
    grad_z, grad_w = torch.autograd.grad(sum(terms.values()), (z, weight))
    agrees(grad_z, g["grad_z_new"])
    agrees(grad_w, g["grad_W"])


def test_statistics_of_the_released_code(golden, make_embeddings, plain_head) -> None:
    g = golden("advbct_class_meta")
    method = LCE()
    old = OldModel(make_embeddings(g["feats"], g["labels"]), classes=())
    method.prepare(old, torch.nn.Identity(), plain_head(torch.zeros(6, 7)), Hypersphere(7))
    single = np.bincount(g["labels"]) == 1
    np.testing.assert_allclose(method.limits[~single], g["theta_max"][~single], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(method.limits[single], g["theta_max"][single], rtol=0, atol=1e-3)
    np.testing.assert_array_equal(method.valid, g["n_kept_theta"] > 1)
    unit = g["center"] / np.linalg.norm(g["center"], axis=1, keepdims=True)
    np.testing.assert_allclose(method.centres, unit, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("form", "iqr"), [("angle", 1.5), ("angle", 0.2), ("cosine", math.inf), ("cosine", 0.2)])
def test_statistics_by_a_slow_loop(world, form: str, iqr: float) -> None:
    method = LCE(form, iqr=iqr)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    vectors = np.array(world.embeddings.vectors, np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for c in range(6):
        mean = unit[world.labels == c].mean(0)
        centre = mean / np.linalg.norm(mean)
        angles = sorted(math.acos(row @ centre) for row in unit[world.labels == c])
        q1, q3 = angles[2], angles[6]
        kept = [angle for angle in angles if q1 - iqr * (q3 - q1) <= angle <= q3 + iqr * (q3 - q1)]
        limit = max(kept) if form == "angle" else min(math.cos(angle) for angle in kept)
        np.testing.assert_allclose(method.centres[c], centre, atol=1e-6)
        assert method.limits[c].item() == pytest.approx(limit, abs=1e-5)
        assert method.valid[c] == (len(kept) > 1)


@pytest.mark.parametrize("form", ["angle", "cosine"])
def test_terms_by_a_slow_loop(world, make_step, form: str) -> None:
    method = LCE(form, classes="old", weight=3.0, alignment_weight=5.0, boundary_weight=7.0)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    new = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    labels = np.arange(12) % 6
    terms = method(make_step(new, labels, world.head))

    def cosine(x: torch.Tensor, y: torch.Tensor) -> float:
        return torch.nn.functional.cosine_similarity(x, y, dim=0).item()

    weight, boundary, alignment = world.head.weight.detach(), [], []
    for z, c in zip(new, labels, strict=True):
        if c >= 4:  # new to the data
            continue
        centre, limit = method.centres[c], method.limits[c].item()
        cos = cosine(z, centre)
        boundary.append(max(0.0, math.acos(cos) - limit if form == "angle" else limit - cos))
        alignment.append(1 - cosine(centre, weight[c]))
    if form == "cosine":
        alignment = [
            (weight[c, d] / weight[c].norm() - method.centres[c, d]).item() ** 2 for c in range(4) for d in range(5)
        ]
    assert terms["boundary"].item() == pytest.approx(21 * np.mean(boundary), rel=1e-5)
    assert terms["alignment"].item() == pytest.approx(15 * np.mean(alignment), rel=1e-5)
    assert np.mean(boundary) > 0


def test_the_weights_of_both_codes_are_the_defaults() -> None:
    assert (LCE().alignment_weight, LCE().boundary_weight, LCE().iqr) == (1, 1, 1.5)
    cosine = LCE("cosine", weight=2.0)
    assert (cosine.alignment_weight, cosine.boundary_weight, cosine.iqr) == (200, 2, math.inf)


def test_old_classes_are_matched_by_name(world) -> None:
    found = {}
    for classes in ("new", "old"):
        method = LCE(classes=classes)
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        found[classes] = method
    for name in ("centres", "limits"):  # the old data are the first four classes, counted backwards
        torch.testing.assert_close(getattr(found["old"], name)[:4], getattr(found["new"], name)[:4])
        assert not getattr(found["old"], name)[4:].any()
    assert found["new"].valid.tolist() == found["new"].known.tolist() == [True] * 6
    assert found["old"].valid.tolist() == found["old"].known.tolist() == [True] * 4 + [False] * 2


def test_a_class_of_one_has_a_centre_but_no_boundary(make_embeddings, make_step, plain_head) -> None:
    old = OldModel(make_embeddings([[1.0, 0.0], [0.0, 2.0], [2.0, 2.0]], [0, 1, 1]), classes=())
    head, step_of = plain_head(torch.eye(2)), lambda z: make_step(z.requires_grad_(), [0, 0], head)
    for form, alignment in (("angle", 0.0), ("cosine", 100 * (2 - 2 * math.cos(math.pi / 8)) / 4)):
        method = LCE(form)
        method.prepare(old, torch.nn.Identity(), head, Hypersphere(2))
        assert (method.valid.tolist(), method.known.tolist()) == ([False, True], [True, True])
        terms = method(step_of(torch.tensor([[0.0, 1.0], [-1.0, 0.0]])))
        assert terms["boundary"].item() == 0
        assert terms["alignment"].item() == pytest.approx(alignment, abs=1e-5)


def test_the_old_training_set_is_refused_when_it_is_not_there(world) -> None:
    without = OldModel(world.embeddings, classes=("x", "y"))
    with pytest.raises(EmptyOverlapError, match=r"--method-options\.classes new"):
        LCE(classes="old").prepare(without, torch.nn.Identity(), world.head, world.space)
    LCE().prepare(without, torch.nn.Identity(), world.head, world.space)


def test_no_gradient_at_the_poles_is_infinite() -> None:
    centres = tensor([[1.0, 0.0]] * 3)
    points = tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]], requires_grad=True)
    limits, valid = torch.zeros(3), torch.ones(3, dtype=torch.bool)
    loss = angle_excess(points, centres, limits, valid)
    assert loss.item() == pytest.approx(math.pi * 1.5 / 3, abs=1e-3)
    loss.backward()
    assert torch.isfinite(points.grad).all()


def test_small_angles_are_measured_down_to_the_guard() -> None:
    angles = tensor([0.1, 0.01, 0.002, 0.001], dtype=torch.float64)
    points = torch.stack([angles.cos(), angles.sin()], dim=1)
    for angle, row in zip(angles, points, strict=True):
        found = angle_excess(row[None], tensor([[1.0, 0.0]]).double(), torch.zeros(1), torch.tensor([True]))
        assert found.item() == pytest.approx(max(angle.item(), math.acos(1 - 1e-6)), abs=1e-9)


def test_classes_of_equal_items_reach_no_further_than_their_centre(make_embeddings, plain_head) -> None:
    vectors = np.random.default_rng(0).normal(size=(64, 5)).repeat(3, axis=0)  # rounding takes some cosines beyond 1
    method = LCE()
    old = OldModel(make_embeddings(vectors, np.arange(192) // 3), classes=())
    method.prepare(old, torch.nn.Identity(), plain_head(torch.zeros(64, 5)), Hypersphere(5))
    assert method.valid.all() and (method.limits < 1e-3).all()


def test_losses_of_no_valid_row_are_zero_with_a_gradient() -> None:
    x, none = torch.eye(2, requires_grad=True), torch.zeros(2, dtype=torch.bool)
    for loss in (
        angle_excess(x, torch.eye(2).flip(0), torch.zeros(2), none),
        cosine_shortfall(x, torch.eye(2).flip(0), torch.ones(2), none),
        direction_gap(x, torch.eye(2).flip(0), none),
        squared_alignment(x, torch.eye(2).flip(0), none),
    ):
        assert loss.item() == 0
        assert not torch.autograd.grad(loss, x)[0].any()


@pytest.mark.parametrize(
    "options",
    [{"form": "x"}, {"classes": "x"}, {"weight": -1.0}, {"alignment_weight": -1.0}, {"boundary_weight": -1.0},
     {"iqr": -0.5}],
)  # fmt: skip
def test_impossible_options(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        LCE(**options)
