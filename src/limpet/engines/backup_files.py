"""Copies of a gallery: what they must hold, and folders that appear whole or not at all."""

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
    """What a copy of a gallery has to hold.

    Args:
        sequence: Number of the last commit.
        rows: How many vectors by generation, of those that have any.
    """

    sequence: int
    items: int
    rows: Mapping[str, int]

    @classmethod
    def of(cls, pointer: Pointer) -> Contents:
        """Return what a pointer names."""
        names = sorted({name for names in pointer.held for name in names})
        return cls(pointer.sequence, pointer.items, {name: pointer.covered([name]) for name in names})

    def compare(self, pointer: Pointer, rows: Mapping[str, int]) -> None:
        """Compare with what is there.

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
    """Write what there is.

    >>> _words(Contents(7, 3, {"g1": 3, "g2": 1}))
    'commit 7, 3 items, 3 vectors of g1, 1 vectors of g2'
    """
    rows = [f"{count:,} vectors of {name}" for name, count in contents.rows.items()]
    return ", ".join([f"commit {contents.sequence}", f"{contents.items:,} items", *rows])


@contextmanager
def appearing(path: Path, disk: Disk, who: str) -> Iterator[Path]:
    """Let a folder be filled beside the place where it then appears, durable, whole or not at all.

    Yields:
        The folder to fill.

    Raises:
        ConfigError: Another process is filling it.
        GalleryError: Something is there.
        StoreError: The disk fails; nothing is left.
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
    """Copy a backup to where a gallery of the same kind then is.

    Raises:
        GalleryError: Something is there, or what was copied does not hold what it should.
        StoreError: A disk fails; nothing is left.
    """
    with appearing(path, disk, "restore") as folder:
        copies = DigestedFolder(folder, disk, on_bytes=backup.on_bytes)
        for name in sorted(backup.digests, key=lambda name: name == DATABASE):  # last: without it this is no gallery
            copies.copy(backup.path / name, name)
        copies.digests.update(backup.digests)
        copies.check()
        with closing(opened(str(folder), disk)) as store:
            contents.compare(store.pointer(), {name: store.upkeep(name).rows for name in contents.rows})
