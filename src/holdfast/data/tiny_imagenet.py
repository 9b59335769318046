"""Tiny-ImageNet at 32 x 32 pixels: 200 classes of everyday things."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from holdfast.data.choosing import class_counts, generator_of, lowest_of_each_class
from holdfast.data.image_set import ImageSet
from holdfast.data.images import EncodedImages, keep_decoded
from holdfast.data.retrieval_data import RetrievalData
from holdfast.embeddings import StringArray
from holdfast.errors import ConfigError, DataError

_COLUMNS = ("image", "label", "file")


def tiny_imagenet_32(root: Path, *, class_share: float = 1.0, image_share: float = 1.0, seed: int = 0) -> RetrievalData:
    """Photographs of 200 classes, 32 x 32 pixels: train on train, leave-one-out search on val.

    Args:
        root: Folder with ``train.parquet`` and ``val.parquet``, each with the columns ``image`` (JPEG bytes),
            ``label`` and ``file``, and the schema metadata ``classes`` and ``names``.
        class_share: Share of the classes to keep, in both parts: fewer classes make a smaller task.
        image_share: Share of every class's training images to keep; the evaluation keeps all of its images.
        seed: Chooses classes and images.
    """
    for name, share in (("class_share", class_share), ("image_share", image_share)):
        if not 0 < share <= 1:
            raise ConfigError(f"{name} = {share}.", expected="above 0 and at most 1")
    train, val = (_read_part(root / f"{part}.parquet", part) for part in ("train", "val"))
    if train.class_names != val.class_names:
        raise DataError("train.parquet and val.parquet name other classes.", expected="one list of classes")
    classes, images = generator_of(seed).spawn(2)
    kept = classes.permutation(len(train.class_names))[: max(2, round(class_share * len(train.class_names)))]
    train, val = (part.select_classes(kept).compact() for part in (train, val))
    wanted = np.maximum(1, np.rint(image_share * class_counts(train.labels)))
    train = train.select(lowest_of_each_class(train.labels, images.random(len(train)), wanted))
    return RetrievalData.of_one_set(
        name="tiny-imagenet-32",
        train=train,
        evaluation=val,
        description=f"photographs of {len(train.class_names)} classes, {len(train)} to train on; "
        f"every one of {len(val)} val images searches the others",
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
