import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from limpet.data import ArrayImages, ImageSet
from limpet.data.augment import Augmentation
from limpet.data.loading import EpochBatches, encoding_loader, training_loader
from limpet.embeddings import StringArray
from limpet.errors import ConfigError, DataError
from limpet.methods.base import Batch

AUGMENTATION = Augmentation(crop_padding=2, flip=True)


@pytest.fixture
def images() -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (50, 3, 8, 8), dtype=np.uint8)
    labels = np.arange(50) % 5
    return ImageSet(ArrayImages(pixels), labels, tuple("abcde"), StringArray.of(str(row) for row in range(50)))


class NotedImages(ArrayImages):
    """Notes which rows are read."""

    def __init__(self, pixels: np.ndarray) -> None:
        super().__init__(pixels)
        self.rows: list[int] = []

    def read(self, rows: np.ndarray) -> np.ndarray:
        self.rows += rows.tolist()
        return super().read(rows)


def loader(images: ImageSet, **options: object) -> DataLoader[Batch]:
    given = {"batch_size": 8, "seed": 0, "augmentation": AUGMENTATION, **options}
    return training_loader(images, **given)  # type: ignore[arg-type]


def epoch(loader: DataLoader[Batch], number: int, step: int = 0) -> list[Batch]:
    assert isinstance(loader.sampler, EpochBatches)
    loader.sampler.set_position(number, step)
    return list(loader)


def same(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(one, other)
        for left, right in zip(first, second, strict=True)
        for one, other in zip(left, right, strict=True)
    )


def test_a_batch_holds_what_it_promises(images: ImageSet) -> None:
    for batch in loader(images, augmentation=None):
        assert isinstance(batch, Batch)
        assert (batch.inputs.dtype, batch.inputs.shape) == (torch.uint8, (8, 3, 8, 8))
        assert batch.labels.dtype == batch.index.dtype == torch.int64
        assert batch.replayed.dtype == torch.bool and not batch.replayed.any()
        np.testing.assert_array_equal(batch.inputs, images.read(batch.index.numpy()))
        np.testing.assert_array_equal(batch.labels, images.labels[batch.index.numpy()])


def test_an_epoch_sees_every_row_at_most_once_and_leaves_out_the_rest(images: ImageSet) -> None:
    rows = torch.cat([batch.index for batch in loader(images)])
    assert len(rows) == 48 == len(rows.unique())


def test_an_incomplete_batch_comes_last_when_asked(images: ImageSet) -> None:
    batches = list(loader(images, drop_last=False))
    assert [len(batch.labels) for batch in batches] == [8] * 6 + [2]
    assert len(torch.cat([batch.index for batch in batches]).unique()) == 50


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_set_smaller_than_a_batch_is_one_batch(images: ImageSet, drop_last: bool) -> None:
    small = loader(images[:5], drop_last=drop_last)
    assert len(small) == 1
    assert sorted(next(iter(small)).index.tolist()) == [0, 1, 2, 3, 4]


def test_order_and_augmentation_follow_seed_and_epoch(images: ImageSet) -> None:
    assert same(epoch(loader(images), 1), epoch(loader(images), 1))
    assert not same(epoch(loader(images), 0), epoch(loader(images), 1))
    assert not same(epoch(loader(images, seed=1), 0), epoch(loader(images), 0))


def test_plain_shuffling_is_one_permutation_drawn_from_seed_and_epoch(images: ImageSet) -> None:
    """The draws of runs that were made before: whoever changes them makes other models of old settings."""
    rows = torch.cat([batch.index for batch in epoch(loader(images, seed=3, drop_last=False), 2)])
    np.testing.assert_array_equal(rows, np.random.default_rng([3, 2]).permutation(50))


def test_the_order_changes_from_epoch_to_epoch(images: ImageSet) -> None:
    plain = loader(images, augmentation=None)
    assert len({tuple(torch.cat([batch.index for batch in epoch(plain, number)]).tolist()) for number in range(3)}) == 3


def test_the_same_images_are_augmented_otherwise_in_another_epoch(images: ImageSet) -> None:
    one = images[:1]
    draws = {epoch(loader(one), number)[0].inputs.numpy().tobytes() for number in range(10)}
    assert len(draws) > 5


@pytest.mark.parametrize("step", [0, 1, 4, 6])
def test_a_resumed_epoch_equals_the_rest_of_an_uninterrupted_one(images: ImageSet, step: int) -> None:
    assert same(epoch(loader(images), 2)[step:], epoch(loader(images), 2, step))


