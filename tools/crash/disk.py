"""A disk that logs every step, and kills the process or fails at a chosen step."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from crash import faults
from crash.log import TrialLog, unlimited
from crash.power import DATABASE, keep
from crash.server import Server
from limpet.support.disk import Disk

ONLY_KILLS = ("driver.acknowledge", "database.synced")
"""Points after a commit, at which an error cannot be injected."""


LINGER = 60.0  # maximum seconds that a forked child lives


@dataclass
class Arm:
    """An event to inject, and its point.

    Args:
        how: "kill" at the point, "later" to kill a moment after it, "full" or "broken" for an error there, "server" to
            kill the server of the gallery.
        point: Name of the point; None for any.
        kind: Operation that must be in progress; None for any.
        occurrence: Number of the matching occurrence, from 1.
        delay: Seconds until a later kill.
    """

    how: str
    point: str | None = None
    kind: str | None = None
    occurrence: int = 1
    delay: float = 0.0

    def strikes(self, point: str, kind: str) -> bool:
        """Count an occurrence if it matches; return whether it is the chosen one."""
        if self.occurrence < 1 or self.point not in (None, point) or self.kind not in (None, kind):
            return False
        if self.how in ("full", "broken") and point in ONLY_KILLS:
            return False
        self.occurrence -= 1
        return self.occurrence == 0


class TrialDisk(Disk):
    """The disk of a trial: it syncs like `Disk`, logs every step, and injects an event.

    Args:
        log: Log of the trial.
        arm: Event to inject; None for none.
        kept: Folder for copies of the database as it was when it was last made durable; None makes no copies.
        server: Server of the gallery, if it has one.
        forks: Whether to fork a child that outlives the process: when the event strikes, or at the first point.
    """

    def __init__(
        self,
        log: TrialLog,
        arm: Arm | None = None,
        kept: Path | None = None,
        server: Server | None = None,
        forks: bool = False,
    ) -> None:
        self.log, self.arm, self.kept, self.server = log, arm, kept, server
        self.forks = forks
        self.kind = ""
        self.struck = False
        self._syncs = 0
        if kept is not None and faults.preloaded():
            faults.arm(log.path.parent.absolute(), faults.Action.COUNT, pattern=f"sync */{DATABASE}*")

    def reached(self, point: str) -> None:
        self.log.write("point", point, self.kind)
        struck = self.arm is not None and self.arm.strikes(point, self.kind)
        if self.forks and (struck or self.arm is None):
            self.forks = False
            if os.fork() == 0:
                _linger(self.log.path)
        if self.arm is None or not struck:
            return
        self.struck = True
        self.log.write("struck", point, self.kind, self.arm.how)
        if self.arm.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.arm.how == "later":
            threading.Thread(target=_kill_after, args=(self.arm.delay,), daemon=True).start()
        elif self.arm.how == "server":
            assert self.server is not None
            self.server.kill()
        else:
            number = errno.ENOSPC if self.arm.how == "full" else errno.EIO
            raise OSError(number, os.strerror(number), point)

    def revive(self) -> None:
        """Start a killed server."""
        if self.server is not None:
            self.server.start()

    def sync_one(self, path: Path) -> None:
        folder = path.is_dir()
        self.reached("disk.sync_folder" if folder else "disk.sync_file")
        super().sync_one(path)
        if folder:
            self.log.write("folder", str(path), sorted(found.name for found in path.iterdir()))
        else:
            found = path.stat()
            self.log.write("sync", str(path), found.st_ino, found.st_size)

    def database_synced(self, path: Path) -> None:
        if self.kept is not None and self._was_synced():
            with unlimited():
                keep(path, self.kept)
        self.log.write("database", str(path))
        self.reached("database.synced")

    def _was_synced(self) -> bool:
        """Return whether the system call was made, too; True if the fault library is not there to count the calls."""
        before, self._syncs = self._syncs, faults.count() if faults.preloaded() else self._syncs + 1
        return self._syncs > before


def _kill_after(delay: float) -> None:
    time.sleep(delay)
    os.kill(os.getpid(), signal.SIGKILL)


def _linger(log: Path) -> None:
    """Live as a forked child that does nothing, until the trial is over."""
    until = time.monotonic() + LINGER
    while log.exists() and time.monotonic() < until:
        time.sleep(0.05)
    os._exit(0)
