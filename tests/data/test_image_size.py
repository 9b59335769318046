"""Sizes of images as people write them, and readers that take them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from limpet.data.datasets import DATASETS, load_dataset, option_names
from limpet.data.image_size import readable_sides, settled, sides, written
from limpet.errors import ConfigError
from limpet.support.options import bound


@pytest.mark.parametrize(
    ("size", "expected"),
    [(224, 224), ("224", 224), ("256x128", (256, 128)), ("256 X 128", (256, 128)), ("256×128", (256, 128)),
     ([256, 128], (256, 128)), ((64, 64), 64), ("64x64", 64)],
)  # fmt: skip
def test_every_spelling_is_one_number_or_height_and_width(size: object, expected: object) -> None:
    assert settled(size) == expected


@pytest.mark.parametrize(
    "size", ["big", "", "256x", "x128", "256x128x3", "-8", "2.5", [256], [1, 2, 3], [256, "128"], [True, 8], True, 32.0,
             None, {}, b"ab"],
)  # fmt: skip
def test_what_is_no_size_is_refused_with_all_spellings(size: object) -> None:
    with pytest.raises(ValueError, match=r"such as 224; or height and width, such as 256x128 or \[256, 128\]"):
        settled(size)


@given(height=st.integers(1, 400), width=st.integers(1, 400))
def test_a_size_and_what_is_written_of_it_are_the_same(height: int, width: int) -> None:
    assert sides(settled((height, width))) == (height, width) == sides(written((height, width)))  # type: ignore[arg-type]
    assert isinstance(settled([height, width]), int) == (height == width)


def test_small_sides_are_refused_whichever_it_is() -> None:
    assert readable_sides((8, 9)) == (8, 9)
    for size, said in (((256, 4), "256x4"), ((7, 256), "7x256"), (7, "7")):
        with pytest.raises(ConfigError, match=rf"image_size = {said}\.\nExpected: at least 8 pixels"):
            readable_sides(size)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of four photographs, 40 wide and 20 high, dark on the left and light on the right."""
    for label in range(2):
        for number in range(4):
            place = tmp_path / f"kind{label}"
            place.mkdir(exist_ok=True)
            pixels = np.tile(np.linspace(0, 255, 40).astype(np.uint8), (20, 1))
            Image.fromarray(pixels).save(place / f"{number}.png")
    return tmp_path


def test_own_images_are_cut_or_squashed_to_height_and_width(photos: Path) -> None:
    cut = load_dataset(photos, image_size=[20, 10], channels=1, held_out=0.5)
    squashed = load_dataset(photos, image_size="20x10", channels=1, held_out=0.5, fit="squash")
    assert cut.query.shape == squashed.query.shape == (1, 20, 10)
    middle, whole = (data.query.read(np.array([0]))[0, 0, 0] for data in (cut, squashed))
    assert (middle[0], middle[-1]) == (98, 156)  # columns 15 to 24 of 40, as they are
    assert whole[0] < 20 and whole[-1] > 235
    square = [load_dataset(photos, image_size=size, held_out=0.5).query for size in (16, [16, 16], "16x16")]
    assert len({one.digest() for one in square}) == 1 and {one.shape for one in square} == {(3, 16, 16)}


@pytest.mark.parametrize("size", ["big", [256], [16, 16, 3], 2.5])
def test_a_reader_that_is_given_no_size_says_how_it_is_written(photos: Path, size: object) -> None:
    with pytest.raises(ConfigError, match=r"'image_size' of the data in .*\nExpected: pixels per side, .*256x128"):
        load_dataset(photos, image_size=size)


SQUARE = {"omniglot", "ijbc", "glyphs"}
"""Characters on square paper, and faces that are laid upon landmarks of a square."""


@pytest.mark.parametrize("name", sorted(name for name in DATASETS if "image_size" in option_names(name)))
def test_readers_take_height_and_width_but_those_of_square_images(name: str) -> None:
    bound(DATASETS[name].read, {"image_size": [32, 32]}, name)
    if name not in SQUARE:
        bound(DATASETS[name].read, {"image_size": [256, 128]}, name)
        return
    with pytest.raises(ConfigError, match=r"\[256, 128\]\.\nExpected: one number .*: these images are square"):
        bound(DATASETS[name].read, {"image_size": [256, 128]}, name)


def test_square_images_take_a_square_in_every_spelling() -> None:
    few = {"training_classes": 2, "evaluation_classes": 2, "validation_classes": 0, "distortions": 1}
    one, *others = (load_dataset("glyphs", image_size=size, **few).query for size in (12, "12x12", [12, 12]))
    assert one.shape == (1, 12, 12) and {other.digest() for other in others} == {one.digest()}
