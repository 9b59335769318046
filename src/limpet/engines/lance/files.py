"""Files of a gallery's Lance tables: their location, and how they are listed, linked, synced and removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import lance

from limpet.engines.lance.rows import Table
from limpet.support.disk import Disk

SUFFIX = ".lance"
_HINT = "latest_version_hint.json"  # rewritten by every change; Lance ignores a wrong one


class TableFiles(Protocol):
    """Tables by name; file names are relative to the folder of their table, with slashes."""

    options: Mapping[str, str] | None
    """Keys and endpoint for Lance; None for local files."""
    names_return: bool
    """Whether a removed name may be written again: no earlier writer can still be at work."""

    def uri(self, table: str) -> str:
        """Return the URI of a table for Lance."""

    def tables(self) -> list[str]:
        """Return the existing tables."""

    def below(self, table: str, folder: str) -> list[str]:
        """Return the files of a table in one of its folders."""

    def read(self, table: str, file: str) -> bytes:
        """Return the content of a file."""

    def remove(self, table: str, file: str) -> None:
        """Remove a file."""

    def remove_table(self, table: str) -> None:
        """Remove a table."""

    def link(self, source: str, files: Iterable[str], target: str) -> None:
        """Create a table from files of another one, without copying their content if possible."""

    def size(self, files: Iterable[tuple[str, str]]) -> int:
        """Return the bytes of files by table and name; a file with several names counts once."""

    def total_size(self) -> int:
        """Return the bytes of all files of all tables."""

    def begin(self, table: str, *, new: bool = False) -> None:
        """Take the present files of a table as durable, none of a new one, unless this was called before."""

    def sync(self, tables: Collection[str]) -> None:
        """Make files durable that were added to tables since `begin`."""

    def forget(self) -> None:
        """Forget which files are durable."""


def open_table(files: TableFiles, table: str, version: int, session: lance.Session) -> Table:
    """Open a version of a table."""
    return lance.dataset(files.uri(table), version=version, session=session, storage_options=files.options)


class FolderFiles:
    """Tables in a local folder.

    Args:
        folder: Folder of the gallery.
        disk: Makes files durable.
    """

    options: Mapping[str, str] | None = None
    names_return = True

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder, self._disk = folder, disk
        self._durable: dict[str, set[str]] = {}

    def _path(self, table: str) -> Path:
        return self._folder.absolute() / f"{table}{SUFFIX}"

    def uri(self, table: str) -> str:
        """Return the URI of a table for Lance."""
        return str(self._path(table))

    def tables(self) -> list[str]:
        """Return the existing tables."""
        return sorted(path.name.removesuffix(SUFFIX) for path in self._folder.glob(f"*{SUFFIX}"))

    def below(self, table: str, folder: str) -> list[str]:
        """Return the files of a table in one of its folders."""
        with suppress(FileNotFoundError):
            return [f"{folder}/{file.name}" for file in (self._path(table) / folder).iterdir()]
        return []

    def read(self, table: str, file: str) -> bytes:
        """Return the content of a file."""
        return (self._path(table) / file).read_bytes()

    def remove(self, table: str, file: str) -> None:
        """Remove a file."""
        (self._path(table) / file).unlink()

    def remove_table(self, table: str) -> None:
        """Remove a table."""
        shutil.rmtree(self._path(table))

    def link(self, source: str, files: Iterable[str], target: str) -> None:
        """Link files of a table into another one; copy them if the file system does not support links."""
        for file in files:
            there, new = self._path(source) / file, self._path(target) / file
            new.parent.mkdir(parents=True, exist_ok=True)
            try:
                new.hardlink_to(there)
            except OSError:
                shutil.copyfile(there, new)

    def size(self, files: Iterable[tuple[str, str]]) -> int:
        """Return the bytes of files by table and name; a file with several names counts once."""
        return _size(self._path(table) / file for table, file in files)

    def total_size(self) -> int:
        """Return the bytes of all files of all tables."""
        return _size(Path(path) for table in self.tables() for path in self._all(table))

    def begin(self, table: str, *, new: bool = False) -> None:
        """Take the present files of a table as durable, none of a new one, unless this was called before."""
        if table not in self._durable:
            self._durable[table] = set() if new else self._all(table)

    def sync(self, tables: Collection[str]) -> None:
        """Make files durable that were added to tables since `begin`."""
        for table in sorted(tables):
            files = self._all(table)
            new = [Path(path) for path in sorted(files - self._durable[table])]
            self._disk.sync(sorted(new, key=lambda path: path.is_dir()))  # files before the folders that name them
            self._durable[table] = files

    def forget(self) -> None:
        """Forget which files are durable."""
        self._durable = {}

    def _all(self, table: str) -> set[str]:
        """Return a table's folder with all its files and folders, except Lance's version hint."""
        found = {str(self._path(table))}
        for folder, folders, files in os.walk(self._path(table)):
            found.update(f"{folder}/{one}" for one in (*folders, *files) if one != _HINT)
        return found


def _size(paths: Iterable[Path]) -> int:
    sizes = {}
    for path in paths:
        with suppress(FileNotFoundError):
            about = path.stat()
            sizes[about.st_dev, about.st_ino] = about.st_size if path.is_file() else 0
    return sum(sizes.values())
