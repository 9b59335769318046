from __future__ import annotations

from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from limpet.errors import DataError
from limpet.evaluation.thumbnails import LARGEST, png
from limpet.reports.pictures import data_uris


def opened(uri: str) -> Image.Image:
    head, _, content = uri.partition(",")
    assert head == "data:image/png;base64"
    return Image.open(BytesIO(b64decode(content)))


def test_white_ink_on_black_becomes_dark_ink_on_white() -> None:
    glyph = np.zeros((1, 10, 10), np.uint8)
    glyph[0, 4:6, 2:8] = 250
    shown = np.asarray(opened(data_uris(["a"], lambda _: glyph)["a"]))
    assert shown[0, 0] == 255 and shown[4, 4] == 5


def test_bright_grey_pictures_stay_as_they_are() -> None:
    photograph = np.full((1, 6, 6), 200, np.uint8)
    assert np.asarray(opened(data_uris(["a"], lambda _: photograph)["a"])).tolist() == photograph[0].tolist()


def test_one_decision_for_all_pictures() -> None:
    pictures = {name: np.full((1, 4, 4), level, np.uint8) for name, level in (("a", 0), ("b", 10), ("c", 200))}
    shown = {name: np.asarray(opened(uri))[0, 0] for name, uri in data_uris(pictures, pictures.__getitem__).items()}
    assert shown == {"a": 255, "b": 245, "c": 55}


def test_dark_colour_pictures_are_not_inverted() -> None:
    dark = np.zeros((3, 5, 7), np.uint8)
    dark[0] = 90
    shown = opened(data_uris(["a"], lambda _: dark)["a"]).convert("RGB")
    assert shown.size == (7, 5)
    assert shown.getpixel((3, 3)) == (90, 0, 0)


def test_large_pictures_become_small() -> None:
    noise = np.random.default_rng(0).integers(0, 256, size=(3, 300, 200), dtype=np.uint8)
    content = png(noise)
    assert Image.open(BytesIO(content)).size == (64, LARGEST)
    assert len(content) < 8_000


def test_every_picture_is_asked_for_once() -> None:
    asked: list[str] = []
    data_uris(["a", "b", "a"], lambda name: asked.append(name))
    assert asked == ["a", "b"]


def test_items_without_a_picture_are_left_out() -> None:
    assert data_uris(["a"], lambda _: None) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        b"JPEG",
        np.zeros((4, 4), np.uint8),
        np.zeros((1, 4, 4)),
        np.zeros((2, 4, 4), np.uint8),
        np.zeros((1, 0, 4), np.uint8),
    ],
)
def test_what_is_no_picture_is_refused_by_name(wrong: bytes | np.ndarray) -> None:
    with pytest.raises(DataError, match="picture of 'shoe'"):
        data_uris(["shoe"], lambda _: wrong)
