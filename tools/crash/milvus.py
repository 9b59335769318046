"""A Milvus server for `crash.collections`, and a client that reads and writes its rows."""

from __future__ import annotations

import fcntl
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import psutil
from pymilvus import MilvusClient, MilvusException

from crash.applications import MilvusApplication as Application
from crash.collections import PATIENCE, Row
from crash.milvus_server import FOLDER, GATE, GUARDIAN

__all__ = ["ERRORS", "Application", "Client", "service"]

ERRORS = (MilvusException,)
"""Errors of the client if the server was killed."""


class Service:
    """A Milvus server that can be killed and restarted with the same data."""

    def __init__(self, folder: Path) -> None:
        from milvus import MilvusServer

        self._owner = server = MilvusServer(data_dir=str(folder), wait_for_started=False)  # its destructor stops it
        server.start()
        self._process: subprocess.Popen[bytes] = server.server_proc
        started = psutil.Process(self._process.pid)
        self._environment, self._folder = started.environ(), started.cwd()
        self._health = f"http://127.0.0.1:{server.webservice_port}/healthz"
        self._address = "127.0.0.1", int(server.listen_port)
        self.url = f"milvus://127.0.0.1:{server.listen_port}"
        self.start()

    def start(self) -> None:
        """Start the server unless it runs, and wait until it answers."""
        until = time.monotonic() + PATIENCE
        while not self._answers():
            assert time.monotonic() < until, "the server does not answer"
            if self._process.poll() is not None:  # without the package, which would choose other ports
                self._process = subprocess.Popen(
                    self._process.args, env=self._environment, cwd=self._folder, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )  # fmt: skip
            time.sleep(0.05)

    def _answers(self) -> bool:
        with suppress(OSError), urlopen(self._health, timeout=10) as answer:
            socket.create_connection(self._address, timeout=10).close()
            return b"OK" in answer.read()
        return False

    def kill(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait()


@contextmanager
def service() -> Iterator[Service]:
    """Yield a running server. No other Milvus server can run meanwhile, because its etcd uses a fixed port."""
    with GATE.open("w") as gate, tempfile.TemporaryDirectory(prefix="limpet-milvus-trials-") as folder:
        while True:
            fcntl.flock(gate, fcntl.LOCK_EX)
            FOLDER.mkdir(exist_ok=True)
            guardian = GUARDIAN.open("w")
            try:
                fcntl.flock(guardian, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:  # the guardian needs the gate to stop its server when nobody uses it
                guardian.close()
                fcntl.flock(gate, fcntl.LOCK_UN)
                time.sleep(0.5)
        with guardian:
            one = Service(Path(folder))
            try:
                yield one
            finally:
                one.kill()


class Client:
    """A connection of an application or of the watcher.

    Args:
        url: URL of the server.
    """

    def __init__(self, url: str) -> None:
        self._client = MilvusClient(url.replace("milvus", "http", 1))

    def rows(self, collection: str) -> dict[int, Row]:
        """Return all rows of a collection, with strong consistency."""
        found = self._client.query(collection, filter="key >= 0", output_fields=["*"], consistency_level="Strong")
        return {row["key"]: row for row in found}

    def put(self, collection: str, row: Row) -> None:
        """Write a whole row."""
        self._client.upsert(collection, [row])

    def delete(self, collection: str, row: int) -> None:
        """Delete a row."""
        self._client.delete(collection, ids=[row])
