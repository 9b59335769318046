"""Safe reading of files, durable writes, and atomic creation of folders."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from limpet.errors import ConfigError

DOCUMENT_LIMIT = 2**28
"""Maximum bytes of a file for `read_bytes` and `read_text`; far more than any document needs."""

UNFINISHED = ".unfinished"
"""Suffix of the name of a folder until it is complete."""


def regular(path: str | Path) -> Path:
    """Return a path that libraries may open: a file, or a missing one; symbolic links are followed.

    Pipes and devices would block a reader, or never end.

    Raises:
        OSError: The path is something else: a pipe, a device, a socket or a folder.
    """
    with suppress(FileNotFoundError):
        _refuse_special(Path(path).stat(), path)
    return Path(path)


def only_files(folder: Path, *, deep: bool = False) -> Path:
    """Return a folder whose files libraries may open; see `regular`.

    Raises:
        OSError: The folder cannot be listed, or contains a pipe, a device or a socket.
    """
    folders = [folder]
    for one in folders:
        try:
            entries = os.scandir(one)
        except FileNotFoundError:
            if one == folder:
                raise
            continue  # removed by another process
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if deep:
                        folders.append(Path(entry.path))
                elif not (entry.is_file() or entry.is_dir()):
                    regular(entry.path)
    return folder


def open_file(path: str | Path) -> BufferedReader:
    """Open a file for reading; never waits for the other end of a pipe.

    Raises:
        OSError: The path is missing, inaccessible, or not a file.
    """
    _refuse_special(Path(path).stat(), path)  # opening a device may have side effects
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse_special(os.fstat(handle), path)  # check the opened file, in case the path changed
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: str | Path, limit: int = DOCUMENT_LIMIT) -> bytes:
    """Return the contents of a file.

    Raises:
        OSError: The path cannot be read, is not a file, or is larger than the limit.
    """
    with open_file(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", str(path))
    return content


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """Return the text of a file, with line feeds as line breaks.

    Raises:
        OSError: See `read_bytes`.
        UnicodeDecodeError: The file is not text in this encoding.
    """
    return read_bytes(path).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def _refuse_special(found: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(found.st_mode), "a device")
        raise OSError(errno.EINVAL, f"'{Path(path).name}' is {kind}, no file", str(path))


class Disk:
    """Interface through which stores sync files to disk.

    Tests replace it by one that stops the process, or fails, at a chosen step, and records synced files.
    """

    def reached(self, point: str) -> None:
        """Hook that is called before every externally visible step, with the name of the step."""

    def sync(self, paths: Iterable[Path]) -> None:
        """Sync files and the folders that list them.

        Do not sync a database that this process has open: closing its file again releases the locks on it.

        Raises:
            OSError: The operating system cannot confirm durability.
        """
        files = list(paths)
        for path in files:
            self.sync_one(path)
        for folder in sorted({path.parent for path in files}):
            self.sync_one(folder)

    def sync_one(self, path: Path) -> None:
        """Sync one file or folder."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def database_synced(self, path: Path) -> None:
        """Hook that is called when a database confirms that its commits to this file are durable."""


@contextmanager
def whole_folder(path: Path, who: str, disk: Disk | None = None) -> Iterator[Path]:
    """Fill a folder under a temporary name, then sync it and rename it atomically.

    Yields:
        The empty folder to fill; remains of a killed process are deleted.

    Raises:
        ConfigError: Another process is filling it.
        OSError: The disk fails, or the path exists; nothing is left of the folder.
    """
    disk, path = disk or Disk(), Path(os.path.realpath(path))  # resolves without failing on link loops
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
    """Hold a lock on a path; the lock file beside it exists only while the lock is held."""
    from filelock import FileLock, Timeout  # lazy: most processes fill no folder

    place = path.with_name(f".{path.name}.lock")
    place.touch()  # fails early; filelock would wait if the file cannot be created
    lock = FileLock(place, timeout=0.1, fallback_to_soft=False)  # a soft lock would outlive a killed process
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(
            f"Another {who} is filling '{path}'.", to_do="wait until it is done, or choose another place."
        ) from None
    try:
        yield
    finally:
        place.unlink(missing_ok=True)  # before the release: a process that waits for this file then makes another one
        lock.release()
