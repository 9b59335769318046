"""Adversarial learning with elastic class boundaries."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor, nn

from limpet.errors import refuse
from limpet.geometry import Space
from limpet.geometry.hypersphere import normalise
from limpet.geometry.segments import segment_mean
from limpet.losses.boundary import class_boundaries
from limpet.methods.base import CompatibilityMethod, Head, OldModel, Read, Step
from limpet.methods.predecessor import class_source, require_old, select_known
from limpet.support.ranges import NonNegative, PositiveInt


def released_gamma(epoch: int, epochs: int) -> float:
    """Return (E − e + 1)/E in epoch e of E, in (0, 1 + 1/E]."""
    return (epochs - epoch + 1) / epochs


def linear_gamma(epoch: int, epochs: int) -> float:
    """Return (E − e)/E in epoch e of E, in (0, 1]."""
    return (epochs - epoch) / epochs


def constant_gamma(epoch: int, epochs: int) -> float:
    """Return 1."""
    return 1.0


GAMMA_SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "released": released_gamma,
    "linear": linear_gamma,
    "constant": constant_gamma,
}
"""Functions of epoch and epochs; named, so that a method that keeps one can be pickled."""


class AdvBCT(CompatibilityMethod):
    r"""Boundary-aware backward-compatible learning (Pan et al., CVPR 2023, arXiv:2305.02610, Eqs. 2, 12, 14).

    A critic D learns to distinguish new embeddings from old ones, while the new model learns to fool it: the gradient
    of A reaches the model with the opposite sign, times a factor that rises from 0 to 1. Every new embedding must also
    stay within an elastic distance r of its old class centre o, a mean of unit vectors that is not normalised. The
    share u of a class is learned, between 0 and 1; V are the items outside their boundary.

    The critic needs thousands of steps, and an old model nearly as good as the new one. It has no effect within 50
    steps; if the old model is much worse, it gains less and degrades the new model (`benchmarks/results/regimes.md`).

    Loss:
        L = \lambda_t L_\text{task} + \lambda R + \lambda_a \gamma_e A
        R = \frac{1}{|V|} \sum_{i \in V} ( \lVert z_i - o_{y_i} \rVert - r_{y_i} )
        r_c = (1 - u_c) r_c^\text{max} + u_c t
        A = \frac{1}{B} \sum_i [ - \log D_\text{new}(x_i) - \log D_\text{old}(x_i^\text{old}) ]

    Args:
        weight: Factor of the boundary term (the paper's lambda); 0 measures no boundaries.
        adversarial_weight: Factor of the adversarial term, multiplied by its schedule (the paper's gamma).
        task_weight: Factor of the classification loss; 0 for the ablation without it.
        threshold: Common radius towards which each class's own is pulled (the paper's t).
        classes: Source of the boundaries: "old", the old model's own training set (the released code), so that new
            classes have none; "new", all classes of the new training set under the old model.
        iqr: Outlier rule in interquartile ranges.
        critic_on: Input of the critic: "features", raw embeddings (AdvBCT's released code), or "points", unit vectors
            (MixBCT's copy of it).
        joint_batch_norm: Feed old and new embeddings to the critic in one batch. The released code does not, which
            hides differences of mean and scale from it.
        gamma_schedule: "released" is (E − e + 1)/E in epoch e of E, "linear" is (E − e)/E, "constant" is 1.
        hidden: Width of the critic's hidden layer.

    Paper settings:
        weight: 1; 4 in MixBCT's copy
        adversarial_weight: 1; 4 in MixBCT's copy
        threshold: 0.4; 1.0 in the landmark configuration of the code
        classes: old (released code)
        iqr: 1.5 (released code)
        critic_on: features (released code), points (MixBCT's copy)
        gamma_schedule: falls (paper), (E − e + 1)/E in epoch e of E (released code)
        hidden: 100

    Departures:
        If the released code and the paper differ, the code is followed: the radius has one form instead of two
        branches, and the boundary term is a mean over V, the items outside their boundary, instead of a sum over all.
        Classes with a single item have no boundary.
    """

    old_view = "same"

    centres: Tensor
    reach: Tensor
    valid: Tensor

    def __init__(
        self,
        weight: NonNegative = 1.0,
        adversarial_weight: NonNegative = 1.0,
        task_weight: NonNegative = 1.0,
        threshold: NonNegative = 0.4,
        classes: Literal["old", "new"] = "old",
        iqr: Annotated[float, Ge(0)] = 1.5,
        critic_on: Literal["features", "points"] = "features",
        joint_batch_norm: bool = False,
        gamma_schedule: Literal["released", "linear", "constant"] = "released",
        hidden: PositiveInt = 100,
    ) -> None:
        super().__init__()
        weights = (weight, adversarial_weight, task_weight)
        refuse(max(weights) == 0, f"advbct was given the weights {weights}", "one of them above 0")
        self.weight, self.adversarial_weight, self.task_weight = weight, adversarial_weight, task_weight
        self.threshold, self.classes, self.iqr = threshold, classes, iqr
        self.critic_on = critic_on
        self.joint_batch_norm, self.gamma = joint_batch_norm, GAMMA_SCHEDULES[gamma_schedule]
        self.hidden = hidden

    @property
    def reads(self) -> frozenset[Read]:
        """The old view and the place in training for the critic, the old embeddings for boundaries of new classes."""
        critic: set[Read] = {"old", "epoch", "progress"} if self.adversarial_weight else set()
        measured = bool(self.weight) and self.classes == "new"
        return frozenset(critic | ({"old_embeddings"} if measured else set()))

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Measure the old classes, and build the critic and one elastic weight per new class."""
        old = require_old(old, "advbct")
        if self.weight:
            centres, reach, kept = self._statistics(old)
            self.register_buffer("centres", centres)
            self.register_buffer("reach", reach)
            self.register_buffer("valid", kept > 1)  # a single item has no spread to measure
            self.elasticity = nn.Parameter(torch.rand(len(reach)) * 2 - 1)
        self.critic = nn.Sequential(
            nn.Linear(space.dim, self.hidden),
            nn.BatchNorm1d(self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, 2),
            nn.LogSoftmax(dim=1),
        )

    def _statistics(self, old: OldModel) -> tuple[Tensor, Tensor, Tensor]:
        """Return centre (C, D), reach (C,) and kept items (C,) for every new class; nothing kept where unknown."""
        features, labels, classes, rows = class_source(old, self.classes, "advbct")
        centres, reach, kept = class_statistics(features, labels, classes, self.iqr)
        return select_known(centres, rows), select_known(reach, rows), select_known(kept, rows)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the terms whose weight is not 0."""
        terms = {}
        if self.task_weight:
            terms["task"] = self.task_weight * step.head.loss(step.new, step.labels)
        if self.weight:
            terms["boundary"] = self.weight * self.boundary(step)
        if self.adversarial_weight:
            factor = self.adversarial_weight * self.gamma(step.epoch, step.epochs)
            terms["adversarial"] = factor * self.adversarial(step)
        return terms

    def boundary(self, step: Step) -> Tensor:
        """Return the mean excess over the elastic radius."""
        points = normalise(step.new.features)
        radii = elastic_radius(self.elasticity.sigmoid(), self.reach, self.threshold)
        return boundary_violation(
            points, self.centres[step.labels].to(points.dtype), radii[step.labels], self.valid[step.labels]
        )

    def adversarial(self, step: Step) -> Tensor:
        """Return the critic's loss; 0 for a single row, which batch normalisation cannot take."""
        views = (step.new, step.predecessor)
        new, old = (view.points if self.critic_on == "points" else view.features for view in views)
        if len(new) < 2:
            return new.sum() * 0
        reversed_new = reverse_gradient(new, reversal_strength(step.progress))
        return domain_loss(self.critic, reversed_new, old, joint=self.joint_batch_norm)


def class_statistics(features: Tensor, labels: Tensor, num_classes: int, iqr: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return each class's centre, the mean of unit vectors as it is (C, D), its reach (C,) and kept items (C,)."""
    unit = normalise(features)
    centres, _ = segment_mean(unit, labels, num_classes)
    reach, kept = class_boundaries((unit - centres[labels]).norm(dim=1), labels, num_classes, iqr)
    return centres, reach, kept


class _ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor, factor: float) -> Tensor:
        context.factor = factor
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -context.factor * gradients[0], None


def reverse_gradient(values: Tensor, factor: float) -> Tensor:
    """Return the values unchanged; on the way back their gradient is multiplied by −factor."""
    reversed_values: Tensor = _ReverseGradient.apply(values, factor)  # type: ignore[no-untyped-call]
    return reversed_values


def reversal_strength(progress: float) -> float:
    """Return β = 2 / (1 + exp(−10 p)) − 1, rising from 0 at p = 0 towards 1.

    >>> reversal_strength(0.0), round(reversal_strength(0.5), 4)
    (0.0, 0.9866)
    """
    return 2 / (1 + math.exp(-10 * progress)) - 1


def domain_loss(critic: nn.Module, new: Tensor, old: Tensor, *, joint: bool = False) -> Tensor:
    """Return the critic's mean log loss on new rows (class 0) plus that on old rows (class 1).

    Args:
        critic: Maps rows (B, D) to two log-probabilities (B, 2); batch normalisation inside needs at least 2 rows.
        new: New embeddings (B, D), already passed through `reverse_gradient`.
        old: Old embeddings (B, D).
        joint: Run both through the critic together, so that its batch statistics are shared; run apart, each side is
            normalised by its own statistics, which hides differences of mean and scale.

    Returns:
        A scalar, at least 0; 2·ln 2 for a critic that cannot tell.
    """
    if joint:
        scores_new, scores_old = critic(torch.cat([new, old])).split([len(new), len(old)])
    else:
        scores_new, scores_old = critic(new), critic(old)
    zeros = torch.zeros(len(new), dtype=torch.int64, device=new.device)
    return F.nll_loss(scores_new, zeros) + F.nll_loss(scores_old, torch.ones_like(zeros))


def elastic_radius(weight: Tensor, reach: Tensor, threshold: float) -> Tensor:
    """Return (1 − w)·r_max + w·t, between the class's own reach and a common threshold (AdvBCT, Eq. 12).

    This is the form of the released code; the printed second branch is the same with w replaced by 1 − w.

    >>> round(elastic_radius(torch.tensor(0.25), torch.tensor(0.8), 0.4).item(), 4)
    0.7
    """
    return (1 - weight) * reach + weight * threshold


def boundary_violation(points: Tensor, centres: Tensor, radii: Tensor, valid: Tensor) -> Tensor:
    """Average max(0, ‖z − o‖ − r) over the rows outside their boundary (AdvBCT, Eqs. 13 and 14, released code).

    Args:
        points: Unit rows (B, D).
        centres: The centre of each row's class (B, D).
        radii: The radius of each row's class (B,).
        valid: Whether the row's class has a boundary, bool (B,).

    Returns:
        A scalar in [0, 2]; 0 where no row is outside.
    """
    distances = ((points - centres).square().sum(dim=1) + 1e-12).sqrt()
    excess = F.relu(distances - radii) * valid
    return excess.sum() / (excess > 0).sum().clamp_min(1)
