"""Whole methods against reference numbers, through the same `Step` the training loop gives them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError, EmptyOverlapError
from holdfast.geometry import Hypersphere
from holdfast.losses.margin import arcface_logits
from holdfast.methods import METHODS
from holdfast.methods.base import Head, OldModel, PrototypeClassifier, View
from holdfast.methods.l2 import L2


def old_labels_of(labels: torch.Tensor, classes: int) -> torch.Tensor:
    return torch.where(labels < classes, labels, -1)


def test_independent_is_the_head_alone(world, make_step) -> None:
    new = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    step = make_step(new, [0, 1, 2, 3], world.head)
    terms = METHODS["independent"]()(step)
    assert list(terms) == ["task"]
    assert terms["task"] == torch.nn.functional.cross_entropy(new @ world.head.weight.T, step.labels)


@pytest.mark.parametrize(
    ("options", "name"), [({"power": 1}, "l2_p1"), ({"power": 2}, "l2_topall"), ({"hinge": 1}, "l2_p1_hinge")]
)
def test_l2(reference, agrees, make_step, plain_head, options, name) -> None:
    g = reference("hotrefresh_losses")
    options = {key: float(g["hinge"]) if key == "hinge" else value for key, value in options.items()}
    z = g["z_new"].requires_grad_()
    terms = L2(weight=3.0, **options)(make_step(z, g["labels"], plain_head(z.new_zeros(9, 7)), g["z_old"]))
    agrees(terms["alignment"], 3.0 * g[name])
    agrees(torch.autograd.grad(terms["alignment"], z)[0], 3.0 * g[f"grad_{name}"])


def test_bct_with_the_old_classifier(reference, agrees, make_step, plain_head, make_embeddings) -> None:
    g = reference("bct_influence")
    old = OldModel(
        embeddings=make_embeddings(np.eye(9, 7) + 0.1, np.arange(9)),
        classes=[f"c{row}" for row in range(6)],
        head=plain_head(g["W_old"]),
    )
    for run, (name, labels) in enumerate({"mixed": g["y_mixed"], "all": g["y_all_old"]}.items()):
        z = g["z_new"].clone().requires_grad_()
        method = METHODS["bct"]()
        method.prepare(old, torch.nn.Identity(), plain_head(g["W_new"]), Hypersphere(7))
        step = make_step(z, labels, plain_head(g["W_new"]), old_labels=old_labels_of(labels, 6))
        terms = method(step)
        agrees(terms["task"], g["cls"][run])
        agrees(terms["influence"], g["influence"][run])
        agrees(sum(terms.values()), g["total"][run])
        agrees(torch.autograd.grad(sum(terms.values()), z)[0], g[f"grad_z_new_{name}"])


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


def test_p2s_step(reference, agrees, make_step, plain_head) -> None:
    g = reference("ndpp")
    method = METHODS["p2s"](weight=2.0, temperature=float(g["tau"]))
    method.register_buffer("prototypes", g["P_old"])
    z = g["z_new"].requires_grad_()
    contrast = method(make_step(z, g["labels"], plain_head(z.new_zeros(9, 5))))["contrast"]
    agrees(contrast, 2.0 * g["loss_p2s_mean"])
    agrees(torch.autograd.grad(contrast, z)[0], 2.0 * g["grad_p2s"])


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


def test_mixbct_step(reference, agrees, make_step) -> None:
    g = reference("mixbct_step")
    method = METHODS["mixbct"](ratio=float(g["ratio"]))
    method.space, method.credible = Hypersphere(6), g["credible"].bool()
    head, z = ArcFace(g["W"], float(g["s"]), float(g["m"])), g["z_new"].requires_grad_()
    step = make_step(z, g["labels"], head, g["old_feat"][g["sample_index"]])
    chosen = torch.zeros(13, dtype=torch.bool).scatter(0, g["sel"], True)
    drawn = method.choose(step)  # another draw of as many rows
    assert drawn.sum() == len(g["sel"]) and not (drawn | chosen)[~method.credible].any()
    mixed = method.mix(step, chosen)
    agrees(mixed, g["mixed"])
    loss = head.loss(View.of(mixed, method.space), step.labels)
    agrees(loss, g["loss"])
    grad_z, grad_w = torch.autograd.grad(loss, (z, head.weight))
    assert not grad_z[chosen].any()
    agrees(grad_z, g["grad_z_new"])
    agrees(grad_w, g["grad_W"])


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
    cosine = make_step(new, [0, 1], PrototypeClassifier(torch.eye(5), 10.0), old)
    assert METHODS["mixbct"]().mix(cosine, chosen)[1].tolist() == [0, 0, 1.0, 0, 0]


def test_the_length_that_mixbct_matches_passes_no_gradient(world, make_step) -> None:
    """Else replaced rows would teach the encoder to be long or short, and the paper's do not teach it anything."""
    new = torch.tensor([[3.0, 0, 0, 0, 0], [0, 5.0, 0, 0, 0]], requires_grad=True)
    step = make_step(new, [0, 1], world.head, torch.tensor([[0, 0, 7.0, 0, 0]] * 2))
    mixed = METHODS["mixbct"]().mix(step, torch.tensor([False, True]))
    (gradient,) = torch.autograd.grad(mixed[1].sum(), new, retain_graph=True)
    assert not gradient.any()
    (gradient,) = torch.autograd.grad(mixed[0].sum(), new)
    assert gradient[0].all() and not gradient[1].any()


def prepared_advbct(g: dict[str, torch.Tensor], run: int, **options):
    method = METHODS["advbct"](threshold=float(g["t"][run]), hidden=40, **options)
    embeddings = EmbeddingSet(["a", "b"], np.eye(2, 7, dtype=np.float32), "declared:x", Hypersphere(7), form="features",
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


def test_bct_weighs_its_influence(world, make_step) -> None:
    new, terms = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)), []
    for weight in (1.0, 3.0):
        method = METHODS["bct"](weight=weight)
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        terms.append(method(make_step(new, [0, 1, 2, 3], world.head))["influence"])
    torch.testing.assert_close(terms[1], 3 * terms[0])


def test_bct_scales_class_means_as_the_new_head_does(world) -> None:
    absent = OldModel(world.embeddings, classes=())
    for head, options, scale in (
        (PrototypeClassifier(torch.eye(5), 64.0), {}, 64.0),
        (PrototypeClassifier(torch.eye(5), 64.0), {"temperature": 0.1}, 10.0),
        (world.head, {}, 20.0),
    ):
        method = METHODS["bct"](**options)
        method.prepare(absent, torch.nn.Identity(), head, world.space)
        assert method.classifier.scale == pytest.approx(scale)


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


def test_mixbct_keeps_the_share_it_is_told(world) -> None:
    for denoise, kept in ((0.5, 4), (0.9, 8), (0.1, 1)):
        method = METHODS["mixbct"](denoise=denoise)
        method.prepare(world.old, torch.nn.Identity(), world.head, world.space)
        assert torch.bincount(torch.from_numpy(world.labels)[method.credible]).tolist() == [kept] * 6
