import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limpet.data import ArrayImages, EncodedImages, FileImages, ImageSet
from limpet.data.images import keep_decoded
from limpet.embeddings import StringArray
from limpet.errors import DataError


def test_selecting_keeps_pixels_labels_ids_and_class_names_together(image_set: ImageSet) -> None:
    chosen = image_set[np.array([8, 3])]
    assert list(chosen.ids) == ["image-8", "image-3"]
    assert chosen.labels.tolist() == [3, 1]
    assert chosen.class_names == image_set.class_names
    assert chosen.read(np.array([0, 1]))[:, 0, 0, 0].tolist() == [8, 3]


def test_a_mask_keeps_the_order(image_set: ImageSet) -> None:
    assert list(image_set[image_set.labels == 3].ids) == ["image-7", "image-8", "image-9"]


def test_a_number_chooses_no_set(image_set: ImageSet) -> None:
    with pytest.raises(DataError):
        image_set[2]


def test_a_selection_of_a_selection_reads_the_right_rows(image_set: ImageSet) -> None:
    chosen = image_set[[9, 8, 7, 6]][[1, 3]]
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
    assert image_set[rows].digest() == copy.digest()


def one_file(path: Path) -> ImageSet:
    return ImageSet(FileImages([path], (1, 8, 8)), np.zeros(1, np.int64), ("a",), StringArray.of([path.name]))


def test_the_digest_of_files_notices_other_pixels_in_as_many_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.bmp"
    Image.new("L", (8, 8), 0).save(path)
    images, size = one_file(path), path.stat().st_size
    before = images.digest()
    Image.new("L", (8, 8), 255).save(path)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))
    assert path.stat().st_size == size
    assert images.digest() == one_file(path).digest() != before


def test_a_file_is_hashed_once_until_its_size_or_time_changes(tmp_path: Path) -> None:
    path = tmp_path / "a.bmp"
    Image.new("L", (8, 8), 0).save(path)
    images, changed = one_file(path), path.stat().st_mtime_ns
    before = images.digest()
    Image.new("L", (8, 8), 255).save(path)
    os.utime(path, ns=(0, changed))
    assert images.digest() == before
    assert one_file(path).digest() != before


def test_a_set_says_how_its_images_were_fitted(image_set: ImageSet, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("L", (8, 8)).save(path)
    for fit in ("crop", "squash"):
        for store in (
            FileImages([path], (1, 4, 4), fit=fit),
            EncodedImages.of([path.read_bytes()], (1, 4, 4), fit=fit),
        ):
            images = ImageSet(keep_decoded(store), np.zeros(1, np.int64), ("a",), StringArray.of(["a"]))
            assert images.fit == images[[0]].fit == fit
    assert image_set.fit is None


def test_an_empty_set_is_a_set(image_set: ImageSet) -> None:
    nothing = image_set[[]]
    assert len(nothing) == 0
    assert nothing.compact().class_names == ()
    assert len(nothing.digest()) == 64


def with_columns(image_set: ImageSet) -> ImageSet:
    columns = {"camera": np.arange(10) % 3, "place": np.arange(20.0).reshape(10, 2)}
    return ImageSet(image_set.images, image_set.labels, image_set.class_names, image_set.ids, columns)


def test_columns_go_with_their_rows(image_set: ImageSet) -> None:
    images = with_columns(image_set)
    for chosen, rows in (
        (images[[8, 3]], [8, 3]),
        (images.select_classes([3]), [7, 8, 9]),
        (images[images.labels == 1][[1, 0]], [4, 3]),
        (images[[9, 0]].compact(), [9, 0]),
    ):
        assert chosen.columns["camera"].tolist() == [row % 3 for row in rows]
        assert chosen.columns["place"].tolist() == [[2 * row, 2 * row + 1] for row in rows]
    assert dict(image_set.columns) == {}
    with pytest.raises(TypeError):
        images.columns["camera"] = np.zeros(10)  # type: ignore[index]


def test_a_column_of_another_length_is_refused(image_set: ImageSet) -> None:
    with pytest.raises(DataError, match=r"10 ids, 9 column 'camera'"):
        ImageSet(
            image_set.images, image_set.labels, image_set.class_names, image_set.ids, {"camera": np.zeros(9, np.int64)}
        )


def test_columns_are_part_of_the_digest_only_where_there_are_any(image_set: ImageSet) -> None:
    assert image_set.digest() == "77f098d02f362c99833043a4c0c66fe51cdce82e8b7adc32f7ea5479bd52ab50"
    images = with_columns(image_set)
    values = (images.images, images.labels, images.class_names, images.ids)
    camera = images.columns["camera"]
    changed = [
        {"camera": camera}, {"Camera": camera}, {"camera": camera[::-1]}, {"camera": camera.astype(np.int32)}
    ]  # fmt: skip
    assert len({image_set.digest(), *(ImageSet(*values, columns).digest() for columns in changed)}) == 5
    order = [{"a": camera, "b": camera + 1}, {"b": camera + 1, "a": camera}]
    assert len({ImageSet(*values, columns).digest() for columns in order}) == 1
