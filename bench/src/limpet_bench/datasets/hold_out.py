"""Set images apart for validation: some of every class, or whole classes."""

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
    """Return the images to train on, some of every class to choose among runs with, and what to say of these.

    Args:
        images: The images to train on.
        validation_fraction: Share of every class's images to set apart, at least 0 and below 1; see `held_out_rows`.
        seed: Chooses them.

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
    """Choose classes to search among, and return which rows are of them.

    Args:
        labels: Class of every row, int64 (N,), from 0.
        classes: How many classes there are.
        held_out_classes: Share of the classes to set apart, above 0 and below 1.
        seed: Chooses them.

    Returns:
        bool (N,), True for rows of the classes set apart.

    Raises:
        ConfigError: The share is out of range, or fewer than two classes would be on one side.
        DataError: None of the classes set apart has two images, so that no query could be answered.

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
    """Return the images to train on, those of the classes set apart, and what to say of these; see `classes_apart`."""
    apart = classes_apart(images.labels, len(images.class_names), held_out_classes, seed)
    evaluation = images[apart].compact()
    said = f"{len(evaluation.class_names):,} others held out (seed {seed}), each image searches the others"
    return images[~apart].compact(), evaluation, said
