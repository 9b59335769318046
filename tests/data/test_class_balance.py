from __future__ import annotations

import numpy as np
import pytest
import torch

from limpet.data import ArrayImages, ImageSet
from limpet.data.augment import Augmentation
from limpet.data.loading import BalancedBatches, BatchPlace, training_loader
from limpet.data.sampling import balanced_order
from limpet.errors import ConfigError

SIZES = (1, 3, 4, 5, 9, 30)  # items of the classes 10, 11, ..., 15, rows shuffled


def labels_of(sizes: tuple[int, ...] = SIZES) -> np.ndarray:
    labels = np.repeat(10 + np.arange(len(sizes)), sizes)
    return np.random.default_rng(5).permutation(labels)


def batches(epoch: int = 0, step: int = 0, labels: np.ndarray | None = None, **options: int) -> list[BatchPlace]:
    given = {"items_per_class": 4, "batch_size": 12, "seed": 0, **options}
    sampler = BalancedBatches(labels_of() if labels is None else labels, **given)
    sampler.set_position(epoch, step)
    return list(sampler)


def rows(places: list[BatchPlace]) -> list[list[int]]:
    return [place.rows.tolist() for place in places]


def order(sizes: tuple[int, ...], steps: int, classes: int = 2, items: int = 4) -> np.ndarray:
    drawn = balanced_order(
        labels_of(sizes), np.random.default_rng(0), classes_per_step=classes, items_per_class=items, steps=steps
    )
    return drawn.reshape(steps, classes, items)


def test_every_batch_holds_whole_classes() -> None:
    labels = labels_of()
    found = [place for epoch in range(20) for place in batches(epoch)]
    assert [place.number for place in found] == [0, 1, 2, 3] * 20, "52 rows make 4 whole batches of 12"
    for place in found:
        groups = labels[place.rows].reshape(3, 4)
        assert (groups == groups[:, :1]).all() and len(np.unique(groups)) == 3
        for group, owner in zip(place.rows.reshape(3, 4), groups[:, 0], strict=True):
            assert len(np.unique(group)) == min(4, SIZES[owner - 10]), "items repeat only where a class has too few"


def test_a_class_that_is_too_small_repeats_all_its_items_evenly() -> None:
    for step in order((3, 3), 50):
        for group in step:
            assert sorted(np.unique(group, return_counts=True)[1]) == [1, 1, 2]


def test_no_item_comes_again_before_the_whole_groups_of_its_class_are_shown() -> None:
    drawn, labels = order((8, 9), 8), labels_of((8, 9))
    for owner in (10, 11):
        shown = drawn[labels[drawn[:, :, 0]] == owner]
        assert shown.shape == (8, 4)
        for cycle in shown.reshape(4, 8):
            assert len(np.unique(cycle)) == 8
    left_out = {frozenset(np.flatnonzero(labels == 11)) - frozenset(c) for c in shown.reshape(4, 8).tolist()}
    assert len(left_out) > 1, "another item waits in every shuffle"


def test_classes_take_turns_whatever_their_size() -> None:
    labels, drawn = labels_of((2, 300, 20, 20)), order((2, 300, 20, 20), 50)
    assert (np.bincount(labels[drawn[:, :, 0]].ravel())[10:] == 25).all()
    owners = labels_of((4,) * 7)[order((4,) * 7, 3000)[:, :, 0]]  # in every round of three steps one of seven is left
    assert np.bincount(owners.ravel())[10:] == pytest.approx(6000 / 7, rel=0.05)
    for step in range(0, 3000, 3):
        assert len(np.unique(owners[step : step + 3])) == 6
    pairs = {frozenset(pair) for pair in owners.tolist()}
    assert len(pairs) == 21, "every class meets every other one"


def test_all_items_come_over_several_epochs() -> None:
    seen = {row for epoch in range(40) for place in batches(epoch) for row in place.rows.tolist()}
    assert seen == set(range(sum(SIZES)))


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    assert rows(batches(3)) == rows(batches(3))
    different = [rows(batches(3)), rows(batches(4)), rows(batches(3, seed=1)), rows(batches(4, seed=1))]
    assert all(one != other for n, one in enumerate(different) for other in different[:n])


@pytest.mark.parametrize("step", range(5))
def test_a_resumed_epoch_equals_the_rest_of_an_uninterrupted_one(step: int) -> None:
    assert rows(batches(2, step)) == rows(batches(2))[step:]


def test_processes_get_other_classes_in_batches_of_one_size() -> None:
    labels = labels_of()
    shares = [batches(1, rank=rank, world_size=3, batch_size=8) for rank in range(3)]
    assert [len(share) for share in shares] == [2, 2, 2]
    for places in zip(*shares, strict=True):
        assert [len(place.rows) for place in places] == [8, 8, 8]
        owners = [np.unique(labels[place.rows]).tolist() for place in places]
        assert [len(own) for own in owners] == [2, 2, 2] and len({c for own in owners for c in own}) == 6


@pytest.mark.parametrize(("count", "batch_size", "world_size", "steps"), [(40, 8, 1, 5), (47, 8, 1, 5), (47, 8, 2, 2)])
def test_as_many_steps_as_plain_shuffling(count: int, batch_size: int, world_size: int, steps: int) -> None:
    pixels, labels = np.zeros((count, 1, 8, 8), np.uint8), np.arange(count) % 6
    images = ImageSet(ArrayImages(pixels), labels, tuple("abcdef"), [str(row) for row in range(count)])
    options = {"batch_size": batch_size, "seed": 0, "world_size": world_size}
    plain, balanced = training_loader(images, **options), training_loader(images, items_per_class=4, **options)
    assert len(plain) == len(balanced) == len(list(balanced)) == steps


def test_fewer_items_than_a_batch_make_one_whole_batch() -> None:
    (place,) = batches(labels=labels_of((1, 2, 3)))
    assert len(place.rows) == 12 and set(place.rows) == set(range(6))


def test_a_loader_reads_balanced_batches_with_any_number_of_workers() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8), dtype=np.uint8)
    images = ImageSet(ArrayImages(pixels), np.arange(40) % 5, tuple("abcde"), [str(row) for row in range(40)])
    found = []
    for workers in (0, 1):
        loader = training_loader(
            images, batch_size=8, seed=0, items_per_class=2, augmentation=Augmentation(flip=True), workers=workers
        )
        assert isinstance(loader.sampler, BalancedBatches)
        loader.sampler.set_position(1, 1)
        found.append(list(loader))
    assert len(found[0]) == 4
    for alone, worker in zip(*found, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(alone, worker, strict=True))
        assert torch.bincount(alone.labels).sort().values[-4:].tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"items_per_class": 5}, "Batches of 12 with items_per_class = 5"),
        ({"items_per_class": 0}, "items_per_class = 0"),
        ({"items_per_class": -4}, "items_per_class = -4"),
        ({"items_per_class": 12}, "two classes or more"),
        ({"items_per_class": 24}, "two classes or more"),
        ({"batch_size": 28}, r"6 classes, for batches of 28 with 4 images per class\.\n.*7 classes(.|\n)*batch-size"),
        ({"world_size": 3}, r"6 classes, .* in each of 3 processes\.\n.*at least 9 classes(.|\n)*--recipe\.devices"),
        ({"rank": 1}, "Process 1 of 1"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_what_cannot_be_balanced_is_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        batches(**options)
