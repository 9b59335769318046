"""Leases of long-running readers: a locked file for each, which the operating system unlocks when the reader ends."""

from __future__ import annotations

import fcntl  # leases are shared locks, which filelock implements with SQLite files
import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

FOLDER = "readers"


class HeldCommits(Protocol):
    """The commits that readers in any process are still reading, each for as long as its reader lives."""

    def held(self, sequence: int) -> AbstractContextManager[None]:
        """Protect the data of a commit while the block runs."""

    def sequences(self) -> set[int]:
        """Return the commits that are still read."""


class Leases:
    """The commits that readers in any process are still reading."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    @contextmanager
    def held(self, sequence: int) -> Iterator[None]:
        """Protect the data of a commit while the block runs."""
        path = self._folder / f"{sequence}-{secrets.token_hex(8)}"
        try:
            self._folder.mkdir(exist_ok=True)
            handle = _locked(path)
        except OSError:
            yield
            return
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
            os.close(handle)

    def sequences(self) -> set[int]:
        """Return the commits that are still read; leases of ended readers are removed."""
        read = set()
        for path in self._folder.glob("*-*"):
            with suppress(FileNotFoundError):
                handle = os.open(path, os.O_RDWR)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                except BlockingIOError:
                    read.add(int(path.name.partition("-")[0]))
                finally:
                    os.close(handle)
        return read


def _locked(path: Path) -> int:
    """Create and lock a file; retry if another process removed it as abandoned before it was locked."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(handle, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.fstat(handle).st_ino == path.stat().st_ino:
                return handle
        os.close(handle)
