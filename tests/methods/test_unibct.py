"""UniBCT as the training loop drives it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import tensor

from limpet.errors import ConfigError
from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.methods import METHODS, unibct
from limpet.methods.base import Epoch, OldModel, View
from limpet.methods.unibct import prototype_margin, refined_prototypes, refinement_epochs


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


def test_classes_of_the_old_training_set_alone(golden, make_embeddings, make_step, plain_head) -> None:
    """AdvBCT's released code: centres of the old model's own data, and rows of other classes do not count."""
    g = golden("unibct_advbct")
    names = [f"c{row}" for row in reversed(range(9))]  # new class 8 is the old class 0
    new_data = make_embeddings(np.eye(9, 7) + 0.1, np.arange(9)).replace(class_names=names)
    old = OldModel(new_data, classes=(), own_training=make_embeddings(g["center"], np.arange(6)))
    method = METHODS["unibct"](refine=False, classes="old", scale=float(g["s"]), margin=float(g["m"]))
    method.prepare(old, torch.nn.Identity(), None, Hypersphere(7))
    assert method.rows.tolist() == [-1, -1, -1, 5, 4, 3, 2, 1, 0]
    method.prototypes = normalise(tensor(g["center"]))
    terms = method(make_step(tensor(g["z_new"]), 8 - g["labels"], plain_head(tensor(g["W_new"])), epochs=35))
    assert (g["labels"] >= 6).any()
    np.testing.assert_allclose(terms["compatibility"], g["compat"], rtol=1e-7, atol=1e-7)


def test_unscaled_cosines_are_a_plain_cross_entropy(world, make_step) -> None:
    """MixBCT's comparison."""
    method = METHODS["unibct"](refine=False, scale=1.0, margin=0.0)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    new = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    cosines = torch.nn.functional.cosine_similarity(new[:, None], method.prototypes[None], dim=2)
    expected = torch.nn.functional.cross_entropy(cosines, torch.arange(6))
    torch.testing.assert_close(method(make_step(new, np.arange(6), world.head))["compatibility"], expected)


@pytest.mark.parametrize("epochs", range(1, 40))
def test_short_runs_refine_too(epochs: int) -> None:
    first, second = refinement_epochs(epochs)
    assert 0 <= first <= second and first < epochs


@pytest.mark.parametrize(
    "options",
    [{"weight": -1.0}, {"scale": 0.0}, {"margin": -0.1}, {"propagation": 1.0}, {"propagation": -0.1},
     {"temperature": 0.0}, {"classes": "old"}, {"classes": "both", "refine": False}],
)  # fmt: skip
def test_impossible_options(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        METHODS["unibct"](**options)


TOLERANCE = {torch.float64: {"rtol": 1e-7, "atol": 1e-7}, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_reference_numbers(golden, dtype) -> None:
    g = golden("unibct_refine")
    new, old = (normalise(tensor(g[key])).to(dtype) for key in ("z_new", "z_old"))
    settings = {"temperature": float(g["temp"])}
    labels = tensor(g["labels"])
    found = refined_prototypes(new, old, labels, 4, propagation=float(g["lamb"]), **settings)
    np.testing.assert_allclose(found, g["prototype_row_unit"], **TOLERANCE[dtype])
    plain = refined_prototypes(new, old, labels, 4, propagation=0.0, **settings)
    np.testing.assert_allclose(plain, g["class_mean_unit"], **TOLERANCE[dtype])
    assert np.abs(found.numpy() - g["class_mean_unit"]).max() > 1e-3


def by_inverse(new, old, labels, num_classes, propagation, temperature) -> torch.Tensor:
    prototypes = []
    for c in range(num_classes):
        rows = torch.nonzero(labels == c)[:, 0]
        similarities = new[rows] @ new[rows].T / temperature
        affinity = similarities.fill_diagonal_(-torch.inf).softmax(dim=1)
        spread = (1 - propagation) * torch.linalg.inv(torch.eye(len(rows)).double() - propagation * affinity)
        prototypes.append((spread @ old[rows]).mean(dim=0))
    return torch.stack(prototypes)


def test_groups_of_classes_of_any_size_and_order(monkeypatch) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.repeat_interleave(torch.arange(9), torch.tensor([2, 11, 3, 3, 25, 2, 7, 4, 8]))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    new, old = (normalise(torch.randn(len(labels), 6, generator=generator).double()) for _ in range(2))
    expected = by_inverse(new, old, labels, 9, 0.9, 0.05)
    for elements in (2**25, 200):
        monkeypatch.setattr(unibct, "ELEMENTS", elements)
        found = refined_prototypes(new, old, labels, 9, propagation=0.9, temperature=0.05)
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)


def test_single_items_and_absent_classes() -> None:
    rows = torch.eye(3)
    found = refined_prototypes(rows, rows, torch.tensor([0, 2, 2]), 4, propagation=0.9, temperature=0.05)
    torch.testing.assert_close(found[0], rows[0])
    assert torch.equal(found[1], torch.zeros(3)) and torch.equal(found[3], torch.zeros(3))


def test_an_outlier_weighs_less() -> None:
    new = normalise(torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [-1.0, 0.2]]))
    old = torch.eye(4)
    weights = refined_prototypes(new, old, torch.zeros(4, dtype=torch.int64), 1, propagation=0.9, temperature=0.05)[0]
    assert weights.sum() == pytest.approx(1.0) and weights.argmin() == 3 and weights[3] < 0.2


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_margin_against_prototypes(golden, dtype) -> None:
    g = golden("unibct_advbct")
    z = tensor(g["z_new"]).to(dtype).requires_grad_()
    labels, centres = tensor(g["labels"]), normalise(tensor(g["center"]).to(dtype))
    seen = torch.where(labels < len(centres), labels, -1)
    compatibility = prototype_margin(z, seen, centres, scale=float(g["s"]), margin=float(g["m"]))
    np.testing.assert_allclose(compatibility.detach(), g["compat"], **TOLERANCE[dtype])
    task = torch.nn.functional.cross_entropy(z @ tensor(g["W_new"]).to(dtype).T, labels)
    np.testing.assert_allclose(task.detach(), g["cls"], **TOLERANCE[dtype])
    np.testing.assert_allclose((task + compatibility).detach(), g["total"], **TOLERANCE[dtype])
    np.testing.assert_allclose(torch.autograd.grad(task + compatibility, z)[0], g["grad_z_new"], **TOLERANCE[dtype])


def test_margin_of_no_known_class_is_zero() -> None:
    z = torch.randn(3, 2, requires_grad=True)
    loss = prototype_margin(z, torch.full((3,), -1), torch.eye(2), scale=30.0, margin=0.3)
    loss.backward()
    assert loss == 0 and torch.equal(z.grad, torch.zeros(3, 2))
