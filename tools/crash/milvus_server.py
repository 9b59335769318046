"""A real Milvus server for tests, shared by all test processes, because its etcd uses a fixed port.

The first user starts a guardian process, which starts the server. Every user holds a shared lock on a file; the kernel
releases it when the process ends. When no user holds the lock, the guardian kills the server and removes its data.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.request import urlopen

PATIENCE = 300  # maximum seconds to wait until the server is ready
FOLDER = Path(tempfile.gettempdir()) / f"limpet-milvus-{os.getuid()}"
GATE, GUARDIAN, USERS, URL, LOG = (
    FOLDER.with_suffix(".gate"), FOLDER / "guardian", FOLDER / "users", FOLDER / "url", FOLDER / "log"
)  # fmt: skip


@contextmanager
def milvus_server() -> Iterator[str]:
    """Yield the URL of the server, which runs at least as long as the ``with`` block."""
    with GATE.open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)  # one user at a time; a guardian holds it while it stops its server
        FOLDER.mkdir(exist_ok=True)
        with USERS.open("w") as users:
            fcntl.flock(users, fcntl.LOCK_SH)
            with GUARDIAN.open("w") as file:
                guarded = not _locked(file)
            if not guarded:
                URL.unlink(missing_ok=True)
                log = (os.POSIX_SPAWN_OPEN, 1, str(LOG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                actions = [log, (os.POSIX_SPAWN_DUP2, 1, 2)]
                guardian = os.posix_spawn(
                    sys.executable, [sys.executable, "-P", __file__], os.environ, file_actions=actions
                )
                until = time.monotonic() + PATIENCE
                while not URL.exists():
                    assert time.monotonic() < until and os.waitpid(guardian, os.WNOHANG) == (0, 0), LOG.read_text()
                    time.sleep(0.05)
            gate.close()
            yield URL.read_text()


def guard() -> None:
    """Run the server as long as it has users."""
    from milvus import MilvusServer

    data = FOLDER / "data"
    shutil.rmtree(data, ignore_errors=True)  # data of a killed guardian
    server = MilvusServer(data_dir=str(data), wait_for_started=False)
    with GUARDIAN.open("w") as file, GATE.open("w") as gate, USERS.open("w") as users:
        assert _locked(file)
        server.start()
        while server.server_proc.poll() is None:
            if not URL.exists() and _ready(server.webservice_port, server.listen_port):
                URL.with_suffix(".new").write_text(f"http://127.0.0.1:{server.listen_port}")
                URL.with_suffix(".new").rename(URL)
            if _locked(gate):
                if _locked(users):
                    server.server_proc.kill()
                    server.server_proc.wait()
                    shutil.rmtree(FOLDER, ignore_errors=True)
                    return
                fcntl.flock(gate, fcntl.LOCK_UN)
            time.sleep(0.2)
        URL.unlink(missing_ok=True)  # the server died: its log is kept
        sys.exit("\n".join(log.read_text()[-10_000:] for log in (data / "logs").glob("milvus-std*.log")))


def _locked(file: IO[str]) -> bool:
    """Try to lock a file exclusively; return whether that succeeded."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _ready(health: int, port: int) -> bool:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{health}/healthz", timeout=10) as answer:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
        return b"OK" in answer.read()
    return False


if __name__ == "__main__":
    guard()
