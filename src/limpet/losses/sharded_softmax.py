"""Softmax over classes that are divided among processes: each has the rows of some classes, and scores every item.

Every process knows the embeddings of all items and computes one loss, see `limpet.training.objective.together`; only
maxima, sums and scores of the own class, a number per item each, and the gradient of the embeddings are exchanged. So
do An et al., Partial FC (arXiv:2010.05222), who also draw a part of the classes at every step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


@dataclass(frozen=True)
class ClassShard:
    """The classes of one process; numbers of classes differ by one at most.

    Args:
        classes: How many classes C all processes have.
        rank: Which process it is.
        processes: How many there are, at most C.

    >>> [(shard.first, shard.count) for shard in (ClassShard(8, rank, 3) for rank in range(3))]
    [(0, 2), (2, 3), (5, 3)]
    """

    classes: int
    rank: int = 0
    processes: int = 1

    @property
    def first(self) -> int:
        """The first of its classes."""
        return self.classes * self.rank // self.processes

    @property
    def count(self) -> int:
        """How many classes c it has."""
        return self.classes * (self.rank + 1) // self.processes - self.first

    def part(self, values: Tensor) -> Tensor:
        """Return a copy of the rows of its classes (c, ...) from those of all (C, ...)."""
        return values[self.first : self.first + self.count].clone()

    def united(self, values: Tensor) -> Tensor:
        """Return the rows of all classes (C, ...), in all processes, from those of each (c, ...)."""
        whole = values.new_empty(self.classes, *values.shape[1:])
        for rank in range(self.processes):
            shard = replace(self, rank=rank)
            part = whole[shard.first : shard.first + shard.count]
            if rank == self.rank:
                part.copy_(values)
            torch.distributed.broadcast(part, rank)
        return whole

    def rows(self, labels: Tensor) -> Tensor:
        """Return the row of every item's class here, -1 for a class of another process or none."""
        own = labels - self.first
        return torch.where((labels >= 0) & (own >= 0) & (own < self.count), own, -1)

    def shared(self, values: Tensor) -> Tensor:
        """Return the same values, whose gradient is summed over processes: each knows that of its own classes."""
        summed: Tensor = values if self.processes == 1 else _SummedGradient.apply(values)  # type: ignore[no-untyped-call]
        return summed

    def cross_entropy(self, logits: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """Average the cross-entropy over the items whose class is known; as `mean_cross_entropy` of all classes.

        Args:
            logits: Scores of classes of this process (B, c).
            rows: The column of every item's class, int64 (B,); -1 where it is none of these.
            labels: Class of every item, int64 (B,); -1 leaves one out.
        """
        loss: Tensor = _CrossEntropy.apply(logits, rows, self.processes)  # type: ignore[no-untyped-call]
        known = labels >= 0
        return loss.where(known, 0).sum() / known.sum().clamp_min(1)

    def drawn(self, rows: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """Draw classes: those of the items, and others up to a share of the classes of this process.

        Args:
            rows: See `rows`.
            share: Within (0, 1].

        Returns:
            The rows of the drawn classes, ascending (c,), and the place of every item's class among them (B,), or -1.
        """
        most = -(-self.classes // self.processes)  # equal in all processes, whose random states stay equal so
        draws = torch.rand(most, device=rows.device)[: self.count]
        draws[rows[rows >= 0]] = 2  # above all others
        needed = int((draws == 2).sum())
        chosen = draws.topk(max(needed, round(share * self.count), 1)).indices.sort().values
        return chosen, torch.where(rows >= 0, torch.searchsorted(chosen, rows), -1)


class _SummedGradient(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        whole = gradient.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(whole)
        return whole


class _CrossEntropy(Function):
    """The cross-entropy of every item (B,), of which one array (B, c) is kept for the gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: Tensor, processes: int) -> Tensor:
        here, own = rows >= 0, rows.clamp_min(0)[:, None]
        largest = logits.amax(dim=1)
        if processes > 1:
            torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
        shares = (logits - largest[:, None]).exp_()
        sums = torch.stack([shares.sum(dim=1), logits.gather(1, own)[:, 0].where(here, 0)])
        if processes > 1:
            torch.distributed.all_reduce(sums)
        ctx.save_for_backward(shares, sums[0], here, own)
        return sums[0].log() + largest - sums[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        shares, total, here, own = ctx.saved_tensors
        shares.mul_((gradient / total)[:, None])  # in place: it is the largest array of a step
        return shares.scatter_add_(1, own, -gradient.where(here, 0)[:, None]), None, None
