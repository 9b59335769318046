"""The files of all Lance tables of a gallery: where they are, and how they are listed, linked, synced and removed."""

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
_HINT = "latest_version_hint.json"  # written anew by every change; Lance looks for itself where it is wrong


class TableFiles(Protocol):
    """Tables by name; names of files are relative to the folder of their table, with slashes."""

    options: Mapping[str, str] | None
    """Keys and endpoint for Lance; None for files of this machine."""
    names_return: bool
    """Whether what is removed may be written again under its name: the writer before is surely gone."""

    def uri(self, table: str) -> str:
        """Return where Lance finds a table."""

    def tables(self) -> list[str]:
        """Return the tables that there are."""

    def below(self, table: str, folder: str) -> list[str]:
        """Return the files of a table in one of its folders."""

    def read(self, table: str, file: str) -> bytes:
        """Return what a file holds."""

    def remove(self, table: str, file: str) -> None:
        """Remove a file."""

    def remove_table(self, table: str) -> None:
        """Remove a table."""

    def link(self, source: str, files: Iterable[str], target: str) -> None:
        """Make a table of files of another one, without writing what they hold where that is possible."""

    def size(self, files: Iterable[tuple[str, str]]) -> int:
        """Return the bytes of files by table and name; of what is one file by several names counted once."""

    def total_size(self) -> int:
        """Return the bytes of all files of all tables."""

    def begin(self, table: str, *, new: bool = False) -> None:
        """Take what a table has for durable, of a new one nothing, unless it was asked before."""

    def sync(self, tables: Collection[str]) -> None:
        """Make durable what came to tables since they began."""

    def forget(self) -> None:
        """Forget what is durable."""


def open_table(files: TableFiles, table: str, version: int, session: lance.Session) -> Table:
    """Open a version of a table."""
    return lance.dataset(files.uri(table), version=version, session=session, storage_options=files.options)


class FolderFiles:
    """Tables in a folder of this machine.

    Args:
        folder: The gallery's.
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
        """Return where Lance finds a table."""
        return str(self._path(table))

    def tables(self) -> list[str]:
        """Return the tables that there are."""
        return sorted(path.name.removesuffix(SUFFIX) for path in self._folder.glob(f"*{SUFFIX}"))

    def below(self, table: str, folder: str) -> list[str]:
        """Return the files of a table in one of its folders."""
        with suppress(FileNotFoundError):
            return [f"{folder}/{file.name}" for file in (self._path(table) / folder).iterdir()]
        return []

    def read(self, table: str, file: str) -> bytes:
        """Return what a file holds."""
        return (self._path(table) / file).read_bytes()

    def remove(self, table: str, file: str) -> None:
        """Remove a file."""
        (self._path(table) / file).unlink()

    def remove_table(self, table: str) -> None:
        """Remove a table."""
        shutil.rmtree(self._path(table))

    def link(self, source: str, files: Iterable[str], target: str) -> None:
        """Link files of a table into another one; copy them where the file system knows no links."""
        for file in files:
            there, new = self._path(source) / file, self._path(target) / file
            new.parent.mkdir(parents=True, exist_ok=True)
            try:
                new.hardlink_to(there)
            except OSError:
                shutil.copyfile(there, new)

    def size(self, files: Iterable[tuple[str, str]]) -> int:
        """Return the bytes of files by table and name; a file that has several names counts once."""
        return _size(self._path(table) / file for table, file in files)

    def total_size(self) -> int:
        """Return the bytes of all files of all tables."""
        return _size(Path(path) for table in self.tables() for path in self._all(table))

    def begin(self, table: str, *, new: bool = False) -> None:
        """Take what a table has for durable, of a new one nothing, unless it was asked before."""
        if table not in self._durable:
            self._durable[table] = set() if new else self._all(table)

    def sync(self, tables: Collection[str]) -> None:
        """Make durable what came to tables since they began."""
        for table in sorted(tables):
            files = self._all(table)
            new = [Path(path) for path in sorted(files - self._durable[table])]
            self._disk.sync(sorted(new, key=lambda path: path.is_dir()))  # no name is durable before what it names
            self._durable[table] = files

    def forget(self) -> None:
        """Forget what is durable."""
        self._durable = {}

    def _all(self, table: str) -> set[str]:
        """Return a table's folder with all files and folders in it, but what Lance writes only as a hint."""
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
