from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from limpet.evaluation.thumbnails import LARGEST, thumbnails


def shown(file: bytes) -> Image.Image:
    return Image.open(BytesIO(file))


def test_pictures_are_small_files_that_keep_their_shape() -> None:
    found = thumbnails({"wide": np.full((3, 100, 200), 200, np.uint8), "small": np.zeros((3, 4, 8), np.uint8)})
    assert shown(found["wide"]).size == (LARGEST, LARGEST // 2) and shown(found["small"]).size == (8, 4)


def test_white_ink_on_black_becomes_dark_ink_on_white() -> None:
    ink = np.zeros((1, 8, 8), np.uint8)
    ink[0, 2:4] = 255
    assert np.asarray(shown(thumbnails({"a": ink})["a"]))[[0, 2], 0].tolist() == [255, 0]
    photograph = {"a": np.stack([ink[0]] * 3), "b": ink}
    assert np.asarray(shown(thumbnails(photograph)["b"]))[[0, 2], 0].tolist() == [0, 255]
    assert thumbnails({}) == {}
