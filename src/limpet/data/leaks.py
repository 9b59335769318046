"""Finds evaluation images that are also in the training set."""

from __future__ import annotations

import hashlib

import numpy as np

from limpet.data.image_set import ImageSet
from limpet.data.images import chunks
from limpet.errors import DataError


def refuse_shared_ids(train: ImageSet, evaluation: ImageSet) -> None:
    """Refuse an evaluation that shares an image with the training set, by id or by identical pixels.

    If no id is shared, every image of both sets is read once.

    Raises:
        DataError: An image is in both sets; the message names the first one.
    """
    found = [(id_, id_) for id_ in set(train.ids) & set(evaluation.ids)] or shared_pixels(train, evaluation)
    if found:
        first = min(found)
        raise DataError(
            f"{len(found)} evaluation images were trained on, first: '{first[1]}' is '{first[0]}' of the training set.",
            to_do="remove these images from one of the two; a score measured on them would be too good.",
        )


def shared_pixels(train: ImageSet, evaluation: ImageSet) -> list[tuple[str, str]]:
    """Return pairs of ids (training, evaluation) of images with identical pixels, one pair per evaluation image."""
    known = {digest: row for row, digest in enumerate(pixel_digests(train))}
    return [
        (train.ids[known[digest]], evaluation.ids[row])
        for row, digest in enumerate(pixel_digests(evaluation))
        if digest in known
    ]


def pixel_digests(images: ImageSet) -> list[bytes]:
    """Return a digest of 16 bytes per image, over pixels and shape."""
    shape = repr(images.shape).encode()
    return [
        hashlib.blake2b(image.tobytes(), digest_size=16, key=shape).digest()
        for rows in chunks(np.arange(len(images)))
        for image in images.read(rows)
    ]
