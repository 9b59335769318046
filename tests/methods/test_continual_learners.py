"""The learners of continual search: reference numbers through the methods, and laws of two sessions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.geometry import Hypersphere
from holdfast.geometry.hypersphere import normalise
from holdfast.losses.discrepancy import mean_discrepancy
from holdfast.losses.distillation import dark_knowledge
from holdfast.methods import METHODS
from holdfast.methods.base import Batch, CompatibilityMethod, Head, OldModel, View
from holdfast.methods.weight_records import evaluated

LEARNERS = ["finetune", "joint", "cvs", "lwf", "mmd", "ewc", "rwalk", "rainbow"]
SPACE = Hypersphere(5)


@pytest.mark.parametrize(
    ("name", "memory", "replays", "share", "gallery", "first"),
    [
        ("bct", "herding", "without old classes", None, "append", "shared"),
        ("finetune", None, "always", None, "append", "shared"),
        ("joint", "everything", "always", None, "reindex", "shared"),
        ("cvs", "herding", "always", None, "append", "shared"),
        ("lwf", None, "always", None, "append", "shared"),
        ("mmd", None, "always", None, "append", "shared"),
        ("ewc", None, "always", None, "append", "shared"),
        ("rwalk", "herding", "always", None, "append", "own"),
        ("rainbow", "uncertainty", "always", 0.5, "append", "shared"),
    ],
)
def test_what_sessions_are_told(name, memory, replays, share, gallery, first) -> None:
    method = METHODS[name]()
    assert (method.memory, method.replays, method.memory_share) == (memory, replays, share)
    assert (method.gallery_policy, method.first_session) == (gallery, first)
    assert method.sessions_only == (name != "bct")
    assert method.needs_old == (name in ("bct", "cvs", "lwf", "mmd"))
    assert method.old_view == ("same" if name in ("cvs", "lwf", "mmd") else "cached")


@pytest.fixture
def golden_step(reference, make_step, make_embeddings, cosine_head) -> Any:
    """One step of a session after the first, from the file of CVS."""
    g = reference("cvs_step")
    known, labels = int(g["C_old"]), g["labels"]
    names = [f"c{row}" for row in range(len(g["W_new"]))]
    embeddings = make_embeddings(g["z_old"], labels, names=names)
    old = OldModel(embeddings, names[:known], cosine_head(g["W_old"], g["temp"]), own_training=embeddings.select([]))
    head, z = cosine_head(g["W_new"], g["temp"]), g["z_new"].clone().requires_grad_()
    step = make_step(z, labels, head, g["z_old"], old_labels=labels.masked_fill(labels >= known, -1))
    return g, old, step


def ready(method: CompatibilityMethod, old: OldModel, head: Head, dtype: torch.dtype) -> CompatibilityMethod:
    method.prepare(old, nn.Identity(), head, old.embeddings.space)
    return method.to(dtype)


def cvs_of(g: dict[str, Tensor], **options: Any) -> CompatibilityMethod:
    values = {"model_weight": float(g["alpha"]), "data_weight": float(g["beta"]), "margin": float(g["margin"])}
    method = METHODS["cvs"](**{**values, **options})
    method.carry_over({"sums": 3 * g["Ec"][None], "counts": torch.full((1, len(g["Ec"])), 3.0, dtype=g["Ec"].dtype)})
    return method


def test_cvs_and_its_gradients(golden_step, agrees, dtype) -> None:
    g, old, step = golden_step
    method = ready(cvs_of(g), old, step.head, dtype)
    terms = method(step)
    agrees(terms["task"], g["loss_c"])
    agrees(terms["model_coherence"], g["loss_m"])
    agrees(terms["data_coherence"], g["loss_d"])
    total = sum(terms.values())
    agrees(total, g["total"])
    grad_z, grad_weight = torch.autograd.grad(total, (step.new.features, step.head.weight))
    agrees(grad_z, g["grad_z_new"])
    agrees(grad_weight, g["grad_W_new"])


@pytest.mark.parametrize(
    ("options", "term", "name"),
    [({"squared": True}, "model_coherence", "m_squared"), ({"reduction": "batch"}, "data_coherence", "d_batch")],
)
def test_cvs_as_printed(golden_step, agrees, dtype, options, term, name) -> None:
    g, old, step = golden_step
    loss = ready(cvs_of(g, **options), old, step.head, dtype)(step)[term]
    agrees(loss, g[f"loss_{name}"])
    agrees(torch.autograd.grad(loss, step.new.features)[0], g[f"grad_{name}"])


def test_lwf_of_cvs(golden_step, agrees, dtype) -> None:
    g, old, step = golden_step
    method = ready(METHODS["lwf"](), old, step.head, dtype)
    with torch.no_grad():
        method.student.weight.copy_(g["W_lwf_head"])
    terms = method(step)
    agrees(terms["distillation"], g["lwf_term"])
    agrees(torch.autograd.grad(sum(terms.values()), step.new.features)[0], g["grad_lwf"])


def test_mmd_of_cvs(golden_step, agrees, dtype) -> None:
    g, old, step = golden_step
    terms = ready(METHODS["mmd"](), old, step.head, dtype)(step)
    agrees(terms["discrepancy"], g["mmd_only"])
    agrees(terms["discrepancy"] + terms["distillation"], g["mmd_term"])
    agrees(torch.autograd.grad(sum(terms.values()), step.new.features)[0], g["grad_mmd"])


def test_bct_of_cvs(golden_step, agrees, dtype) -> None:
    g, old, step = golden_step
    terms = ready(METHODS["bct"](), old, step.head, dtype)(step)
    agrees(terms["influence"], g["bct_term"])
    agrees(torch.autograd.grad(sum(terms.values()), step.new.features)[0], g["grad_bct"])


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", ["finetune", "joint", "rwalk", "ewc"])
def test_what_holds_nothing_yet_trains_as_the_classifier_alone_does(name, new_learner, two_sessions) -> None:
    found = []
    for chosen in ("independent", name):
        learner, method = new_learner(), METHODS[chosen]()
        state = torch.get_rng_state()
        learner.prepare(method)
        learner.train(method, two_sessions[0], range(25))
        assert method.penalty(learner.net) == {} and torch.equal(state, torch.get_rng_state())
        assert not list(method.parameters())
        found.append(learner.weights())
    assert same(*found)


def drift(learner: Any, predecessor: OldModel, later: Any) -> float:
    """How far the later images of old classes are from where the last model would have put them."""
    images = later.images[later.labels < len(predecessor.classes)]
    with evaluated(learner.net), torch.no_grad():
        new, old = normalise(learner.net(images)), normalise(predecessor.encoder(images))
    return (new - old).norm(dim=1).mean().item()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cvs", {}),
        ("cvs", {"model_weight": 0.0, "data_weight": 10.0}),
        ("cvs", {"data_weight": 0.0, "coherence": "absolute"}),
        ("ewc", {"weight": 1e6}),
    ],
)
def test_a_learner_stays_nearer_to_the_gallery_than_the_lower_bound(
    second, predecessor, two_sessions, name, options
) -> None:
    bound = second(METHODS["finetune"]())
    learner = second(METHODS[name](**options))
    moved, freely = (drift(model, predecessor, two_sessions[1]) for model in (learner, bound))
    assert moved < 0.8 * freely


def test_lwf_keeps_the_scores_of_the_old_classifier(second, predecessor, two_sessions) -> None:
    after, kept = two_sessions[1], []
    with torch.no_grad():
        wanted = predecessor.head.logits(View.of(predecessor.encoder(after.images), SPACE))
    for method in (METHODS["finetune"](), METHODS["lwf"](weight=3.0)):
        found = second(method).embed(after)
        student = method.student if hasattr(method, "student") else predecessor.head
        kept.append(dark_knowledge(student.logits(View.of(found, SPACE)), wanted).item())
    assert kept[1] < 0.7 * kept[0]
    assert torch.equal(method.teacher.weight, predecessor.head.weight)
    assert not torch.equal(method.student.weight, predecessor.head.weight)


def test_mmd_keeps_the_features_distributed_as_they_were(second, predecessor, two_sessions) -> None:
    after, found = two_sessions[1], []
    with torch.no_grad():
        wanted = predecessor.encoder(after.images)
    for method in (METHODS["finetune"](), METHODS["mmd"](weight=30.0, bandwidth=2.0)):
        found.append(mean_discrepancy(second(method).embed(after), wanted, 2.0).item())
    assert found[1] < 0.5 * found[0]


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_goes_through_two_sessions(second, two_sessions, name) -> None:
    method = METHODS[name]()
    learner = second(method)
    method.on_session_end(learner.net, learner.head, two_sessions[1].loader())
    with torch.no_grad():
        scores = learner.scores(learner.embed(two_sessions[1]))
    assert (scores.argmax(dim=1) == two_sessions[1].labels).float().mean() > 0.9  # it learned the new classes
    carried = method.carried()
    assert bool(carried) == (name in ("cvs", "ewc", "rwalk"))
    assert all(torch.isfinite(values).all() and not values.requires_grad for values in carried.values())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cvs", {"model_weight": -1.0}), ("cvs", {"data_weight": -1.0}), ("cvs", {"margin": -0.1}),
        ("cvs", {"temperature": 0.0}), ("cvs", {"reduction": "sum"}), ("lwf", {"weight": -1.0}),
        ("lwf", {"temperature": 0.0}), ("mmd", {"weight": -1.0}), ("mmd", {"distillation_weight": -1.0}),
        ("mmd", {"bandwidth": 0.0}), ("mmd", {"temperature": 0.0}), ("ewc", {"weight": -1.0}), ("ewc", {"fisher": "x"}),
        ("ewc", {"anchors": "x"}), ("rwalk", {"weight": -1.0}), ("rwalk", {"share": 0.0}), ("rwalk", {"interval": 0}),
        ("rwalk", {"epsilon": 0.0}), ("rainbow", {"cutmix": 1.5}), ("rainbow", {"alpha": 0.0}),
    ],
)  # fmt: skip
def test_impossible_options(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        METHODS[name](**options)


def test_the_copied_classifier_of_lwf_trains_and_the_frozen_one_does_not(world, make_step) -> None:
    method = METHODS["lwf"]()
    method.prepare(world.old, nn.Identity(), world.head, world.space)
    new, old = (torch.randn(4, 5, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    method(make_step(new, [0, 1, 2, 3], world.head, old))["distillation"].backward()
    assert [name for name, value in method.named_parameters() if value.requires_grad] == ["student.weight"]
    assert method.student.weight.grad.any() and method.teacher.weight.grad is None
    assert world.old.head.weight.grad is None and world.head.weight.grad is None


def test_distillation_is_weighed_softened_and_left_out(world, make_step) -> None:
    new, old = (torch.randn(4, 5, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    step = make_step(new, [4, 5, 4, 5], world.head, old, old_labels=torch.full((4,), -1))
    for name, option in (("lwf", "weight"), ("mmd", "distillation_weight")):
        found = []
        for options in ({}, {option: 3.0}, {"temperature": 4.0}, {option: 0.0}):
            method = METHODS[name](**options)
            method.prepare(world.old, nn.Identity(), world.head, world.space)
            found.append(method(step))
        torch.testing.assert_close(found[1]["distillation"], 3 * found[0]["distillation"])
        assert found[2]["distillation"] != found[0]["distillation"] and "distillation" not in found[3]
        with pytest.raises(ConfigError, match=f"method_options.{option} 0"):
            METHODS[name]().prepare(dataclasses.replace(world.old, head=None), nn.Identity(), world.head, world.space)


def test_the_discrepancy_alone_where_every_class_is_old(world, make_step) -> None:
    method = METHODS["mmd"](weight=2.0, bandwidth=3.0)
    method.prepare(world.old, nn.Identity(), world.head, world.space)
    new, old = (torch.randn(4, 5, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    terms = method(make_step(new.requires_grad_(), [0, 1, 2, 3], world.head, old))
    terms["distillation"].backward()
    assert terms["distillation"] == 0 and not new.grad.any()
    torch.testing.assert_close(terms["discrepancy"], 2 * mean_discrepancy(new, old, 3.0))


@pytest.fixture
def mixable(two_sessions) -> Batch:
    session = two_sessions[0]
    return Batch(session.images, session.labels, torch.arange(24), torch.zeros(24, dtype=torch.bool))


def test_rainbow_shares_out_the_loss_and_forgets(make_step, new_learner, mixable) -> None:
    learner, method = new_learner(), METHODS["rainbow"](cutmix=1.0)
    learner.net.eval()
    mixed = method.change_inputs(mixable, torch.Generator().manual_seed(1))
    partner, share = method.mixing
    assert not torch.equal(mixed, mixable.inputs) and mixed.dtype == torch.uint8 and 0 < share < 1
    step = make_step(learner.net(mixed), mixable.labels, learner.head)
    scores = learner.head.logits(step.new)
    own, other = (F.cross_entropy(scores, labels) for labels in (mixable.labels, mixable.labels[partner]))
    torch.testing.assert_close(method(step)["task"], share * own + (1 - share) * other)
    torch.testing.assert_close(method(step)["task"], own)  # what was mixed is forgotten


def test_rainbow_mixes_as_often_as_it_is_told(mixable) -> None:
    for cutmix, expected in ((0.0, 0), (0.3, 60), (1.0, 200)):
        method, generator = METHODS["rainbow"](cutmix=cutmix), torch.Generator().manual_seed(0)
        mixed = 0
        for _ in range(200):
            same_inputs = method.change_inputs(mixable, generator) is mixable.inputs
            assert same_inputs == (method.mixing is None)
            mixed += not same_inputs
        assert abs(mixed - expected) <= 26  # four standard deviations
        assert cutmix == 0.3 or mixed == expected


def test_rainbow_hands_on_its_alpha(mixable) -> None:
    shares = {}
    for alpha in (0.05, 100.0):
        method, generator = METHODS["rainbow"](cutmix=1.0, alpha=alpha), torch.Generator().manual_seed(0)
        found = []
        for _ in range(60):
            method.change_inputs(mixable, generator)
            found.append(method.mixing[1])
        shares[alpha] = np.std(found)
    assert shares[0.05] > 2 * shares[100.0]


def test_rainbow_without_mixing_is_the_task(second) -> None:
    methods = METHODS["finetune"](), METHODS["rainbow"](cutmix=0.0), METHODS["rainbow"](cutmix=1.0)
    task, never, always = (second(method, 10).weights() for method in methods)
    assert same(task, never) and not same(task, always)
