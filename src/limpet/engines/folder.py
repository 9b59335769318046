"""Folders that hold a gallery: create one, and determine the kind of its gallery."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from limpet.engines.forks import unforked
from limpet.engines.ledger import GalleryLedger
from limpet.engines.sqlite import DATABASE, LOCK, SqliteDatabase, connect_read_only, translated
from limpet.errors import GalleryError
from limpet.support.disk import Disk

_TRACES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal", LOCK)


def create_folder(path: Path, kind: str, disk: Disk, more: Sequence[str] = ()) -> SqliteDatabase:
    """Create a folder with the ledger of an empty gallery, durably.

    Args:
        path: The folder; it may exist if it is empty, or holds only the files of an interrupted creation.
        kind: Kind of the store.
        disk: Makes it durable.
        more: Statements that create tables of the store.

    Raises:
        GalleryError: The folder is not empty.
        StoreError: The folder cannot be created.
    """
    _refuse_gallery(path)
    _refuse_other_files(path)
    with translated(path):
        missing_folders = [folder for folder in path.absolute().parents if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
    database = SqliteDatabase(path / DATABASE, disk)
    GalleryLedger(database).create(kind, more)
    with translated(path):  # SQLite syncs its file; opening it here as well would release SQLite's locks on it
        disk.sync([path.absolute(), *missing_folders])
    return database


def refuse_taken(path: Path) -> None:
    """Refuse a place that no folder can be moved to.

    Raises:
        GalleryError: The place exists already.
    """
    _refuse_gallery(path)
    with translated(path):
        there = sorted(one.name for one in path.iterdir()) if path.is_dir() else []
        mounted = path.is_mount()
    if there:
        raise _something_else(path, there)
    if mounted:
        raise GalleryError(
            f"A file system is mounted at '{path}'.",
            expected="a folder that can appear at once, whole",
            to_do=f"name a new folder in it, such as '{path / 'gallery'}'.",
            intact="Nothing was changed.",
        )


def _refuse_gallery(path: Path) -> None:
    if kind_of(path) is not None:
        raise GalleryError(
            f"There is a gallery in '{path}'.",
            to_do="open it, or choose another folder; it is as it was.",
        )


def open_folder(path: Path, disk: Disk) -> SqliteDatabase:
    """Return the database of the gallery in a folder.

    Raises:
        GalleryError: The gallery does not exist, or has another format version.
    """
    if kind_of(path) is None:
        raise missing(path)
    database = SqliteDatabase(path / DATABASE, disk)
    try:
        GalleryLedger(database).check_format(str(path))
    except GalleryError:
        database.close()
        raise
    return database


def kind_of(path: Path) -> str | None:
    """Return the kind of the gallery in a folder, None if it has none.

    Raises:
        GalleryError: The path is not a folder, or the database is not one of a gallery.
        StoreError: The file of that name is no database.
    """
    if path.exists() and not path.is_dir():
        raise GalleryError(f"'{path}' is a file.", to_do="choose another path.", intact="Nothing was changed.")
    if not (path / DATABASE).is_file():
        return None
    with translated(path / DATABASE), unforked():
        try:
            with closing(connect_read_only(path / DATABASE)) as connection:
                return _kind(path, connection)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise
        with closing(sqlite3.connect(path / DATABASE)) as connection:  # takes back what was interrupted
            return _kind(path, connection)


def _kind(path: Path, connection: sqlite3.Connection) -> str | None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None  # its creation was interrupted
    if not {"meta", "pointer"} <= tables:
        raise _something_else(path, [f"{DATABASE} with tables of others"])
    found = connection.execute("SELECT value FROM meta WHERE name = 'kind'").fetchall()
    return str(found[0][0]) if found else None


def missing(path: Path, kind: str = "") -> GalleryError:
    """Build the error for a missing gallery, or for something else in its place."""
    _refuse_other_files(path)
    return GalleryError(
        f"There is no gallery in '{path}'.",
        expected="the folder of one that was created",
        to_do=f"check the path, or type `limpet gallery create {kind}{':' if kind else ''}{path} --embeddings "
        "FILE_OR_FOLDER`, or with --model release:RELEASE for an empty one.",
    )


def _refuse_other_files(path: Path) -> None:
    with translated(path):
        other = sorted(found.name for found in path.iterdir() if found.name not in _TRACES) if path.is_dir() else []
    if other:
        raise _something_else(path, other)


def _something_else(path: Path, found: Sequence[str]) -> GalleryError:
    return GalleryError(
        f"The folder '{path}' holds something else: {', '.join(found[:3])}{' …' if len(found) > 3 else ''}.",
        expected="a gallery, or for a new one a new or empty folder",
        to_do="choose another folder.",
        intact="Nothing was changed.",
    )
