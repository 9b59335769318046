"""What a reader of labelled texts with a protocol returns: texts to fit on, and texts to search among."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.data.text_set import TextSet
from holdfast.errors import DataError


@dataclass(frozen=True)
class TextData:
    """One set of texts with its usual protocol, checked once when built.

    Args:
        name: Name of the data set.
        train: Texts to fit on; it may have fewer classes than the others.
        query: Texts to search with.
        gallery: Texts to search among, labelled in the same classes as `query`.
        description: One line for people: where the texts come from and how they were split.

    Raises:
        DataError: Query and gallery name other classes, share a text, or a part has fewer than two classes.
    """

    name: str
    train: TextSet
    query: TextSet
    gallery: TextSet
    description: str

    def __post_init__(self) -> None:
        if self.query.class_names != self.gallery.class_names:
            raise DataError("Query and gallery have other class names.", expected="one list of class names for both")
        shared = self.query.ids.find(self.gallery.ids)
        if (shared >= 0).any():
            raise DataError(
                f"{int((shared >= 0).sum())} texts of '{self.name}' are both query and gallery, first: "
                f"'{self.query.ids[int(shared.max())]}'.",
                expected="every text on one side",
            )
        for part, texts in self.parts().items():
            self._check_part(part, texts)

    def parts(self) -> dict[str, TextSet]:
        """Return the three sets by name."""
        return {"train": self.train, "query": self.query, "gallery": self.gallery}

    def _check_part(self, part: str, texts: TextSet) -> None:
        classes = len(np.unique(texts.labelled()))
        if classes < 2:
            raise DataError(
                f"The {part} texts of '{self.name}' have {classes} class{'' if classes == 1 else 'es'}.",
                expected="at least two classes: with one, every answer is right",
                to_do="check that the labels are the ones you meant, and that the shares left out leave enough.",
            )
