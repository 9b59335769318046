"""Prototype perturbation driven by optimisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from limpet.geometry import Space
from limpet.losses.perturbation import block_size, mean_angle
from limpet.losses.prototypes import drawn_classes, prototype_contrast
from limpet.methods.base import CompatibilityMethod, Epoch, Head, OldModel, Read, Step
from limpet.methods.new_prototypes import NewPrototypes, PrototypeSource
from limpet.methods.predecessor import class_prototypes, require_old
from limpet.support.ranges import Count, NonNegative, Positive, PositiveInt


class ODPP(CompatibilityMethod):
    r"""Optimisation-driven prototype perturbation (Zhou et al., arXiv:2503.14824, Eqs. 9 to 11).

    As p2s, but every new embedding is attracted to its old prototype plus a learned perturbation R. Before training, R
    is optimised until no two perturbed prototypes are more similar than a threshold (Eq. 9); at the start of every
    epoch also until none is too similar to the new prototype of another class (Eqs. 10 and 11). Negatives remain the
    unperturbed old prototypes.

    Loss:
        L = L_\text{task} + \lambda C
        C = - \frac{1}{B} \sum_i \log \frac{\exp(z_i \cdot n(t_{y_i}) / \tau)}
            {\exp(z_i \cdot n(t_{y_i}) / \tau) + \sum_{c \ne y_i} \exp(z_i \cdot p_c / \tau)}
        t_c = p_c + R_c
        R = \text{argmin} \sum_{c \ne k} [ \max(0, t_c \cdot t_k - \theta_\text{old})
            + \gamma \max(0, t_c \cdot p_k^\text{new} - \theta_\text{new}) ]

    Args:
        weight: Factor of the contrast (the paper's lambda).
        temperature: Divisor of the cosines (the paper's tau).
        threshold_old: Maximum inner product of two perturbed prototypes without a loss (theta old).
        threshold_new: Maximum inner product of a perturbed prototype and the new prototype of another class without a
            loss (theta new).
        gamma: Factor of the second objective; 0 ignores new prototypes.
        inner_epochs: Passes of the inner optimisation, before training and at the start of every epoch.
        inner_learning_rate: Learning rate of the inner optimisation.
        inner_batch_size: Pairs per inner step, with sampled pairs.
        pairs: "sampled": as many random ordered pairs per inner epoch as there are training items, the paper's way;
            "active": one step per inner epoch over all pairs above a threshold, with the gradient scaled to the
            expectation over sampled pairs; deterministic, and its cost does not grow with the number of items.
        new_prototypes: "exact": one pass over the training set at the start of every epoch, a quarter to half of its
            time; "running": means of the last epoch's batches, nearly free, and none in the first epoch.
        new_start_epoch: First epoch, from 0, that uses new prototypes; the paper starts at once.
        negatives: Number of other classes in the contrast, redrawn at every step. Default: all, as in the paper.
        old_only: Omit the second objective, and keep R from before training: ODPP-old of the paper's Table V.

    Paper settings:
        weight: 1
        temperature: 0.07
        threshold_old: 0.6
        threshold_new: 0.6
        gamma: 1
        inner_epochs: 50
        inner_learning_rate: 0.001
        inner_batch_size: 1024
        pairs: sampled
        new_start_epoch: 0
        negatives: all

    Departures:
        Targets are old prototypes plus R, as in Eq. 10 (Algorithm 2, line 7 prints the new ones); R starts at 0 and
        continues from epoch to epoch, without momentum or weight decay; the hinges of a mini-batch of pairs are summed,
        since their mean would have no effect at this learning rate. The objective can also decrease by shortening
        vectors, which the cosine ignores: the log reports by how many degrees targets have rotated.
    """

    prototypes: Tensor
    targets: Tensor

    def __init__(
        self,
        weight: NonNegative = 1.0,
        temperature: Positive = 0.07,
        threshold_old: float = 0.6,
        threshold_new: float = 0.6,
        gamma: NonNegative = 1.0,
        inner_epochs: Count = 50,
        inner_learning_rate: Positive = 1e-3,
        inner_batch_size: PositiveInt = 1024,
        pairs: Literal["sampled", "active"] = "sampled",
        new_prototypes: PrototypeSource = "exact",
        new_start_epoch: Count = 0,
        negatives: PositiveInt | None = None,
        old_only: bool = False,
    ) -> None:
        super().__init__()
        self.weight, self.temperature, self.negatives = weight, temperature, negatives
        self.threshold_old, self.threshold_new, self.gamma = threshold_old, threshold_new, gamma
        self.inner_epochs, self.inner_learning_rate = inner_epochs, inner_learning_rate
        self.inner_batch_size, self.pairs = inner_batch_size, pairs
        self.source, self.new_start_epoch, self.old_only = new_prototypes, new_start_epoch, old_only

    @property
    def reads(self) -> frozenset[Read]:
        """The old embeddings, and the new ones at the start of an epoch unless batches are to do."""
        without = self.old_only or not self.gamma or self.source == "running"
        return frozenset({"old_embeddings"} if without else {"old_embeddings", "new_embeddings"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Push old prototypes apart from each other, once."""
        embeddings = require_old(old, "odpp").embeddings
        prototypes, _ = class_prototypes(embeddings, space)
        self.register_buffer("prototypes", prototypes)
        self.register_buffer("targets", prototypes.clone())  # R = targets - prototypes
        self.new = NewPrototypes(self.source, len(prototypes), space)
        generator = torch.Generator().manual_seed(torch.initial_seed())  # the run's seed
        self.optimise(None, len(embeddings), generator)

    def on_epoch_start(self, epoch: Epoch) -> Mapping[str, float]:
        """Continue with the new prototypes; log by how many degrees the targets have turned in all."""
        if self.old_only or epoch.index < self.new_start_epoch:
            self.new.forget()
        else:
            new = self.new.collect(epoch) if self.gamma else None
            self.optimise(new, epoch.training_size, epoch.generator)
        return {"degrees moved": mean_angle(self.prototypes, self.targets)}

    def optimise(self, new: Tensor | None, training_size: int, generator: torch.Generator) -> None:
        """Improve the perturbation for `inner_epochs` passes; without new prototypes only old ones repel."""
        classes = len(self.prototypes)
        if classes < 2:
            return
        points = self.targets.clone()
        new = None if new is None else new.to(points)
        descend = self._descend_sampled if self.pairs == "sampled" else self._descend_active
        descend(points, new, training_size, generator)
        self.targets = points

    def _descend_sampled(
        self, points: Tensor, new: Tensor | None, training_size: int, generator: torch.Generator
    ) -> None:
        classes = len(points)
        for _ in range(self.inner_epochs):
            first = torch.randint(classes, (training_size,), generator=generator)
            second = torch.randint(classes - 1, (training_size,), generator=generator)
            second += second >= first  # any class but the first
            for i, j in torch.split(torch.stack([first, second]).to(points.device), self.inner_batch_size, dim=1):
                descend_pairs(
                    points, i, j, step=self.inner_learning_rate,
                    threshold=self.threshold_old, others=new, other_threshold=self.threshold_new, gamma=self.gamma,
                )  # fmt: skip

    def _descend_active(
        self, points: Tensor, new: Tensor | None, training_size: int, generator: torch.Generator
    ) -> None:
        classes = len(points)
        step = self.inner_learning_rate * training_size / (classes * (classes - 1))
        among, toward = ActivePairs(self.threshold_old), ActivePairs(self.threshold_new)
        for _ in range(self.inner_epochs):
            gradient = 2 * among.look(points, points).gradient  # every pair is there in both orders
            if new is not None:
                gradient += self.gamma * toward.look(points, new).gradient
            points -= step * gradient

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted contrast with perturbed positives."""
        self.new.add(step)
        points = step.new.features
        prototypes, targets = self.prototypes.to(points.dtype), self.targets.to(points.dtype)
        negatives = drawn_classes(self.negatives, len(prototypes), step.generator, points.device)
        contrast = prototype_contrast(points, step.labels, prototypes, self.temperature, targets, negatives)
        return {"task": step.head.loss(step.new, step.labels), "contrast": self.weight * contrast}


CHUNK = 4096  # pairs whose vectors are gathered at a time: they stay in the processor's cache
CROWDED = 1 / 16  # of a block's pairs: with more candidates, matrix products cost less than gathering vectors


@dataclass(frozen=True)
class Sums:
    """What one look at all pairs finds.

    Args:
        loss: Σ max(0, <q_c, p_c'> − θ) over ordered pairs c ≠ c'.
        pairs: How many of them are above the threshold.
        gradient: Σ of the p_c' of every q_c's active pairs (C, D).
    """

    loss: float
    pairs: int
    gradient: Tensor


class ActivePairs:
    """Ordered pairs c ≠ c' with <q_c, p_c'> > θ, looked up again and again while q moves slowly.

    Candidates are found by matrix products of blocks of rows, with some slack below the threshold, and kept until the
    vectors have moved so far that a pair outside them could have become active; so the result is always exact. A block
    that does not fit the budget is searched anew at every look, and forgotten.

    Args:
        threshold: θ.
        slack: How far below the threshold a candidate may be.
        budget: Candidates kept at most (4 bytes each).
    """

    def __init__(self, threshold: float, *, slack: float = 0.02, budget: int = 2**27) -> None:
        self.threshold, self.slack, self.budget = threshold, slack, budget
        self.searches = 0
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        self._found_at: tuple[Tensor, Tensor] | None = None

    def look(self, points: Tensor, others: Tensor) -> Sums:
        """Sum over all active pairs of points q (C, D) and others p (C, D)."""
        if self._outdated(points, others):
            self._kept, self._found_at, self.searches = {}, (points.clone(), others.clone()), self.searches + 1
        gradient, loss, pairs = torch.zeros_like(points), 0.0, 0
        for rows in torch.split(torch.arange(len(points), device=points.device), block_size(len(others))):
            excess, gradient[rows] = self._block(points[rows], others, int(rows[0]))
            loss, pairs = loss + float(excess.sum(dtype=torch.float64)), pairs + int((excess > 0).sum())
        return Sums(loss, pairs, gradient)

    def _outdated(self, points: Tensor, others: Tensor) -> bool:
        if self._found_at is None:
            return True
        before, others_before = self._found_at
        moved = (points - before).norm(dim=1).max()
        others_moved = (others - others_before).norm(dim=1).max()
        reach, others_reach = before.norm(dim=1).max(), others_before.norm(dim=1).max()
        return bool(moved * others_reach + others_moved * reach + moved * others_moved > self.slack)

    def _block(self, points: Tensor, others: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Return the excess over the threshold of (candidate) pairs and every row's sum of active vectors (rows, D)."""
        candidates = self._kept.get(start)
        if candidates is None:
            excess = self._search(points, others, start)
            near = excess > -self.slack
            if near.sum() > CROWDED * near.numel():
                return excess.relu(), (excess > 0).to(others.dtype) @ others
            candidates = _listed(near)
            if sum(len(columns) for columns, _ in self._kept.values()) + len(candidates[0]) <= self.budget:
                self._kept[start] = candidates
        return _gathered(points, others, *candidates, self.threshold)

    def _search(self, points: Tensor, others: Tensor, start: int) -> Tensor:
        """Return by how much all pairs of a block exceed the threshold (rows, C); a class has no pair with itself."""
        excess = points @ others.T - self.threshold
        rows = torch.arange(len(points), device=points.device)
        excess[rows, start + rows] = -torch.inf
        return excess


def _listed(near: Tensor) -> tuple[Tensor, Tensor]:
    """Return the columns (M,) of a block's candidates, row after row, and where each row starts (rows + 1,)."""
    bounds = torch.zeros(len(near) + 1, dtype=torch.int32, device=near.device)
    bounds[1:] = near.sum(dim=1).cumsum(0)
    return near.nonzero()[:, 1].int(), bounds


def _gathered(
    points: Tensor, others: Tensor, columns: Tensor, bounds: Tensor, threshold: float
) -> tuple[Tensor, Tensor]:
    """Return every candidate's excess over the threshold (M,) and the sum of active vectors by row (rows, D)."""
    rows = torch.repeat_interleave(torch.arange(len(points), device=points.device), bounds.diff())
    products = [
        (points[left] * others[right]).sum(dim=1)
        for left, right in zip(torch.split(rows, CHUNK), torch.split(columns, CHUNK), strict=True)
    ]
    excess = F.relu(torch.cat(products) - threshold)
    active = (excess > 0).to(others.dtype)
    return excess, F.embedding_bag(columns, others, bounds[:-1], per_sample_weights=active, mode="sum")


def pair_hinge(left: Tensor, right: Tensor, threshold: float) -> Tensor:
    """Return max(0, <l_i, r_i> − θ), plain inner products row by row: (M,) from (M, D) twice (ODPP, Eqs. 9 and 11).

    >>> round(pair_hinge(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.8, 0.6]]), 0.6).item(), 4)
    0.2
    """
    return F.relu((left * right).sum(dim=1) - threshold)


def descend_pairs(
    points: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    step: float,
    threshold: float,
    others: Tensor | None = None,
    other_threshold: float = 0.0,
    gamma: float = 1.0,
) -> None:
    """Move points one gradient step down the hinges of sampled pairs, in place (ODPP, Algorithm 2).

    The objective is the sum over the pairs of max(0, <q_i, q_j> − θ) + γ max(0, <q_i, p_j> − θ'), of which only the q
    move. Written out instead of differentiated, because at 81,313 classes nearly all pairs have no gradient.

    Args:
        points: q, perturbed prototypes (C, D); changed.
        first: i of every ordered pair, int64 (M,).
        second: j of every ordered pair, int64 (M,), never equal to i.
        step: Learning rate.
        threshold: θ.
        others: p, new prototypes (C, D), constant; None for the first stage, which has no second term.
        other_threshold: θ'.
        gamma: γ.
    """
    left, right = points[first], points[second]
    active = pair_hinge(left, right, threshold) > 0
    toward = None
    if others is not None:
        toward = others[second]
        near = pair_hinge(left, toward, other_threshold) > 0
        points.index_add_(0, first[near], toward[near], alpha=-step * gamma)
    points.index_add_(0, first[active], right[active], alpha=-step)
    points.index_add_(0, second[active], left[active], alpha=-step)
