"""Stanford Dogs in small, in its official layout."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from limpet.data.datasets import load_dataset
from limpet.errors import DataError

TRAIN = [
    "n02085620-Chihuahua/n02085620_5927.jpg", "n02085620-Chihuahua/n02085620_4441.jpg",
    "n02116738-African_hunting_dog/n02116738_10469.jpg",
]  # fmt: skip
TEST = ["n02116738-African_hunting_dog/n02116738_2988.jpg", "n02085620-Chihuahua/n02085620_2650.jpg"]


def save_list(path: Path, files: list[str], **more: object) -> None:
    """Write cells (N, 1) of texts and labels from 1, as the official lists have them."""
    cells = np.array(files, object)[:, None]
    labels = np.array([[1 if "Chihuahua" in file else 120] for file in files], np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"file_list": cells, "annotation_list": cells, "labels": labels, **more})


@pytest.fixture(params=["", "lists"])
def root(tmp_path: Path, paint: Callable[..., None], request: pytest.FixtureRequest) -> Path:
    folder = tmp_path / "stanford-dogs"
    for number, file in enumerate([*TRAIN, *TEST]):
        paint(folder / "Images" / file, 40 * number)
    save_list(folder / request.param / "train_list.mat", TRAIN)
    save_list(folder / request.param / "test_list.mat", TEST)
    return tmp_path


def lists_of(root: Path) -> Path:
    return next(root.rglob("test_list.mat")).parent


def test_the_lists_decide(root: Path, brightness) -> None:
    data = load_dataset("stanford-dogs", root, image_size=8)
    assert data.train is not None and data.leave_one_out and data.query is data.gallery
    assert data.train.class_names == data.query.class_names == ("n02085620-Chihuahua", "n02116738-African_hunting_dog")
    assert data.train.labels.tolist() == [0, 0, 1] and data.query.labels.tolist() == [1, 0]
    assert list(data.train.ids) == TRAIN and brightness(data.train) == [0, 40, 80]
    assert list(data.query.ids) == TEST and brightness(data.query) == [120, 160]
    assert data.train.shape == (3, 8, 8)
    assert "3 training images (12,000), 2 test images (8,580), 2 breeds (120)" in data.description


@pytest.mark.parametrize("name", ["train_list.mat", "test_list.mat", "Images"])
def test_what_is_missing_is_named(root: Path, name: str) -> None:
    next(root.rglob(name)).rename(root / "elsewhere")
    with pytest.raises(DataError, match=rf"no {name}(.|\n)*lists\.tar"):
        load_dataset("stanford-dogs", root)


def test_lists_that_cannot_be_read_are_refused(root: Path) -> None:
    path = lists_of(root) / "test_list.mat"
    whole = path.read_bytes()
    for content in (b"no MATLAB file", b"", whole[: len(whole) // 2], whole[:150]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"Cannot read .*test_list.mat|test_list.mat lists 0 images"):
            load_dataset("stanford-dogs", root)
    savemat(path, {"labels": np.ones((2, 1))})
    with pytest.raises(DataError, match=r"lists 0 images(.|\n)*n02085620-Chihuahua/"):
        load_dataset("stanford-dogs", root)


def test_listed_images_must_be_there_in_folders_of_breeds(root: Path) -> None:
    path = lists_of(root) / "test_list.mat"
    save_list(path, [*TEST, "n02085620_77.jpg"])
    with pytest.raises(DataError, match=r"lists 3 images, one of them n02085620_77.jpg"):
        load_dataset("stanford-dogs", root)
    save_list(path, [*TEST, "n02085620-Chihuahua/n02085620_77.jpg"])
    with pytest.raises(DataError, match=r"1 of 3 images are not in .*n02085620_77.jpg"):
        load_dataset("stanford-dogs", root)
