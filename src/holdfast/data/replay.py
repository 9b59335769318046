"""Batches with a fixed share of images from a memory of earlier sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.data.batches import EpochBatches, check_batching
from holdfast.errors import refuse


class Parts(NamedTuple):
    """How many rows of a batch are the session's own, and how many are replayed."""

    own: int
    memory: int


class ReplayBatches(EpochBatches):
    """Batches of which a share is replayed and the rest are the session's own (Rainbow Memory, arXiv:2103.17230).

    An epoch is one pass over the own rows; those that do not fill a batch are left out with ``drop_last``, but a
    session smaller than one batch is one batch. Replayed rows are shuffled, and shuffled again when all of them were
    shown: within an epoch each comes equally often, up to one. A batch that is not whole keeps the share.

    Args:
        replayed: Whether a row comes from the memory, bool (N,), with rows of both kinds.
        share: Share of every batch that is replayed, above 0 and below 1; rounded, half to even, to at least one row
            of each kind.
        batch_size: Rows per batch and process, at least 2.
        seed: Together with the epoch, decides the order.
        drop_last: Whether to leave out an incomplete last batch.
        rank: Number of this process, from 0.
        world_size: Number of processes; the batches of all of them have the same share.

    Raises:
        ConfigError: There is no replayed row, or fewer own rows than processes, or the sizes do not fit.
    """

    def __init__(
        self,
        replayed: NDArray[np.bool_],
        *,
        share: float,
        batch_size: int,
        seed: int,
        drop_last: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        check_share(share, batch_size)
        check_batching(len(replayed), batch_size, rank, world_size)
        self.own, self.memory = np.flatnonzero(~replayed), np.flatnonzero(replayed)
        refuse(
            len(self.own) < world_size or len(self.memory) == 0,
            f"{len(self.own)} rows of a session and {len(self.memory)} of its memory, for {world_size} processes.",
            "at least one own row for each process, and one replayed row",
        )
        self.whole = batch_parts(batch_size, share)
        self.steps, rest = divmod(len(self.own), self.whole.own * world_size)
        self.last = shrunk(self.whole, rest // world_size if self.steps == 0 or not drop_last else 0)
        super().__init__(
            (self.steps * batch_size + sum(self.last)) * world_size,
            batch_size=batch_size,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
        )

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return the rows of an epoch, step by step and process by process; of each batch, the own rows first."""
        batches, places = self.steps * self.world_size, self.world_size
        own = generator.permutation(self.own)[: batches * self.whole.own + places * self.last.own]
        memory = in_turns(self.memory, batches * self.whole.memory + places * self.last.memory, generator)
        own_whole, own_last = np.split(own, [batches * self.whole.own])
        memory_whole, memory_last = np.split(memory, [batches * self.whole.memory])
        return np.concatenate([dealt([own_whole, memory_whole], batches), dealt([own_last, memory_last], places)])


def batch_parts(batch_size: int, share: float) -> Parts:
    """Divide a batch: the share is replayed, rounded, but at least one row of each kind.

    >>> batch_parts(64, 0.5), batch_parts(64, 0.001)
    (Parts(own=32, memory=32), Parts(own=63, memory=1))
    """
    memory = min(max(1, round(share * batch_size)), batch_size - 1)
    return Parts(batch_size - memory, memory)


def shrunk(whole: Parts, own: int) -> Parts:
    """Return a batch of fewer own rows with as many replayed ones as keep the share, at least one; or an empty batch.

    >>> shrunk(Parts(16, 48), 5), shrunk(Parts(16, 48), 0)
    (Parts(own=5, memory=15), Parts(own=0, memory=0))
    """
    return Parts(own, max(1, round(own * whole.memory / whole.own)) if own else 0)


def in_turns(rows: NDArray[np.int64], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return so many rows (count,): all of them shuffled, then all of them shuffled again, and so on.

    Args:
        rows: What to draw from, at least one.
        count: How many to return.
        generator: Decides the order.
    """
    rounds = np.tile(rows, (-(-count // len(rows)), 1))
    drawn: NDArray[np.int64] = generator.permuted(rounds, axis=1).ravel()[:count]
    return drawn


def check_share(share: float, batch_size: int) -> None:
    """Refuse a share of the memory that leaves no room for rows of both kinds.

    Raises:
        ConfigError: The share is not above 0 and below 1, or the batch has no two rows.
    """
    refuse(not 0 < share < 1, f"A memory share of {share}.", "above 0 and below 1, such as 0.5 of every batch")
    refuse(
        batch_size < 2,
        f"Batches of {batch_size} with a memory share of {share}.",
        "at least 2: one row of the session and one of the memory",
    )


def dealt(kinds: Sequence[NDArray[np.int64]], batches: int) -> NDArray[np.int64]:
    """Deal rows of every kind evenly to so many batches, and return these one after another.

    >>> dealt([np.array([1, 2, 3, 4]), np.array([8, 9])], 2).tolist()
    [1, 2, 8, 3, 4, 9]
    """
    parts = [rows.reshape(batches, len(rows) // max(1, batches)) for rows in kinds]
    return np.concatenate(parts, axis=1).ravel()
