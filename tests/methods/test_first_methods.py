"""Whole methods against reference numbers, through the same `Step` the training loop gives them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import tensor

from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError, EmptyOverlapError
from holdfast.geometry import Hypersphere
from holdfast.losses.margin import arcface_logits
from holdfast.methods import METHODS
from holdfast.methods.base import CosineClassifier, Head, OldModel, View
from holdfast.methods.l2 import L2

close = {"rtol": 1e-7, "atol": 1e-7}


def old_labels_of(labels: np.ndarray, classes: int) -> torch.Tensor:
    return tensor(np.where(labels < classes, labels, -1))


def test_independent_is_the_head_alone(world, make_step) -> None:
    new = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    step = make_step(new, [0, 1, 2, 3], world.head)
    terms = METHODS["independent"]()(step)
    assert list(terms) == ["task"]
    assert terms["task"] == torch.nn.functional.cross_entropy(new @ world.head.weight.T, step.labels)


@pytest.mark.parametrize(
    ("options", "name"), [({"power": 1}, "l2_p1"), ({"power": 2}, "l2_topall"), ({"hinge": 1}, "l2_p1_hinge")]
)
def test_l2(golden, make_step, plain_head, options, name) -> None:
    g = golden("hotrefresh_losses")
    options = {key: float(g["hinge"]) if key == "hinge" else value for key, value in options.items()}
    step = make_step(tensor(g["z_new"]), g["labels"], plain_head(torch.zeros(9, 7).double()), tensor(g["z_old"]))
    terms = L2(weight=3.0, **options)(step)
    np.testing.assert_allclose(terms["alignment"], 3.0 * g[name], **close)


def test_bct_with_the_old_classifier(golden, make_step, plain_head, make_embeddings) -> None:
    g = golden("bct_influence")
    old = OldModel(
        embeddings=make_embeddings(np.eye(9, 7) + 0.1, np.arange(9)),
        classes=[f"c{row}" for row in range(6)],
        head=plain_head(tensor(g["W_old"])),
    )
    for run, name in enumerate(("mixed", "all")):
        z = tensor(g["z_new"]).requires_grad_()
        method = METHODS["bct"]()
        labels = g[f"y_{'mixed' if name == 'mixed' else 'all_old'}"]
        method.prepare(old, torch.nn.Identity(), plain_head(tensor(g["W_new"])), Hypersphere(7))
        step = make_step(z, labels, plain_head(tensor(g["W_new"])), old_labels=old_labels_of(labels, 6))
        terms = method(step)
        np.testing.assert_allclose(terms["task"].detach(), g["cls"][run], **close)
        np.testing.assert_allclose(terms["influence"].detach(), g["influence"][run], **close)
        gradient = torch.autograd.grad(sum(terms.values()), z)[0]
        np.testing.assert_allclose(gradient, g[f"grad_z_new_{name}"], **close)


def test_bct_without_an_old_classifier_uses_class_means(world, make_step) -> None:
    method = METHODS["bct"](temperature=0.1)
    method.prepare(OldModel(world.embeddings, classes=()), torch.nn.Identity(), world.head, world.space)
    vectors = torch.from_numpy(np.array(world.embeddings.vectors))
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    means = torch.stack([unit[world.labels == c].mean(0) for c in range(6)])
    new = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
    cosines = torch.nn.functional.cosine_similarity(new[:, None], means[None], dim=2)
    labels = torch.tensor([0, 1, 2, 4, 5])
    step = make_step(new, labels, world.head, old_labels=torch.full((5,), -1))
    expected = torch.nn.functional.cross_entropy(cosines / 0.1, labels)
    torch.testing.assert_close(method(step)["influence"], expected)


def test_bct_never_changes_the_old_classifier(world, make_step) -> None:
    method = METHODS["bct"]()
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    assert not any(parameter.requires_grad for parameter in method.parameters())
    assert method.classifier is not world.old.head


def test_p2s_prototypes_are_normalised_means_of_unit_vectors(golden, plain_head, make_embeddings) -> None:
    g = golden("ndpp")
    method = METHODS["p2s"]()
    old = OldModel(make_embeddings(g["proto_feats"], g["proto_labels"]), classes=())
    method.prepare(old, torch.nn.Identity(), plain_head(torch.zeros(4, 5)), Hypersphere(5))
    np.testing.assert_allclose(method.prototypes, g["proto"], rtol=1e-4, atol=1e-5)


def test_p2s_step(golden, make_step, plain_head) -> None:
    g = golden("ndpp")
    method = METHODS["p2s"](weight=2.0, temperature=float(g["tau"]))
    method.register_buffer("prototypes", tensor(g["P_old"]))
    terms = method(make_step(tensor(g["z_new"]), g["labels"], plain_head(torch.zeros(9, 5).double())))
    np.testing.assert_allclose(terms["contrast"], 2.0 * g["loss_p2s_mean"], **close)


class ArcFace(Head):
    """The reference's guarded ArcFace, over rows that may come from either model."""

    normalised = True

    def __init__(self, weight: torch.Tensor, scale: float, margin: float) -> None:
        super().__init__()
        self.weight, self.scale, self.margin = torch.nn.Parameter(weight), scale, margin

    def cosines(self, view: View) -> torch.Tensor:
        return view.points @ torch.nn.functional.normalize(self.weight, dim=1).T

    def logits(self, view: View) -> torch.Tensor:
        return self.scale * self.cosines(view)

    def loss(self, view: View, labels: torch.Tensor) -> torch.Tensor:
        logits = arcface_logits(self.cosines(view), labels, scale=self.scale, margin=self.margin)
        return torch.nn.functional.cross_entropy(logits, labels)


