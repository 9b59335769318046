"""A real Milvus server for tests: one for all processes that run them, since its etcd wants one and the same port.

Whoever comes first starts a guardian, which starts the server. Every user holds a shared lock on a file, which the
kernel releases however the process ends; when nobody holds it any more, the guardian kills the server and removes its
data.
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

PATIENCE = 300  # seconds until a server that is not ready is an error
FOLDER = Path(tempfile.gettempdir()) / f"limpet-milvus-{os.getuid()}"
GATE, GUARDIAN, USERS, URL, LOG = (
    FOLDER.with_suffix(".gate"), FOLDER / "guardian", FOLDER / "users", FOLDER / "url", FOLDER / "log"
)  # fmt: skip


@contextmanager
def milvus_server() -> Iterator[str]:
    """Give the URL of the server, which runs at least as long as the ``with`` block."""
    with GATE.open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)  # one after another; the guardian that stops its server holds it, too
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
    """Run the server as long as somebody uses it."""
    from milvus import MilvusServer

    data = FOLDER / "data"
    shutil.rmtree(data, ignore_errors=True)  # of a guardian that was killed
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
        URL.unlink(missing_ok=True)  # it died: the log stays
        sys.exit("\n".join(log.read_text()[-10_000:] for log in (data / "logs").glob("milvus-std*.log")))


def _locked(file: IO[str]) -> bool:
    """Lock a file for this process alone, and say whether that was possible."""
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
