"""Every step at which a process can stop, named, and what makes files survive a power failure."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


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