def test_mixbct_step(golden, make_step) -> None:
    g = golden("mixbct_step")
    method = METHODS["mixbct"](ratio=float(g["ratio"]))
    method.space = Hypersphere(6)
    head, z = ArcFace(tensor(g["W"]), float(g["s"]), float(g["m"])), tensor(g["z_new"]).requires_grad_()
    step = make_step(z, g["labels"], head, tensor(g["old_feat"])[g["sample_index"]])
    chosen = torch.zeros(13, dtype=torch.bool).scatter(0, tensor(g["sel"]), True)
    mixed = method.mix(step, chosen)
    np.testing.assert_allclose(
        torch.nn.functional.normalize(mixed[chosen], dim=1).detach(), g["mixed"][chosen.numpy()], **close
    )
    loss = head.loss(View.of(mixed, method.space), step.labels)
    np.testing.assert_allclose(loss.detach(), g["loss"], **close)
    grad_z, grad_w = torch.autograd.grad(loss, (z, head.weight))
    np.testing.assert_allclose(grad_z, g["grad_z_new"], **close)
    np.testing.assert_allclose(grad_w, g["grad_W"], **close)


def test_mixbct_draws_the_right_number_of_credible_rows(world, make_step) -> None:
    method = METHODS["mixbct"](ratio=0.3)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    method.credible = torch.arange(48) % 2 == 0
    generator, counts = torch.Generator().manual_seed(0), torch.zeros(40)
    for _ in range(400):
        chosen = method.choose(make_step(torch.randn(40, 5), np.zeros(40, int), world.head, generator=generator))
        assert chosen.sum() == 12 and not chosen[1::2].any()
        counts += chosen
    # 12 of 20 rows, uniformly: 240 of 400 draws each, standard deviation below 10
    assert (counts[::2] - 240).abs().max() < 50


def test_mixbct_takes_all_when_too_few_are_credible(world, make_step) -> None:
    method = METHODS["mixbct"](ratio=0.9)
    method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
    method.credible = torch.zeros(48, dtype=torch.bool).index_fill(0, torch.tensor([2, 5]), True)
    chosen = method.choose(make_step(torch.randn(10, 5), np.zeros(10, int), world.head))
    assert chosen.nonzero().flatten().tolist() == [2, 5]


def test_mixbct_matches_lengths_only_where_the_head_reads_them(world, make_step) -> None:
    new, old = torch.tensor([[3.0, 0, 0, 0, 0], [0, 5.0, 0, 0, 0]]), torch.tensor([[0, 0, 7.0, 0, 0]] * 2)
    chosen = torch.tensor([False, True])
    step = make_step(new, [0, 1], world.head, old)
    assert METHODS["mixbct"]().mix(step, chosen)[1].tolist() == [0, 0, 3.0, 0, 0]
    assert METHODS["mixbct"](old_scale="raw").mix(step, chosen)[1].tolist() == [0, 0, 7.0, 0, 0]
    cosine = make_step(new, [0, 1], CosineClassifier(torch.eye(5), 10.0), old)
    assert METHODS["mixbct"]().mix(cosine, chosen)[1].tolist() == [0, 0, 1.0, 0, 0]


def prepared_advbct(g: dict[str, np.ndarray], run: int, **options):
    method = METHODS["advbct"](threshold=float(g["t"][run]), hidden=40, **options)
    centres = torch.zeros(9, 7).double()
    centres[:6] = tensor(g["center"])
    embeddings = EmbeddingSet(["a", "b"], np.eye(2, 7, dtype=np.float32), "declared:x", Hypersphere(7), form="features",
                              labels=np.array([0, 1]), class_names=[f"c{c}" for c in range(9)])  # fmt: skip
    old = OldModel(embeddings, classes=["c0", "c1"], own_training=embeddings)
    method.prepare(old, torch.nn.Identity(), None, Hypersphere(7))
    method = method.double().train()
    method.centres = centres
    method.reach = torch.cat([tensor(g["r_max"]), torch.zeros(3).double()])
    method.valid = torch.cat([tensor(g["n_kept"]) > 1, torch.zeros(3, dtype=torch.bool)])
    with torch.no_grad():
        method.elasticity.copy_(tensor(g["w_raw"]))
        first, norm, last = method.critic[0], method.critic[1], method.critic[3]
        for parameter, key in (
            (first.weight, "d_fc1_w"), (first.bias, "d_fc1_b"), (norm.weight, "d_bn_w"), (norm.bias, "d_bn_b"),
            (last.weight, "d_fc2_w"), (last.bias, "d_fc2_b"),
        ):  # fmt: skip
            parameter.copy_(tensor(g[key]))
    return method


