"""All pairs of prototypes above a threshold, exactly, without ever holding a C x C matrix (ODPP)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.losses.perturbation import block_size

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
        """Whether an inner product may have grown by more than the slack since the candidates were found."""
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
