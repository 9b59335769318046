"""The method `rwalk`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from limpet.methods import METHODS
from limpet.methods.base import CompatibilityMethod


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


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
