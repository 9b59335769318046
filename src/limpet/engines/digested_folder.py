"""A folder whose files are written once, each with a digest of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from limpet.errors import GalleryError, StoreError
from limpet.support.disk import Disk, open_file

_BLOCK = 1 << 20


class DigestedFolder:
    """A folder whose files are written once, and can be verified by their digests.

    Args:
        digests: SHA-256 by name, of existing files.
        on_bytes: Called with the number of bytes written or read.
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
        """Write a copy of a file; if it is a hard link to a file that was copied before, link the copies, too."""
        with failing(self.path):
            found = source.stat()
            first = self._copied.setdefault((found.st_dev, found.st_ino), name)
            if first != name and _linked(self.path / first, self.path / name):
                self.digests[name] = self.digests[first]
                return
        self.write(name, _blocks(source))

    def take(self, name: str) -> None:
        """Add a file that other code has written into the folder."""
        with failing(self.path), (self.path / name).open("rb") as file:
            self.digests[name] = hashlib.file_digest(file, "sha256").hexdigest()

    def read(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file.

        Raises:
            GalleryError: The content differs from what was written; raised at the end.
            StoreError: The file cannot be read.
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
                to_do="check the disk, and take another backup.",
                intact="No gallery was changed.",
            )

    def check(self) -> None:
        """Read every file and verify its digest; see `read`."""
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
            to_do="check the disk, then repeat.",
            intact="No gallery was changed.",
        ) from error


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """Convert errors of the disk of a folder to those of limpet."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"'{path}' cannot be written: {error}.",
            to_do="make room, or choose another place; what was begun there is gone.",
            intact="No gallery was changed.",
        ) from error


def _linked(first: Path, second: Path) -> bool:
    second.parent.mkdir(parents=True, exist_ok=True)
    try:
        second.hardlink_to(first)
    except OSError:
        return False
    return True
