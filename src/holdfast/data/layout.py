"""Whether a data set lies in its folder as its authors give it out, and what to do where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import DataError


@dataclass(frozen=True)
class Needed:
    """One file or folder of an official layout.

    Args:
        path: Where it is below the folder of the data set; a trailing slash says that it is a folder.
        what: What it holds, in a few words.
        other: Other places where releases of the data set have it; the first that is there counts.
    """

    path: str
    what: str
    other: tuple[str, ...] = ()

    def find(self, root: Path) -> Path | None:
        """Return where it is below ``root``; None where it is in none of its places."""
        for place in (self.path, *self.other):
            found = root / place
            if found.is_dir() if place.endswith("/") else found.is_file():
                return found
        return None

    def __str__(self) -> str:
        return f"{' or '.join((self.path, *self.other))} ({self.what})"


def require(root: Path, needed: Sequence[Needed], dataset: str, obtained: str) -> list[Path]:
    """Return where everything is, or refuse a folder that lacks something.

    Args:
        root: Folder of the data set.
        needed: What must be there.
        dataset: Name of the data set, for messages.
        obtained: Where it is obtained, such as "the authors' project page, after a request".

    Raises:
        DataError: Something is not there; the message names the first of it and the whole layout.

    >>> require(Path("nowhere"), [Needed("query/", "images to search with")], "market-1501", "its project page")
    Traceback (most recent call last):
    ...
    holdfast.errors.DataError: The data set 'market-1501' is not complete in nowhere: no query/ (images to search with).
    Expected: query/ (images to search with)
    Next: get what is missing from its project page, and put it there as it is.
    """
    found = [(one, one.find(root)) for one in needed]
    for one, path in found:
        if path is None:
            raise DataError(
                f"The data set '{dataset}' is not complete in {root}: no {one}.",
                expected=", ".join(map(str, needed)),
                to_do=f"get what is missing from {obtained}, and put it there as it is.",
            )
    return [path for _, path in found if path is not None]
