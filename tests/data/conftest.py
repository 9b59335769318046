"""Where the real data is, and small sets to work with."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limpet.data import ArrayImages, ImageSet
from limpet.data.glyphs import glyphs
from limpet.data.retrieval_data import RetrievalData
from limpet.embeddings import StringArray

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the real data sets; tests that need it skip where there is none."""
    root = Path(os.environ.get("LIMPET_DATA") or REPOSITORY.parent / "shared" / "data")
    if not root.is_dir():
        pytest.skip(f"no real data: LIMPET_DATA is not set and there is no folder {root}")
    return root


@pytest.fixture(scope="session")
def glyph_data() -> RetrievalData:
    """The embedded data set as it comes."""
    return glyphs()


@pytest.fixture
def image_set() -> ImageSet:
    """Ten images of four classes, of which class 2 has none; every pixel of image i is i."""
    pixels = np.broadcast_to(np.arange(10, dtype=np.uint8)[:, None, None, None], (10, 1, 4, 4)).copy()
    labels = np.array([0, 0, 0, 1, 1, 1, 1, 3, 3, 3])
    names = ("ape", "bee", "cat", "dog")
    return ImageSet(ArrayImages(pixels), labels, names, StringArray.of(f"image-{row}" for row in range(10)))


@pytest.fixture(scope="session")
def paint() -> Callable[..., None]:
    """Write a small picture of one brightness, and the folders that it lies in."""

    def write(path: Path, value: int = 0, size: tuple[int, int] = (10, 8)) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (value, value, value)).save(path)

    return write


@pytest.fixture(scope="session")
def brightness() -> Callable[[ImageSet], list[int]]:
    """Read the brightness of every picture, to the nearest ten: JPEG is not exact."""

    def read(images: ImageSet) -> list[int]:
        means = images.read(np.arange(len(images))).mean(axis=(1, 2, 3))
        return [int(10 * np.rint(mean / 10)) for mean in means]

    return read
