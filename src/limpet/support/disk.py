"""Files that are read without surprises, that survive a power failure, and folders that are whole or not there."""

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
"""Bytes of a file that is read as a whole by `read_bytes` and `read_text`; far more than any document needs."""

UNFINISHED = ".unfinished"
"""What the name of a folder ends with until it has everything."""


def regular(path: str | Path) -> Path:
    """Return the path of what libraries may open: a file, or nothing yet; symbolic links are followed.

    Pipes and devices would keep a reader waiting, or never end.

    Raises:
        OSError: Something else is there: a pipe, a device, a socket or a folder.
    """
    with suppress(FileNotFoundError):
        _refuse_special(Path(path).stat(), path)
    return Path(path)


def only_files(folder: Path, *, deep: bool = False) -> Path:
    """Return a folder of files that libraries may open; see `regular`.

    Raises:
        OSError: It cannot be listed, or a pipe, a device or a socket is in it.
    """
    folders = [folder]
    for one in folders:
        try:
            entries = os.scandir(one)
        except FileNotFoundError:
            if one == folder:
                raise
            continue  # another process removed it meanwhile
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
        OSError: It is missing, out of reach, or something else than a file.
    """
    _refuse_special(Path(path).stat(), path)  # to open a device may do something
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse_special(os.fstat(handle), path)  # what was opened, whatever was put there meanwhile
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: str | Path, limit: int = DOCUMENT_LIMIT) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: It cannot be read, is something else than a file, or is larger than the limit.
    """
    with open_file(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", str(path))
    return content


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """Return the text that a file holds; every line break is a line feed.

    Raises:
        OSError: See `read_bytes`.
        UnicodeDecodeError: It is no text in this encoding.
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
    from filelock import FileLock, Timeout  # most processes fill no folder

    place = path.with_name(f".{path.name}.lock")
    place.touch()  # filelock would wait where no file can be made
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
