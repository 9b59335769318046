"""Storage for vectors that arrive block by block: memory, or a temporary file if they are too large."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError

BLOCK_BYTES = 2**22
"""Approximate bytes of a file that a reader holds at a time."""

_GROUPS = {  # limit, use, and the part of that use that is a cache of files, by generation of control groups
    "/sys/fs/cgroup": ("memory.max", "memory.current", "inactive_file"),
    "/sys/fs/cgroup/memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def gather(
    blocks: Iterable[NDArray[Any]], rows: int, dim: int, *, about: bool = False, most_memory: int | None = None
) -> NDArray[np.float32]:
    """Concatenate blocks (n, D) of floating-point numbers into one float32 array (N, D).

    Args:
        blocks: Blocks in order; each is copied before the next is requested.
        rows: Total number of rows N.
        dim: Dimension D.
        about: Whether ``rows`` is an estimate.
        most_memory: Maximum bytes of the array in memory; half of the available memory when left out. A larger array is
            mapped from an unnamed temporary file, which disappears with the array or the process, however it ends.

    Raises:
        EOFError: The blocks have fewer or more rows than announced.
        DataError: The disk of the temporary file is full.
    """
    if 4 * rows * dim <= (available_memory() // 2 if most_memory is None else most_memory):
        return _in_memory(blocks, rows, dim, about)
    return _in_file(blocks, rows, dim, about)


def rows_at_once(row_bytes: int) -> int:
    """Return the number of rows of `row_bytes` bytes in a block.

    >>> rows_at_once(512), rows_at_once(2**30), rows_at_once(0)
    (8192, 1, 65536)
    """
    return max(1, min(65_536, BLOCK_BYTES // max(1, row_bytes)))


def _in_memory(blocks: Iterable[NDArray[Any]], rows: int, dim: int, about: bool) -> NDArray[np.float32]:
    vectors = np.empty((rows, dim), np.float32)
    end = 0
    for start, block in _placed(blocks, rows, about):
        end = start + len(block)
        if end > len(vectors):
            vectors.resize((end + end // 4, dim), refcheck=False)
        with np.errstate(over="ignore"):  # values beyond float32 become infinite, and are refused by id
            vectors[start:end] = block
    if end < len(vectors):
        vectors.resize((end, dim), refcheck=False)
    return vectors


def _in_file(blocks: Iterable[NDArray[Any]], rows: int, dim: int, about: bool) -> NDArray[np.float32]:
    size = 4 * rows * dim
    end = 0
    with ExitStack() as closing:
        with enough_room(size):
            file = closing.enter_context(tempfile.TemporaryFile(prefix="limpet-", dir=spool_folder()))
        for start, block in _placed(blocks, rows, about):
            end = start + len(block)
            with np.errstate(over="ignore"):
                converted = np.ascontiguousarray(block, np.float32)
            with enough_room(size):
                file.write(converted.data)
        with enough_room(size):
            file.flush()
        return np.asarray(np.memmap(file, np.float32, "r", shape=(end, dim)))


def _placed(blocks: Iterable[NDArray[Any]], rows: int, about: bool) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield blocks with their start rows; refuse more or fewer rows than announced."""
    start = 0
    for block in blocks:
        if start + len(block) > rows and not about:
            raise EOFError(f"more than the {rows} vectors that its header announces")
        yield start, block
        start += len(block)
    if start < rows and not about:
        raise EOFError(f"{start} of the {rows} vectors that its header announces")


@contextmanager
def enough_room(size: int) -> Iterator[None]:
    """Turn a failure to write this number of bytes to a temporary file into a DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"Vectors of {size / 2**30:,.1f} GiB do not fit into a temporary file in '{spool_folder()}': {error}.",
            to_do="free some, or name another folder for temporary files: TMPDIR=FOLDER.",
            intact="Nothing was changed.",
        ) from error


def spool_folder() -> str:
    """Return a folder for large temporary files; /tmp is often in memory and too small."""
    folder, large = tempfile.gettempdir(), "/var/tmp"
    return large if folder == "/tmp" and os.access(large, os.W_OK) else folder


def available_memory() -> int:
    """Return the bytes of memory that this process may still allocate, on this machine and in its container."""
    known = [_of_machine()]
    for folder, (limit, use, cache) in _GROUPS.items():
        with suppress(OSError, ValueError):  # no such control group, or "max"
            cached = _numbers(Path(folder) / "memory.stat").get(cache, 0)
            known.append(_number(Path(folder) / limit) - _number(Path(folder) / use) + cached)
    return max(0, min(known))


def _of_machine() -> int:
    with suppress(OSError, KeyError):
        return _numbers(Path("/proc/meminfo"))["MemAvailable:"] * 1024
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 2**32


def _number(path: Path) -> int:
    return int(path.read_text())


def _numbers(path: Path) -> dict[str, int]:
    return {words[0]: int(words[1]) for words in map(str.split, path.read_text().splitlines())}
