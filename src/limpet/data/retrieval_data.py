"""Data sets as returned by readers: images to train on, and images to search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from limpet.data.image_set import ImageSet
from limpet.errors import DataError

UNLABELLED = "unlabelled"
"""The only class name of images with meaningless labels."""


@dataclass(frozen=True)
class RetrievalData:
    """One data set with its usual protocol, validated when built.

    Args:
        name: Name of the data set.
        train: Images to train on; None if the data are for evaluation only.
        query: Query images.
        gallery: Images to search, labelled with the same classes as `query`.
        leave_one_out: Whether `query` is `gallery`, and every query ignores itself.
        validation: Images for model selection, disjoint from all others; None without.
        description: One line on the origin of the images and their split.
        labelled: Whether the labels of `query` and `gallery` are meaningful. If not, a separate ground truth defines
            relevance, the labels are placeholders, and embeddings are written without them.

    Raises:
        DataError: The parts do not fit together, or there are fewer than two classes to train on or to search for.
    """

    name: str
    train: ImageSet | None
    query: ImageSet
    gallery: ImageSet
    leave_one_out: bool
    validation: ImageSet | None
    description: str
    labelled: bool = True

    def __post_init__(self) -> None:
        if self.leave_one_out != (self.query is self.gallery):
            raise DataError("Query and gallery disagree with leave_one_out.", expected="one set for both, or two sets")
        if self.query.class_names != self.gallery.class_names:
            raise DataError("Query and gallery have other class names.", expected="one list of class names for both")
        for part, images in self.parts().items():
            first, reference = next(iter(self.parts().items()))
            if images.shape != reference.shape:
                raise DataError(
                    f"The {first} images have shape {reference.shape}, the {part} images {images.shape}.",
                    expected="one shape (channels, height, width) for all",
                )
            if part != "validation" and (self.labelled or part == "train"):
                classes = len(np.unique(images.labels))
                if classes < 2:
                    raise DataError(
                        f"The {part} images of '{self.name}' have {classes} class{'' if classes == 1 else 'es'}.",
                        expected="at least two classes: with one, every answer is right",
                        to_do="check that the labels, or the folders named after classes, are the ones you meant; "
                        "images without classes are taken with --data-options.classes false.",
                    )

    @classmethod
    def of_one_set(
        cls,
        *,
        name: str,
        train: ImageSet | None,
        evaluation: ImageSet,
        description: str,
        validation: ImageSet | None = None,
        labelled: bool = True,
    ) -> RetrievalData:
        """Build from one evaluation set, in which every image searches the others."""
        return cls(name, train, evaluation, evaluation, True, validation, description, labelled)

    def parts(self) -> dict[str, ImageSet]:
        """Return the available sets of images by name; the gallery is included even if it is the query set."""
        named = {"train": self.train, "query": self.query, "gallery": self.gallery, "validation": self.validation}
        return {name: images for name, images in named.items() if images is not None}

    def to_train_on(self) -> ImageSet:
        """Return the images to train on.

        Raises:
            DataError: The data set has no training images.
        """
        if self.train is None:
            why = "it is for evaluation only" if self.labelled else "its images have no classes"
            raise DataError(
                f"The data set '{self.name}' has nothing to train on: {why}.",
                expected="training images with classes: a data set that has some, or your own in one folder per class, "
                "FOLDER/CLASS/*.png",
                to_do="train on other data, or sort the images into such folders; as it is, it can be embedded with a "
                "release: limpet embed.",
            )
        return self.train
