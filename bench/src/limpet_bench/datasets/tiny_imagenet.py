"""Tiny-ImageNet: photographs of 200 ImageNet classes, at 32 and at 64 pixels (Le and Yang, Stanford CS231n, 2015)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from limpet.data import (
    Dataset,
    EncodedImages,
    Fit,
    ImageSet,
    ImageSize,
    RetrievalData,
    class_counts,
    generator_of,
    keep_decoded,
    lowest_of_each_class,
)
from limpet.embeddings import StringArray
from limpet.errors import DataError, refuse
from limpet_bench.datasets.hold_out import set_images_apart
from limpet_bench.datasets.layout import Needed, fields_of, listed_images, require, unlike

_COLUMNS = ("image", "label", "file")


def tiny_imagenet_32(
    root: Path,
    *,
    class_share: float = 1.0,
    image_share: float = 1.0,
    validation_fraction: float = 0.0,
    seed: int = 0,
) -> RetrievalData:
    """Photographs of 200 classes, 32 x 32 pixels: training on the train split, leave-one-out search on the val split.

    Args:
        root: Folder with ``train.parquet`` and ``val.parquet``, each with the columns ``image`` (JPEG bytes),
            ``label`` and ``file``, and the schema metadata ``classes`` and ``names``.
        class_share: Share of the classes to keep in both splits, for a smaller task; at least two are kept.
        image_share: Share of every class's training images to keep; the val split keeps all of its images.
        validation_fraction: Share of every class's kept training images to hold out for validation.
        seed: Random seed that selects classes and images.
    """
    for name, share in (("class_share", class_share), ("image_share", image_share)):
        refuse(not 0 < share <= 1, f"{name} = {share}.", "above 0 and at most 1")
    train, val = (_read_part(root / f"{part}.parquet", part) for part in ("train", "val"))
    if train.class_names != val.class_names:
        raise DataError("train.parquet and val.parquet name other classes.", expected="one list of classes")
    classes, images = generator_of(seed).spawn(2)
    kept = classes.permutation(len(train.class_names))[: max(2, round(class_share * len(train.class_names)))]
    train, val = (part.select_classes(kept).compact() for part in (train, val))
    wanted = np.maximum(1, np.rint(image_share * class_counts(train.labels)))
    train = train[lowest_of_each_class(train.labels, images.random(len(train)), wanted)]
    train, validation, said = set_images_apart(train, validation_fraction, seed)
    return RetrievalData.of_one_set(
        name="tiny-imagenet-32",
        train=train,
        evaluation=val,
        validation=validation,
        description=f"photographs of {len(train.class_names)} classes, {len(train)} to train on; "
        f"every one of {len(val)} val images searches the others{said}",
    )


def _read_part(path: Path, part: str) -> ImageSet:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DataError(f"There is no file {path}.", expected="train.parquet and val.parquet in one folder")
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"Cannot read {path}: {error}.", expected="a Parquet file") from error
    metadata = table.schema.metadata or {}
    if not set(_COLUMNS) <= set(table.column_names) or not {b"classes", b"names"} <= set(metadata):
        raise DataError(
            f"{path} has the columns {', '.join(table.column_names)}.",
            expected=f"columns {', '.join(_COLUMNS)}, and schema metadata 'classes' and 'names'",
        )
    codes, names = metadata[b"classes"].decode().split(","), metadata[b"names"].decode().split("|")
    titles = tuple(f"{code} {name.split(',')[0]}" for code, name in zip(codes, names, strict=True))
    encoded = EncodedImages.of(table["image"], (3, 32, 32), source=str(path))
    ids = StringArray.of(f"{part}/{file}" for file in table["file"].to_pylist())
    return ImageSet(keep_decoded(encoded), table["label"].to_numpy().astype(np.int64), titles, ids)


OBTAINED = "the course page of Stanford CS231n (cs231n.stanford.edu/tiny-imagenet-200.zip)"
_NEEDED = (
    Needed("wnids.txt", "the 200 classes"),
    Needed("words.txt", "their names"),
    Needed("train/", "images to train on"),
    Needed("val/images/", "images to search"),
    Needed("val/val_annotations.txt", "their classes"),
)
_OFFICIAL = {"training images": 100_000, "validation images": 10_000, "classes": 200}


def tiny_imagenet(
    root: Path, *, image_size: ImageSize = 64, fit: Fit = "crop", validation_fraction: float = 0.0, seed: int = 0
) -> RetrievalData:
    """Photographs of 200 classes, 64 x 64 pixels: training on the train split, leave-one-out search on the val split.

    Official counts: 100,000 training images and 10,000 val images of 200 classes. The test split is not used, because
    its classes were never published.

    Args:
        root: Folder ``tiny-imagenet-200`` with ``wnids.txt``, ``words.txt``, ``train/WNID/images`` and ``val``.
        image_size: Height and width of the images in pixels, or one number for both.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.
        validation_fraction: Share of every class's training images to hold out for validation.
        seed: Random seed that selects these images.

    Raises:
        DataError: A file, folder or image is missing, or an annotation is incomplete or has an unknown class.
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
    train, validation, said = set_images_apart(train, validation_fraction, seed)
    return RetrievalData.of_one_set(
        name="tiny-imagenet",
        train=train,
        evaluation=val,
        validation=validation,
        description=f"photographs of {len(codes)} classes, {len(train):,} to train on; every one of {len(val):,} val "
        f"images searches the others{said}{unlike(dict(zip(_OFFICIAL, counts, strict=True)), _OFFICIAL)}",
    )


def _titles(path: Path, codes: list[str]) -> dict[str, str]:
    """Return the name of every class by its code: the code and the first of its words."""
    words = {row[0]: row[1] for row in fields_of(path, 2, "a code, a tab, and words", separator="\t")}
    return {code: f"{code} {words[code].split(',')[0]}" if code in words else code for code in codes}


def _train(root: Path, folder: Path, titles: dict[str, str], image_size: ImageSize, fit: Fit) -> ImageSet:
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


TINY_IMAGENET_32 = Dataset(tiny_imagenet_32, "photographs of 200 classes at 32 x 32 pixels", "tiny-imagenet-32")
TINY_IMAGENET = Dataset(tiny_imagenet, "photographs of 200 classes at 64 x 64 pixels", "tiny-imagenet-200", OBTAINED)
