from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.data import ArrayImages, FileImages, ImageSet
from holdfast.embeddings import StringArray
from holdfast.errors import DataError


def test_selecting_keeps_pixels_labels_ids_and_class_names_together(image_set: ImageSet) -> None:
    chosen = image_set.select(np.array([8, 3]))
    assert list(chosen.ids) == ["image-8", "image-3"]
    assert chosen.labels.tolist() == [3, 1]
    assert chosen.class_names == image_set.class_names
    assert chosen.read(np.array([0, 1]))[:, 0, 0, 0].tolist() == [8, 3]


def test_a_mask_keeps_the_order(image_set: ImageSet) -> None:
    assert list(image_set.select(image_set.labels == 3).ids) == ["image-7", "image-8", "image-9"]


def test_a_selection_of_a_selection_reads_the_right_rows(image_set: ImageSet) -> None:
    chosen = image_set.select([9, 8, 7, 6]).select([1, 3])
    assert chosen.read(np.arange(2))[:, 0, 0, 0].tolist() == [8, 6]


def test_selecting_classes(image_set: ImageSet) -> None:
    assert image_set.select_classes([3, 0]).labels.tolist() == [0, 0, 0, 3, 3, 3]


def test_compacting_drops_unused_classes_and_keeps_names(image_set: ImageSet) -> None:
    compact = image_set.compact()
    assert compact.class_names == ("ape", "bee", "dog")
    assert [compact.class_names[label] for label in compact.labels] == [
        image_set.class_names[label] for label in image_set.labels
    ]
    assert compact.labels.dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.zeros(9, np.int64)}, "10 images, 9 labels, 10 ids"),
        ({"ids": StringArray.of(["a"] * 10)}, "Ids occur more than once: 'a'"),
        ({"labels": np.full(10, 4)}, "from 4 to 4, with 4 class names"),
        ({"labels": np.full(10, -1)}, "from -1 to -1"),
        ({"labels": np.zeros(10, np.int32)}, "int32"),
        ({"class_names": ("a", "b", "c", "a")}, "Class names occur more than once: 'a'"),
    ],
)
def test_a_set_that_does_not_fit_together_is_refused(image_set: ImageSet, changes: dict, message: str) -> None:
    values = {name: getattr(image_set, name) for name in ("images", "labels", "class_names", "ids")}
    with pytest.raises(DataError, match=message):
        ImageSet(**{**values, **changes})


def test_the_digest_changes_with_every_part(image_set: ImageSet) -> None:
    values = {name: getattr(image_set, name) for name in ("images", "labels", "class_names", "ids")}
    other_pixels = image_set.read(np.arange(10))
    other_pixels[9, 0, 3, 3] += 1
    changed = [
        {"images": ArrayImages(other_pixels)},
        {"images": ArrayImages(other_pixels.reshape(10, 1, 2, 8))},
        {"labels": np.roll(image_set.labels, 1)},
        {"class_names": ("ape", "bee", "cow", "dog")},
        {"ids": StringArray.of(f"picture-{row}" for row in range(10))},
    ]
    digests = {image_set.digest(), *(ImageSet(**{**values, **part}).digest() for part in changed)}
    assert len(digests) == 6
    assert ImageSet(**values).digest() == image_set.digest()


def test_the_digest_of_a_selection_equals_that_of_its_copy(image_set: ImageSet) -> None:
    rows = np.array([5, 1, 7])
    copy = ImageSet(
        ArrayImages(image_set.read(rows)), image_set.labels[rows], image_set.class_names, image_set.ids[rows]
    )
    assert image_set.select(rows).digest() == copy.digest()


def test_the_digest_of_files_notices_another_size(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("L", (8, 8)).save(path)
    images = ImageSet(FileImages([path], (1, 8, 8)), np.zeros(1, np.int64), ("a",), StringArray.of(["a.png"]))
    before = images.digest()
    Image.effect_noise((8, 8), 50).save(path)
    assert images.digest() != before


def test_an_empty_set_is_a_set(image_set: ImageSet) -> None:
    nothing = image_set.select([])
    assert len(nothing) == 0
    assert nothing.compact().class_names == ()
    assert len(nothing.digest()) == 64
