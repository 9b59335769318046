"""A real server on this machine that stands in for an OpenAI-compatible one, and fails on request."""

from __future__ import annotations

import hashlib
import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

DIM = 24
Change = Callable[[dict[str, Any]], Any]


def vector_of(text: str, model: str, dim: int = DIM) -> np.ndarray:
    """Return the mean of one random direction per word, the same for the same model everywhere."""
    words = text.lower().split() or [""]
    seeds = [int.from_bytes(hashlib.sha256(f"{model} {word}".encode()).digest()[:8]) for word in words]
    return np.asarray(np.mean([np.random.default_rng(seed).normal(size=dim) for seed in seeds], axis=0))


@dataclass
class Answer:
    """What the server answers once instead of vectors.

    Args:
        status: Of HTTP.
        headers: Of the answer.
        body: Of the answer, as JSON or as it is.
        change: Makes another answer of a good one.
        held: Answer only once this is set.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    change: Change | None = None
    held: threading.Event | None = None


@dataclass
class ApiServer:
    """A server of one model.

    Args:
        url: What stands before ``/embeddings``.
        model: What it calls its model.
        weights: What decides its vectors: another text is another model behind the same name.
        noise: Standard deviation of what is added to every number, anew in every answer.
        key: Which key it wants; any when empty.
        most: How many texts a request may hold.
        answers: What it answers to the next requests instead of vectors; None for a good answer.
        requests: What it was asked: the body, and the headers under "headers".
    """

    url: str = ""
    model: str = "words-1"
    weights: str = "words-1"
    noise: float = 0.0
    key: str = ""
    most: int = 10_000
    answers: list[Answer | None] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What people write for the model."""
        return f"openai:{self.model}@{self.url}"

    @property
    def texts(self) -> list[list[str]]:
        """The texts of every request."""
        return [request["input"] for request in self.requests]

    def answer(self, asked: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body."""
        self.requests.append(asked)
        fault = self.answers.pop(0) if self.answers else None
        if fault is not None and fault.held is not None:
            fault.held.wait(30)
        if fault is not None and fault.change is None and (fault.status != 200 or fault.body is not None):
            raw = fault.body if isinstance(fault.body, bytes) else json.dumps(fault.body).encode()
            return fault.status, fault.headers, raw
        if self.key and asked["headers"].get("Authorization") != f"Bearer {self.key}":
            return 401, {}, json.dumps({"error": {"message": f"no {asked['headers'].get('Authorization')}"}}).encode()
        if asked["model"] != self.model:
            return 404, {}, json.dumps({"error": {"message": f"the model {asked['model']} does not exist"}}).encode()
        if len(asked["input"]) > self.most:
            return 413, {}, json.dumps({"error": f"batch size {len(asked['input'])} > {self.most}"}).encode()
        rng = np.random.default_rng(len(self.requests))
        dim = asked.get("dimensions", DIM)
        vectors = [vector_of(text, self.weights)[:dim] + self.noise * rng.normal(size=dim) for text in asked["input"]]
        packed = asked.get("encoding_format") == "base64"  # as OpenAI's own package asks
        written = [b64encode(one.astype("<f4").tobytes()).decode() if packed else one.tolist() for one in vectors]
        data = [{"object": "embedding", "index": row, "embedding": one} for row, one in enumerate(written)]
        tokens = sum(len(text.split()) for text in asked["input"])
        good: Any = {"object": "list", "model": self.model, "data": data,
                     "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}  # fmt: skip
        if fault is not None and fault.change is not None:
            good = fault.change(good)
        return 200, {}, json.dumps(good).encode()


@contextmanager
def serving(**settings: Any) -> Iterator[ApiServer]:
    """Serve a model meanwhile, at a free port of this machine."""
    api = ApiServer(**settings)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = {**asked, "headers": dict(self.headers), "path": self.path}
            status, headers, body = api.answer(found) if self.path == "/v1/embeddings" else (404, {}, b"{}")
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Clients that went away are expected."""

    server = Quiet(("127.0.0.1", 0), Handler)
    api.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        for fault in api.answers:
            if fault is not None and fault.held is not None:
                fault.held.set()
        server.shutdown()
        server.server_close()
        thread.join()
