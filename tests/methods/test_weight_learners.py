"""EWC and RWalk, which hold weights: reference numbers, slow loops, sessions handed on and resumed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.losses.importance import quadratic_penalty
from holdfast.methods import METHODS
from holdfast.methods.base import CompatibilityMethod
from holdfast.methods.weight_records import evaluated


@pytest.mark.parametrize(
    ("fisher", "importance", "penalty"),
    [
        ("items", "per_sample_fisher_true", "reg_per_sample"),
        ("batches", "importance_true", "reg_batch_squared"),
    ],
)
def test_ewc(reference, agrees, dtype, plain_head, batches, fisher, importance, penalty) -> None:
    g = reference("ewc")
    model = nn.Linear(6, 4).to(dtype)
    model.load_state_dict({"weight": g["W"], "bias": g["b"]})
    method = METHODS["ewc"](weight=float(g["reg_coef"]), fisher=fisher)
    method.on_session_end(model, plain_head(torch.eye(4, dtype=dtype)), batches(g["X"], g["Y"], int(g["batch"])))
    carried = method.carried()
    agrees(carried["importance.weight"], g[f"{importance}_W"])
    agrees(carried["importance.bias"], g[f"{importance}_b"])
    with torch.no_grad():
        model.weight += g["delta_W"]
        model.bias += g["delta_b"]
    agrees(method.penalty(model)["penalty"], g[penalty])


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


HEAVY = {"ewc": 1e6, "rwalk": 3.0}  # the small network makes few mistakes, so its gradients are small at the end


@pytest.mark.parametrize("name", HEAVY)
def test_weights_that_matter_move_less(new_learner, two_sessions, name) -> None:
    before, after = two_sessions
    moved = []
    for weight in (0.0, HEAVY[name]):
        learner, watch = new_learner(), METHODS[name]()
        learner.prepare(watch)
        learner.train(watch, before, range(60))
        watch.on_session_end(learner.net, learner.head, before.loader())
        learner, method = learner.grown(), METHODS[name](weight=weight)
        method.carry_over(watch.carried())
        learner.prepare(method)
        assert method.penalty(learner.net)["penalty"] == 0
        learner.train(method, after, range(60))
        weights = dict(learner.net.named_parameters())
        moved.append(quadratic_penalty(weights, method.anchors.tensors(), method.importance.tensors()).item())
    assert 0 < moved[1] < 0.3 * moved[0]


def test_the_penalty_is_weighed(first, new_learner, two_sessions) -> None:
    costs = []
    for weight in (1.0, 3.0):
        method = METHODS["ewc"](weight=weight)
        method.on_session_end(first.net, first.head, two_sessions[0].loader())
        costs.append(method.penalty(new_learner().net)["penalty"])
    assert costs[0] > 0
    torch.testing.assert_close(costs[1], 3 * costs[0])


@pytest.mark.parametrize("name", ["ewc", "rwalk"])
def test_records_of_other_weights_are_refused(first, two_sessions, name) -> None:
    watch = METHODS[name]()
    first.prepare(watch)
    watch.on_session_end(first.net, first.head, two_sessions[0].loader())
    carried, method = watch.carried(), METHODS[name]()
    assert sum(key.endswith(".body.1.weight") for key in carried) == 2
    method.carry_over(carried)
    first.net.body[1].requires_grad_(False)
    with pytest.raises(ConfigError, match=r"body\.1\.bias, body\.1\.weight and 2 in all"):
        first.prepare(method)
    with pytest.raises(ConfigError, match="records of other weights"):
        method.prepare(None, nn.Linear(3, 2), first.head, None)


def slow_fisher(learner: Any, session: Any, size: int) -> dict[str, Tensor]:
    """Square the gradients of one item, or one batch, after the other."""
    net, total = copy.deepcopy(learner.net).eval(), len(session.labels)
    weights = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
    sums = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for start in range(0, total, size):
        images, labels = session.images[start : start + size], session.labels[start : start + size]
        loss = F.cross_entropy(learner.scores(net(images)), labels)
        for name, gradient in zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True):
            sums[name] += gradient**2 * len(labels) / total
    return sums


@pytest.mark.parametrize(("fisher", "size"), [("items", 1), ("batches", 7)])
def test_the_importance_of_weights_by_a_slow_loop(new_learner, two_sessions, fisher, size) -> None:
    learner, session = new_learner(torch.float64), two_sessions[0]
    learner.train(METHODS["finetune"](), session, range(10))
    learner.net.body[1].requires_grad_(False)
    expected = slow_fisher(learner, session, size)
    method = METHODS["ewc"](fisher=fisher)
    method.on_session_end(learner.net, learner.head, session.loader(7))  # the last batch is shorter
    found = method.importance.tensors()
    assert found.keys() == expected.keys() and len(found) == 4
    torch.testing.assert_close(found, expected)
    weights = dict(learner.net.named_parameters())
    assert all(torch.equal(anchor, weights[name]) for name, anchor in method.anchors.tensors().items())


def test_measuring_leaves_no_trace(first, two_sessions) -> None:
    first.net.train()
    first.net.body[2].eval()  # batch statistics that are kept, as of published weights
    for parameter in (*first.net.parameters(), *first.head.parameters()):
        parameter.grad = torch.ones_like(parameter)
    first.net.body[4].bias.requires_grad_(False)
    weights, modes = first.weights(), [part.training for part in first.net.modules()]
    METHODS["ewc"]().on_session_end(first.net, first.head, two_sessions[0].loader())
    assert same(weights, first.weights()) and modes == [part.training for part in first.net.modules()]
    assert all((parameter.grad == 1).all() for parameter in (*first.net.parameters(), *first.head.parameters()))
    assert [p.requires_grad for p in first.net.parameters()] == [True] * 5 + [False]


class Attention(nn.Module):
    """One layer of attention over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 5, generator=torch.Generator().manual_seed(0)))

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.float() / 255 @ self.weight
        return F.scaled_dot_product_attention(rows, rows, rows).mean(dim=(1, 2))


