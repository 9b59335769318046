"""What makes files survive a power failure, every step named where a process can stop, and folders that are whole."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from limpet.errors import ConfigError

UNFINISHED = ".unfinished"
"""What the name of a folder ends with until it has everything."""


class Disk:
    """The only way in which stores ask the operating system for durability.

    Trials replace it by one that stops the process, or fails, at a chosen step, and that remembers what was synced.
    """

    def reached(self, point: str) -> None:
        """Called before every step that changes something others could see, under a name of its own."""

    def sync(self, paths: Iterable[Path]) -> None:
        """Make files, and the folders that list them, durable.

        Never a database that this process has open: to close its file a second time ends the locks on it.

        Raises:
            OSError: The operating system cannot say so.
        """
        files = list(paths)
        for path in files:
            self.sync_one(path)
        for folder in sorted({path.parent for path in files}):
            self.sync_one(folder)

    def sync_one(self, path: Path) -> None:
        """Make one file or folder durable."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def database_synced(self, path: Path) -> None:
        """Called when a database was asked, and says, that what it committed to this file is durable."""


@contextmanager
def whole_folder(path: Path, who: str, disk: Disk | None = None) -> Iterator[Path]:
    """Let a folder be filled beside the place where it then appears, durable, whole or not at all.

    Args:
        path: The place; nothing may be there but an empty folder.
        who: What for, shown to others.
        disk: What makes it durable.

    Yields:
        The folder to fill, empty; what a process that was killed left of it is gone.

    Raises:
        ConfigError: Another process is filling it.
        OSError: The disk fails, or something is at the place; of the folder nothing is left.
    """
    disk, path = disk or Disk(), Path(os.path.realpath(path))  # which no loop of links stops
    unfinished = path.with_name(f"{path.name}{UNFINISHED}")
    new = [path, *(folder for folder in path.parents if not folder.exists())]
    path.parent.mkdir(parents=True, exist_ok=True)
    with _claimed(path, who):
        filled = unfinished
        try:
            if unfinished.exists():
                shutil.rmtree(unfinished)
            unfinished.mkdir()
            yield unfinished
            disk.reached("copy.sync")
            for folder, _, files in os.walk(unfinished, topdown=False):
                for name in files:
                    disk.sync_one(Path(folder, name))
                disk.sync_one(Path(folder))
            disk.reached("copy.appear")
            unfinished.replace(path)
            filled = path
            disk.sync(new)
        except BaseException:
            shutil.rmtree(filled, ignore_errors=True)
            raise


@contextmanager
def _claimed(path: Path, who: str) -> Iterator[None]:
    """Hold a lock on a place; its file, beside it, is there only meanwhile."""
    lock = path.with_name(f".{path.name}.lock")
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise ConfigError(
                f"Another {who} is filling '{path}'.",
                expected="one at a time",
                to_do="wait until it is done, or choose another place. Nothing was changed.",
            ) from None
        if os.fstat(handle).st_nlink:
            break
        os.close(handle)  # of one that has just ended
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)
