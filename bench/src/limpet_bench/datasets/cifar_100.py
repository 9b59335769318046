"""CIFAR-100: small photographs of 100 classes (Krizhevsky, Learning Multiple Layers of Features, 2009)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from limpet.data import (
    ArrayImages,
    Dataset,
    EncodedImages,
    Fit,
    Images,
    ImageSet,
    ImageSize,
    RetrievalData,
    keep_decoded,
    readable_sides,
)
from limpet.embeddings import StringArray
from limpet.errors import DataError
from limpet_bench.datasets.hold_out import set_images_apart
from limpet_bench.datasets.layout import Needed, require, text_of, unlike

OBTAINED = "its home page, www.cs.toronto.edu/~kriz/cifar.html (the binary version, cifar-100-binary.tar.gz)"
SIDE = 32
"""Pixels per side of every image."""

_NEEDED = (
    Needed("train.bin", "images to train on"),
    Needed("test.bin", "images to search"),
    Needed("fine_label_names.txt", "the names of the classes"),
)
_RECORD = 2 + 3 * SIDE * SIDE  # coarse label, fine label, and the red, green and blue plane
_OFFICIAL = {"training images": 50_000, "test images": 10_000, "classes": 100}


def cifar_100(
    root: Path, *, image_size: ImageSize = SIDE, fit: Fit = "crop", validation_fraction: float = 0.0, seed: int = 0
) -> RetrievalData:
    """Small photographs of 100 classes: training on the train split, leave-one-out search on the test split.

    Official counts: 50,000 training images and 10,000 test images of 100 classes. Labels are the fine classes. Only the
    binary version is read. The Python version is refused, because it is pickled and reading a pickle can run code.

    Args:
        root: Folder ``cifar-100-binary`` with ``train.bin``, ``test.bin`` and ``fine_label_names.txt``.
        image_size: Height and width in pixels, or one number for both. With 32, images are not resized.
        fit: "crop" or "squash". Results differ only if ``image_size`` is not square; releases record it.
        validation_fraction: Share of every class's training images to hold out for validation.
        seed: Random seed that selects these images.

    Raises:
        DataError: A file is missing or damaged, or the folder holds only the Python version.
    """
    size = readable_sides(image_size)
    if (root / "meta").is_file() and (root / "train").is_file() and not (root / "train.bin").exists():
        raise DataError(
            f"{root} holds the Python version of CIFAR-100, which is pickled: reading it could run code.",
            expected="the binary version: train.bin, test.bin, fine_label_names.txt",
            to_do=f"get it from {OBTAINED}.",
        )
    train_file, test_file, name_file = require(root, _NEEDED, "cifar-100", OBTAINED)
    names = tuple(text_of(name_file).split())
    train, test = (_read_part(path, names, size, fit) for path in (train_file, test_file))
    counts = (len(train), len(test), len(names))
    train, validation, said = set_images_apart(train, validation_fraction, seed)
    return RetrievalData.of_one_set(
        name="cifar-100",
        train=train,
        evaluation=test,
        validation=validation,
        description=f"photographs of {len(names)} classes, {len(train):,} to train on; every one of {len(test):,} test "
        f"images searches the others{said}{unlike(dict(zip(_OFFICIAL, counts, strict=True)), _OFFICIAL)}",
    )


def _read_part(path: Path, names: tuple[str, ...], size: tuple[int, int], fit: Fit) -> ImageSet:
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error}.", expected="a complete file") from error
    if len(content) == 0 or len(content) % _RECORD:
        raise DataError(
            f"{path} has {len(content):,} bytes.",
            expected=f"a whole number of records of {_RECORD:,} bytes: two labels and 3 x 32 x 32 pixels",
            to_do=f"get it again from {OBTAINED}.",
        )
    records = content.reshape(-1, _RECORD)
    ids = StringArray.of(f"{path.stem}/{row:05d}" for row in range(len(records)))
    pixels = records[:, 2:].reshape(-1, 3, SIDE, SIDE)
    return ImageSet(_images(pixels, size, fit), records[:, 1].astype(np.int64), names, ids)


def _images(pixels: NDArray[np.uint8], size: tuple[int, int], fit: Fit) -> Images:
    if size == (SIDE, SIDE):
        return ArrayImages(pixels)
    header = f"P6 {SIDE} {SIDE} 255\n".encode()
    files = [header + image.tobytes() for image in np.moveaxis(pixels, 1, -1)]
    return keep_decoded(EncodedImages.of(files, (3, *size), fit=fit, source="CIFAR-100"))


CIFAR_100 = Dataset(cifar_100, "photographs of 100 classes at 32 x 32 pixels", "cifar-100-binary", OBTAINED)
