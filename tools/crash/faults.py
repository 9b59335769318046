"""Faults in system calls: a call fails, writes only half, or the process is killed at it.

`fault.c` is compiled on demand and preloaded, so that it also intercepts calls of SQLite and Lance. A process restarts
itself with this library (`preload`); the processes that it forks have the library, too.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("fault.c")


class Action(IntEnum):
    """Fault of a call; see ``enum action`` in fault.c."""

    COUNT = 0
    FAIL = 1
    SHORT = 2  # a partial write of one half, which the operating system allows; the write of the rest fails
    TORN = 3  # one half is written, then the process is killed
    KILL_BEFORE = 4
    KILL_AFTER = 5


class NoCompiler(RuntimeError):  # noqa: N818 (a reason to skip)
    """The library cannot be compiled on this machine."""


def compiled() -> Path:
    """Return the path of the library; compiles it unless this was done before.

    Raises:
        NoCompiler: There is no C compiler, or it cannot compile the source.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("there is no C compiler (cc) for tools/crash/fault.c")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "limpet-tests"
    library = folder / f"fault-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as new:
            made = Path(new) / "fault.so"
            command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl", "-lpthread"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise NoCompiler(f"cc cannot compile tools/crash/fault.c: {done.stderr.strip()[-300:]}")
            made.rename(library)
    return library


def preloaded() -> bool:
    """Return whether the library is loaded in this process."""
    return hasattr(ctypes.CDLL(None), "fault_arm")


def preload() -> None:
    """Restart this program with the library, unless it is loaded.

    Raises:
        NoCompiler: See `compiled`.
    """
    if preloaded():
        os.environ.pop("LD_PRELOAD", None)  # other programs that this process starts must not load it
        return
    os.environ["LD_PRELOAD"] = str(compiled())
    os.execv(sys.executable, sys.orig_argv)


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_char_p, *[ctypes.c_int] * 3, ctypes.c_long]
    library.fault_count.restype = ctypes.c_long
    library.fault_struck.restype = ctypes.c_char_p
    library.fault_clock.argtypes = [ctypes.c_long]
    return library


def arm(
    folder: Path,
    action: Action,
    *,
    pattern: str = "*",
    occurrence: int = 1,
    error: int = 0,
    lasting: bool = False,
) -> None:
    """Inject a fault into a call on a path below a folder.

    Args:
        folder: Absolute path of the folder.
        action: Fault to inject; `COUNT` only counts.
        pattern: Shell pattern of the texts of calls to count, such as "write *_deletions/*".
        occurrence: Number of the matching call that fails, from 1.
        error: Error number (errno) for `FAIL` and `SHORT`. Calls that free space never fail with ENOSPC.
        lasting: Whether every later call on a path below the folder fails, too; with ENOSPC, syncs succeed.
    """
    _library().fault_arm(os.fsencode(folder), os.fsencode(pattern), action, error, lasting, occurrence)


def disarm() -> None:
    """Inject no more faults."""
    _library().fault_disarm()


def count() -> int:
    """Return the number of matching calls since `arm`."""
    return int(_library().fault_count())


def struck() -> str:
    """Return the text of the call that met the fault since `arm`; "" if none did."""
    return os.fsdecode(_library().fault_struck())


@contextmanager
def traced(folder: Path, path: Path) -> Iterator[None]:
    """Write the texts of all calls on paths below a folder to a file outside of it, within a ``with`` block."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    arm(folder, Action.COUNT)
    _library().fault_trace(handle)
    try:
        yield
    finally:
        disarm()
        _library().fault_trace(-1)
        os.close(handle)


def set_clock(offset: int) -> None:
    """Set the clock of this process ahead by this many seconds."""
    _library().fault_clock(offset)
