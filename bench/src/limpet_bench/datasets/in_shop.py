"""In-shop Clothes Retrieval: shop photographs of DeepFashion (Liu et al., DeepFashion, CVPR 2016)."""

from __future__ import annotations

from pathlib import Path

from limpet.data import Dataset, Fit, ImageSize, RetrievalData
from limpet.errors import DataError
from limpet_bench.datasets.layout import Needed, fields_of, listed_images, require, text_of, unlike

OBTAINED = (
    "the project page of its authors (DeepFashion, In-shop Clothes Retrieval Benchmark: "
    "mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html, after a request)"
)
_LIST = "list_eval_partition.txt"
_NEEDED = (
    Needed(f"Eval/{_LIST}", "the official partition", (f"Anno/{_LIST}", _LIST)),
    Needed("Img/img/", "the images", ("img/", "Img/img_highres/", "img_highres/")),
)
_OFFICIAL = {
    "training images": 25_882,
    "items to train on": 3_997,
    "queries": 14_218,
    "gallery images": 12_612,
    "items to search": 3_985,
}
_HEADER = "a number of images, then the line 'image_name item_id evaluation_status', then one line per image"
_PARTS = ("train", "query", "gallery")

Rows = list[tuple[str, str]]


def in_shop(root: Path, *, image_size: ImageSize = 224, fit: Fit = "crop") -> RetrievalData:
    """Photographs of clothes: training on 3,997 items, search among 3,985 other items.

    Official counts: 25,882 training images of 3,997 items; 14,218 queries and 12,612 gallery images of 3,985 items.

    Args:
        root: Folder with ``list_eval_partition.txt`` (in ``Eval``, in ``Anno`` or directly in the folder) and the
            images (in ``Img/img``, ``img``, ``Img/img_highres`` or ``img_highres``).
        image_size: Height and width of the images in pixels, or one number for both.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.

    Raises:
        DataError: A file is missing, the list has an unknown header or an incomplete line, or names images that do not
            exist.
    """
    listing, images = require(root, _NEEDED, "in-shop", OBTAINED)
    parts = _partition(listing)
    items = sorted({item for part in ("query", "gallery") for _, item in parts[part]})
    train, query, gallery = (
        listed_images(
            images,
            [file.removeprefix("img/") for file, _ in parts[part]],
            [item for _, item in parts[part]],
            image_size,
            fit,
            class_names=None if part == "train" else items,
            ids=[file for file, _ in parts[part]],
        )
        for part in _PARTS
    )
    counts = (len(train), len(train.class_names), len(query), len(gallery), len(items))
    return RetrievalData(
        name="in-shop",
        train=train,
        query=query,
        gallery=gallery,
        leave_one_out=False,
        validation=None,
        description=f"photographs of clothes: {len(train.class_names):,} items to train on, {len(items):,} to search; "
        f"the official partition{unlike(dict(zip(_OFFICIAL, counts, strict=True)), _OFFICIAL)}",
    )


def _partition(path: Path) -> dict[str, Rows]:
    head = [line.split() for line in text_of(path).splitlines()[:2]]
    if len(head) < 2 or len(head[0]) != 1 or not head[0][0].isdigit() or head[1][:1] != ["image_name"]:
        begin = " / ".join(" ".join(line) for line in head)
        raise DataError(f"{path} begins with '{begin:.80}'.", expected=_HEADER, to_do=f"get it again from {OBTAINED}.")
    rows = fields_of(path, 3, "image_name item_id evaluation_status", skip=2)
    if len(rows) != int(head[0][0]):
        raise DataError(
            f"{path} announces {head[0][0]} images and lists {len(rows)}.",
            expected="as many lines as its first line says",
            to_do=f"get it again from {OBTAINED}.",
        )
    parts: dict[str, Rows] = {part: [] for part in _PARTS}
    for file, item, part in (row[:3] for row in rows):
        if part not in parts:
            raise DataError(f"{path} puts {file} into '{part}'.", expected=f"one of {', '.join(_PARTS)}")
        parts[part].append((file, item))
    return parts


IN_SHOP = Dataset(in_shop, "clothes, 3,997 items to train on and 3,985 to search", "in-shop", OBTAINED)
