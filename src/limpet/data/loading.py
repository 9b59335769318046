"""Data loaders whose order and augmentation depend only on the seed and the position in the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from limpet.data.augment import Augmentation
from limpet.data.batches import (
    BalancedBatches,
    BatchPlace,
    EpochBatches,
    LengthBatches,
    PairBatches,
    ReplayBatches,
    RowsInOrder,
    check_share,
)
from limpet.data.items import LabelledItems
from limpet.data.resident import moved
from limpet.data.token_set import PairedTokens, alike_in_batch
from limpet.errors import ConfigError, DataError, refuse
from limpet.methods.base import Batch
from limpet.support.ranges import Count, checked


class BatchReader(Dataset[Batch]):
    """Reads one batch at a time, and augments it with random draws that depend only on its position in the run.

    Args:
        items: The items.
        augmentation: Augmentation of each batch; None for none.
        crop_size: Height and width of resized crops; None keeps those of the images.
        seed: Random seed; draws depend on seed, epoch, number of the batch, and rank.
        rank: Number of this process.
        replayed: Whether an item comes from a memory of earlier sessions, bool (N,); None for none.
        resident: Inputs of all items on a device (see `resident_inputs`). Batches are then selected and augmented
            there, and their other parts stay on the CPU. None reads the items.

    Raises:
        DataError: ``replayed`` does not have one value per item.
    """

    def __init__(
        self,
        items: LabelledItems,
        *,
        augmentation: Augmentation | None = None,
        crop_size: tuple[int, int] | None = None,
        seed: int = 0,
        rank: int = 0,
        replayed: NDArray[np.bool_] | None = None,
        resident: Tensor | None = None,
    ) -> None:
        self.items, self.augmentation, self.seed, self.rank = items, augmentation, seed, rank
        self.crop_size = crop_size
        self.resident = resident
        self.replayed = _marks(len(items), replayed)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: BatchPlace) -> Batch:
        index = torch.from_numpy(place.rows.copy())
        if self.resident is None:
            inputs = torch.from_numpy(self.items.read(place.rows))
        else:
            inputs = self.resident.index_select(0, moved(index, self.resident.device))
        if self.augmentation is not None:
            generator = generator_at(self.seed, place.epoch, place.number, self.rank)
            inputs = self.augmentation(inputs, generator, self.crop_size)
        return Batch(
            inputs=inputs,
            labels=torch.from_numpy(self.items.labels[place.rows]),
            index=index,
            replayed=torch.from_numpy(self.replayed[place.rows]),
        )


class PairReader(BatchReader):
    """Reads batches of pairs of texts; equal labels mark texts that are alike in the batch, see `alike_in_batch`."""

    items: PairedTokens

    def __getitem__(self, place: BatchPlace) -> Batch:
        alike = alike_in_batch(place.rows.reshape(-1, self.items.pairs.shape[1]))
        return super().__getitem__(place)._replace(labels=torch.from_numpy(alike))


def generator_at(*place: int) -> torch.Generator:
    """Return a CPU generator for a position in a run, given as a seed and further numbers from 0."""
    state = np.random.SeedSequence(place).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


def training_loader(
    items: LabelledItems,
    *,
    batch_size: int,
    seed: int,
    augmentation: Augmentation | None = None,
    crop_size: tuple[int, int] | None = None,
    items_per_class: int | None = None,
    replayed: NDArray[np.bool_] | None = None,
    memory_share: float | None = None,
    drop_last: bool = True,
    rank: int = 0,
    world_size: int = 1,
    workers: int = 0,
    pin_memory: bool = False,
    resident: Tensor | None = None,
    lengths: NDArray[np.int64] | None = None,
) -> DataLoader[Batch]:
    """Return a loader of the shuffled, augmented batches of one epoch; its ``sampler`` is an `EpochBatches`.

    Args:
        items: The training set; `PairedTokens` give batches of pairs (`PairBatches`).
        batch_size: Items, or pairs, per batch and process.
        seed: Random seed; with the position in the run it determines order and augmentation.
        augmentation: Augmentation of each batch; None for none.
        crop_size: Height and width of resized crops; None keeps those of the images.
        items_per_class: Number of items per class in a batch (`BalancedBatches`); None ignores classes.
        replayed: Whether an item comes from a memory of earlier sessions, bool (N,); None for none.
        memory_share: Share of every batch that is drawn from replayed items (`ReplayBatches`); None shuffles them among
            the others. It has no effect without replayed items.
        drop_last: Whether to leave out an incomplete last batch; balanced ones are never incomplete.
        rank: Number of this process, from 0.
        world_size: Number of processes.
        workers: Number of processes that read; it does not change the batches.
        pin_memory: Deliver batches in page-locked memory, from which a GPU copies while it computes; requires a GPU.
        resident: Inputs of all items on a device; they are neither read nor pinned, and no workers are used.
        lengths: Length of every item (N,), for inputs that are padded within a batch. A batch then holds items of
            similar length (`LengthBatches`), and none is incomplete. Balanced batches and those with a memory share
            ignore lengths.

    Raises:
        ConfigError: The settings allow no batches; or both a memory share and items per class were given; or items per
            class were given for pairs.
        DataError: ``replayed`` does not have one value per item.
    """
    changes: dict[str, Any] = {"augmentation": augmentation, "crop_size": crop_size, "seed": seed, "rank": rank}
    kind = PairReader if isinstance(items, PairedTokens) else BatchReader
    reader = kind(items, replayed=replayed, resident=resident, **changes)
    place: dict[str, int] = {"batch_size": batch_size, "seed": seed, "rank": rank, "world_size": world_size}
    if memory_share is not None:
        check_share(memory_share, batch_size)
        if items_per_class is not None:
            raise ConfigError(
                f"Batches with a memory share of {memory_share} and with items_per_class = {items_per_class}.",
                expected="one rule for the make-up of a batch",
                to_do="leave out --recipe.items-per-class, or choose a method that does not divide its batches.",
            )
    sampler: EpochBatches
    if isinstance(items, PairedTokens):
        refuse(
            items_per_class is not None,
            f"Batches of pairs with items_per_class = {items_per_class}.",
            "nothing: pairs have no classes",
        )
        sampler = PairBatches(items.pairs, items.lengths, **place)
    elif items_per_class is not None:
        sampler = BalancedBatches(items.labels, items_per_class=items_per_class, **place)
    elif memory_share is not None and reader.replayed.any():
        sampler = ReplayBatches(reader.replayed, share=memory_share, drop_last=drop_last, **place)
    elif lengths is not None:
        sampler = LengthBatches(lengths, **place)
    else:
        sampler = EpochBatches(len(items), drop_last=drop_last, **place)
    return _loader(reader, sampler, workers, pin_memory)


def encoding_loader(
    items: LabelledItems,
    *,
    batch_size: int,
    workers: int = 0,
    replayed: NDArray[np.bool_] | None = None,
    pin_memory: bool = False,
    resident: Tensor | None = None,
) -> DataLoader[Batch]:
    """Return a loader of un-augmented batches of all items in dataset order; for the options see `training_loader`."""
    reader = BatchReader(items, replayed=replayed, resident=resident)
    return _loader(reader, RowsInOrder(len(items), batch_size), workers, pin_memory)


@checked
def _loader(reader: BatchReader, sampler: Sampler[BatchPlace], workers: Count, pin_memory: bool) -> DataLoader[Batch]:
    """Return a loader of whole batches that does not use the global random state."""
    reads = reader.resident is None
    return DataLoader(
        reader,
        batch_size=None,
        sampler=sampler,
        num_workers=workers if reads else 0,
        persistent_workers=workers > 0 and reads,
        pin_memory=pin_memory and reads,
        generator=torch.Generator(),
    )


def _marks(count: int, replayed: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    if replayed is None:
        return np.zeros(count, np.bool_)
    if replayed.dtype != np.bool_ or replayed.shape != (count,):
        raise DataError(
            f"Marks of replayed items are {replayed.dtype} of shape {replayed.shape}, for {count} items.",
            expected=f"bool of shape ({count},): whether each item comes from the memory",
        )
    return replayed
