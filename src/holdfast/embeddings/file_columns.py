"""What vectors, ids and labels are called in files that were made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from holdfast.errors import DataError, nearest

_MISSPELT = 0.75  # how like a name of the file one must be to be taken for a slip of it


@dataclass(frozen=True)
class FileColumns:
    """Names of Parquet columns or NumPy arrays, in place of the usual ones.

    Files that go together may call them differently: of several names the first one counts that a file has.

    Args:
        vector: Names of the vectors.
        id: Names of the ids.
        label: Names of the labels. A file need not have any.
    """

    vector: Sequence[str] = ()
    id: Sequence[str] = ()
    label: Sequence[str] = ()

    def found(self, path: str | Path, present: Sequence[str], usual: Mapping[str, str]) -> dict[str, str]:
        """Return for each of "vector", "id" and "label" what it is called in a file; what is not there is left out.

        Args:
            path: The file.
            present: What it holds.
            usual: What these are called where no name was given.

        Raises:
            DataError: Vectors or ids were named, and the file has neither that name nor the usual one; or it has none
                of the names that were given, and one that is like them.
        """
        found = {}
        for what, name in usual.items():
            asked: Sequence[str] = getattr(self, what)
            there = [one for one in (*asked, name) if one in present]
            others = [one for one in present if one not in usual.values()]
            meant = bool(asked) and bool(get_close_matches(asked[0], others, n=1, cutoff=_MISSPELT))
            if there and (there[0] in asked or not meant):
                found[what] = there[0]
            elif asked and (what != "label" or meant):
                raise DataError(
                    f"'{path}' has no column {' or '.join(map(repr, asked))}.{nearest(asked[0], present)}",
                    expected=f"one of its own: {', '.join(present) or 'none'}",
                    to_do=f"name the one with the {what}s: --{what}-column NAME.",
                )
        return found


USUAL = FileColumns()
