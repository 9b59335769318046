"""Folders that appear whole or not at all, and their files, each with a digest of what was written into it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from limpet.errors import GalleryError, StoreError
from limpet.stores.base import Pointer, Store
from limpet.stores.folder import refuse_taken
from limpet.stores.sqlite import DATABASE
from limpet.support.disk import Disk, open_file, whole_folder

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Contents:
    """What a copy of a gallery has to hold.

    Args:
        sequence: Number of the last commit.
        items: How many items.
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

        Args:
            pointer: Of the copy.
            rows: Vectors that were counted in the copy, by generation.

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


class DigestedFolder:
    """A folder whose files are written once; what they hold can be compared with what was written.

    Args:
        path: The folder.
        disk: Told of every file.
        digests: SHA-256 by name, of what is there already.
        on_bytes: Told how many bytes were written or read.
    """

    def __init__(
        self,
        path: Path,
        disk: Disk,
        digests: Mapping[str, str] | None = None,
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.path, self.disk, self.on_bytes = path, disk, on_bytes
        self.digests = dict(digests or {})
        self._copied: dict[tuple[int, int], str] = {}

    def write(self, name: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write a new file.

        Raises:
            StoreError: The disk is full, or fails.
        """
        digest = hashlib.sha256()
        with failing(self.path):
            self.disk.reached("copy.write")
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            with (self.path / name).open("xb", buffering=_BLOCK) as file:
                for block in blocks:
                    file.write(block)
                    digest.update(block)
                    self.on_bytes(len(block))
        self.digests[name] = digest.hexdigest()

    def copy(self, source: Path, name: str) -> None:
        """Write a copy of a file; where it is a hard link to one that was copied before, the copy is one, too."""
        with failing(self.path):
            found = source.stat()
            first = self._copied.setdefault((found.st_dev, found.st_ino), name)
            if first != name and _linked(self.path / first, self.path / name):
                self.digests[name] = self.digests[first]
                return
        self.write(name, _blocks(source))

    def take(self, name: str) -> None:
        """Take in a file that something else has written into the folder."""
        with failing(self.path), (self.path / name).open("rb") as file:
            self.digests[name] = hashlib.file_digest(file, "sha256").hexdigest()

    def read(self, name: str) -> Iterator[bytes]:
        """Yield what a file holds.

        Raises:
            GalleryError: At its end, if that is not what was written.
            StoreError: It cannot be read.
        """
        digest = hashlib.sha256()
        for block in _blocks(self.path / name):
            digest.update(block)
            self.on_bytes(len(block))
            yield block
        if digest.hexdigest() != self.digests.get(name):
            raise GalleryError(
                f"The file '{name}' in '{self.path}' is not what was written.",
                expected=f"contents with the SHA-256 that was recorded, {self.digests.get(name, 'which is none')}",
                to_do="check the disk, and take another backup. No gallery was changed.",
            )

    def check(self) -> None:
        """Read every file and compare it with what was written; see `read`."""
        for name in self.digests:
            for _ in self.read(name):
                pass


def _blocks(path: Path) -> Iterator[bytes]:
    with _readable(path), open_file(path) as file:
        while block := file.read(_BLOCK):
            yield block


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"'{path}' cannot be read: {error}.",
            expected="a file that stays as it is, on a disk that works",
            to_do="check the disk, then repeat. No gallery was changed.",
        ) from error


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """Turn errors of the disk that a folder is written to into those of limpet."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"'{path}' cannot be written: {error}.",
            expected="a place that can be written, with room for all of it",
            to_do="make room, or choose another place; what was begun there is gone, and no gallery was changed.",
        ) from error


def _linked(first: Path, second: Path) -> bool:
    """Make a hard link, or say that the file system knows none."""
    second.parent.mkdir(parents=True, exist_ok=True)
    try:
        second.hardlink_to(first)
    except OSError:
        return False
    return True


@contextmanager
def appearing(path: Path, disk: Disk, who: str) -> Iterator[Path]:
    """Let a folder be filled beside the place where it then appears, durable, whole or not at all.

    Args:
        path: The place; nothing may be there but an empty folder.
        disk: What makes it durable.
        who: What for, shown to others.

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

    Args:
        path: A new or empty folder.
        backup: Which was checked.
        contents: What it has to hold.
        disk: What makes it durable.
        opened: Opens the store in a folder.

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
