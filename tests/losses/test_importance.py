"""Importance of weights and the price of moving them (EWC, RWalk): reference numbers, slow loops, laws, edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, tensor

from limpet.losses.importance import quadratic_penalty
from limpet.methods.ewc import squared_gradients
from limpet.methods.rwalk import averaged_scores, loss_decrease, moving_fisher, path_scores, walk_importance


def linear_loss(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(inputs @ weights["W"].T + weights["b"], labels)


def over(sums: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    return {name: total / count for name, total in sums.items()}


@pytest.mark.parametrize("block", [1, 4, 1000])
def test_fisher_of_ewc(reference, agrees, block: int) -> None:
    g = reference("ewc")
    weights = {"W": g["W"], "b": g["b"]}
    fisher = over(squared_gradients(linear_loss, weights, g["X"], g["Y"], block=block), len(g["X"]))
    for name in weights:
        agrees(fisher[name], g[f"per_sample_fisher_true_{name}"])
    moved = {name: weights[name] + g[f"delta_{name}"] for name in weights}
    agrees(float(g["reg_coef"]) * quadratic_penalty(moved, weights, fisher), g["reg_per_sample"])


@pytest.mark.parametrize("labels", ["true", "pred"])
def test_fisher_of_the_benchmark(reference, agrees, labels: str) -> None:
    g = reference("ewc")
    weights, size = {"W": g["W"], "b": g["b"]}, int(g["batch"])
    targets = g["Y"] if labels == "true" else (g["X"] @ g["W"].T + g["b"]).argmax(dim=1)
    inputs, targets = g["X"].view(-1, size, g["X"].shape[1]), targets.view(-1, size)
    fisher = over(squared_gradients(linear_loss, weights, inputs, targets), len(inputs))
    for name in weights:
        agrees(fisher[name], g[f"importance_{labels}_{name}"])
    if labels == "true":
        moved = {name: weights[name] + g[f"delta_{name}"] for name in weights}
        agrees(float(g["reg_coef"]) * quadratic_penalty(moved, weights, fisher), g["reg_batch_squared"])


def test_fisher_of_a_convolutional_network_by_a_slow_loop() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)).double()
    model(torch.randn(8, 3, 4, 4).double())  # running statistics other than 0 and 1
    model.eval()
    inputs, labels = torch.randn(5, 3, 4, 4).double(), tensor([0, 1, 1, 0, 1])
    expected = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
    for row in range(5):
        model.zero_grad()
        F.cross_entropy(model(inputs[row : row + 1]), labels[row : row + 1]).backward()
        for name, weight in model.named_parameters():
            expected[name] += weight.grad**2

    def loss(weights: dict[str, Tensor], item: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, weights, (item[None],)), label[None])

    found = squared_gradients(loss, dict(model.named_parameters()), inputs, labels, block=2)
    torch.testing.assert_close(found, expected)
    assert not any(value.requires_grad for value in found.values())


def test_no_items_have_no_importance() -> None:
    weights = {"W": torch.ones(2, 3), "b": torch.ones(2)}
    found = squared_gradients(linear_loss, weights, torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    assert {name: value.tolist() for name, value in found.items()} == {"W": [[0.0] * 3] * 2, "b": [0.0] * 2}


def test_the_penalty_by_a_slow_loop_and_its_gradient() -> None:
    rng = np.random.default_rng(0)
    shapes = {"a": (2, 3), "b": (4,)}
    new, anchor, factor = ({n: tensor(rng.uniform(size=s)) for n, s in shapes.items()} for _ in range(3))
    expected = 0.0
    for name in shapes:
        for x, y, f in zip(new[name].flatten(), anchor[name].flatten(), factor[name].flatten(), strict=True):
            expected += float(f) * (float(x) - float(y)) ** 2
    weights = {name: value.requires_grad_() for name, value in new.items()}
    weights["head"] = torch.ones(7, requires_grad=True)  # grown since: it has no importance
    loss = quadratic_penalty(weights, anchor, factor)
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    for name in shapes:
        torch.testing.assert_close(weights[name].grad, 2 * factor[name] * (new[name] - anchor[name]).detach())
    assert weights["head"].grad is None
    assert quadratic_penalty(anchor, anchor, factor).item() == 0


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_no_importance_costs_nothing(precision: torch.dtype) -> None:
    weights = {"a": torch.ones(3, dtype=precision, requires_grad=True)}
    for importance in ({}, {"a": torch.zeros(3, dtype=precision)}):
        weights["a"].grad = None
        loss = quadratic_penalty(weights, {"a": torch.zeros(3, dtype=precision)}, importance)
        loss.backward()
        assert loss.item() == 0 and loss.dtype == precision and not weights["a"].grad.any()


def descend(steps: int, share: float, interval: int) -> tuple[list[list[float]], list[list[float]], dict[str, Tensor]]:
    """Walk down ½ Σ c θ², in which one weight starts at its minimum; return weights, gradients and the scores."""
    curvature = tensor([1.0, 4.0, 2.0]).double()
    theta = {"w": tensor([1.0, -0.5, 0.0]).double()}
    path, slopes, fisher = [theta["w"].tolist()], [], None
    sums, scores = {"w": torch.zeros(3).double()}, {"w": torch.zeros(3).double()}
    start = theta
    for step in range(steps):
        gradients = {"w": curvature * theta["w"]}
        fisher = moving_fisher(fisher, gradients, share)
        after = {"w": theta["w"] - 0.1 * gradients["w"] + 0.01}  # and a push that no gradient asks for
        sums = {"w": sums["w"] + loss_decrease(gradients, theta, after)["w"]}
        theta = after
        path.append(theta["w"].tolist())
        slopes.append(gradients["w"].tolist())
        if (step + 1) % interval == 0:
            scores = {"w": scores["w"] + path_scores(sums, fisher, start, theta, epsilon=0.01)["w"]}
            sums, start = {"w": torch.zeros(3).double()}, theta
    return path, slopes, scores


@pytest.mark.parametrize(("share", "interval"), [(0.5, 1), (0.9, 3)])
def test_a_walk_by_a_slow_loop(share: float, interval: int) -> None:
    path, slopes, scores = descend(6, share, interval)
    for i in range(3):
        fisher = decrease = total = 0.0
        start = path[0][i]
        for step, slope in enumerate(slopes):
            fisher = slope[i] ** 2 if step == 0 else share * slope[i] ** 2 + (1 - share) * fisher
            decrease -= slope[i] * (path[step + 1][i] - path[step][i])
            if (step + 1) % interval == 0:
                moved = path[step + 1][i] - start
                total += max(0.0, decrease / (fisher * moved**2 / 2 + 0.01))
                decrease, start = 0.0, path[step + 1][i]
        assert scores["w"][i].item() == pytest.approx(total, rel=1e-12)
    assert (scores["w"][:2] > 0).all()


def test_the_shares_of_the_weights_add_up_to_the_decrease_of_the_loss() -> None:
    theta = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    decreases = torch.zeros(3, dtype=torch.float64)

    def loss(values: Tensor) -> Tensor:
        return (values.square() * tensor([1.0, 3.0, 0.5]).double()).sum() + values.prod()

    first = loss(theta)
    for _ in range(2000):
        gradient = torch.func.grad(loss)(theta)
        after = theta - 1e-4 * gradient
        decreases += loss_decrease({"w": gradient}, {"w": theta}, {"w": after})["w"]
        theta = after
    assert decreases.sum().item() == pytest.approx((first - loss(theta)).item(), rel=1e-3)


def test_what_did_not_move_or_made_the_loss_worse_has_no_score() -> None:
    start, end = {"w": tensor([1.0, 1.0])}, {"w": tensor([1.0, 2.0])}
    gradients = {"w": tensor([5.0, 5.0])}  # the second weight moved up the slope
    decreases = loss_decrease(gradients, start, end)
    assert decreases["w"].tolist() == [0.0, -5.0]
    assert path_scores(decreases, {"w": torch.zeros(2)}, start, end)["w"].tolist() == [0.0, 0.0]


def test_scores_of_old_sessions_fade_and_the_first_is_whole() -> None:
    one, two = {"w": tensor([4.0])}, {"w": tensor([0.0])}
    scores = averaged_scores(None, one)
    assert scores["w"].item() == 4
    scores = averaged_scores(averaged_scores(scores, two), two)
    assert scores["w"].item() == 1


def test_the_importance_of_a_walk() -> None:
    fisher = {"a": tensor([1e-6, 0.0]), "b": tensor([[4e-6]])}
    scores = {"a": tensor([0.0, 10.0]), "b": tensor([[20.0]])}
    found = walk_importance(fisher, scores)
    assert found["a"].tolist() == pytest.approx([0.25, 0.5]) and found["b"].tolist() == [[2.0]]
    plain = walk_importance(fisher, scores, normalised=False)
    assert plain["a"].tolist() == pytest.approx([1e-6, 10.0]) and plain["b"].item() == pytest.approx(20.0)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_walk_without_scores_or_weights_stays_finite(precision: torch.dtype) -> None:
    zeros = {"a": torch.zeros(3, dtype=precision), "b": torch.zeros(0, dtype=precision)}
    found = walk_importance(zeros, zeros)
    assert found["a"].tolist() == [0.0] * 3 and found["a"].dtype == precision
    assert walk_importance({}, {}) == {}
    still = path_scores(zeros, zeros, zeros, zeros)
    assert still["a"].tolist() == [0.0] * 3 and still["a"].dtype == precision
