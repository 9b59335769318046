"""Backup of a gallery at one commit, taken while it is written, and restore in another place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from limpet.engines.backup_files import Contents, appearing
from limpet.engines.digested_folder import DigestedFolder
from limpet.engines.store import Store
from limpet.engines.stores import restore_store
from limpet.errors import ConfigError, GalleryError
from limpet.support.disk import UNFINISHED, Disk, read_bytes
from limpet.support.progress import Progress, Told, listener, showing

RECORD = "backup.json"

_MEBIBYTE = 1 << 20


def _inside(name: str) -> str:
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
        raise ValueError(f"'{name}' is no file of the backup")
    return name


class Backup(BaseModel):
    """Contents of a backup; its `RECORD`.

    Args:
        time: Time of the backup, in seconds since 1970 (UTC).
        contents: The commit of the backup, and its counts.
        files: SHA-256 of each file, by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)  # few commands need it

    format_version: Literal[1] = 1
    kind: str
    time: float
    contents: Contents
    bytes: int
    files: dict[Annotated[str, AfterValidator(_inside)], str] = Field(min_length=1)


@showing("backup", unit="MiB")
def back_up(store: Store, dest: str | Path, *, disk: Disk | None = None, progress: Progress[Told] = None) -> Backup:
    """Write all data of a gallery at one commit into a new folder, and read it back.

    Others may write and search meanwhile. The folder appears when it is complete, durable and verified. The backup of a
    gallery in a folder is itself a gallery, which can be opened in place.

    Args:
        store: Store of the gallery.
        dest: A new or empty folder, outside of the gallery's own.
        disk: Makes files durable; see `Disk`.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" MiB and "state".

    Raises:
        ConfigError: The destination is inside the gallery's folder.
        GalleryError: The destination is not empty, or another writer holds the lock too long.
        StoreError: The disk is full or fails; no files are left.
    """
    place, disk = Path(os.path.realpath(dest)), disk or Disk()
    if store.folder is not None and place.is_relative_to(store.folder.resolve()):
        raise ConfigError(
            f"A backup in '{place}', inside of the gallery's own folder.",
            to_do="name another folder.",
        )
    with appearing(place, disk, "backup") as folder:
        copies = DigestedFolder(folder, disk, on_bytes=_told(progress, "copying"))
        pointer = store.backup(copies)
        copies.on_bytes = _told(progress, "checking")
        copies.check()
        size = sum((folder / name).stat().st_size for name in copies.digests)
        backup = Backup(
            kind=store.kind, time=time.time(), contents=Contents.of(pointer), bytes=size, files=copies.digests
        )
        copies.write(RECORD, [backup.model_dump_json(indent=1).encode()])
    return backup


@showing("restore", unit="MiB")
def restore(backup: str | Path, url: str, *, disk: Disk | None = None, progress: Progress[Told] = None) -> Backup:
    """Create the gallery of a backup in a new place, completely or not at all.

    Args:
        backup: Folder of the backup; it is not changed.
        url: A new place for the same kind of store: a folder, ``memory:FOLDER``, or ``postgresql://…`` with a schema
            that is empty or does not exist.
        disk: Makes files durable; see `Disk`.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" MiB and "state".

    Returns:
        The record of the restored backup.

    Raises:
        ConfigError: No store supports the URL.
        GalleryError: The backup is incomplete, of another kind or damaged, or the place is not empty.
        StoreError: The place fails; nothing is left there.
    """
    folder = Path(backup)
    record = _read(folder)
    files = DigestedFolder(folder, disk or Disk(), record.files, _told(progress, "checking"))
    files.check()
    files.on_bytes = _told(progress, "restoring")
    restore_store(url, record.kind, files, record.contents, disk=disk)
    return record


def _read(folder: Path) -> Backup:
    try:
        return Backup.model_validate_json(read_bytes(folder / RECORD))
    except FileNotFoundError:
        ended = "its writing was interrupted" if folder.name.endswith(UNFINISHED) else "it has no " + RECORD
        raise GalleryError(
            f"'{folder}' is no whole backup: {ended}." if folder.is_dir() else f"There is no folder '{folder}'.",
            expected="a folder that `limpet gallery backup` wrote to its end",
            to_do="choose another one, or take the backup again; nothing was restored.",
        ) from None
    except (OSError, ValidationError) as error:
        raise GalleryError(
            f"'{folder / RECORD}' cannot be read: {' '.join(str(error).split())}.",
            expected="what `limpet gallery backup` wrote, of format version 1",
            to_do="choose another backup, or install the limpet that wrote it; nothing was restored.",
        ) from error


def _told(progress: Progress[Told], state: str) -> Callable[[int], None]:
    done = 0

    def copied(count: int) -> None:
        nonlocal done
        done += count
        listener(progress)({"done": done / _MEBIBYTE, "state": state})

    return copied
