"""``limpet gallery backup`` and ``restore``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from limpet.cli.console import console, print_json, progress_bar
from limpet.cli.gallery.common import command, size
from limpet.cli.gallery.options import GalleryUrl
from limpet.errors import without_secrets

if TYPE_CHECKING:
    from limpet.galleries.backup import Backup

_ELSEWHERE = {"postgresql": "postgresql://…", "sharded": "sharded:FILE", "s3": "s3://…?ledger=postgresql://…"}
"""Where galleries are restored to that are in no folder, by their kind."""


def backup(gallery: GalleryUrl, dest: Path) -> int:
    """Copy everything that the gallery holds at one commit to a new folder. Searches and writes continue.

    The backup is read back and compared; the folder appears when it is complete. The backup of a gallery in a folder
    can be opened in place.

    Args:
        dest: New or empty folder, best on another disk.

    Examples:
        limpet gallery backup live /backups/live
    """
    with gallery.opened() as it, progress_bar("backing up", unit="MiB") as bar:
        done = it.backup(dest, progress=bar)
    console.print(f"Backed up {_told(done)} to {dest}.")
    place = _ELSEWHERE.get(done.kind, "NEW_FOLDER")
    console.print(f"Next, to restore it: {command('gallery restore', place, dest)}")
    print_json({"backup": str(dest), **_document(done)})
    return 0


def restore(gallery: GalleryUrl, backup: Path) -> int:
    """Create a gallery from a backup in a new place of the same kind, completely or not at all.

    Every file is compared before anything is written. The restored gallery is opened and counted.

    Args:
        backup: Folder that `limpet gallery backup` wrote; it is not changed.

    Examples:
        limpet gallery restore live-again /backups/live
    """
    from limpet.galleries import restore as restored

    gallery.refuse_in_ram()
    with progress_bar("restoring", unit="MiB") as bar:
        done = restored(backup, gallery, progress=bar)
    console.print(f"Restored {_told(done)} to {without_secrets(gallery)}.")
    console.print(f"Next, to look closer: {command('doctor', gallery)}")
    print_json({"gallery": without_secrets(gallery), **_document(done)})
    return 0


def _told(done: Backup) -> str:
    taken = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(done.time))
    return f"{done.contents.items:,} items as of commit {done.contents.sequence} ({taken} UTC, {size(done.bytes)})"


def _document(done: Backup) -> dict[str, object]:
    document = done.model_dump(mode="json", exclude={"files", "contents"})
    return {**document, **done.model_dump(mode="json")["contents"], "files": len(done.files)}