@pytest.mark.parametrize("run", [0, 1, 2])
def test_advbct_step(golden, make_step, plain_head, run: int) -> None:
    g = golden("advbct_loss")
    method = prepared_advbct(g, run)
    z = tensor(g["z_new"]).requires_grad_()
    labels, epoch, epochs = g["y_all_old" if run == 2 else "y_mixed"], int(g["epoch"][run]), int(g["n_epoch"])
    step = make_step(z, labels, plain_head(tensor(g["W_new"])), tensor(g["z_old"]), progress=epoch / epochs,
                     epoch=epoch, epochs=epochs)  # fmt: skip
    terms = method(step)
    np.testing.assert_allclose(terms["task"].detach(), g["cls"][run], **close)
    np.testing.assert_allclose(terms["boundary"].detach(), g["p2s"][run], **close)
    np.testing.assert_allclose(terms["adversarial"].detach(), g["gamma"][run] * g["adv"][run], **close)
    total = sum(terms.values())
    np.testing.assert_allclose(total.detach(), g["total"][run], **close)
    wanted = (z, method.elasticity, method.critic[0].weight)
    grad_z, grad_w, grad_critic = torch.autograd.grad(total, wanted)
    np.testing.assert_allclose(grad_z, g[f"grad_z_new_run{run}"], **close)
    np.testing.assert_allclose(grad_w, g[f"grad_w_raw_run{run}"], **close)
    if run == 0:
        np.testing.assert_allclose(grad_critic, g["grad_d_fc1_w_run0"], **close)


@pytest.mark.parametrize("run", [0, 1, 2])
def test_advbct_joint_batch_statistics(golden, make_step, plain_head, run: int) -> None:
    g = golden("advbct_loss")
    method = prepared_advbct(g, run, joint_batch_norm=True)
    z = tensor(g["z_new"]).requires_grad_()
    step = make_step(z, g["y_mixed"], plain_head(tensor(g["W_new"])), tensor(g["z_old"]),
                     progress=int(g["epoch"][run]) / int(g["n_epoch"]))  # fmt: skip
    loss = method.adversarial(step)
    np.testing.assert_allclose(loss.detach(), g["adv_joint_bn"][run], **close)
    if run == 0:
        np.testing.assert_allclose(torch.autograd.grad(loss, z)[0], g["grad_adv_joint_bn_run0"], **close)


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
    with pytest.raises(EmptyOverlapError, match=r"--method_options\.classes new"):
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


def test_unknown_method_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'p2z'\. Did you mean 'p2s'\?(.|\n)*holdfast methods"):
        METHODS["p2z"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("l2", {"power": 3}), ("l2", {"weight": -1.0}), ("l2", {"power": 2, "hinge": 0.1}),
        ("p2s", {"temperature": 0.0}), ("p2s", {"weight": -1.0}), ("bct", {"temperature": -1.0}),
        ("mixbct", {"ratio": 1.5}),
        ("mixbct", {"denoise": 0.0}), ("mixbct", {"old_scale": "x"}), ("advbct", {"classes": "x"}),
        ("advbct", {"gamma_schedule": "x"}), ("advbct", {"iqr": -1.0}), ("advbct", {"weight": -1.0}),
    ],
)  # fmt: skip
def test_impossible_options(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        METHODS[name](**options)


def test_mixbct_keeps_lengths_when_every_row_is_replaced(world, make_step) -> None:
    new, old = torch.tensor([[3.0, 0, 0, 0, 0], [0, 5.0, 0, 0, 0]]), torch.tensor([[0, 0, 7.0, 0, 0]] * 2)
    mixed = METHODS["mixbct"](ratio=1.0).mix(make_step(new, [0, 1], world.head, old), torch.tensor([True, True]))
    assert mixed.tolist() == [[0, 0, 4.0, 0, 0]] * 2


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


def test_prototypes_of_classes_without_items_are_refused(world) -> None:
    from holdfast.errors import DataError

    empty = world.embeddings.replace(class_names=[*world.embeddings.class_names, "nobody"])
    with pytest.raises(DataError, match="1 of 7 classes have no item"):
        METHODS["p2s"]().prepare(OldModel(empty, ()), torch.nn.Identity(), world.head, world.space)
