"""Products-10K: products of an online shop (Bai et al., A Large-scale Product Recognition Dataset, 2020)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from limpet.data import Dataset, Fit, ImageSet, ImageSize, RetrievalData, class_counts, hold_out
from limpet.errors import DataError
from limpet_bench.datasets.layout import Needed, listed_images, require, table_of, unlike

OBTAINED = "its home page, products-10k.github.io"
LEAST_IMAGES = 20
"""Minimum number of training images of a class in Product-M."""

_TRAIN = (Needed("train.csv", "the classes of the training images"), Needed("train/", "images to train on"))
_TEST = (
    Needed("test.csv", "the classes of the test images", ("test_kaggletest.csv",)),
    Needed("test/", "images to search"),
)
_OFFICIAL = {"training images": 141_931, "test images": 55_376, "products": 9_691}
_OFFICIAL_M = {"products": 2_743}


def product_10k(
    root: Path,
    *,
    subset: Literal["all", "Product-M"] = "all",
    image_size: ImageSize = 224,
    fit: Fit = "crop",
    held_out: float = 0.2,
    seed: int = 0,
) -> RetrievalData:
    """Photographs of products: training on the train split, leave-one-out search on the test split.

    Official counts: 141,931 training images of 9,691 products, and 55,376 test images. "Product-M" (Wan et al., CVS,
    CVPR 2022) is the subset of the 2,743 products with at least 20 training images; a share of the training images of
    every product is held out for the search. The authors did not publish which images they held out; here the seed
    selects them.

    Args:
        root: Folder with ``train.csv`` and ``test.csv`` (or ``test_kaggletest.csv``), both with the columns name and
            class, and the images in ``train`` and ``test``. "Product-M" needs no test images.
        subset: "all" or "Product-M".
        image_size: Height and width of the images in pixels, or one number for both.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
        held_out: Share of every product's images to hold out for the search in "Product-M".
        seed: Random seed that selects these images.

    Raises:
        ConfigError: An option is out of range.
        DataError: A file is missing, lacks a column, or names images that do not exist.
    """
    needed = _TRAIN if subset == "Product-M" else (*_TRAIN, *_TEST)
    tables = require(root, needed, "product-10k", OBTAINED)[::2]
    train = _images(root, "train", tables[0], image_size, fit)
    if subset == "Product-M":
        return _product_m(train, held_out, seed)
    test = _images(root, "test", tables[1], image_size, fit)
    counts = (len(train), len(test), len(train.class_names))
    return RetrievalData.of_one_set(
        name="product-10k",
        train=train,
        evaluation=test,
        description=f"photographs of {len(train.class_names):,} products, {len(train):,} to train on; every one of "
        f"{len(test):,} test images searches the others{unlike(dict(zip(_OFFICIAL, counts, strict=True)), _OFFICIAL)}",
    )


def _images(root: Path, part: str, table: Path, image_size: ImageSize, fit: Fit) -> ImageSet:
    rows = table_of(table, ("name", "class"))
    files = [f"{part}/{name}" for name, _ in rows]
    return listed_images(root, files, [product for _, product in rows], image_size, fit)


def _product_m(train: ImageSet, held_out: float, seed: int) -> RetrievalData:
    kept = np.flatnonzero(class_counts(train.labels) >= LEAST_IMAGES)
    if len(kept) < 2:
        raise DataError(
            f"{len(kept)} products have at least {LEAST_IMAGES} training images.",
            expected="at least two, for Product-M",
            to_do="choose subset 'all'.",
        )
    data = hold_out("product-m", train.select_classes(kept.tolist()).compact(), held_out, seed)
    return replace(data, description=data.description + unlike({"products": len(kept)}, _OFFICIAL_M))


PRODUCT_10K = Dataset(product_10k, "products of a shop, 9,691 classes; or Product-M", "product-10k", OBTAINED)
