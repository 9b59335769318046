"""The method `advbct`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, EmptyOverlapError
from limpet.geometry import Hypersphere
from limpet.geometry.hypersphere import normalise
from limpet.methods import METHODS
from limpet.methods.base import OldModel


def prepared_advbct(g: dict[str, torch.Tensor], run: int, **options):
    method = METHODS["advbct"](threshold=float(g["t"][run]), hidden=40, **options)
    embeddings = EmbeddingSet(np.eye(2, 7, dtype=np.float32), ["a", "b"], "declared:x", Hypersphere(7), form="features",
                              labels=np.array([0, 1]), class_names=[f"c{c}" for c in range(9)])  # fmt: skip
    old = OldModel(embeddings, classes=["c0", "c1"], own_training=embeddings)
    method.prepare(old, torch.nn.Identity(), None, Hypersphere(7))
    method = method.to(g["center"].dtype).train()
    method.centres = torch.cat([g["center"], g["center"].new_zeros(3, 7)])
    method.reach = torch.cat([g["r_max"], g["r_max"].new_zeros(3)])
    method.valid = torch.cat([g["n_kept"] > 1, torch.zeros(3, dtype=torch.bool)])
    with torch.no_grad():
        method.elasticity.copy_(g["w_raw"])
        first, norm, last = method.critic[0], method.critic[1], method.critic[3]
        for parameter, key in (
            (first.weight, "d_fc1_w"), (first.bias, "d_fc1_b"), (norm.weight, "d_bn_w"), (norm.bias, "d_bn_b"),
            (last.weight, "d_fc2_w"), (last.bias, "d_fc2_b"),
        ):  # fmt: skip
            parameter.copy_(g[key])
    return method


@pytest.mark.parametrize("run", [0, 1, 2])
def test_advbct_step(reference, agrees, make_step, plain_head, run: int) -> None:
    g = reference("advbct_loss")
    method = prepared_advbct(g, run)
    z = g["z_new"].requires_grad_()
    labels, epoch, epochs = g["y_all_old" if run == 2 else "y_mixed"], int(g["epoch"][run]), int(g["n_epoch"])
    step = make_step(z, labels, plain_head(g["W_new"]), g["z_old"], progress=epoch / epochs, epoch=epoch,
                     epochs=epochs)  # fmt: skip
    terms = method(step)
    agrees(terms["task"], g["cls"][run])
    agrees(terms["boundary"], g["p2s"][run])
    agrees(terms["adversarial"], g["gamma"][run] * g["adv"][run])
    agrees(method.adversarial(step), g["adv"][run])
    total = sum(terms.values())
    agrees(total, g["total"][run])
    wanted = (z, method.elasticity, method.critic[0].weight)
    grad_z, grad_w, grad_critic = torch.autograd.grad(total, wanted)
    agrees(grad_z, g[f"grad_z_new_run{run}"])
    agrees(grad_w, g[f"grad_w_raw_run{run}"])
    if run == 0:
        agrees(grad_critic, g["grad_d_fc1_w_run0"])


@pytest.mark.parametrize("run", [0, 1, 2])
def test_advbct_joint_batch_statistics(reference, agrees, make_step, plain_head, run: int) -> None:
    g = reference("advbct_loss")
    method = prepared_advbct(g, run, joint_batch_norm=True)
    z = g["z_new"].requires_grad_()
    step = make_step(z, g["y_mixed"], plain_head(g["W_new"]), g["z_old"],
                     progress=int(g["epoch"][run]) / int(g["n_epoch"]))  # fmt: skip
    loss = method.adversarial(step)
    agrees(loss, g["adv_joint_bn"][run])
    if run == 0:
        agrees(torch.autograd.grad(loss, z)[0], g["grad_adv_joint_bn_run0"])


def test_a_critic_of_points_sees_no_lengths(reference, make_step, plain_head) -> None:
    """MixBCT's copy normalises both embeddings before the critic."""
    g = reference("advbct_loss")
    plain, pointwise = (prepared_advbct(g, 0, critic_on=what) for what in ("features", "points"))
    head, lengths = plain_head(g["W_new"]), torch.linspace(1, 5, len(g["z_new"]), dtype=g["z_new"].dtype)[:, None]

    def loss(method, new, old):
        return method.adversarial(make_step(new, g["y_mixed"], head, old, progress=0.5))

    unit, old = normalise(g["z_new"]), normalise(g["z_old"])
    torch.testing.assert_close(loss(pointwise, lengths * g["z_new"], 3 * g["z_old"]), loss(plain, unit, old))
    assert not torch.isclose(loss(plain, lengths * g["z_new"], 3 * g["z_old"]), loss(plain, unit, old))


