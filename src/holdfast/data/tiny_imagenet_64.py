"""Tiny-ImageNet: photographs of 200 ImageNet classes at 64 x 64 pixels (Le and Yang, Stanford CS231n, 2015)."""

from __future__ import annotations

from pathlib import Path

from holdfast.data.decoding import Fit
from holdfast.data.image_set import ImageSet
from holdfast.data.layout import Needed, require
from holdfast.data.listed_images import fields_of, listed_images, unlike
from holdfast.data.retrieval_data import RetrievalData
from holdfast.errors import DataError

OBTAINED = "the course page of Stanford CS231n (cs231n.stanford.edu/tiny-imagenet-200.zip)"
_NEEDED = (
    Needed("wnids.txt", "the 200 classes"),
    Needed("words.txt", "their names"),
    Needed("train/", "images to train on"),
    Needed("val/images/", "images to search"),
    Needed("val/val_annotations.txt", "their classes"),
)
_OFFICIAL = {"training images": 100_000, "validation images": 10_000, "classes": 200}


def tiny_imagenet(root: Path, *, image_size: int = 64, fit: Fit = "crop") -> RetrievalData:
    """Photographs of 200 classes, 64 x 64 pixels: train on train, leave-one-out search on val.

    Official counts: 100,000 images to train on and 10,000 to search, of 200 classes. The test images are not used: who
    made them never published their classes.

    Args:
        root: Folder ``tiny-imagenet-200`` with ``wnids.txt``, ``words.txt``, ``train/WNID/images`` and ``val``.
        image_size: Height and width to bring images to.
        fit: "crop" or "squash".

    Raises:
        DataError: A file or folder is missing, an annotation is incomplete or of an unknown class, or an image is
            missing.
    """
    wnid_file, word_file, folder, _, annotations = require(root, _NEEDED, "tiny-imagenet", OBTAINED)
    codes = sorted(fields[0] for fields in fields_of(wnid_file, 1, "the code of a class, such as n01443537"))
    titles = _titles(word_file, codes)
    train = _train(root, folder, titles, image_size, fit)
    rows = fields_of(annotations, 2, "a file and the code of its class, such as 'val_0.JPEG<tab>n03444034'")
    _refuse_unknown(annotations, [row[1] for row in rows], titles)
    val = listed_images(
        root,
        [f"val/images/{row[0]}" for row in rows],
        [titles[row[1]] for row in rows],
        image_size,
        fit,
        class_names=train.class_names,
    )
    counts = (len(train), len(val), len(codes))
    return RetrievalData.of_one_set(
        name="tiny-imagenet",
        train=train,
        evaluation=val,
        description=f"photographs of {len(codes)} classes, {len(train):,} to train on; every one of {len(val):,} val "
        f"images searches the others{unlike(dict(zip(_OFFICIAL, counts, strict=True)), _OFFICIAL)}",
    )


def _titles(path: Path, codes: list[str]) -> dict[str, str]:
    """Return the name of every class by its code: the code, and the first of its words."""
    words = {row[0]: row[1] for row in fields_of(path, 2, "a code, a tab, and words", separator="\t")}
    return {code: f"{code} {words[code].split(',')[0]}" if code in words else code for code in codes}


def _train(root: Path, folder: Path, titles: dict[str, str], image_size: int, fit: Fit) -> ImageSet:
    files, classes = [], []
    for code, title in titles.items():
        place = folder / code / "images"
        names = sorted(path.name for path in place.iterdir() if path.suffix == ".JPEG") if place.is_dir() else []
        if not names:
            raise DataError(
                f"There are no images in {place}.",
                expected=f"{code}_0.JPEG and others: wnids.txt names this class",
                to_do=f"get what is missing from {OBTAINED}.",
            )
        files += [f"train/{code}/images/{name}" for name in names]
        classes += [title] * len(names)
    return listed_images(root, files, classes, image_size, fit, class_names=tuple(titles.values()))


def _refuse_unknown(path: Path, codes: list[str], titles: dict[str, str]) -> None:
    for number, code in enumerate(codes, 1):
        if code not in titles:
            raise DataError(f"Annotation {number} of {path} is of the class '{code}'.", expected="a code of wnids.txt")
