"""Tiny-ImageNet in small, as tiny-imagenet-200 lays it out."""

from collections.abc import Callable
from pathlib import Path

import pytest

from limpet.data.datasets import load_dataset
from limpet.errors import DataError

CODES = ["n03444034", "n01443537", "n02124075"]  # as in wnids.txt: not sorted


@pytest.fixture
def root(tmp_path: Path, paint: Callable[..., None]) -> Path:
    folder = tmp_path / "tiny-imagenet-200"
    for label, code in enumerate(CODES):
        for number in range(2):
            paint(folder / "train" / code / "images" / f"{code}_{number}.JPEG", 80 * label + 10 * number, (64, 64))
        (folder / "train" / code / f"{code}_boxes.txt").write_text(f"{code}_0.JPEG\t0\t10\t63\t58\n")
    for number in range(3):
        paint(folder / "val" / "images" / f"val_{number}.JPEG", 50 * number, (64, 64))
        paint(folder / "test" / "images" / f"test_{number}.JPEG")
    annotations = "".join(f"val_{number}.JPEG\t{CODES[2 - number]}\t0\t32\t44\t62\n" for number in range(3))
    (folder / "val" / "val_annotations.txt").write_text(annotations)
    (folder / "wnids.txt").write_text("\n".join(CODES))
    words = "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02124075\tEgyptian cat\nn03444034\tgo-kart\n"
    (folder / "words.txt").write_text(words)
    return tmp_path


def test_classes_are_named_and_sorted(root: Path, brightness) -> None:
    data = load_dataset("tiny-imagenet", root)
    assert data.train is not None and data.leave_one_out and data.query is data.gallery
    names = ("n01443537 goldfish", "n02124075 Egyptian cat", "n03444034 go-kart")
    assert data.train.class_names == data.query.class_names == names
    assert data.train.labels.tolist() == [0, 0, 1, 1, 2, 2] and data.query.labels.tolist() == [1, 0, 2]
    assert brightness(data.train) == [80, 90, 160, 170, 0, 10] and brightness(data.query) == [0, 50, 100]
    assert data.train.shape == (3, 64, 64)
    assert (
        data.train.ids[0] == "train/n01443537/images/n01443537_0.JPEG" and data.query.ids[0] == "val/images/val_0.JPEG"
    )
    assert load_dataset("tiny-imagenet", root, image_size=32, fit="squash").query.shape == (3, 32, 32)
    assert "6 training images (100,000), 3 validation images (10,000), 3 classes (200)" in data.description


@pytest.mark.parametrize("name", ["wnids.txt", "words.txt", "train", "val/images", "val/val_annotations.txt"])
def test_what_is_missing_is_named(root: Path, name: str) -> None:
    (root / "tiny-imagenet-200" / name).rename(root / "elsewhere")
    with pytest.raises(DataError, match=rf"no {name}(.|\n)*tiny-imagenet-200\.zip"):
        load_dataset("tiny-imagenet", root)


def test_annotations_that_cannot_be_right_are_refused(root: Path) -> None:
    path = root / "tiny-imagenet-200" / "val" / "val_annotations.txt"
    whole = path.read_text()
    for text, message in {
        f"{whole}val_3.JPEG\n": r"Line 4 of .*val_annotations.txt is 'val_3.JPEG'",
        f"{whole}val_3.JPEG\tn09999999\t0\t0\t1\t1\n": r"Annotation 4 of .* is of the class 'n09999999'",
        f"{whole}val_3.JPEG\t{CODES[0]}\t0\t0\t1\t1\n": r"1 of 4 images are not in .*'val/images/val_3.JPEG'",
    }.items():
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            load_dataset("tiny-imagenet", root)


def test_a_class_without_images_is_refused(root: Path) -> None:
    (root / "tiny-imagenet-200" / "train" / CODES[1]).rename(root / "elsewhere")
    with pytest.raises(DataError, match=r"no images in .*n01443537/images(.|\n)*wnids.txt names this class"):
        load_dataset("tiny-imagenet", root)


def test_an_image_of_every_class_is_set_apart_to_choose_with(root: Path) -> None:
    whole, data = load_dataset("tiny-imagenet", root), load_dataset("tiny-imagenet", root, validation_fraction=0.5)
    assert whole.train is not None and data.train is not None and data.validation is not None
    assert data.train.labels.tolist() == data.validation.labels.tolist() == [0, 1, 2]
    assert sorted([*data.train.ids, *data.validation.ids]) == sorted(whole.train.ids)
    assert "3 of the images to train on set apart for validation" in data.description
