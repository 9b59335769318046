"""Hold images out: a share of every class for validation, or whole classes for evaluation."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray

from limpet.data import ImageSet, generator_of, held_out_rows
from limpet.errors import ConfigError, DataError
from limpet.support import Fraction, Seed, checked


@checked
def set_images_apart(
    images: ImageSet, validation_fraction: Annotated[float, Ge(0), Lt(1)], seed: Seed
) -> tuple[ImageSet, ImageSet | None, str]:
    """Hold out a share of every class's training images for validation; see `held_out_rows`.

    Args:
        images: All training images.
        validation_fraction: Share of every class's images to hold out, at least 0 and below 1.
        seed: Random seed that selects these images.

    Returns:
        The remaining training images, the validation images (None if the share is 0), and a text for the description of
        the data set.

    Raises:
        ConfigError: The share is out of range.
    """
    if validation_fraction == 0:
        return images, None, ""
    aside = held_out_rows(images.labels, validation_fraction, seed)
    rest = np.setdiff1d(np.arange(len(images)), aside)
    said = f"; {len(aside):,} of the images to train on set apart for validation (seed {seed})"
    return images[rest], images[aside], said


@checked
def classes_apart(labels: NDArray[np.int64], classes: int, held_out_classes: Fraction, seed: Seed) -> NDArray[np.bool_]:
    """Select classes to hold out for evaluation, and return the mask of their rows.

    Args:
        labels: Class of every row, int64 (N,), from 0.
        classes: Number of classes.
        held_out_classes: Share of the classes to hold out, above 0 and below 1.
        seed: Random seed that selects these classes.

    Returns:
        bool (N,), True for rows of the held-out classes.

    Raises:
        ConfigError: The share is out of range, or fewer than two classes would be left on one side.
        DataError: No held-out class has two images, so no query would have a relevant image.

    >>> classes_apart(np.repeat(np.arange(6), 2), 6, 0.5, seed=0).sum()
    np.int64(6)
    """
    count = round(held_out_classes * classes)
    if not 2 <= count <= classes - 2:
        raise ConfigError(
            f"held_out_classes = {held_out_classes} of {classes} classes is {count}.",
            expected="at least two classes to search among, and two to train on",
        )
    apart: NDArray[np.bool_] = np.isin(labels, generator_of(seed).permutation(classes)[:count])
    if np.bincount(labels[apart], minlength=1).max() < 2:
        raise DataError(
            f"None of the {count} classes held out has two images.",
            to_do="hold out more classes, or give another seed.",
        )
    return apart


def set_classes_apart(images: ImageSet, held_out_classes: float, seed: int) -> tuple[ImageSet, ImageSet, str]:
    """Hold out whole classes for evaluation; see `classes_apart`.

    Returns:
        The training images, the images of the held-out classes, and a text for the description of the data set.
    """
    apart = classes_apart(images.labels, len(images.class_names), held_out_classes, seed)
    evaluation = images[apart].compact()
    said = f"{len(evaluation.class_names):,} others held out (seed {seed}), each image searches the others"
    return images[~apart].compact(), evaluation, said