def test_advbct_schedules(golden) -> None:
    g = golden("advbct_loss")
    gamma = METHODS["advbct"]().gamma
    for run, epoch in enumerate(g["epoch"]):
        assert gamma(int(epoch), int(g["n_epoch"])) == pytest.approx(g["gamma"][run], abs=1e-7)


def test_advbct_statistics_of_the_released_code(golden, make_embeddings) -> None:
    g = golden("advbct_class_meta")
    method = METHODS["advbct"](classes="new")
    old = OldModel(make_embeddings(g["feats"], g["labels"]), classes=())
    method.prepare(old, torch.nn.Identity(), None, Hypersphere(7))
    single = np.bincount(g["labels"]) == 1
    np.testing.assert_allclose(method.centres, g["center"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(method.reach[~single], g["r_max"][~single], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(method.reach[single], g["r_max"][single], rtol=0, atol=1e-3)
    np.testing.assert_array_equal(method.valid, g["n_kept"] > 1)


def test_advbct_matches_old_classes_by_name(world) -> None:
    method = METHODS["advbct"]()
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    vectors = torch.from_numpy(np.array(world.embeddings.vectors))
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    for c in range(4):  # the old classifier counts them backwards
        torch.testing.assert_close(method.centres[c], unit[world.labels == c].mean(0))
    assert method.valid.tolist() == [True] * 4 + [False] * 2


def test_advbct_refuses_before_training_when_it_has_no_boundaries(world) -> None:
    disjoint = OldModel(world.embeddings, classes=("x", "y"), own_training=None)
    with pytest.raises(EmptyOverlapError, match=r"--method-options\.classes new"):
        METHODS["advbct"]().prepare(disjoint, torch.nn.Identity(), world.head, world.space)
    METHODS["advbct"](classes="new").prepare(disjoint, torch.nn.Identity(), world.head, world.space)


def test_advbct_terms_switch_off(world, make_step) -> None:
    for weights in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1), (1, 1, 1)):
        method = METHODS["advbct"](task_weight=weights[0], weight=weights[1], adversarial_weight=weights[2])
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        terms = method(make_step(torch.randn(4, 5), [0, 1, 2, 3], world.head, torch.randn(4, 5)))
        names = [name for name, weight in zip(("task", "boundary", "adversarial"), weights, strict=True) if weight]
        assert list(terms) == names
    with pytest.raises(ConfigError):
        METHODS["advbct"](weight=0, adversarial_weight=0, task_weight=0)


@pytest.mark.parametrize(
    "schedule, first, last", [("released", 11 / 10, 2 / 10), ("linear", 1.0, 1 / 10), ("constant", 1, 1)]
)
def test_advbct_gamma(schedule: str, first: float, last: float) -> None:
    gamma = METHODS["advbct"](gamma_schedule=schedule).gamma
    assert (gamma(0, 10), gamma(9, 10)) == pytest.approx((first, last))


def test_advbct_reads_old_classes_from_the_old_data_by_name(world) -> None:
    """The old data may name its classes in any order, and the old classifier may be gone."""
    own = world.old.own_training
    order = np.array([2, 0, 3, 1])
    renamed = own.replace(class_names=[own.class_names[c] for c in order], labels=np.argsort(order)[own.labels])
    found = []
    for training, classes in ((own, world.old.classes), (renamed, ())):
        method = METHODS["advbct"]()
        method.prepare(
            OldModel(world.embeddings, classes, None, training), torch.nn.Identity(), world.head, world.space
        )
        found.append((method.centres, method.reach, method.valid))
    for first, second in zip(*found, strict=True):
        torch.testing.assert_close(first, second)


def test_advbct_weighs_its_terms(world, make_step) -> None:
    new, old = (torch.randn(4, 5, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    found = []
    for options in ({}, {"task_weight": 2.0, "weight": 3.0, "adversarial_weight": 5.0}):
        torch.manual_seed(0)
        method = METHODS["advbct"](threshold=0.01, **options)
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        found.append(method(make_step(new, [0, 1, 2, 3], world.head, old)))
    assert found[0]["boundary"] > 0
    for name, factor in (("task", 2), ("boundary", 3), ("adversarial", 5)):
        torch.testing.assert_close(found[1][name], factor * found[0][name])


def test_advbct_drops_outliers_by_its_rule(world) -> None:
    reach = []
    for iqr in (0.0, float("inf")):
        method = METHODS["advbct"](iqr=iqr)
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        reach.append(method.reach[:4])
    assert (reach[0] < reach[1]).all()


def test_advbct_without_boundaries_needs_no_old_data(world, make_step) -> None:
    method = METHODS["advbct"](weight=0.0)
    method.prepare(OldModel(world.embeddings, classes=("x",)), torch.nn.Identity(), world.head, world.space)
    terms = method(make_step(torch.randn(4, 5), [0, 1, 2, 3], world.head, torch.randn(4, 5)))
    assert list(terms) == ["task", "adversarial"]
