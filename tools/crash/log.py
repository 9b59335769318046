"""What a trial did, written down before it happened: a file that a killed process leaves behind.

A kill takes nothing that was handed to the operating system, so that the file needs no sync; it lies outside the
gallery's folder.
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
    """Lines of plain values, each written by one call of the operating system.

    Args:
        path: The file; a last line that a kill tore is removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        with self._alone():  # to open the file otherwise would end the lock
            content = os.pread(self._handle, os.fstat(self._handle).st_size, 0)
            os.ftruncate(self._handle, content.rfind(b"\n") + 1)

    def write(self, *values: Any) -> None:
        """Add a line; a limit on the size of files, where a trial set one, is not for this file."""
        with unlimited(), self._alone():
            os.write(self._handle, (json.dumps(values) + "\n").encode())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from writing, or from removing what this one has half written."""
        fcntl.lockf(self._handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._handle, fcntl.LOCK_UN)


@contextmanager
def unlimited() -> Iterator[None]:
    """Lift the limit on the size of files that a trial has set, for what belongs to the trial itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft == hard:
        yield
        return
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def lines_of(path: Path) -> list[Line]:
    """Return all lines but one that the kill tore: what it was to announce was not begun."""
    return [json.loads(line) for line in _whole(path).splitlines()] if path.exists() else []


def _whole(path: Path) -> bytes:
    """Return the lines that are whole."""
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]