def test_batches_that_were_seen_are_not_read_again(images: ImageSet) -> None:
    noted = NotedImages(images.read(np.arange(50)))
    rest = epoch(loader(ImageSet(noted, images.labels, images.class_names, images.ids)), 0, 4)
    assert noted.rows == torch.cat([batch.index for batch in rest]).tolist()
    assert len(noted.rows) == 16


def test_the_length_is_that_of_a_whole_epoch_wherever_it_starts(images: ImageSet) -> None:
    resumed = loader(images)
    epoch(resumed, 0, 4)
    assert len(resumed) == 6


def test_any_number_of_workers_gives_the_same_batches(images: ImageSet) -> None:
    alone, together = loader(images), loader(images, workers=2)
    assert same(epoch(alone, 0), epoch(together, 0))
    assert same(epoch(alone, 1, 3), epoch(together, 1, 3))


@pytest.mark.parametrize(
    ("count", "drop_last", "sizes"),
    [
        (50, True, [8, 8]),
        (50, False, [8, 8]),  # two rows are left, for three processes
        (35, False, [8, 3]),
        (35, True, [8]),
        (48, False, [8, 8]),
        (7, True, [2]),
    ],
)
def test_processes_get_equal_and_separate_batches(
    images: ImageSet, count: int, drop_last: bool, sizes: list[int]
) -> None:
    chosen = images[:count]
    shares = [epoch(loader(chosen, rank=rank, world_size=3, drop_last=drop_last), 0) for rank in range(3)]
    for share in shares:
        assert [len(batch.labels) for batch in share] == sizes
    rows = torch.cat([batch.index for share in shares for batch in share])
    assert len(rows) == len(rows.unique())


def test_processes_draw_otherwise(images: ImageSet) -> None:
    pixels = np.broadcast_to(images.read(np.arange(1)), (50, 3, 8, 8)).copy()
    alike = ImageSet(ArrayImages(pixels), images.labels, images.class_names, images.ids)
    first, second = (epoch(loader(alike, rank=rank, world_size=2), 0) for rank in range(2))
    assert not torch.equal(first[0].inputs, second[0].inputs)


def test_encoding_keeps_the_order_and_every_row(images: ImageSet) -> None:
    batches = list(encoding_loader(images, batch_size=16))
    assert [len(batch.labels) for batch in batches] == [16, 16, 16, 2]
    assert torch.cat([batch.index for batch in batches]).tolist() == list(range(50))
    np.testing.assert_array_equal(torch.cat([batch.inputs for batch in batches]), images.read(np.arange(50)))


def test_encoding_no_images_gives_no_batches(images: ImageSet) -> None:
    with pytest.raises(ConfigError, match="0 images for 1 processes"):
        encoding_loader(images[[]], batch_size=4)


def test_batches_say_which_images_come_from_a_memory(images: ImageSet) -> None:
    replayed = np.arange(50) % 7 == 3
    for batch in [*loader(images, replayed=replayed), *encoding_loader(images, batch_size=16, replayed=replayed)]:
        assert batch.replayed.dtype == torch.bool
        np.testing.assert_array_equal(batch.replayed, replayed[batch.index.numpy()])
    assert not any(batch.replayed.any() for batch in encoding_loader(images, batch_size=16))


@pytest.mark.parametrize("replayed", [np.zeros(49, np.bool_), np.zeros((50, 1), np.bool_), np.zeros(50, np.int64)])
def test_marks_that_are_not_one_per_image_are_refused(images: ImageSet, replayed: np.ndarray) -> None:
    for make in (loader, encoding_loader):
        with pytest.raises(DataError, match=r"for 50 items(.|\n)*bool of shape \(50,\)"):
            make(images, batch_size=8, replayed=replayed)


def test_global_random_state_is_left_alone(images: ImageSet) -> None:
    state = torch.random.get_rng_state()
    epoch(loader(images), 0)
    list(encoding_loader(images, batch_size=16))
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"rank": 1}, {"rank": -1}, {"world_size": 60}, {"workers": -1}])
def test_batching_that_cannot_be_is_refused(images: ImageSet, options: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        loader(images, **options)


@pytest.mark.parametrize(("number", "step"), [(-1, 0), (0, -1), (0, 7)])
def test_positions_outside_of_an_epoch_are_refused(images: ImageSet, number: int, step: int) -> None:
    with pytest.raises(ConfigError, match="a step from 0 to 6"):
        epoch(loader(images), number, step)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ConfigError, match="seed=-1"):
        EpochBatches(10, batch_size=2, seed=-1)
