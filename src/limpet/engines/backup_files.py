"""Copies of a gallery: their expected content, and folders that appear completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from limpet.engines.digested_folder import DigestedFolder, failing
from limpet.engines.folder import refuse_taken
from limpet.engines.sqlite import DATABASE
from limpet.engines.store import Pointer, Store
from limpet.errors import GalleryError
from limpet.support.disk import Disk, whole_folder


@dataclass(frozen=True)
class Contents:
    """Expected content of a copy of a gallery.

    Args:
        sequence: Number of the last commit.
        rows: Number of vectors by generation, for generations that have any.
    """

    sequence: int
    items: int
    rows: Mapping[str, int]

    @classmethod
    def of(cls, pointer: Pointer) -> Contents:
        """Return the contents of a pointer."""
        names = sorted({name for names in pointer.held for name in names})
        return cls(pointer.sequence, pointer.items, {name: pointer.covered([name]) for name in names})

    def compare(self, pointer: Pointer, rows: Mapping[str, int]) -> None:
        """Compare with the actual content.

        Raises:
            GalleryError: They differ.
        """
        found = Contents(pointer.sequence, pointer.items, dict(rows))
        if found != Contents(self.sequence, self.items, dict(self.rows)):
            raise GalleryError(
                f"The restored gallery would have {_words(found)}.",
                expected=_words(self),
                to_do="restore another backup; nothing was restored.",
            )


def _words(contents: Contents) -> str:
    """Describe the contents in words.

    >>> _words(Contents(7, 3, {"g1": 3, "g2": 1}))
    'commit 7, 3 items, 3 vectors of g1, 1 vectors of g2'
    """
    rows = [f"{count:,} vectors of {name}" for name, count in contents.rows.items()]
    return ", ".join([f"commit {contents.sequence}", f"{contents.items:,} items", *rows])


@contextmanager
def appearing(path: Path, disk: Disk, who: str) -> Iterator[Path]:
    """Fill a temporary folder next to the place where it then appears, durably and completely or not at all.

    Yields:
        The folder to fill.

    Raises:
        ConfigError: Another process is filling it.
        GalleryError: The place is not empty.
        StoreError: The disk fails; no files are left.
    """
    refuse_taken(Path(os.path.realpath(path)))
    with failing(path), whole_folder(path, who, disk) as folder:
        yield folder


def restore_folder(
    path: Path,
    backup: DigestedFolder,
    contents: Contents,
    disk: Disk,
    opened: Callable[[str, Disk], Store],
) -> None:
    """Copy a backup to a new place of a gallery of the same kind.

    Raises:
        GalleryError: The place is not empty, or the copy does not have the expected content.
        StoreError: A disk fails; no files are left.
    """
    with appearing(path, disk, "restore") as folder:
        copies = DigestedFolder(folder, disk, on_bytes=backup.on_bytes)
        for name in sorted(backup.digests, key=lambda name: name == DATABASE):  # last: without it this is no gallery
            copies.copy(backup.path / name, name)
        copies.digests.update(backup.digests)
        copies.check()
        with closing(opened(str(folder), disk)) as store:
            contents.compare(store.pointer(), {name: store.upkeep(name).rows for name in contents.rows})
