import numpy as np
import pytest

from limpet.data import ArrayImages, ImageSet, refuse_shared_ids
from limpet.data.leaks import shared_pixels
from limpet.embeddings import StringArray
from limpet.errors import DataError


def test_sets_that_are_apart_are_fine(image_set: ImageSet) -> None:
    refuse_shared_ids(image_set[[0, 1]], image_set[[2, 3]])
    refuse_shared_ids(image_set, image_set[[]])


def test_a_shared_id_is_refused_and_named(image_set: ImageSet) -> None:
    with pytest.raises(DataError, match=r"1 evaluation images were trained on, first: 'image-1'"):
        refuse_shared_ids(image_set[[0, 1]], image_set[[1, 2]])


def test_equal_pixels_under_other_ids_are_refused_and_named(image_set: ImageSet) -> None:
    other = ImageSet(
        image_set.images, image_set.labels, image_set.class_names, StringArray.of(f"x{row}" for row in range(10))
    )
    train, evaluation = image_set[[0, 5, 6]], other[[6, 7]]
    assert shared_pixels(train, evaluation) == [("image-6", "x6")]
    with pytest.raises(DataError, match=r"1 evaluation images(.|\n)*'x6' is 'image-6'"):
        refuse_shared_ids(train, evaluation)


def test_every_row_of_a_large_set_is_compared(image_set: ImageSet) -> None:
    pixels = np.zeros((5000, 1, 4, 4), np.uint8)
    pixels[4999] = 9
    ids = [f"row {row}" for row in range(5000)]
    train = ImageSet(ArrayImages(pixels), np.zeros(5000, np.int64), ("a",), StringArray.of(ids))
    assert shared_pixels(train, image_set[[9]]) == [("row 4999", "image-9")]
