"""The log of a trial: a file that records every action before it happens, and survives a kill.

A kill loses nothing that was written to the operating system, so the file needs no sync. It is outside the folder of
the gallery.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Line = list[Any]


class TrialLog:
    """A file of lines of plain values, each written with one system call.

    Args:
        path: The file; an incomplete last line is removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        with self._alone():  # closing another handle of the file would release the lock
            content = os.pread(self._handle, os.fstat(self._handle).st_size, 0)
            os.ftruncate(self._handle, content.rfind(b"\n") + 1)

    def write(self, *values: Any) -> None:
        """Append a line; a limit on file sizes that a trial has set does not apply to this file."""
        with unlimited(), self._alone():
            os.write(self._handle, (json.dumps(values) + "\n").encode())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the file, so that other processes neither write nor remove an incomplete line of this one."""
        fcntl.lockf(self._handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._handle, fcntl.LOCK_UN)


@contextmanager
def unlimited() -> Iterator[None]:
    """Suspend the limit on file sizes that a trial has set, for files of the trial itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft == hard:
        yield
        return
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def lines_of(path: Path) -> list[Line]:
    """Return all complete lines; the action of an incomplete last line had not begun."""
    return [json.loads(line) for line in _whole(path).splitlines()] if path.exists() else []


def _whole(path: Path) -> bytes:
    """Return the content up to the last line break."""
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]
