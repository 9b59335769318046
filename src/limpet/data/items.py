"""What can be trained on, images or vectors of a frozen model, and what holds for labels, class names and ids."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import StringArray
from limpet.errors import DataError, shown


class LabelledItems(Protocol):
    """N labelled items; `ImageSet` and `VectorSet` are such."""

    kind: ClassVar[str]
    """What people call the items, in the plural."""

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
        """Return the chosen items as a network takes them, (n, ...)."""
        ...

    def digest(self) -> str:
        """Return a sha256 over all of it, 64 hexadecimal digits."""
        ...

    def digests(self) -> NDArray[np.uint64] | None:
        """Return the digest of every text or image (N,); None where only vectors or tokens are at hand."""
        ...


def check_class_rows(labels: NDArray[np.int64], classes: int, items: str) -> None:
    """Refuse labels that do not number class names.

    Args:
        labels: Class of every item, int64 (N,).
        classes: How many class names there are.
        items: What is labelled, in the plural, for messages.

    Raises:
        DataError: Labels have another type or shape, or one is no row of the class names.
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
        DataError: There are some.
    """
    repeated = names.duplicates
    if repeated:
        raise DataError(f"{what.capitalize()} occur more than once: {shown(repeated)}.", expected=expected)
