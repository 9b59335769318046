"""Which rows of a training set the old and the new model saw."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import DataError


@dataclass(frozen=True, eq=False)
class Split:
    """The old and the new training set of one upgrade, as rows of one list of images.

    Args:
        name: Name of the scenario.
        labels: Class of every image of the list, int64 (N,).
        old: Rows the old model is trained on, ascending.
        new: Rows the new model is trained on, ascending.
        shared_allowed: Whether a row may be on both sides: true where the new training set extends the old one.
        classes_apart: Whether the two sides must have no class in common.
        shared: Rows on both sides by rule although the sides are otherwise apart: the only image of a class.
    """

    name: str
    labels: NDArray[np.int64]
    old: NDArray[np.int64]
    new: NDArray[np.int64]
    shared_allowed: bool
    classes_apart: bool = False
    shared: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __repr__(self) -> str:
        sides = (
            f"{len(rows)} images of {len(classes)} classes"
            for rows, classes in ((self.old, self.old_classes), (self.new, self.new_classes))
        )
        return f"Split('{self.name}': {' -> '.join(sides)})"

    @cached_property
    def old_classes(self) -> NDArray[np.int64]:
        """Labels that occur on the old side, ascending."""
        return np.unique(self.labels[self.old])

    @cached_property
    def new_classes(self) -> NDArray[np.int64]:
        """Labels that occur on the new side, ascending."""
        return np.unique(self.labels[self.new])


def check_split(split: Split) -> None:
    """Refuse a split whose sides are not what the scenario promises.

    Raises:
        DataError: A side is empty, or has a row twice or out of range; or an image or class is on both sides
            though the scenario keeps them apart.
    """
    for side in ("old", "new"):
        _check_rows(split, side, getattr(split, side))
    both = np.intersect1d(split.old, split.new, assume_unique=True)
    leaked = np.setdiff1d(both, split.shared)
    if len(leaked) and not split.shared_allowed:
        raise DataError(
            f"{len(leaked)} images of the split '{split.name}' are on both sides, first: {_first(leaked)}.",
            expected="every image on one side",
            to_do="remove these rows from one side, or choose an extended scenario.",
        )
    common = np.intersect1d(split.old_classes, split.new_classes)
    if len(common) and split.classes_apart:
        raise DataError(
            f"{len(common)} classes of the split '{split.name}' are on both sides, first: {_first(common)}.",
            expected="every class on one side",
            to_do="give all images of a class to one side.",
        )


def _check_rows(split: Split, side: str, rows: NDArray[np.int64]) -> None:
    where = f"on the {side} side of the split '{split.name}'"
    total = len(split.labels)
    if len(rows) == 0:
        raise DataError(f"No images {where}.", expected="at least one", to_do="choose another fraction.")
    outside = rows[(rows < 0) | (rows >= total)]
    if len(outside):
        raise DataError(f"Rows {_first(outside)} {where}.", expected=f"rows from 0 to {total - 1}")
    repeated = np.flatnonzero(np.bincount(rows) > 1)
    if len(repeated):
        raise DataError(f"{len(repeated)} rows occur more than once {where}: {_first(repeated)}.", expected="each once")


def _first(rows: NDArray[np.int64]) -> str:
    return ", ".join(str(row) for row in rows[:3].tolist()) + (", ..." if len(rows) > 3 else "")
