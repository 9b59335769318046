from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.data import ArrayImages, ImageSet
from limpet.data.augment import Augmentation
from limpet.data.batches import BatchPlace, EpochBatches, ReplayBatches
from limpet.data.loading import training_loader
from limpet.errors import ConfigError

IN_OWN = np.arange(40) % 4 < 2  # places of the own rows in ten batches of four, half of them replayed
IN_MEMORY = ~IN_OWN


def marks(own: int, memory: int) -> np.ndarray:
    """The session's own rows first, then the memory."""
    return np.arange(own + memory) >= own


def batches(own: int, memory: int, epoch: int = 0, step: int = 0, **options: Any) -> list[BatchPlace]:
    given = {"share": 0.5, "batch_size": 4, "seed": 0, **options}
    sampler = ReplayBatches(marks(own, memory), **given)
    sampler.set_position(epoch, step)
    return list(sampler)


def rows(places: list[BatchPlace]) -> list[list[int]]:
    return [place.rows.tolist() for place in places]


def make_images(own: int, memory: int) -> ImageSet:
    count = own + memory
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 8, 8), dtype=np.uint8)
    return ImageSet(ArrayImages(pixels), np.arange(count) % 5, tuple("abcde"), [str(row) for row in range(count)])


# --- what a batch and an epoch hold ----------------------------------------------------------------------------------


def test_half_of_every_batch_is_replayed() -> None:
    found = batches(11, 3)
    assert [place.number for place in found] == [0, 1, 2, 3, 4]
    own = np.array([place.rows[:2] for place in found])
    memory = np.array([place.rows[2:] for place in found])
    assert own.max() < 11 <= memory.min()
    assert len(np.unique(own)) == 10, "one pass over the own rows, of which one does not fill a batch"
    for turn in memory.ravel()[:9].reshape(3, 3):
        assert sorted(turn) == [11, 12, 13], "all of the memory before any comes again"


def test_the_turns_of_the_memory_are_shuffled_anew() -> None:
    memory = np.concatenate([place.rows[2:] for place in batches(60, 6)])
    assert len({tuple(turn) for turn in memory.reshape(10, 6)}) > 5


