"""Services of small galleries, in a thread of the test."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import uvicorn

from limpet.embeddings import EmbeddingSet
from limpet.galleries import Gallery
from limpet.service.app import writing_app
from limpet.service.connections import BoundedConnection
from limpet.service.settings import ServiceSettings

DIM = 8
COLUMNS = {"price": "integer", "label": "text"}


def drawn(count: int, *, seed: int = 0, dim: int = DIM) -> np.ndarray:
    """Draw unit vectors, float32 (count, dim)."""
    made = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def create(url: str, items: int = 40) -> str:
    """Make a gallery of items "0", "1", … by the model "old", with a price each."""
    made = EmbeddingSet(drawn(items), model="old")
    with Gallery.create(url, fingerprint=made.fingerprint, space=made.space, columns=COLUMNS) as gallery:
        gallery.add(made, metadata={"price": list(range(items))})
    return url


class Served(httpx.Client):
    """A client of a service in a thread."""

    server: uvicorn.Server
    thread: threading.Thread

    def wait(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return a job as it is when it is over, told by its events."""
        last = job
        with self.stream("GET", f"/v1/jobs/{job['id']}/events", timeout=60) as events:
            for line in events.iter_lines():
                if line.startswith("data: "):
                    last = json.loads(line.removeprefix("data: "))
        return last

    def until_it_writes(self) -> Served:
        """Wait until the service has the lock of the one that writes."""
        while self.get("/v1").json()["writer"] != "here":
            threading.Event().wait(0.005)
        return self

    def take(self, step: str, *, headers: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
        """Take a step, wait for its end, and return the job."""
        answer = self.post(f"/v1/upgrade/{step}", json=options, headers=headers)
        assert answer.status_code == 202, answer.text
        return self.wait(answer.json())


@contextmanager
def served(url: str, **options: Any) -> Iterator[Served]:
    """Serve a URL from a thread of this process while a block runs."""
    with ExitStack() as stack:
        if "folder" not in options:
            options["folder"] = Path(stack.enter_context(TemporaryDirectory()))
        settings = ServiceSettings(url, port=0, **options)
        server = uvicorn.Server(uvicorn.Config(
            writing_app(settings), port=0, log_config=None, http=BoundedConnection,
            limit_concurrency=settings.limits.connections,
        ))  # fmt: skip
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the service did not start"
                thread.join(0.005)
            port = server.servers[0].sockets[0].getsockname()[1]
            with Served(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                client.server, client.thread = server, thread
                yield client
        finally:
            server.should_exit = True
            thread.join()
