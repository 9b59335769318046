"""MS1MV3: five million aligned faces of 93,431 people in one record file (Deng et al., ICCV workshops 2019)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from limpet.data import Dataset, ImageSet, ImageSize, RetrievalData, keep_decoded, readable_sides
from limpet.embeddings import StringArray
from limpet.errors import DataError
from limpet_bench.datasets.hold_out import set_classes_apart
from limpet_bench.datasets.layout import Needed, require, unlike
from limpet_bench.datasets.record_io import RecordFile, RecordImages

OBTAINED = "the list of training sets of the insightface project (MS1M-RetinaFace, also called MS1MV3)"

_NEEDED = (
    Needed("train.rec", "the records"),
    Needed("train.idx", "where each record begins"),
)
_OFFICIAL = {"images": 5_179_510, "people": 93_431}
_LOOKED_AT = 64


def ms1mv3(root: Path, *, image_size: ImageSize = 112, held_out_classes: float = 0.01, seed: int = 0) -> RetrievalData:
    """Aligned faces of 93,431 people for training; papers evaluate on other data sets, such as ``ijbc``.

    Official counts: 5,179,510 images of 93,431 people, 112 x 112 pixels. The name of a class is its number, the id of
    an image is the key of its record. To train on all people, as papers do, set ``held_out_classes`` to 0. The
    evaluation images are then those of the two people with the most images; scores on them are meaningless, because
    the model was trained on them.

    Args:
        root: Folder with ``train.rec`` and ``train.idx``; ``property`` is not needed.
        image_size: Height and width of the images in pixels, or one number for both.
        held_out_classes: Share of the people to hold out for a leave-one-out search.
        seed: Random seed that selects these people.

    Raises:
        ConfigError: An option is out of range.
        DataError: A file is missing or damaged, or records and index do not match.
    """
    height, width = readable_sides(image_size)
    records, index = require(root, _NEEDED, "ms1mv3", OBTAINED)
    file = RecordFile(records, index)
    rows, people = labelled_rows(file)
    values, labels = np.unique(people, return_inverse=True)
    shape = (3, height, width)
    ids = StringArray.from_arrow(pa.array(file.keys[rows]).cast(pa.large_string()))
    images = keep_decoded(RecordImages(file, rows, shape))
    faces = ImageSet(images, labels.astype(np.int64), tuple(map(str, values.tolist())), ids)
    unofficial = unlike({"images": len(faces), "people": len(values)}, _OFFICIAL)
    train, evaluation, said = _apart(faces, held_out_classes, seed)
    return RetrievalData.of_one_set(
        name="ms1mv3",
        train=train,
        evaluation=evaluation,
        description=f"faces: {len(train.class_names):,} people to train on; {said}{unofficial}",
    )


def _apart(faces: ImageSet, share: float, seed: int) -> tuple[ImageSet, ImageSet, str]:
    if share == 0:
        most = np.argsort(-np.bincount(faces.labels), kind="stable")[:2]
        shown = faces.select_classes(most.tolist()).compact()
        return faces, shown, "evaluation images are of two people trained on and measure nothing; use ijbc"
    return set_classes_apart(faces, share, seed)


def labelled_rows(file: RecordFile) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the records that hold images (N,), and the person of each (N,), both int64.

    Record 0 may hold two numbers, begin and end. Images then have the keys from 1 to begin - 1. The records from begin
    to end - 1 describe people, in the order of their labels: each holds the key of the person's first image and the key
    after the last. The images of a person are consecutive, so these records are enough; a few labels of images are read
    to check them. If the records of people are missing, do not cover all images or contradict a checked label, the
    labels of all images are read.

    Raises:
        DataError: Records are missing or damaged, or labels are not whole numbers from 0.
    """
    first = file.header(0)[0] if file.keys[0] == 0 else np.empty(0, np.float32)
    if len(first) < 2:
        rows = np.arange(len(file.keys))
        return rows, _whole(file.first_labels(rows)[:, 0], file)
    begin, end = first[:2].astype(np.int64).tolist()
    rows = file.rows_of(np.arange(1, begin))
    if not len(rows):
        raise DataError(f"{file.path} announces no images.", expected="images")
    people = _by_person(file, begin, end, len(rows))
    if people is None:
        people = _whole(file.first_labels(rows)[:, 0], file)
    return rows, people


def _by_person(file: RecordFile, begin: int, end: int, images: int) -> NDArray[np.int64] | None:
    """Return the person of every image from the records of people; None if these are missing or wrong."""
    if end <= begin:
        return None
    ranges = _whole(file.first_labels(file.rows_of(np.arange(begin, end)), 2).ravel(), file).reshape(-1, 2)
    sizes = ranges[:, 1] - ranges[:, 0]
    order = np.argsort(ranges[:, 0], kind="stable")
    borders = np.concatenate([ranges[order, 0], [images + 1]])
    if borders[0] != 1 or (ranges[order, 1] != borders[1:]).any() or (sizes < 1).any():
        return None
    people = np.repeat(np.arange(len(ranges))[order], sizes[order])
    looked_at = np.unique(np.linspace(0, images - 1, _LOOKED_AT).astype(np.int64))
    labels = _whole(file.first_labels(file.rows_of(looked_at + 1))[:, 0], file)
    return people if np.array_equal(people[looked_at], labels) else None


def _whole(labels: NDArray[np.float32], file: RecordFile) -> NDArray[np.int64]:
    if not (np.isfinite(labels).all() and (labels >= 0).all() and (labels == np.floor(labels)).all()):
        raise DataError(f"{file.path} has labels that are no whole numbers from 0.", expected="one number per person")
    return labels.astype(np.int64)


MS1MV3 = Dataset(ms1mv3, "faces of 93,431 people to train on, in MXNet records", "ms1m-retinaface-t1", OBTAINED)
