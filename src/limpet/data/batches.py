"""Samplers whose batches depend only on the seed and the position in the run.

A sampler yields whole batches (epoch, number, rows). So a run that stops in the middle of an epoch resumes with the
same batches, without reading earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from limpet.data.sampling import balanced_order, holds_whole_classes
from limpet.errors import ConfigError, refuse
from limpet.support.ranges import Seed, checked


class BatchPlace(NamedTuple):
    """A batch to read.

    Args:
        epoch: Epoch, from 0.
        number: Number of the batch in the epoch, from 0.
        rows: Rows of the training set, int64 (B,).
    """

    epoch: int
    number: int
    rows: NDArray[np.int64]


@checked
class EpochBatches(Sampler[BatchPlace]):
    """All batches of one epoch for one process, starting at a chosen step.

    Every process gets the same number of batches, of the same size. A data set smaller than one batch is one batch,
    also with ``drop_last``.

    Args:
        count: Number of rows of the training set.
        batch_size: Rows per batch and process.
        seed: Random seed; with the epoch it determines the order.
        drop_last: Whether to leave out an incomplete last batch.
        rank: Number of this process, from 0.
        world_size: Number of processes.

    Raises:
        ConfigError: The sizes do not fit; see `check_batching`.
    """

    def __init__(
        self, count: int, *, batch_size: int, seed: Seed, drop_last: bool = True, rank: int = 0, world_size: int = 1
    ) -> None:
        check_batching(count, batch_size, rank, world_size)
        self.count, self.batch_size, self.seed = count, batch_size, seed
        self.drop_last, self.rank, self.world_size = drop_last, rank, world_size
        self.set_position(0, 0)

    def set_position(self, epoch: int, step: int = 0) -> None:
        """Continue with batch ``step`` of ``epoch``; earlier batches are not read.

        Call this before every epoch, because iteration does not change the position.

        Raises:
            ConfigError: The position is out of range.
        """
        if epoch < 0 or not 0 <= step <= len(self):
            raise ConfigError(
                f"Step {step} of epoch {epoch}.", expected=f"an epoch from 0 and a step from 0 to {len(self)}"
            )
        self.epoch, self.step = epoch, step

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        together = self.batch_size * self.world_size
        whole, rest = divmod(self.count, together)
        incomplete = rest >= self.world_size and (whole == 0 or not self.drop_last)
        return whole + int(incomplete)

    def __iter__(self) -> Iterator[BatchPlace]:
        order = self.order(np.random.default_rng([self.seed, self.epoch]))
        together = self.batch_size * self.world_size
        for number in range(self.step, len(self)):
            rows = order[number * together : (number + 1) * together]
            share = len(rows) // self.world_size
            yield BatchPlace(self.epoch, number, rows[self.rank * share : (self.rank + 1) * share])

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return the rows of an epoch (N,): the first batch of all processes, then the second, and so on."""
        return generator.permutation(self.count)