def test_attention_has_gradients_of_single_items(first, two_sessions) -> None:
    first.net = Attention()
    method = METHODS["ewc"]()
    method.on_session_end(first.net, first.head, two_sessions[0].loader())
    torch.testing.assert_close(method.importance.tensors(), slow_fisher(first, two_sessions[0], 1))


def test_a_mode_is_restored_after_an_error(new_learner) -> None:
    net = new_learner().net.train()
    with pytest.raises(KeyError), evaluated(net):
        assert not net.training
        raise KeyError
    assert all(part.training for part in net.modules())


def three_sessions(
    new_learner: Any, two_sessions: Any, **options: Any
) -> tuple[CompatibilityMethod, list[CompatibilityMethod]]:
    """Return EWC handed over twice, and what each session alone would have left."""
    learner, chain, single, carried = new_learner(torch.float64), [], [], {}
    for place, session in enumerate((*two_sessions, two_sessions[0])):
        learner = learner.grown() if place == 1 else learner
        learner.train(METHODS["finetune"](), session, range(8 * place, 8 * place + 8))
        for methods, found in ((chain, carried), (single, {})):
            method = METHODS["ewc"](weight=2.0, **options)
            method.carry_over(found)
            learner.prepare(method)
            method.on_session_end(learner.net, learner.head, session.loader())
            methods.append(method)
        carried = {name: values.clone() for name, values in chain[-1].carried().items()}
    return chain[-1], single


def gradient_of(method: CompatibilityMethod, net: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(method.penalty(net)["penalty"], list(net.parameters())))


def test_one_penalty_stands_for_those_of_all_sessions_up_to_a_constant(new_learner, two_sessions) -> None:
    merged, single = three_sessions(new_learner, two_sessions)
    constants = []
    for seed in range(3):
        net, generator = new_learner(torch.float64).net, torch.Generator().manual_seed(seed)
        for weight in net.parameters():
            weight.data += torch.randn(weight.shape, generator=generator)
        costs = [method.penalty(net)["penalty"].item() for method in single]
        constants.append(sum(costs) - merged.penalty(net)["penalty"].item())
        gradients = zip(*(gradient_of(method, net) for method in single), strict=True)
        for found, parts in zip(gradient_of(merged, net), gradients, strict=True):
            torch.testing.assert_close(found, sum(parts), rtol=1e-10, atol=1e-12)
    assert constants[0] > 0 and constants == pytest.approx([constants[0]] * 3, rel=1e-9)


def test_the_latest_weights_as_the_only_anchor(new_learner, two_sessions) -> None:
    latest, single = three_sessions(new_learner, two_sessions, anchors="latest")
    found = latest.importance.tensors()
    for name, total in found.items():
        torch.testing.assert_close(total, sum(method.importance.tensors()[name] for method in single))
        assert torch.equal(latest.anchors.tensors()[name], single[-1].anchors.tensors()[name])


