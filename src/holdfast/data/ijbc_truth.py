"""What IJB-C asks of face templates (Maze et al., ICB 2018): pairs to verify, and galleries to be found in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.data.delimited import read_columns
from holdfast.errors import DataError

PAIRS = "ijbc_template_pair_label.txt"
PARTS = {
    "gallery_1": "ijbc_1N_gallery_G1.csv",
    "gallery_2": "ijbc_1N_gallery_G2.csv",
    "probes": "ijbc_1N_probe_mixed.csv",
}
"""Files of the open-set protocol, by attribute of `FaceTruth`."""


class Templates(NamedTuple):
    """Templates and who they show.

    Attributes:
        templates: int64 (T,), ascending, no two alike.
        subjects: int64 (T,).
    """

    templates: NDArray[np.int64]
    subjects: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FaceTruth:
    """The two protocols on templates; a part whose file is absent is None.

    Args:
        pairs: Templates to compare, int64 (P, 2).
        same: Whether a pair shows one person, bool (P,).
        gallery_1: Templates of the first gallery, each of another person.
        gallery_2: Templates of the second gallery.
        probes: Templates to find in either.

    Raises:
        DataError: Lengths differ, all pairs are of one kind, or a gallery shows a person twice.
    """

    pairs: NDArray[np.int64] | None
    same: NDArray[np.bool_] | None
    gallery_1: Templates | None
    gallery_2: Templates | None
    probes: Templates | None

    def __post_init__(self) -> None:
        if (self.pairs is None) != (self.same is None):
            raise DataError("Pairs without labels, or labels without pairs.", expected="both or neither")
        if self.pairs is not None and self.same is not None:
            if self.pairs.shape != (len(self.same), 2):
                raise DataError(f"Pairs of shape {self.pairs.shape}, {len(self.same)} labels.", expected="one per pair")
            if self.same.all() or not self.same.any():
                raise DataError(f"All {len(self.same)} pairs are of one kind.", expected="genuine and impostor pairs")
        for name in ("gallery_1", "gallery_2"):
            gallery = getattr(self, name)
            if gallery is not None and len(np.unique(gallery.subjects)) < len(gallery.subjects):
                raise DataError(f"A person has two templates in {name}.", expected="one template per person")

    @classmethod
    def read(cls, folder: Path) -> FaceTruth:
        """Read the official lists.

        Args:
            folder: The folder of the lists, or the folder of the data set whose ``meta`` holds them.

        Raises:
            DataError: None of the files is there, or one cannot be used.
        """
        folder = folder / "meta" if (folder / "meta").is_dir() else folder
        there = [name for name in (PAIRS, *PARTS.values()) if (folder / name).is_file()]
        if not there:
            raise DataError(
                f"No lists of IJB-C in {folder}.",
                expected=f"{PAIRS} for verification, {', '.join(PARTS.values())} for identification",
                to_do="name the folder meta of the data set.",
            )
        pairs, same = _read_pairs(folder / PAIRS) if PAIRS in there else (None, None)
        parts = {part: _read_part(folder / name) if name in there else None for part, name in PARTS.items()}
        return cls(pairs, same, **parts)


def _read_pairs(path: Path) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Read lines of two templates and 1 or 0."""
    kinds = dict.fromkeys(("template 1", "template 2", "same"), "whole number")
    table = read_columns(path, kinds, separator=" ", header=False)  # type: ignore[arg-type]
    pairs = np.empty((table.num_rows, 2), np.int64)
    for side, name in enumerate(("template 1", "template 2")):
        pairs[:, side] = table[name].to_numpy()
    labels = table["same"].to_numpy()
    wrong = np.flatnonzero((labels != 0) & (labels != 1))
    if len(wrong):
        raise DataError(f"Line {wrong[0] + 1} of {path} ends with {labels[wrong[0]]}.", expected="1 or 0")
    return pairs, labels == 1


def _read_part(path: Path) -> Templates:
    """Read the columns TEMPLATE_ID and SUBJECT_ID; a template of several images has several lines."""
    table = read_columns(path, {"TEMPLATE_ID": "whole number", "SUBJECT_ID": "whole number"})
    lines = np.column_stack([table["TEMPLATE_ID"].to_numpy(), table["SUBJECT_ID"].to_numpy()])
    unique = np.unique(lines, axis=0)
    repeated = np.flatnonzero(unique[1:, 0] == unique[:-1, 0])
    if len(repeated):
        template, first = unique[repeated[0]]
        raise DataError(
            f"{path} gives template {template} to the people {first} and {unique[repeated[0] + 1, 1]}.",
            expected="one person per template",
        )
    if not len(unique):
        raise DataError(f"{path} has no templates.", expected="at least one")
    return Templates(unique[:, 0].copy(), unique[:, 1].copy())
