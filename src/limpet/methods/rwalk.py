"""Riemannian walk: weights are held by how much they matter and by what they achieved on their way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Gt, Le
from torch import Tensor, nn

from limpet.geometry import Space
from limpet.losses.importance import Tensors, quadratic_penalty
from limpet.methods.base import EVERY_SPACE, Batch, CompatibilityMethod, Head, OldModel, Step
from limpet.methods.weight_records import WeightRecords, group_of, grouped, refuse_other_weights, trained_weights
from limpet.support.ranges import NonNegative, Positive, PositiveInt


class RWalk(CompatibilityMethod):
    r"""Riemannian walk (Chaudhry et al., ECCV 2018, arXiv:1801.10112, Eqs. 6 to 8).

    Two quantities measure how much a weight of the encoder matters: the Fisher information F, averaged during training
    over all sessions, and the path score s, the decrease of the loss that the weight accounts for per distance walked,
    summed over intervals of a session and averaged with the scores of earlier sessions. θ* are the weights at the end
    of the last session. Both are recorded from the first session on, and use only the gradient of the task: the
    gradient of the penalty is subtracted. The classifier, which grows, is not penalised. Exemplars are chosen by
    herding and replayed.

    Train without a clip norm: clipping shortens the gradient first, so that too much is subtracted for the penalty.

    Loss:
        L = L_\text{task} + \lambda \sum_k (F_k + s_k) (\theta_k - \theta_k^*)^2

    Args:
        weight: Factor of the penalty; choose it on validation data.
        share: α in (0, 1], the weight of a new batch in F.
        interval: Steps between two path scores.
        epsilon: Constant added to the distance walked.
        normalised: Divide F and s by their largest values before they are added, as the authors' code does.
    """

    spaces = EVERY_SPACE
    needs_old = False
    sessions_only = True
    memory = "herding"
    first_session = "own"

    def __init__(
        self,
        weight: NonNegative = 0.01,
        share: Annotated[float, Gt(0), Le(1)] = 0.5,
        interval: PositiveInt = 10,
        epsilon: Positive = 1e-3,
        normalised: bool = True,
    ) -> None:
        super().__init__()
        self.weight, self.share, self.interval = weight, share, interval
        self.epsilon, self.normalised = epsilon, normalised
        self.found: dict[str, Tensor] = {}
        self._begin({})

    def carry_over(self, found: Mapping[str, Tensor]) -> None:
        """Take the Fisher information and the scores of all sessions before."""
        self.found = dict(found)

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Begin to watch the weights, and to hold them where they are if there was a session before."""
        weights = {name: weight.detach() for name, weight in trained_weights(model).items()}
        refuse_other_weights(group_of(self.found, "fisher"), model, "rwalk")
        self._begin(weights)

    def _begin(self, weights: Tensors) -> None:
        zeros = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        fisher, scores = group_of(self.found, "fisher"), group_of(self.found, "scores")
        self.steps = 0
        self.before, self.start = WeightRecords(weights), WeightRecords(weights)
        self.decreases, self.scores = WeightRecords(zeros), WeightRecords(zeros)
        self.fisher = WeightRecords(fisher or zeros)
        self.earlier = WeightRecords(scores, persistent=False)
        importance = walk_importance(fisher, scores, normalised=self.normalised)
        self.importance = WeightRecords(importance, persistent=False)
        self.anchors = WeightRecords(weights if importance else {}, persistent=False)

    def get_extra_state(self) -> Tensor:
        """Return the number of steps taken, which belongs to a checkpoint and is read without waiting for a device."""
        return torch.tensor(self.steps)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the number of steps from a checkpoint."""
        self.steps = int(state)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss."""
        return {"task": step.head.loss(step.new, step.labels)}

    def penalty(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the weighted penalty; there is none in the first session."""
        importance = self.importance.tensors()
        if not importance:
            return {}
        cost = quadratic_penalty(trained_weights(model), self.anchors.tensors(), importance)
        return {"penalty": self.weight * cost}

    @torch.no_grad()
    def after_step(self, model: nn.Module) -> None:
        """Take note of what the step achieved, and score the way at the end of an interval."""
        weights = trained_weights(model)
        gradients, before = self.task_gradients(weights), self.before.tensors()
        fisher = self.fisher.tensors() if self.steps or self.earlier.places else None
        self.fisher.update(moving_fisher(fisher, gradients, self.share))
        decreases = loss_decrease(gradients, before, weights)
        self.decreases.update({name: total + decreases[name] for name, total in self.decreases.tensors().items()})
        self.before.update(weights)
        self.steps += 1
        if self.steps % self.interval == 0:
            self.score(weights)

    def task_gradients(self, weights: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
        """Return the gradient of the step without what the penalty added; 0 for a weight that took no part."""
        before, anchors, gradients = self.before.tensors(), self.anchors.tensors(), {}
        for name, weight in weights.items():
            gradients[name] = torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, importance in self.importance.tensors().items():
            gradients[name] = gradients[name] - 2 * self.weight * importance * (before[name] - anchors[name])
        return gradients

    def score(self, weights: Tensors) -> None:
        """Add the path scores of the interval that ends here to those of the session, and begin another one."""
        decreases, start = self.decreases.tensors(), self.start.tensors()
        found = path_scores(decreases, self.fisher.tensors(), start, weights, self.epsilon)
        self.scores.update({name: total + found[name] for name, total in self.scores.tensors().items()})
        self.decreases.update({name: torch.zeros_like(total) for name, total in decreases.items()})
        self.start.update(weights)

    @torch.no_grad()
    def on_session_end(self, model: nn.Module, head: Head, loader: Iterable[Batch]) -> None:
        """Score the steps since the last interval, too."""
        self.score(trained_weights(model))

    def carried(self) -> dict[str, Tensor]:
        """Return the Fisher information and the scores, averaged with those of earlier sessions."""
        scores = averaged_scores(self.earlier.tensors() or None, self.scores.tensors())
        return grouped(fisher=self.fisher.tensors(), scores=scores)


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
