"""EWC and RWalk, which hold weights: reference numbers, slow loops, sessions handed on and resumed."""

from __future__ import annotations

import pytest
from torch import nn

from limpet.errors import ConfigError
from limpet.losses.importance import quadratic_penalty
from limpet.methods import METHODS

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
