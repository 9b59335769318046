"""What every reader of a data set returns: images to train on, and images to search among."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.data.image_set import ImageSet
from holdfast.errors import DataError


@dataclass(frozen=True)
class RetrievalData:
    """One data set with its usual protocol, checked once when built.

    Args:
        name: Name of the data set.
        train: Images to train on.
        query: Images to search with.
        gallery: Images to search among, labelled in the same classes as `query`.
        leave_one_out: Whether `query` is `gallery`, and every query ignores itself.
        validation: Images for choosing among runs, apart from all others; None without.
        description: One line for people: where the images come from and how they were split.

    Raises:
        DataError: The parts do not fit together, or there are fewer than two classes to train on or to search for.
    """

    name: str
    train: ImageSet
    query: ImageSet
    gallery: ImageSet
    leave_one_out: bool
    validation: ImageSet | None
    description: str

    def __post_init__(self) -> None:
        if self.leave_one_out != (self.query is self.gallery):
            raise DataError("Query and gallery disagree with leave_one_out.", expected="one set for both, or two sets")
        if self.query.class_names != self.gallery.class_names:
            raise DataError("Query and gallery have other class names.", expected="one list of class names for both")
        for part in ("train", "query", "gallery"):
            self._check_part(part, getattr(self, part))

    def _check_part(self, part: str, images: ImageSet) -> None:
        if images.shape != self.train.shape:
            raise DataError(
                f"Images to train on have shape {self.train.shape}, the {part} images {images.shape}.",
                expected="one shape (channels, height, width) for all",
            )
        classes = len(np.unique(images.labels))
        if classes < 2:
            raise DataError(
                f"The {part} images of '{self.name}' have {classes} class{'' if classes == 1 else 'es'}.",
                expected="at least two classes: with one, every answer is right",
                to_do="check that the labels, or the folders named after classes, are the ones you meant.",
            )