class Recorder:
    """Follows a session: before every step, the gradient of the task alone is computed on a copy."""

    def __init__(self, learner: Any, session: Any) -> None:
        self.learner, self.session = learner, session
        self.path: list[dict[str, Tensor]] = [self.weights()]
        self.slopes: list[dict[str, Tensor]] = []

    def weights(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self.learner.net.named_parameters()}

    def train(self, method: CompatibilityMethod, steps: int) -> None:
        optimizer = None
        for place in range(steps):
            generator = torch.Generator().manual_seed(place)
            rows = torch.randperm(len(self.session.labels), generator=generator)[:12]
            net = copy.deepcopy(self.learner.net).train()
            scores = self.learner.scores(net(self.session.images[rows]))
            loss = F.cross_entropy(scores, self.session.labels[rows])
            names = [name for name, _ in net.named_parameters()]
            slopes = torch.autograd.grad(loss, list(net.parameters()))
            self.slopes.append(dict(zip(names, slopes, strict=True)))
            optimizer = self.learner.train(method, self.session, range(place, place + 1), optimizer=optimizer)
            self.path.append(self.weights())


def slow_walk(recorder: Recorder, fisher: dict[str, Tensor] | None, share: float, interval: int, epsilon: float) -> Any:
    """Follow every single weight along the recorded path: its Fisher information and its score."""
    fishers, scores = {}, {}
    for name, begin in recorder.path[0].items():
        path = [weights[name].flatten().tolist() for weights in recorder.path]
        slopes = [found[name].flatten().tolist() for found in recorder.slopes]
        known = None if fisher is None else fisher[name].flatten().tolist()
        result = [_one_weight([p[i] for p in path], [s[i] for s in slopes], None if known is None else known[i],
                              share, interval, epsilon) for i in range(begin.numel())]  # fmt: skip
        fishers[name] = torch.tensor([f for f, _ in result], dtype=begin.dtype).view_as(begin)
        scores[name] = torch.tensor([s for _, s in result], dtype=begin.dtype).view_as(begin)
    return fishers, scores


def _one_weight(path: list[float], slopes: list[float], fisher: float | None, share: float, interval: int,
                epsilon: float) -> tuple[float, float]:  # fmt: skip
    score = decrease = 0.0
    start = path[0]
    for step, slope in enumerate(slopes):
        fisher = slope**2 if fisher is None else share * slope**2 + (1 - share) * fisher
        decrease -= slope * (path[step + 1] - path[step])
        if (step + 1) % interval == 0 or step + 1 == len(slopes):
            score += max(0.0, decrease / (fisher * (path[step + 1] - start) ** 2 / 2 + epsilon))
            decrease, start = 0.0, path[step + 1]
    assert fisher is not None
    return fisher, score


@pytest.mark.parametrize(("share", "interval"), [(0.5, 4), (0.8, 100), (1.0, 1)])
def test_a_walk_through_two_sessions_by_a_slow_loop(new_learner, two_sessions, share, interval) -> None:
    options = {"weight": 0.7, "share": share, "interval": interval, "epsilon": 0.01}
    learner, watch = new_learner(torch.float64), METHODS["rwalk"](**options)
    learner.prepare(watch)
    recorder = Recorder(learner, two_sessions[0])
    recorder.train(watch, 10)
    watch.on_session_end(learner.net, learner.head, [])
    fisher, scores = slow_walk(recorder, None, share, interval, 0.01)
    carried = watch.carried()
    for name in fisher:
        torch.testing.assert_close(carried[f"fisher.{name}"], fisher[name])
        torch.testing.assert_close(carried[f"scores.{name}"], scores[name], rtol=1e-6, atol=1e-9)

    learner, method = learner.grown(), METHODS["rwalk"](**options)
    method.carry_over(carried)
    learner.prepare(method)
    recorder = Recorder(learner, two_sessions[1])
    recorder.train(method, 10)  # with a penalty, whose gradient must not count
    assert method.penalty(learner.net)["penalty"] > 1e-3
    method.on_session_end(learner.net, learner.head, [])
    again, later = slow_walk(recorder, fisher, share, interval, 0.01)
    carried = method.carried()
    for name in fisher:
        torch.testing.assert_close(carried[f"fisher.{name}"], again[name], rtol=1e-6, atol=1e-12)
        mean = (scores[name] + later[name]) / 2
        torch.testing.assert_close(carried[f"scores.{name}"], mean, rtol=1e-6, atol=1e-9)


