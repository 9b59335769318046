"""The method `ewc`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from limpet.methods import METHODS
from limpet.methods.base import CompatibilityMethod
from limpet.methods.weight_records import evaluated


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


def test_the_penalty_is_weighed(first, new_learner, two_sessions) -> None:
    costs = []
    for weight in (1.0, 3.0):
        method = METHODS["ewc"](weight=weight)
        method.on_session_end(first.net, first.head, two_sessions[0].loader())
        costs.append(method.penalty(new_learner().net)["penalty"])
    assert costs[0] > 0
    torch.testing.assert_close(costs[1], 3 * costs[0])


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