class BalancedBatches(EpochBatches):
    """Batches of P classes with K items each, P · K = batch size; processes hold different classes at every step.

    An epoch has the number of complete batches of plain shuffling, at least one. It is not a pass over all rows,
    because classes take turns regardless of size: items of small classes may occur several times per epoch, and an
    epoch may not contain all items of large classes. See `balanced_order`.

    Args:
        labels: Class of every row, int64 (N,).
        items_per_class: Number of items per class K, a proper divisor of the batch size.
        batch_size: Rows per batch and process.
        seed: Random seed; with the epoch it determines the order.
        rank: Number of this process, from 0.
        world_size: Number of processes.

    Raises:
        ConfigError: The classes are fewer than all processes together need per step, or the sizes do not fit.
    """

    def __init__(
        self,
        labels: NDArray[np.int64],
        *,
        items_per_class: int,
        batch_size: int,
        seed: Seed,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        check_batching(len(labels), batch_size, rank, world_size)
        refuse(
            not holds_whole_classes(batch_size, items_per_class),
            f"Batches of {batch_size} with items_per_class = {items_per_class}.",
            "a number that divides the batch size and leaves room for two classes or more",
        )
        needed, found = batch_size // items_per_class * world_size, len(np.unique(labels))
        if found < needed:
            raise ConfigError(
                f"{found} classes, for batches of {batch_size} with {items_per_class} images per class"
                f"{f' in each of {world_size} processes' if world_size > 1 else ''}.",
                expected=f"at least {needed} classes, since no two places of a step hold the same one",
                to_do="lower --recipe.batch-size or --recipe.devices, or raise --recipe.items-per-class.",
            )
        self.labels, self.items_per_class = labels, items_per_class
        together = batch_size * world_size
        self.steps = max(1, len(labels) // together)
        super().__init__(self.steps * together, batch_size=batch_size, seed=seed, rank=rank, world_size=world_size)

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return the rows of an epoch, step by step; see `balanced_order`."""
        classes = self.batch_size // self.items_per_class * self.world_size
        return balanced_order(
            self.labels, generator, classes_per_step=classes, items_per_class=self.items_per_class, steps=self.steps
        )


class LengthBatches(EpochBatches):
    """Batches of items of similar length, to reduce padding; an epoch holds every item once.

    Items are shuffled, sorted by length within windows of `WINDOW` batches, and divided into batches, whose order is
    random. Batch sizes differ by at most one item, so that no batch is incomplete. All processes have the same number
    of items per step; a remainder smaller than the number of processes is left out of an epoch.

    Args:
        lengths: Length of every item, int64 (N,).
        batch_size: Maximum number of items per batch and process.
        seed: Random seed; with the epoch it determines the order.
        rank: Number of this process, from 0.
        world_size: Number of processes.
    """

    WINDOW = 16

    def __init__(
        self, lengths: NDArray[np.int64], *, batch_size: int, seed: Seed, rank: int = 0, world_size: int = 1
    ) -> None:
        self.lengths = lengths
        super().__init__(len(lengths), batch_size=batch_size, seed=seed, rank=rank, world_size=world_size)

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return -(-(self.count // self.world_size) // self.batch_size)

    def __iter__(self) -> Iterator[BatchPlace]:
        generator = np.random.default_rng([self.seed, self.epoch])
        order = self.order(generator)[: self.count // self.world_size * self.world_size]
        steps = np.array_split(order.reshape(-1, self.world_size), len(self))
        for number, place in enumerate(generator.permutation(len(self))[self.step :].tolist(), self.step):
            yield BatchPlace(self.epoch, number, steps[place][:, self.rank])

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """Return the rows of an epoch (N,), sorted by length within windows, alternately ascending and descending."""
        order = generator.permutation(self.count)
        window = self.WINDOW * self.batch_size * self.world_size
        for turn, start in enumerate(range(0, self.count, window)):
            rows = order[start : start + window]
            rows = rows[np.argsort(self.lengths[rows], kind="stable")]
            order[start : start + window] = rows if turn % 2 == 0 else rows[::-1]
        return order


class PairBatches(LengthBatches):
    """Batches of pairs or triplets of similar length; the texts of a pair are adjacent. See `LengthBatches`.

    Args:
        pairs: Rows of the texts of every pair, int64 (P, K).
        lengths: Length of every text, int64 (N,); the length of a pair is that of its longest text.
        batch_size: Maximum number of pairs per batch and process.
        seed: Random seed; with the epoch it determines the order.
        rank: Number of this process, from 0.
        world_size: Number of processes.
    """

    def __init__(
        self,
        pairs: NDArray[np.int64],
        lengths: NDArray[np.int64],
        *,
        batch_size: int,
        seed: Seed,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.pairs = pairs
        place = {"batch_size": batch_size, "seed": seed, "rank": rank, "world_size": world_size}
        super().__init__(lengths[pairs].max(axis=1), **place)

    def __iter__(self) -> Iterator[BatchPlace]:
        for place in super().__iter__():
            yield place._replace(rows=self.pairs[place.rows].reshape(-1))


class RowsInOrder(Sampler[BatchPlace]):
    """All rows in the order of the data set; the last batch may be smaller."""

    def __init__(self, count: int, batch_size: int) -> None:
        check_batching(count, batch_size, 0, 1)
        self.count, self.batch_size = count, batch_size

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)

    def __iter__(self) -> Iterator[BatchPlace]:
        for number, start in enumerate(range(0, self.count, self.batch_size)):
            yield BatchPlace(0, number, np.arange(start, min(start + self.batch_size, self.count)))


def check_batching(count: int, batch_size: int, rank: int, world_size: int) -> None:
    """Refuse a batch size below 1, an invalid rank, and fewer rows than processes.

    Raises:
        ConfigError: One of these is true.
    """
    refuse(batch_size < 1, f"batch_size = {batch_size}.", "at least 1")
    if not 0 <= rank < world_size:
        raise ConfigError(f"Process {rank} of {world_size}.", expected="a rank from 0, below the number of processes")
    refuse(count < world_size, f"{count} images for {world_size} processes.", "at least one image for each")


class Parts(NamedTuple):
    """Number of rows of the session itself (own) and of replayed rows (memory) in a batch."""

    own: int
    memory: int


class ReplayBatches(EpochBatches):
    """Batches with a fixed share of replayed rows; the others are the session's own (Rainbow Memory, arXiv:2103.17230).

    An epoch is one pass over the own rows. With ``drop_last``, an incomplete last batch is left out, unless it is the
    only one. Replayed rows are reshuffled after all were used, so their counts in an epoch differ by at most one. An
    incomplete batch keeps the share.

    Args:
        replayed: Whether a row comes from the memory, bool (N,), with rows of both kinds.
        share: Share of every batch that is replayed, above 0 and below 1; rounded, half to even, to at least one row
            of each kind.
        batch_size: Rows per batch and process, at least 2.
        seed: Random seed; with the epoch it determines the order.
        drop_last: Whether to leave out an incomplete last batch.
        rank: Number of this process, from 0.
        world_size: Number of processes; the batches of all of them have the same share.

    Raises:
        ConfigError: No row is replayed, the own rows are fewer than the processes, or the sizes do not fit.
    """

    def __init__(
        self,
        replayed: NDArray[np.bool_],
        *,
        share: float,
        batch_size: int,
        seed: Seed,
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
        count = batches * self.whole.memory + places * self.last.memory
        rounds = np.tile(self.memory, (-(-count // len(self.memory)), 1))
        memory = generator.permuted(rounds, axis=1).ravel()[:count]
        own_whole, own_last = np.split(own, [batches * self.whole.own])
        memory_whole, memory_last = np.split(memory, [batches * self.whole.memory])
        return np.concatenate([dealt([own_whole, memory_whole], batches), dealt([own_last, memory_last], places)])


def batch_parts(batch_size: int, share: float) -> Parts:
    """Divide a batch into own and replayed rows: the share is rounded, with at least one row of each kind.

    >>> batch_parts(64, 0.5), batch_parts(64, 0.001)
    (Parts(own=32, memory=32), Parts(own=63, memory=1))
    """
    memory = min(max(1, round(share * batch_size)), batch_size - 1)
    return Parts(batch_size - memory, memory)


def shrunk(whole: Parts, own: int) -> Parts:
    """Return the parts of a batch with fewer own rows and the same share of replayed ones, at least one.

    Without own rows the batch is empty.

    >>> shrunk(Parts(16, 48), 5), shrunk(Parts(16, 48), 0)
    (Parts(own=5, memory=15), Parts(own=0, memory=0))
    """
    return Parts(own, max(1, round(own * whole.memory / whole.own)) if own else 0)


def check_share(share: float, batch_size: int) -> None:
    """Refuse a memory share that leaves no room for rows of both kinds.

    Raises:
        ConfigError: The share is not in (0, 1), or the batch has fewer than two rows.
    """
    refuse(not 0 < share < 1, f"A memory share of {share}.", "above 0 and below 1, such as 0.5 of every batch")
    refuse(
        batch_size < 2,
        f"Batches of {batch_size} with a memory share of {share}.",
        "at least 2: one row of the session and one of the memory",
    )


def dealt(kinds: Sequence[NDArray[np.int64]], batches: int) -> NDArray[np.int64]:
    """Divide the rows of every kind evenly among `batches` batches, and return the batches joined into one array.

    >>> dealt([np.array([1, 2, 3, 4]), np.array([8, 9])], 2).tolist()
    [1, 2, 8, 3, 4, 9]
    """
    parts = [rows.reshape(batches, len(rows) // max(1, batches)) for rows in kinds]
    return np.concatenate(parts, axis=1).ravel()
