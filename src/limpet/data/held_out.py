"""Hold out some images of every class for evaluation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limpet.data.image_set import ImageSet
from limpet.data.retrieval_data import RetrievalData
from limpet.data.sampling import class_counts, generator_of, lowest_of_each_class
from limpet.errors import DataError
from limpet.support.ranges import Fraction, Seed, checked


@checked
def hold_out(name: str, images: ImageSet, share: Fraction, seed: Seed) -> RetrievalData:
    """Return data that trains on most images of every class, and searches leave-one-out among the held-out ones.

    Args:
        name: Name of the data set.
        images: All images.
        share: Share of every class to hold out; see `held_out_rows`.
        seed: Random seed that selects the held-out images.

    Raises:
        DataError: No class has two held-out images, so no query has a relevant item.
    """
    aside = held_out_rows(images.labels, share, seed)
    if len(aside) == 0 or np.bincount(images.labels[aside]).max() < 2:
        raise DataError(
            f"No class of '{name}' has two images to hold out: the largest has {np.bincount(images.labels).max()}.",
            expected="a class with at least four images",
            to_do="add images, or make folders train and test yourself.",
        )
    evaluation = images[aside]
    return RetrievalData.of_one_set(
        name=name,
        train=images[np.setdiff1d(np.arange(len(images)), aside)],
        evaluation=evaluation,
        description=f"{len(images)} images of {len(images.class_names)} classes; "
        f"{len(aside)} held out (seed {seed}), each searches the others",
    )


def held_out_rows(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    """Return the rows to hold out, ascending.

    From a class with n images, the rounded share is held out, within these bounds: at least one of two or three images,
    at least two of four or more (a single one has no relevant item), and never all.

    >>> labels = np.array([0] * 20 + [1] * 4 + [2])
    >>> np.bincount(labels[held_out_rows(labels, 0.2, seed=0)]).tolist()
    [4, 2]
    """
    counts = class_counts(labels)
    least = np.where(counts >= 4, 2, np.where(counts >= 2, 1, 0))
    wanted = np.minimum(np.maximum(np.rint(share * counts), least), np.maximum(counts - 1, 0))
    return lowest_of_each_class(labels, generator_of(seed).random(len(labels)), wanted)
