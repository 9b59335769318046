"""A real Chroma server with its own data for tests and trials, which can be killed and restarted."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.request import urlopen

PATIENCE = 120  # maximum seconds to wait for an answer of the server


class ChromaServer:
    """``chroma run`` on a free port.

    Args:
        place: Parent of the folder of the server; None uses the folder for temporary files.
    """

    def __init__(self, place: Path | str | None = None) -> None:
        place = place or os.environ.get("PYTEST_DEBUG_TEMPROOT")
        self.folder = Path(tempfile.mkdtemp(prefix="limpet-chroma-", dir=place))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"chroma://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the server unless it runs, and wait until it answers."""
        until = time.monotonic() + PATIENCE
        while not self._answers():
            assert time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
            if self._process is None or self._process.poll() is not None:
                program = Path(sysconfig.get_path("scripts")) / "chroma"
                words = [program, "run", "--path", self.folder / "data", "--host", "127.0.0.1", "--port", self._port]
                quiet = {**os.environ, "ANONYMIZED_TELEMETRY": "False", "RUST_LOG": "warn"}
                with (self.folder / "log").open("ab") as log:
                    self._process = subprocess.Popen([*map(str, words)], env=quiet, stdout=log, stderr=log)
            time.sleep(0.05)

    def _answers(self) -> bool:
        with suppress(OSError), urlopen(f"http{self.url[6:]}/api/v2/heartbeat", timeout=10):
            return True
        return False

    def kill(self) -> None:
        """Kill the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Kill the server, and remove its data."""
        self.kill()
        shutil.rmtree(self.folder)


@cache
def shared() -> ChromaServer:
    """Return the server that all tests of this process share, started on the first call; do not stop it."""
    return ChromaServer()
