"""What can be trained on: labelled items that are read row by row, be they images or vectors of a frozen model."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import StringArray


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
