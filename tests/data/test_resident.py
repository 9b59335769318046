"""Data kept on a device gives the batches that reading gives, bit for bit; on "cpu" the very same code runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from limpet.data import ArrayImages, ImageSet
from limpet.data.augment import Augmentation
from limpet.data.images import Images, SelectedImages
from limpet.data.loading import encoding_loader, training_loader
from limpet.data.resident import moved, resident_inputs
from limpet.data.vector_set import VectorSet
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError
from limpet.geometry import Hypersphere
from limpet.methods.base import Batch

CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CROP_AND_FLIP = Augmentation(crop_padding=2, flip=True)


class NotedImages(ArrayImages):
    """Notes which rows are read."""

    def __init__(self, pixels: np.ndarray) -> None:
        super().__init__(pixels)
        self.rows: list[int] = []

    def read(self, rows: np.ndarray) -> np.ndarray:
        self.rows += rows.tolist()
        return super().read(rows)


def labelled(pixels: Images, count: int) -> ImageSet:
    return ImageSet(pixels, np.arange(count) % 5, tuple("abcde"), [str(row) for row in range(count)])


@pytest.fixture
def noted() -> NotedImages:
    return NotedImages(np.random.default_rng(0).integers(0, 256, (50, 3, 8, 6), dtype=np.uint8))


def kept(items: ImageSet | VectorSet, device: str = "cpu", workers: int = 0) -> torch.Tensor:
    found = resident_inputs(encoding_loader(items, batch_size=16, workers=workers), torch.device(device), "always")
    assert found is not None
    return found


def batches(loader: DataLoader[Batch], epoch: int = 1, step: int = 2) -> list[Batch]:
    loader.sampler.set_position(epoch, step)  # type: ignore[attr-defined]
    return list(loader)


@pytest.mark.parametrize("device", DEVICES)
def test_all_images_are_there_as_they_are_read_and_read_once(noted: NotedImages, device: str) -> None:
    images = labelled(noted, 50)
    found = kept(images, device)
    assert noted.rows == list(range(50))
    assert (found.dtype, found.shape, found.device.type) == (torch.uint8, (50, 3, 8, 6), device)
    np.testing.assert_array_equal(found.cpu(), images.read(np.arange(50)))


def test_worker_processes_read_them(noted: NotedImages) -> None:
    found = kept(labelled(noted, 50), workers=1)
    assert not noted.rows, "read in another process"
    np.testing.assert_array_equal(found, noted.read(np.arange(50)))


def test_vectors_stay_what_they_are() -> None:
    vectors = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    items = VectorSet.of(EmbeddingSet(vectors, [str(row) for row in range(20)], "declared:m", Hypersphere(4),
                                      labels=np.arange(20) % 3))  # fmt: skip
    np.testing.assert_array_equal(kept(items), vectors)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("items_per_class", [None, 2])
def test_batches_are_those_of_reading_bit_for_bit(noted: NotedImages, device: str, items_per_class: int | None) -> None:
    images, marks = labelled(noted, 50), np.arange(50) % 7 == 3
    options = {"batch_size": 8, "seed": 3, "augmentation": CROP_AND_FLIP, "replayed": marks}
    options["items_per_class"] = items_per_class
    expected = batches(training_loader(images, **options))  # type: ignore[arg-type]
    resident = kept(images, device)
    noted.rows.clear()
    found = batches(training_loader(images, resident=resident, **options))  # type: ignore[arg-type]
    assert len(found) == len(expected) == 4 and not noted.rows
    for one, other in zip(found, expected, strict=True):
        assert one.inputs.device == resident.device and one.labels.device == one.index.device == CPU
        assert all(torch.equal(left.cpu(), right) for left, right in zip(one, other, strict=True))


def test_data_in_dataset_order_is_taken_from_the_device_too(noted: NotedImages) -> None:
    images = labelled(noted, 50)
    expected, resident = list(encoding_loader(images, batch_size=16)), kept(images)
    noted.rows.clear()
    found = list(encoding_loader(images, batch_size=16, resident=resident))
    assert not noted.rows and len(found) == 4
    assert all(
        torch.equal(*pair) for one, other in zip(found, expected, strict=True) for pair in zip(one, other, strict=True)
    )


def test_what_is_on_the_device_is_neither_read_by_workers_nor_pinned(noted: NotedImages) -> None:
    images = labelled(noted, 50)
    resident = kept(images)
    for given, workers, pinned in ((None, 2, True), (resident, 0, False)):
        for loader in (
            training_loader(images, batch_size=8, seed=0, workers=2, pin_memory=True, resident=given),
            encoding_loader(images, batch_size=8, workers=2, pin_memory=True, resident=given),
        ):
            assert (loader.num_workers, loader.pin_memory, loader.persistent_workers) == (workers, pinned, workers > 0)
    assert not training_loader(images, batch_size=8, seed=0).pin_memory
    assert not encoding_loader(images, batch_size=8).pin_memory


@pytest.mark.parametrize("choice", ["auto", "never"])
def test_unless_asked_for_nothing_is_put_onto_the_cpu_or_even_read(noted: NotedImages, choice: str) -> None:
    assert resident_inputs(encoding_loader(labelled(noted, 50), batch_size=16), CPU, choice) is None  # type: ignore[arg-type]
    assert not noted.rows


def test_values_move_where_they_are_needed() -> None:
    values = torch.arange(3)
    assert moved(values, None) is moved(values, CPU) is values
    assert moved(values, torch.device("meta")).device.type == "meta"


@pytest.mark.gpu
def test_a_gpu_takes_what_fits_and_says_what_does_not(noted: NotedImages) -> None:
    gpu = torch.device("cuda")
    assert resident_inputs(encoding_loader(labelled(noted, 50), batch_size=16), gpu, "auto") is not None
    rows = np.zeros(400_000, np.int64)  # of one large image: more than any device holds, and nearly nothing here
    large = labelled(SelectedImages(ArrayImages(np.zeros((1, 3, 1500, 1500), np.uint8)), rows), len(rows))
    assert resident_inputs(encoding_loader(large, batch_size=2), gpu, "auto") is None
    with pytest.raises(ConfigError, match=r"--recipe\.data-on-device auto"):
        resident_inputs(encoding_loader(large, batch_size=2), gpu, "always")


@pytest.mark.gpu
def test_pinned_batches_are_those_that_are_not(noted: NotedImages) -> None:
    images = labelled(noted, 50)
    plain, pinned = (
        batches(training_loader(images, batch_size=8, seed=0, augmentation=CROP_AND_FLIP, pin_memory=pin))
        for pin in (False, True)
    )
    for one, other in zip(plain, pinned, strict=True):
        assert all(part.is_pinned() for part in other)
        assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))
