"""Where the galleries of trials lie: galleries in several states to start from, and a copy of one for every trial."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol

from crash.log import TrialLog, lines_of
from crash.power import DATABASE, durable_line, keep, lose_power
from crash.server import Server


class Place(Protocol):
    """Where one gallery is."""

    kind: str
    folder: Path
    log: Path
    url: str
    kept: Path | None
    server: Server | None

    def begin(self, template: Place | None) -> None:
        """Start from a copy of another place, or from nothing."""

    def lose(self, how: str, seed: int) -> list[str]:
        """Lose power after the process was killed, unless ``how`` is "kept"; return what was lost."""

    def move(self, how: str) -> bool:
        """Bring the gallery to another place, "renamed" or "copied"; say whether that was done."""

    def end(self) -> None:
        """Remove everything."""


class FolderPlace:
    """A gallery in a folder, of the store "memory" or "lance".

    Args:
        kind: Of the store.
        folder: Of the trial: the gallery, the log and what else belongs to it.
    """

    server: Server | None = None

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.gallery, self.kept, self.log = folder / "gallery", folder / "kept", folder / "log"
        self.url = f"{kind}:{self.gallery}"
        self._moves = 0

    def begin(self, template: Place | None) -> None:
        """Start from a copy of another place, all of it durable, or from nothing."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.kept.mkdir(parents=True)
        if template is None:
            return
        assert isinstance(template, FolderPlace)
        shutil.copytree(template.gallery, self.gallery)
        shutil.copyfile(template.log, self.log)
        keep(self.gallery / DATABASE, self.kept)
        self._note()

    def _note(self) -> None:
        TrialLog(self.log).write(*durable_line(self.gallery))

    def lose(self, how: str, seed: int) -> list[str]:
        """Lose power after the process was killed, unless ``how`` is "kept"."""
        if how == "kept" or not self.gallery.exists():
            return []
        lost = lose_power(self.gallery, self.kept, lines_of(self.log), how, seed)
        keep(self.gallery / DATABASE, self.kept)  # what is there now was on the disk, whether it had said so or not
        self._note()
        return lost

    def move(self, how: str) -> bool:
        """Bring the gallery to another folder, "renamed" or "copied"; nothing is left where it was."""
        if not self.gallery.exists():
            return False
        self._moves += 1
        target = self.folder / f"moved {self._moves}"
        if how == "renamed":
            self.gallery.rename(target)
        else:
            shutil.copytree(self.gallery, target)
            shutil.rmtree(self.gallery)
        self.gallery, self.url = target, f"{self.kind}:{target}"
        self._note()
        return True

    def end(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)


class ServerPlace:
    """A gallery in a PostgreSQL database of its own; what is durable there is the server's business.

    Args:
        server: Where; it is killed, too, where a folder would lose power.
        folder: Of the trial's log.
    """

    kind = "pgvector"
    kept = None

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder, self.log = server, folder, folder / "log"
        self.database = f"d_{folder.name}"
        self.url = server.url(self.database)

    def begin(self, template: Place | None) -> None:
        """Start from a copy of another database, or from an empty one."""
        self.end()
        self.folder.mkdir(parents=True)
        origin = "template1"
        if template is not None:
            assert isinstance(template, ServerPlace)
            origin = template.database
            shutil.copyfile(template.log, self.log)
        self.server.execute(f'CREATE DATABASE "{self.database}" TEMPLATE "{origin}"')

    def lose(self, how: str, seed: int) -> list[str]:
        """Kill the server as well, and start it again, if power is lost."""
        if how != "lost":
            return []
        self.server.kill()
        self.server.start()
        return ["the server"]

    def move(self, how: str) -> bool:
        """Leave it where it is: where its files lie is the server's business."""
        return False

    def end(self) -> None:
        """Remove the database."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.server.execute(f'DROP DATABASE IF EXISTS "{self.database}" WITH (FORCE)')
