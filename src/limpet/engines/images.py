"""Images in files whose paths are in a source."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from limpet.data.decoding import Fit
from limpet.data.image_set import ImageSet
from limpet.data.image_size import ImageSize, readable_sides
from limpet.data.images import FileImages
from limpet.data.retrieval_data import RetrievalData
from limpet.engines.reading import labelled_column
from limpet.engines.source import Source, needed, roles_of


def images_of(source: Source, *, image_size: ImageSize = 32, channels: int = 3, fit: Fit = "crop") -> RetrievalData:
    """Read the ids of images, the paths of their files, and their labels, if there are any.

    Args:
        source: Source of the paths; relative paths are relative to the working directory.
        image_size: Height and width to resize images to, or one number for both.
        channels: 3 for colour, 1 for grey.
        fit: "crop" or "squash", for images of another size.

    Returns:
        One set, in which every image searches the others, without a training part.

    Raises:
        ConfigError: A column of ids or images is missing.
        DataError: Paths or labels are missing or of another type.
        StoreError: The source is unreachable.
    """
    paths, labels, classes, ids = labelled_column(source, needed(source, roles_of(source), "id", "image"), "image")
    images = FileImages([Path(path) for path in paths], (channels, *readable_sides(image_size)), fit=fit)
    numbers = np.zeros(len(ids), np.int64) if labels is None else labels
    return RetrievalData.of_one_set(
        name=source.address.called,
        train=None,
        evaluation=ImageSet(images, numbers, classes or ("unlabelled",), ids),
        description=f"{len(ids)} images of {source.name}, each searches the others",
        labelled=labels is not None,
    )
