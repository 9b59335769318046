"""Closed-set data: training images and test queries of the same classes, for learning in sessions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from limpet.data import ImageSet, RetrievalData, class_counts, lowest_of_each_class
from limpet.embeddings import StringArray
from limpet.errors import ConfigError, DataError, refuse

LEAST_KEPT = 2
"""Smallest number of training images per class: a session sets one apart and trains on the other."""


@dataclass(frozen=True)
class ClosedSet:
    """Training images and test queries of the same classes, validated when built.

    Args:
        name: Name of the data set.
        train: Training images.
        test: Test queries, labelled in the same classes.
        description: One line that says how images and queries were divided.

    Raises:
        DataError: The parts differ in class names or shape, they share an image, or there is no query.
    """

    name: str
    train: ImageSet
    test: ImageSet
    description: str

    def __post_init__(self) -> None:
        if self.train.class_names != self.test.class_names:
            raise DataError(
                f"Training images and test queries of '{self.name}' have other class names.",
                expected="one list of class names for both",
            )
        if self.train.shape != self.test.shape:
            raise DataError(
                f"Images to train on have shape {self.train.shape}, the test queries {self.test.shape}.",
                expected="one shape (channels, height, width) for both",
            )
        if len(self.test) == 0:
            raise DataError(f"'{self.name}' has no test query.", expected="at least one")
        shared = self.test.ids[self.train.ids.find(self.test.ids) >= 0]
        if len(shared):
            raise DataError(
                f"{len(shared)} test queries of '{self.name}' are training images too, first: '{shared[0]}'.",
                expected="queries that nothing is trained on",
            )


def closed_set(data: RetrievalData, *, test_images: int | None = None, classes: int | None = None) -> ClosedSet:
    """Divide a data set into training images and test queries of the same classes.

    Args:
        data: The data set; its gallery is not used.
        test_images: Number of images per class that become test queries and are removed from training: the first ones
            in the order of the data, such as drawings 0 to 3 of Omniglot. None uses the queries of the data set.
        classes: Number of classes to keep, at least 2; the first ones are kept. None keeps all.

    Raises:
        ConfigError: A number is out of range, a class would keep fewer than two training images, or a query of the data
            set has a class without training images.
        DataError: Training images and queries share an image.
    """
    everything = data.to_train_on().compact()
    count = len(everything.class_names)
    refuse(
        classes is not None and not 2 <= classes <= count,
        f"classes = {classes} of '{data.name}', which has {count} to train on.",
        f"from 2 to {count}",
    )
    train = _first_classes(everything, classes or count)
    if test_images is None:
        test, which = _first_classes(_own_queries(data, everything.class_names), classes or count), "its own"
    else:
        train, test = _divided(data.name, train, test_images)
        which = f"the first {test_images} of every class"
    description = (
        f"{len(train)} images of {len(train.class_names)} classes to train on; {len(test)} test queries: {which}"
    )
    return ClosedSet(data.name, train, test, description)


def _first_classes(images: ImageSet, count: int) -> ImageSet:
    chosen = images[images.labels < count]
    return replace(chosen, class_names=images.class_names[:count])


def _divided(name: str, images: ImageSet, test_images: int) -> tuple[ImageSet, ImageSet]:
    """Set apart the first images of every class; return the remaining images, then those set apart."""
    refuse(test_images < 1, f"test_images = {test_images}.", "at least 1")
    counts = class_counts(images.labels)
    fewest = int(counts.argmin())
    if counts[fewest] < test_images + LEAST_KEPT:
        raise ConfigError(
            f"test_images = {test_images}, and the class '{images.class_names[fewest]}' of '{name}' has only "
            f"{counts[fewest]} images.",
            expected=f"a number that leaves {LEAST_KEPT} images of every class to train on",
            to_do=f"type --test-images {counts[fewest] - LEAST_KEPT} or less."
            if counts[fewest] > LEAST_KEPT
            else "add images to that class, or leave it out.",
        )
    aside = lowest_of_each_class(images.labels, np.arange(len(images)), np.full(len(counts), test_images))
    return images[np.setdiff1d(np.arange(len(images)), aside)], images[aside]


def _own_queries(data: RetrievalData, class_names: tuple[str, ...]) -> ImageSet:
    rows = StringArray.of(class_names).find(data.query.class_names)
    labels = rows[data.query.labels]
    other = np.unique(data.query.labels[labels < 0])
    if len(other):
        raise ConfigError(
            f"'{data.name}' searches other classes than it trains on: {len(other)} of its query classes, such as "
            f"'{data.query.class_names[other[0]]}', have no training image.",
            expected="test queries of the classes that are trained on",
            to_do="set training images of every class apart: --test-images 4.",
        )
    return replace(data.query, labels=labels, class_names=class_names)
