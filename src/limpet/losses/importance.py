"""How much every weight matters to what was learned before, and what moving it costs (EWC, RWalk).

Functions of tensors by name. The classifier, whose rows grow with the sessions, is left out by leaving out its name.
Sources: Kirkpatrick et al., PNAS 2017, arXiv:1612.00796 (EWC); Chaudhry et al., ECCV 2018, arXiv:1801.10112 (RWalk).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

Tensors = Mapping[str, Tensor]
"""Weights, or numbers of their shapes, by the weights' names."""


def squared_gradients(
    loss: Callable[..., Tensor], weights: Tensors, *items: Tensor, block: int = 16
) -> dict[str, Tensor]:
    """Sum the squared gradient of the loss over items; divided by their number, it is the diagonal Fisher information.

    With ``loss`` the cross-entropy of one item at its true label, this is the empirical Fisher of EWC. A model must be
    in evaluation mode, so that an item does not depend on the others. Where an "item" is a whole batch and ``loss``
    its mean, it is the form of rainbow-memory's public benchmark, smaller by about the size of the batch.

    Args:
        loss: From weights by name and one of each of the items to a scalar, without side effects.
        weights: Where the gradient is taken.
        items: Tensors of equal length N, such as inputs (N, ...) and labels (N,).
        block: How many gradients stand in memory at once, each of the size of all the weights.

    Returns:
        Sums of the shapes of the weights, at least 0, detached; 0 for no items.

    >>> fisher = squared_gradients(lambda w, x: w["a"] * x, {"a": torch.tensor(5.0)}, torch.tensor([1.0, 3.0]))
    >>> fisher["a"].item()  # 1² + 3²
    10.0
    """
    constants = {name: weight.detach() for name, weight in weights.items()}
    sums = {name: torch.zeros_like(weight) for name, weight in constants.items()}
    gradient = torch.func.vmap(torch.func.grad(loss), in_dims=(None, *[0] * len(items)))
    for start in range(0, len(items[0]), block):
        found = gradient(constants, *[rows[start : start + block] for rows in items])
        sums = {name: total + found[name].square().sum(dim=0) for name, total in sums.items()}
    return sums


def quadratic_penalty(weights: Tensors, anchors: Tensors, importance: Tensors) -> Tensor:
    """Return Σ F (θ − θ*)² over all weights that have an importance F (EWC's Eq. 3 without its λ/2; RWalk's Eq. 8).

    Args:
        weights: θ, in training; names beyond those of the importance do not count.
        anchors: θ*, the weights of the last session.
        importance: F, at least 0.

    Returns:
        A scalar, at least 0; 0, with a gradient of 0, where no weight has an importance.

    >>> weights, anchors = {"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([0.0, 4.0])}
    >>> quadratic_penalty(weights, anchors, {"a": torch.tensor([3.0, 0.5])}).item()  # 3 + 0.5 · 4
    5.0
    """
    if not importance:
        return torch.stack([weight.sum() for weight in weights.values()]).sum() * 0
    costs = [(factor * (weights[name] - anchors[name]).square()).sum() for name, factor in importance.items()]
    return torch.stack(costs).sum()


def moving_fisher(fisher: Tensors | None, gradients: Tensors, share: float = 0.5) -> dict[str, Tensor]:
    """Return α g² + (1 − α) F, the Fisher information averaged while training (RWalk, Eq. 6, called EWC++).

    Args:
        fisher: F so far; None at the first step, whose g² is then the whole.
        gradients: g of the task loss of one batch, without the penalty.
        share: α in [0, 1], the weight of the new batch.

    >>> moving_fisher({"a": torch.tensor(1.0)}, {"a": torch.tensor(3.0)}, share=0.25)["a"].item()
    3.0
    """
    squares = {name: gradient.square() for name, gradient in gradients.items()}
    return squares if fisher is None else {name: torch.lerp(fisher[name], new, share) for name, new in squares.items()}