@settings(deadline=None, max_examples=150)
@given(
    own=st.integers(3, 60),
    memory=st.integers(1, 40),
    batch_size=st.integers(2, 12),
    share=st.sampled_from([0.01, 0.25, 0.5, 0.6, 0.99]),
    world_size=st.integers(1, 3),
    drop_last=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_an_epoch_by_its_definition(
    own: int, memory: int, batch_size: int, share: float, world_size: int, drop_last: bool, epoch: int
) -> None:
    """The sizes by a slow loop: batches of own rows as long as they are whole, and what is left."""
    replayed = min(max(1, round(share * batch_size)), batch_size - 1)
    sizes, left = [], own
    while left >= world_size * (batch_size - replayed):
        sizes.append((batch_size - replayed, replayed))
        left -= world_size * (batch_size - replayed)
    if left >= world_size and (not sizes or not drop_last):
        rest = left // world_size
        sizes.append((rest, max(1, round(rest * replayed / (batch_size - replayed)))))
    options = {"share": share, "batch_size": batch_size, "world_size": world_size, "drop_last": drop_last}
    places = [batches(own, memory, epoch, rank=rank, **options) for rank in range(world_size)]
    seen = np.concatenate([place.rows for process in places for place in process])
    for process in places:
        assert [(int((p.rows < own).sum()), int((p.rows >= own).sum())) for p in process] == sizes
    counts = np.bincount(seen, minlength=own + memory)
    assert counts[:own].max() == 1
    assert counts[own:].max() - counts[own:].min() <= 1


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_session_smaller_than_a_batch_is_one_batch_of_the_same_share(drop_last: bool) -> None:
    (place,) = batches(3, 50, share=0.75, batch_size=64, drop_last=drop_last)
    assert sorted(place.rows[:3]) == [0, 1, 2]
    assert len(place.rows) == 3 + 9 and place.rows[3:].min() >= 3


def test_an_incomplete_batch_comes_last_when_asked() -> None:
    found = batches(9, 40, batch_size=8, drop_last=False)
    assert [len(place.rows) for place in found] == [8, 8, 2]
    assert (found[2].rows < 9).tolist() == [True, False]


def test_own_and_replayed_rows_may_be_anywhere() -> None:
    replayed = np.array([True, False, False, True, False, False, True])
    found = list(ReplayBatches(replayed, share=0.5, batch_size=4, seed=0))
    assert len(found) == 2
    for place in found:
        assert replayed[place.rows].tolist() == [False, False, True, True]


# --- order, places and processes -------------------------------------------------------------------------------------


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    assert rows(batches(20, 9, 3)) == rows(batches(20, 9, 3))
    different = [rows(batches(20, 9, epoch, seed=seed)) for epoch in (3, 4) for seed in (0, 1)]
    assert all(one != other for n, one in enumerate(different) for other in different[:n])
    own, memory = ({tuple(np.concatenate(order)[part]) for order in different} for part in (IN_OWN, IN_MEMORY))
    assert len(own) == len(memory) == 4, "own and replayed rows are both shuffled"


@pytest.mark.parametrize("step", range(7))
def test_a_resumed_epoch_equals_the_rest_of_an_uninterrupted_one(step: int) -> None:
    options = {"drop_last": False, "batch_size": 6}
    whole = rows(batches(20, 9, 2, **options))
    assert len(whole) == 7
    assert rows(batches(20, 9, 2, step, **options)) == whole[step:]


def test_processes_share_no_row_and_all_keep_the_share() -> None:
    shares = [batches(30, 40, 1, rank=rank, world_size=3) for rank in range(3)]
    for share in shares:
        assert [(place.rows >= 30).tolist() for place in share] == [[False, False, True, True]] * 5
    together = [row for share in shares for place in share for row in place.rows.tolist()]
    assert len(together) == len(set(together)) == 60


# --- loaders ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_marks_what_is_replayed(workers: int) -> None:
    images, replayed = make_images(20, 9), marks(20, 9)
    loader = training_loader(
        images, batch_size=8, seed=0, replayed=replayed, memory_share=0.25, augmentation=Augmentation(flip=True),
        workers=workers,
    )  # fmt: skip
    assert isinstance(loader.sampler, ReplayBatches)
    loader.sampler.set_position(1, 1)
    found = list(loader)
    assert len(loader) == 3 and len(found) == 2
    expected = rows(batches(20, 9, 1, 1, share=0.25, batch_size=8))
    for batch, chosen in zip(found, expected, strict=True):
        assert batch.index.tolist() == chosen
        assert batch.replayed.tolist() == [False] * 6 + [True] * 2


def test_without_a_share_replayed_rows_are_shuffled_among_the_others() -> None:
    images = make_images(20, 9)
    found = torch.cat([batch.index for batch in training_loader(images, batch_size=8, seed=0, replayed=marks(20, 9))])
    expected = torch.cat([batch.index for batch in training_loader(images, batch_size=8, seed=0)])
    assert torch.equal(found, expected)


@pytest.mark.parametrize("replayed", [None, marks(29, 0)])
def test_without_a_replayed_row_a_share_is_ordinary_shuffling(replayed: np.ndarray | None) -> None:
    images = make_images(20, 9)
    loader = training_loader(images, batch_size=8, seed=0, replayed=replayed, memory_share=0.5, drop_last=False)
    assert type(loader.sampler) is EpochBatches
    assert [len(batch.labels) for batch in loader] == [8, 8, 8, 5]


def test_processes_and_incomplete_batches_reach_the_sampler() -> None:
    loader = training_loader(
        make_images(20, 9), batch_size=8, seed=2, replayed=marks(20, 9), memory_share=0.5, drop_last=False, rank=1,
        world_size=2,
    )  # fmt: skip
    expected = batches(20, 9, batch_size=8, seed=2, drop_last=False, rank=1, world_size=2)
    assert [batch.index.tolist() for batch in loader] == rows(expected)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replayed", [None, marks(20, 9)])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"items_per_class": 2}, r"memory share of 0\.5 and with items_per_class = 2(.|\n)*--recipe\.items-per-class"),
        ({"memory_share": 0.0}, r"memory share of 0\.0(.|\n)*above 0 and below 1"),
        ({"memory_share": 1.0}, r"memory share of 1\.0"),
        ({"memory_share": float("nan")}, "memory share of nan"),
        ({"batch_size": 1}, r"Batches of 1 with a memory share(.|\n)*at least 2"),
        ({"rank": 2, "world_size": 2}, "Process 2 of 2"),
        ({"seed": -1}, "seed ?= ?-1"),
    ],
)
def test_what_cannot_be_divided_is_refused_before_there_is_a_memory(
    replayed: np.ndarray | None, options: dict[str, Any], message: str
) -> None:
    given = {"batch_size": 8, "seed": 0, "memory_share": 0.5, **options}
    with pytest.raises(ConfigError, match=message):
        training_loader(make_images(20, 9), replayed=replayed, **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 1.0}, r"memory share of 1\.0"),
        ({"batch_size": 1}, "Batches of 1"),
        ({"batch_size": 0}, "Batches of 0"),
        ({"rank": 1}, "Process 1 of 1"),
        ({"world_size": 0}, "Process 0 of 0"),
        ({"seed": -1}, "seed ?= ?-1"),
    ],
)
def test_a_sampler_refuses_them_too(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        batches(20, 9, **options)


@pytest.mark.parametrize(("own", "memory", "processes"), [(0, 5, 1), (2, 9, 3), (5, 0, 1)])
def test_batches_without_rows_of_both_kinds_are_refused(own: int, memory: int, processes: int) -> None:
    with pytest.raises(ConfigError, match=f"{own} rows of a session and {memory} of its memory, for {processes}"):
        batches(own, memory, world_size=processes)
