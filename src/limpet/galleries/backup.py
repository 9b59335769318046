"""A copy of a gallery at one commit, taken while it is written to, and a gallery made from it elsewhere."""

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
    """What a backup holds; its `RECORD`.

    Args:
        time: When it was taken, in seconds since 1970 (UTC).
        contents: As of which commit, and how much there is.
        files: Their SHA-256 by name.
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
    """Write everything that a gallery holds at one commit into a new folder, and read it back.

    Others may write and search meanwhile. The folder appears when everything is in it, durable and compared. One of a
    gallery in a folder is a gallery itself, which can be opened where it is.

    Args:
        store: The gallery's.
        dest: A new or empty folder, outside of the gallery's own.
        disk: What makes files durable; see `Disk`.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" MiB and "state".

    Raises:
        ConfigError: The place is inside of the gallery's folder.
        GalleryError: Something is there, or another writer does not make room for a moment.
        StoreError: There is no room, or a disk fails; nothing is left.
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
    """Make the gallery of a backup in a new place; it is there whole, or not at all.

    Args:
        backup: Folder of the backup; it stays as it is.
        url: A new place for the same kind of store: a folder, ``memory:FOLDER``, or ``postgresql://…`` with a schema
            that is empty or not there yet.
        disk: What makes files durable; see `Disk`.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" MiB and "state".

    Returns:
        What was restored.

    Raises:
        ConfigError: Nothing keeps a gallery at such a url.
        GalleryError: There is no whole backup, it is of another kind or damaged, or something is at the url.
        StoreError: The place fails; nothing is left.
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