def loss_decrease(gradients: Tensors, before: Tensors, after: Tensors) -> dict[str, Tensor]:
    """Return −g · (θ(t+1) − θ(t)) for every weight: how much of a step's decrease of the loss it accounts for.

    To first order (RWalk; Zenke et al., ICML 2017). Values may be negative. ``before`` must be a copy:
    compared with the weights themselves, which an optimiser changes in place, nothing ever moves (in rainbow-memory's
    public benchmark nothing does).

    Args:
        gradients: g of the task loss at ``before``, without the penalty.
        before: θ(t).
        after: θ(t+1).

    >>> loss_decrease({"a": torch.tensor(2.0)}, {"a": torch.tensor(1.0)}, {"a": torch.tensor(0.5)})["a"].item()
    1.0
    """
    return {name: -gradient * (after[name] - before[name]) for name, gradient in gradients.items()}


def path_scores(
    decreases: Tensors, fisher: Tensors, before: Tensors, after: Tensors, epsilon: float = 1e-3
) -> dict[str, Tensor]:
    """Return max(0, ΔL / (½ F Δθ² + ε)): the decrease of the loss per distance walked (RWalk, Eq. 7).

    The distance is the divergence of the predictions to second order. A score is that of a few steps; the scores of a
    session are their sum. Negative ones count 0, in every such interval, as in the authors' code.

    Args:
        decreases: ΔL of `loss_decrease`, summed over the interval.
        fisher: F of `moving_fisher`.
        before: Weights at the start of the interval.
        after: Weights at its end.
        epsilon: ε > 0; 1e-3 in the authors' code.

    >>> one, two = {"a": torch.tensor(1.0)}, {"a": torch.tensor(3.0)}
    >>> path_scores({"a": torch.tensor(5.0)}, one, one, two, epsilon=0.5)["a"].item()  # 5 / (½ · 1 · 2² + 0.5)
    2.0
    """
    moved = {name: (after[name] - before[name]).square() for name in decreases}
    return {name: F.relu(decrease / (fisher[name] * moved[name] / 2 + epsilon)) for name, decrease in decreases.items()}


def averaged_scores(earlier: Tensors | None, session: Tensors) -> dict[str, Tensor]:
    """Return the mean of the scores until the last session and those of this one, so that old ones fade (RWalk, 4.3).

    Args:
        earlier: Scores so far; None after the first session, whose scores are then the whole.
        session: Scores of the session that just ended.

    >>> averaged_scores({"a": torch.tensor(2.0)}, {"a": torch.tensor(4.0)})["a"].item()
    3.0
    """
    return dict(session) if earlier is None else {name: (earlier[name] + new) / 2 for name, new in session.items()}


def walk_importance(fisher: Tensors, scores: Tensors, *, normalised: bool = True) -> dict[str, Tensor]:
    """Return F + s, what RWalk weighs its penalty with (Eq. 8).

    Args:
        fisher: F at the end of a session, at least 0.
        scores: s of `averaged_scores`, at least 0.
        normalised: Divide both by the largest value that any weight has, so that neither drowns the other, as the
            authors' code does; without it, the equation as it is printed.

    Returns:
        At least 0; at most 2 when normalised.

    >>> fisher, scores = {"a": torch.tensor([0.1, 0.2])}, {"a": torch.tensor([30.0, 10.0])}
    >>> [round(value, 4) for value in walk_importance(fisher, scores)["a"].tolist()]
    [1.5, 1.3333]
    """
    if normalised:
        fisher, scores = _over_largest(fisher), _over_largest(scores)
    return {name: fisher[name] + score for name, score in scores.items()}


def _over_largest(values: Tensors) -> dict[str, Tensor]:
    """Divide by the largest of all values, unless that is 0."""
    filled = [value.max() for value in values.values() if value.numel()]
    largest = torch.stack(filled).max() if filled else torch.ones(())
    return {name: value / torch.where(largest > 0, largest, 1.0) for name, value in values.items()}
