"""Setting whole classes apart, for data sets whose own evaluation is another data set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.data.choosing import generator_of
from holdfast.data.image_set import ImageSet
from holdfast.errors import ConfigError, DataError


def classes_apart(labels: NDArray[np.int64], classes: int, share: float, seed: int) -> NDArray[np.bool_]:
    """Choose classes to search among, and return which rows are of them.

    Args:
        labels: Class of every row, int64 (N,), from 0.
        classes: How many classes there are.
        share: Share of the classes to set apart, above 0 and below 1.
        seed: Chooses them.

    Returns:
        bool (N,), True for rows of the classes set apart.

    Raises:
        ConfigError: The share is out of range, or fewer than two classes would be on one side.
        DataError: None of the classes set apart has two images, so that no query could be answered.

    >>> classes_apart(np.repeat(np.arange(6), 2), 6, 0.5, seed=0).sum()
    np.int64(6)
    """
    if not 0 < share < 1:
        raise ConfigError(f"held_out_classes = {share}.", expected="above 0 and below 1")
    count = round(share * classes)
    if not 2 <= count <= classes - 2:
        raise ConfigError(
            f"held_out_classes = {share} of {classes} classes is {count}.",
            expected="at least two classes to search among, and two to train on",
        )
    apart: NDArray[np.bool_] = np.isin(labels, generator_of(seed).permutation(classes)[:count])
    if np.bincount(labels[apart], minlength=1).max() < 2:
        raise DataError(
            f"None of the {count} classes held out has two images.",
            expected="images that can find one another",
            to_do="hold out more classes, or give another seed.",
        )
    return apart


def set_classes_apart(images: ImageSet, share: float, seed: int) -> tuple[ImageSet, ImageSet, str]:
    """Return the images to train on, those of the classes set apart, and what to say of these; see `classes_apart`."""
    apart = classes_apart(images.labels, len(images.class_names), share, seed)
    evaluation = images.select(apart).compact()
    said = f"{len(evaluation.class_names):,} others held out (seed {seed}), each image searches the others"
    return images.select(~apart).compact(), evaluation, said
