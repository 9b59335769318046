"""CIFAR-100 in small, as the binary version lays it out."""

from pathlib import Path

import numpy as np
import pytest

from limpet.data.datasets import load_dataset
from limpet.errors import ConfigError, DataError

NAMES = ["apple", "aquarium_fish", "baby"]


def records(labels: list[int], first: int) -> bytes:
    """Coarse label, fine label, then 1024 red, 1024 green and 1024 blue bytes; rows of an image get brighter."""
    rows = np.repeat(np.arange(32, dtype=np.uint8), 32)
    found = b""
    for number, label in enumerate(labels):
        red, green = (bytes(np.uint8(first + number + 100 * plane) + rows) for plane in range(2))
        found += bytes([19 - label, label]) + red + green + bytes(1024)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(records([0, 1, 2, 1], 0))
    (folder / "test.bin").write_bytes(records([2, 0, 2, 0, 1], 50))
    (folder / "fine_label_names.txt").write_text("\n".join(NAMES) + "\n\n")
    return tmp_path


def test_planes_rows_and_fine_labels(root: Path) -> None:
    data = load_dataset("cifar-100", root)
    assert data.train is not None and data.leave_one_out and data.query is data.gallery
    assert data.train.labels.tolist() == [0, 1, 2, 1] and data.query.labels.tolist() == [2, 0, 2, 0, 1]
    assert data.train.class_names == data.query.class_names == tuple(NAMES)
    pixels = data.query.read(np.array([3]))[0]
    assert pixels.shape == (3, 32, 32)
    assert pixels[0, :, 7].tolist() == list(range(53, 85)) and pixels[1, 5].tolist() == [158] * 32
    assert pixels[2].max() == 0
    assert data.query.ids[3] == "test/00003" and data.train.ids[0] == "train/00000"
    assert "4 training images (50,000), 5 test images (10,000), 3 classes (100)" in data.description


def test_other_sizes_are_resized_when_read(root: Path) -> None:
    whole, half = load_dataset("cifar-100", root), load_dataset("cifar-100", root, image_size=16)
    assert half.query.shape == (3, 16, 16) and half.query.fit == "crop"
    rows = np.arange(5)
    expected = whole.query.read(rows).reshape(5, 3, 16, 2, 16, 2).mean(axis=(3, 5))
    assert np.abs(half.query.read(rows)[:, :, 1:-1] - expected[:, :, 1:-1]).max() <= 1
    upright = load_dataset("cifar-100", root, image_size="32x16").query  # 16 columns around the centre, as they are
    assert np.array_equal(upright.read(rows), whole.query.read(rows)[..., 8:24])
    with pytest.raises(ConfigError, match="image_size = 4"):
        load_dataset("cifar-100", root, image_size=4)


@pytest.mark.parametrize("name", ["train.bin", "test.bin", "fine_label_names.txt"])
def test_a_missing_file_is_named(root: Path, name: str) -> None:
    (root / "cifar-100-binary" / name).unlink()
    with pytest.raises(DataError, match=rf"no {name} (.|\n)*cifar-100-binary\.tar\.gz"):
        load_dataset("cifar-100", root)


def test_the_pickled_version_is_refused_unread(root: Path) -> None:
    folder = root / "cifar-100-binary"
    for path in list(folder.iterdir()):
        path.unlink()
    for name in ("train", "test", "meta"):
        (folder / name).write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(DataError, match=r"Python version of CIFAR-100, which is pickled(.|\n)*cifar-100-binary\.tar"):
        load_dataset("cifar-100", root)


@pytest.mark.parametrize("content", [b"", records([0, 1], 0)[:-1]])
def test_files_cut_off_are_refused(root: Path, content: bytes) -> None:
    (root / "cifar-100-binary" / "test.bin").write_bytes(content)
    with pytest.raises(DataError, match=rf"test.bin has {len(content):,} bytes(.|\n)*records of 3,074 bytes"):
        load_dataset("cifar-100", root)


def test_labels_without_a_name_are_refused(root: Path) -> None:
    (root / "cifar-100-binary" / "fine_label_names.txt").write_text("apple\nbear\n")
    with pytest.raises(DataError, match="Labels run from 0 to 2, with 2 class names"):
        load_dataset("cifar-100", root)


def test_images_of_every_class_are_set_apart_to_choose_with(root: Path) -> None:
    (root / "cifar-100-binary" / "train.bin").write_bytes(records([0, 1, 2] * 10, 0))
    whole = load_dataset("cifar-100", root)
    data = load_dataset("cifar-100", root, validation_fraction=0.2)
    assert whole.validation is None and whole.train is not None
    assert data.train is not None and data.validation is not None
    assert np.bincount(data.validation.labels).tolist() == [2, 2, 2]
    assert sorted([*data.train.ids, *data.validation.ids]) == list(whole.train.ids)
    assert data.train.class_names == data.validation.class_names == data.query.class_names
    assert data.query.digest() == whole.query.digest()
    assert "6 of the images to train on set apart for validation (seed 0)" in data.description
    other = load_dataset("cifar-100", root, validation_fraction=0.2, seed=1)
    assert other.validation is not None and list(other.validation.ids) != list(data.validation.ids)


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_that_leaves_nothing_is_refused(root: Path, share: float) -> None:
    with pytest.raises(ConfigError, match=f"validation_fraction={share}"):
        load_dataset("cifar-100", root, validation_fraction=share)
