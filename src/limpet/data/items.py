"""Protocol of training items, such as images or vectors of a frozen model, and checks of labels, classes and ids."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import StringArray
from limpet.errors import DataError, shown


class LabelledItems(Protocol):
    """N labelled items, such as an `ImageSet` or a `VectorSet`."""

    kind: ClassVar[str]
    """Plural name of the items."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """Class of every item (N,), rows of `class_names`."""
        ...

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name per class."""
        ...

    @property
    def ids(self) -> StringArray:
        """One text per item (N)."""
        ...

    def __len__(self) -> int: ...

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the chosen items as network inputs (n, ...)."""
        ...

    def digest(self) -> str:
        """Return a sha256 over all of it, 64 hexadecimal digits."""
        ...

    def digests(self) -> NDArray[np.uint64] | None:
        """Return the digest of every text or image (N,); None if only vectors or tokens are available."""
        ...


def check_class_rows(labels: NDArray[np.int64], classes: int, items: str) -> None:
    """Refuse labels that do not number class names.

    Args:
        labels: Class of every item, int64 (N,).
        classes: Number of class names.
        items: Plural name of the items, for messages.

    Raises:
        DataError: Labels have a wrong type or shape, or one is out of range.
    """
    if labels.dtype != np.int64 or labels.ndim != 1:
        raise DataError(f"Labels are {labels.dtype} of shape {labels.shape}.", expected=f"int64 of shape ({items},)")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise DataError(
            f"Labels run from {labels.min()} to {labels.max()}, with {classes} class names.",
            expected="every label a row of the class names",
        )


def refuse_repeated(what: str, names: StringArray, expected: str) -> None:
    """Refuse names that occur more than once, showing the first three.

    Raises:
        DataError: A name is repeated.
    """
    repeated = names.duplicates
    if repeated:
        raise DataError(f"{what.capitalize()} occur more than once: {shown(repeated)}.", expected=expected)
