"""Simulates a power failure: removes what was never made durable before the gallery is reopened."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from crash.log import Line
from crash.shards import FILE

DATABASE = "gallery.db"


def files_of(folder: Path) -> list[str]:
    """Return the relative paths of all files and folders below a folder, sorted."""
    found = []
    for place, folders, files in os.walk(folder):
        found += [str((Path(place) / name).relative_to(folder)) for name in (*folders, *files)]
    return sorted(found)


def lose_power(folder: Path, kept: Path, lines: list[Line], how: str, seed: int) -> list[str]:
    """Remove what was not made durable since the last "durable" line of the log.

    A file is durable up to its length at its last sync, and only if its folder was synced after the file got its name;
    the same is true for that folder. The database goes back to its state when SQLite last reported that it is durable.

    Args:
        folder: Folder of the gallery.
        kept: Folder with copies of the database; see `keep`.
        lines: The log so far.
        how: "lost" removes everything that is not durable, "mixed" a random part of it.
        seed: Random seed for "mixed".

    Returns:
        Descriptions of what was removed.
    """
    chance = random.Random(seed)
    names, lengths = _durable(folder, lines)
    lost = []
    for name in files_of(folder):
        path = folder / name
        if Path(name).name.startswith((DATABASE, "writer.lock")) or not path.exists():
            continue
        if how == "mixed" and chance.random() < 0.5:
            continue
        if name not in names:
            lost.append(name)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif path.is_file():
            length = lengths.get((name, path.stat().st_ino), 0)
            if length < path.stat().st_size:
                lost.append(f"{name} from {length} on")
                os.truncate(path, length)
    for database in databases_of(folder) or [folder / DATABASE]:
        if how == "lost" or chance.random() < 0.5:
            _restore(database, _copies(database, kept))
            lost.append(str(database.relative_to(folder)))
    return lost


def databases_of(folder: Path) -> list[Path]:
    """Return the databases of a gallery: one, or those of the top and the shards of a sharded one."""
    return sorted(folder.rglob(DATABASE))


def keep_all(folder: Path, kept: Path) -> None:
    """Copy every database of a gallery; see `keep`."""
    for database in databases_of(folder):
        keep(database, kept)


def _copies(database: Path, kept: Path) -> Path:
    """Return the folder with copies of a database; each database of a sharded gallery has its own."""
    several = (database.parent.parent / FILE).exists()
    return kept / database.parent.name if several else kept


def _durable(folder: Path, lines: list[Line]) -> tuple[set[str], dict[tuple[str, int], int]]:
    """Return the names that are durably listed, and the durable lengths of files by name and inode."""
    names: set[str] = set()
    lengths: dict[tuple[str, int], int] = {}
    for what, *values in lines:
        if what == "durable":
            names = {name for name, _, _ in values[0]}
            lengths = {(name, inode): size for name, inode, size in values[0]}
        elif what == "sync" and Path(values[0]).is_relative_to(folder):
            lengths[str(Path(values[0]).relative_to(folder)), values[1]] = values[2]
        elif what == "folder" and Path(values[0]).is_relative_to(folder):
            place = Path(values[0]).relative_to(folder)
            present = {str(place / name) for name in values[1]}
            names = {name for name in names if Path(name).parent != place or name in present} | present
    return names, lengths


def keep(database: Path, kept: Path) -> None:
    """Copy the database and its write-ahead log atomically: the copy gets its final name when it is complete."""
    kept = _copies(database, kept)
    new = kept / "new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for file in (database, database.with_name(database.name + "-wal")):
        if file.exists():
            (new / file.name).write_bytes(_content(file))
    number = 1 + max((int(found.name) for found in kept.iterdir() if found.name.isdigit()), default=-1)
    new.rename(kept / str(number))
    shutil.rmtree(kept / str(number - 1), ignore_errors=True)


_opened: dict[tuple[int, int], int] = {}
"""Open handles of files that were read, by device and inode; closing one would release SQLite's locks on the file."""


def _content(path: Path) -> bytes:
    about = path.stat()
    key = about.st_dev, about.st_ino
    if key not in _opened:
        _opened[key] = os.open(path, os.O_RDONLY)
    return os.pread(_opened[key], about.st_size, 0)


def durable_line(folder: Path) -> Line:
    """Return the log line that marks the current state of a folder as durable."""
    found = [(name, (folder / name).stat()) for name in files_of(folder)]
    return ["durable", [[name, about.st_ino, about.st_size] for name, about in found]]


def _restore(database: Path, kept: Path) -> None:
    """Restore a database from its newest complete copy; remove it if there is none."""
    copies = sorted((found for found in kept.glob("*") if found.name.isdigit()), key=lambda one: int(one.name))
    for suffix in ("", "-wal", "-shm"):
        database.with_name(DATABASE + suffix).unlink(missing_ok=True)
    if copies:
        for file in copies[-1].iterdir():
            shutil.copyfile(file, database.with_name(file.name))