def walking(new_learner: Any, two_sessions: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return a model after its first session, with two more classes, and what that session leaves."""
    learner, watch = new_learner(), METHODS["rwalk"]()
    learner.prepare(watch)
    learner.train(watch, two_sessions[0], range(15))
    watch.on_session_end(learner.net, learner.head, [])
    return learner.grown(), watch.carried()


def began(learner: Any, carried: dict[str, Tensor], state: dict[str, Tensor] | None = None) -> CompatibilityMethod:
    """Return the method at the start of a session, or as a checkpoint has it."""
    method = METHODS["rwalk"](interval=4)
    method.carry_over(carried)
    learner.prepare(method)
    if state is not None:
        method.load_state_dict(state)
    return method


@pytest.mark.parametrize("stop", [1, 4, 6])
def test_rwalk_resumed_in_the_middle_of_a_session_goes_on_bit_for_bit(new_learner, two_sessions, stop) -> None:
    start, carried = walking(new_learner, two_sessions)
    session, plain = two_sessions[1], {"momentum": 0.0}  # so that the optimiser has nothing to restore
    whole = copy.deepcopy(start)
    uninterrupted = began(whole, carried)
    whole.train(uninterrupted, session, range(12), **plain)

    learner = copy.deepcopy(start)
    interrupted = began(learner, carried)
    learner.train(interrupted, session, range(stop), **plain)
    saved = {name: values.clone() for name, values in interrupted.state_dict().items()}
    resumed = began(start, carried, saved)  # prepared with the weights that the session began with, as in a resumed run
    learner.train(resumed, session, range(stop, 12), **plain)
    assert same(whole.weights(), learner.weights())
    for method, model in ((uninterrupted, whole), (resumed, learner)):
        method.on_session_end(model.net, model.head, [])
    assert same(uninterrupted.carried(), resumed.carried())


def test_the_end_of_a_session_counts_once(new_learner, two_sessions) -> None:
    learner, carried = walking(new_learner, two_sessions)
    method = began(learner, carried)
    learner.train(method, two_sessions[1], range(6))
    method.on_session_end(learner.net, learner.head, [])
    found = {name: values.clone() for name, values in method.carried().items()}
    method.on_session_end(learner.net, learner.head, [])
    assert same(found, method.carried())


def test_watching_leaves_weights_and_gradients_alone(new_learner, two_sessions) -> None:
    learner, carried = walking(new_learner, two_sessions)
    method = began(learner, carried)
    learner.train(method, two_sessions[1], range(3))
    weights, gradients = learner.weights(), [p.grad.clone() for p in learner.net.parameters()]
    method.after_step(learner.net)
    method.on_session_end(learner.net, learner.head, [])
    assert same(weights, learner.weights())
    assert all(torch.equal(p.grad, kept) for p, kept in zip(learner.net.parameters(), gradients, strict=True))


def test_a_frozen_weight_is_neither_watched_nor_held(new_learner, two_sessions) -> None:
    learner = new_learner()
    learner.net.body[1].requires_grad_(False)
    method = METHODS["rwalk"]()
    learner.prepare(method)
    learner.train(method, two_sessions[0], range(3))
    assert not any("body.1." in name for name in method.carried())
    assert len(method.carried()) == 2 * 4


def test_a_weight_that_took_no_part_has_no_gradient(new_learner, two_sessions) -> None:
    learner = new_learner()
    learner.net.unused = nn.Parameter(torch.ones(2))
    method = METHODS["rwalk"]()
    learner.prepare(method)
    learner.train(method, two_sessions[0], range(11))
    assert not method.carried()["fisher.unused"].any() and not method.carried()["scores.unused"].any()


@pytest.mark.parametrize("normalised", [True, False])
def test_the_importance_of_rwalk_is_that_of_its_two_parts(new_learner, two_sessions, normalised) -> None:
    learner, carried = walking(new_learner, two_sessions)
    method = METHODS["rwalk"](normalised=normalised)
    method.carry_over(carried)
    learner.prepare(method)
    top = {part: max(carried[name].max() for name in carried if name.startswith(part)) if normalised else 1.0
           for part in ("fisher", "scores")}  # fmt: skip
    for name, found in method.importance.tensors().items():
        expected = carried[f"fisher.{name}"] / top["fisher"] + carried[f"scores.{name}"] / top["scores"]
        torch.testing.assert_close(found, expected)
