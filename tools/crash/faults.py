"""Faults below the libraries: calls of the operating system that fail, write half, or are the last of their process.

`fault.c` is compiled on demand and preloaded, so that it reaches inside SQLite and Lance. A process that is to have
faults starts itself again with it (`preload`); those that it forks have it, too.
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
    """What happens to the call: see ``enum action`` in fault.c."""

    COUNT = 0
    FAIL = 1
    SHORT = 2  # half is written, as the operating system may do; the rest fails
    TORN = 3  # half is written, and the process is killed
    KILL_BEFORE = 4
    KILL_AFTER = 5


class NoCompiler(RuntimeError):  # noqa: N818 (a reason to skip)
    """The library cannot be made here."""


def compiled() -> Path:
    """Return the library, made from its source unless that was done before.

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
    """Say whether this process has the library."""
    return hasattr(ctypes.CDLL(None), "fault_arm")


def preload() -> None:
    """Start this program again with the library, unless it has it.

    Raises:
        NoCompiler: See `compiled`.
    """
    if preloaded():
        os.environ.pop("LD_PRELOAD", None)  # for this process alone and those that it forks
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
    """Let something happen to a call below a folder.

    Args:
        folder: An absolute path.
        action: What happens.
        pattern: Which calls are counted, as a shell pattern of their texts: "write *_deletions/*".
        occurrence: Which of these is struck, counted from 1.
        error: Its number, for `FAIL` and `SHORT`. What frees room never fails for lack of it.
        lasting: Whether every further call fails as well.
    """
    _library().fault_arm(os.fsencode(folder), os.fsencode(pattern), action, error, lasting, occurrence)


def disarm() -> None:
    """Let everything work again."""
    _library().fault_disarm()


def count() -> int:
    """Return how many calls matched since `arm`."""
    return int(_library().fault_count())


def struck() -> str:
    """Return the text of the call that was struck since `arm`, "" where none was."""
    return os.fsdecode(_library().fault_struck())


@contextmanager
def traced(folder: Path, path: Path) -> Iterator[None]:
    """Write the texts of all calls below a folder to a file outside of it."""
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
    """Let the clock of this process be so many seconds fast."""
    _library().fault_clock(offset)
