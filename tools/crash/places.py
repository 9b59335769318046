"""Places of galleries of trials: templates in several states, and a copy of one for every trial."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol

from crash.log import TrialLog, lines_of
from crash.object_server import BUCKET, ObjectServer
from crash.power import durable_line, keep_all, lose_power
from crash.processes import finished, forked, violation_of
from crash.server import Server
from crash.shards import FILE, SHARDS, sharded
from crash.twin import Violation
from limpet.errors import GalleryError, LimpetError
from limpet.galleries import Gallery
from limpet.galleries.backup import restore


class Place(Protocol):
    """Place of one gallery."""

    kind: str
    folder: Path
    log: Path
    url: str
    kept: Path | None

    @property
    def server(self) -> Server | None:
        """Database server of the gallery, if it has one."""

    def begin(self, template: Place | None) -> None:
        """Start with a copy of another place, or empty."""

    def lose(self, how: str, seed: int) -> list[str]:
        """Simulate a power failure after a kill, unless ``how`` is "kept"; return what was lost."""

    def move(self, how: str) -> bool:
        """Move the gallery to another place: "renamed", "copied" or "restored"; return whether it was moved."""

    def end(self) -> None:
        """Remove everything."""


class FolderPlace:
    """A gallery in a folder, of the store "memory" or "lance", or "sharded" over both.

    Args:
        kind: Kind of the store.
        folder: Folder of the trial, for the gallery, the log and other files.
        keeps: Whether to keep copies of the database, which a power failure needs.
    """

    server: Server | None = None

    def __init__(self, kind: str, folder: Path, *, keeps: bool = True) -> None:
        self.kind, self.folder = kind, folder
        self.gallery, self.log = folder / "gallery", folder / "log"
        self.kept: Path | None = folder / "kept" if keeps else None
        self.url = self._url(self.gallery)
        self._moves = 0

    def _url(self, gallery: Path) -> str:
        return f"sharded:{gallery / FILE}" if self.kind == "sharded" else f"{self.kind}:{gallery}"

    def begin(self, template: Place | None) -> None:
        """Start with a copy of another place, all of which counts as durable, or empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.kept or self.folder).mkdir(parents=True)
        if template is None:
            if self.kind == "sharded":
                sharded(self.gallery, SHARDS)
                self._note()
            return
        assert isinstance(template, FolderPlace)
        shutil.copytree(template.gallery, self.gallery)
        shutil.copyfile(template.log, self.log)
        self._note()

    def _note(self) -> None:
        """Record that everything is durable in its current state."""
        if self.kept is not None:
            keep_all(self.gallery, self.kept)
            TrialLog(self.log).write(*durable_line(self.gallery))

    def lose(self, how: str, seed: int) -> list[str]:
        """Simulate a power failure after a kill, unless ``how`` is "kept"; return what was lost."""
        if how == "kept" or self.kept is None or not self.gallery.exists():
            return []
        lost = lose_power(self.gallery, self.kept, lines_of(self.log), how, seed)
        self._note()  # what is left has reached the disk
        return lost

    def move(self, how: str) -> bool:
        """Move the gallery to another folder, and remove the old one; return whether it was moved."""
        if not self.gallery.exists():
            return False
        self._moves += 1
        target = self.folder / f"moved {self._moves}"
        if how == "renamed":
            self.gallery.rename(target)
        elif how == "copied":
            shutil.copytree(self.gallery, target)
        else:
            if self.kind == "sharded":
                sharded(target, SHARDS)
            if not _restored(self.url, self._url(target), self.folder):
                return False
        shutil.rmtree(self.gallery, ignore_errors=True)
        self.gallery, self.url = target, self._url(target)
        self._note()
        return True

    def end(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)


class ServerPlace:
    """A gallery in its own PostgreSQL database; the server is responsible for durability.

    Args:
        server: Server of the database; a power failure kills it.
        folder: Folder for the log of the trial.
    """

    kind = "pgvector"
    kept: Path | None = None

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder, self.log = server, folder, folder / "log"
        self.database = f"d_{folder.name}"
        self.url = self._url(self.database)
        self._moves = 0

    def _url(self, database: str) -> str:
        return self.server.url(database)

    def begin(self, template: Place | None) -> None:
        """Start with a copy of another database, or with an empty one."""
        self.end()
        self.folder.mkdir(parents=True)
        origin = "template1"
        if template is not None:
            assert isinstance(template, ServerPlace)
            origin = template.database
            shutil.copyfile(template.log, self.log)
        self.server.execute(f'CREATE DATABASE "{self.database}" TEMPLATE "{origin}"')

    def lose(self, how: str, seed: int) -> list[str]:
        """Kill and restart the server if ``how`` is "lost"; return what was lost."""
        if how != "lost":
            return []
        self.server.kill()
        self.server.start()
        return ["the server"]

    def move(self, how: str) -> bool:
        """Move the gallery to another database by backup and restore, whatever ``how``; return whether it was moved."""
        old = self.database
        self._moves += 1
        new = f"d_{self.folder.name}_{self._moves}"
        self.server.execute(f'CREATE DATABASE "{new}"')
        moved = _restored(self.url, self._url(new), self.folder)
        self.database, gone = (new, old) if moved else (old, new)
        self.url = self._url(self.database)
        self._drop(gone)
        return moved

    def end(self) -> None:
        """Remove the database."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._drop(self.database)

    def _drop(self, database: str) -> None:
        self.server.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')


class BucketPlace(ServerPlace):
    """A gallery in a bucket with its ledger in a PostgreSQL database; prefix and database have the same name.

    Args:
        server: Server of the ledgers.
        objects: Server of the bucket; it is never killed.
        folder: Folder for the log of the trial.
    """

    kind = "s3"

    def __init__(self, server: Server, objects: ObjectServer, folder: Path) -> None:
        self.objects = objects
        super().__init__(server, folder)

    def _url(self, database: str) -> str:
        return f"s3://{BUCKET}/{database}?ledger={self.server.url(database)}"

    def begin(self, template: Place | None) -> None:
        """Start with a copy of another database and its objects, or empty."""
        super().begin(template)
        if template is not None:
            assert isinstance(template, BucketPlace)
            self.objects.copy(template.database, self.database)

    def _drop(self, database: str) -> None:
        super()._drop(database)
        self.objects.remove(database)


def _restored(old: str, new: str, folder: Path) -> bool:
    """Back up a gallery and restore it at another place; return False if the gallery was never completely created.

    Raises:
        Violation: Backup or restore failed.
    """
    backup, there = folder / "backup", folder / "restored"
    for path in (backup, there):
        shutil.rmtree(path, ignore_errors=True)

    def work() -> None:
        try:
            gallery = Gallery.open(old)
        except GalleryError:
            return
        try:
            with gallery:
                gallery.backup(backup)
            restore(backup, new)
        except LimpetError as error:
            raise Violation("backup", f"{type(error).__name__}: {error}") from error
        there.mkdir()

    wrong = finished(forked(folder, work), folder)
    if wrong is not None:
        raise Violation(*violation_of(wrong))
    return there.exists()
