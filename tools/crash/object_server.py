"""A real S3 server in memory (moto) for tests and trials, with a configurable unreliable network.

Requests are executed one at a time, because moto holds no lock between the comparison and a conditional write, and
fails if an object is read while it is overwritten. Delays and errors of the network are simulated outside of this
lock, concurrently.
"""

from __future__ import annotations

import io
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

PATIENCE = 120  # maximum seconds to wait for an answer of the server
BUCKET = "limpet"
_CONTROL = "/-/network"
_SOCKET = "limpet.socket"


@dataclass(frozen=True)
class Network:
    """Random faults of the network.

    Args:
        errors: Share of requests that are answered with status 500 and not executed.
        lost: Share of writes that are executed, but whose connection breaks before the answer.
        failed: Share of writes that are executed and answered with status 500.
        slow: Maximum delay in seconds, before and after execution, so that requests overtake each other.
        match: Text that method and path of affected requests contain; empty affects all.
    """

    errors: float = 0.0
    lost: float = 0.0
    failed: float = 0.0
    slow: float = 0.0
    match: str = ""


class ObjectServer:
    """A server process on a free port, with a bucket. Its contents are lost when it ends."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        quiet = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(Path(__file__).parents[1])}
        self._process = subprocess.Popen([sys.executable, "-m", "crash.object_server", str(self.port)], env=quiet)
        until = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < until and self._process.poll() is None, "no S3 server"
            try:
                urlopen(Request(f"{self.endpoint}/{BUCKET}", method="PUT"), timeout=10).close()
                return
            except OSError:
                time.sleep(0.05)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which clients find the server."""
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "of trials",
                "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}  # fmt: skip

    def network(self, network: Network = Network()) -> None:
        """Set the faults of the network; the default is none."""
        body = json.dumps(asdict(network)).encode()
        urlopen(Request(self.endpoint + _CONTROL, data=body, method="PUT"), timeout=PATIENCE).close()

    def requests(self) -> dict[str, int]:
        """Return the number of requests since the last call, by method."""
        with urlopen(self.endpoint + _CONTROL, timeout=PATIENCE) as answer:
            return dict(json.load(answer))

    def copy(self, prefix: str, to: str) -> None:
        """Copy all objects below a prefix to another prefix."""
        for name in self._names(prefix):
            source = {"Bucket": BUCKET, "Key": name}
            self._client.copy_object(Bucket=BUCKET, Key=f"{to}{name.removeprefix(prefix)}", CopySource=source)

    def remove(self, prefix: str) -> None:
        """Remove all objects below a prefix."""
        for name in self._names(prefix):
            self._client.delete_object(Bucket=BUCKET, Key=name)

    def _names(self, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
        return [str(one["Key"]) for page in pages for one in page.get("Contents", ())]

    @cached_property
    def _client(self) -> Any:
        import boto3
        from botocore.config import Config

        again = Config(retries={"mode": "standard", "total_max_attempts": 10})  # because the network loses replies
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "of trials", "region_name": "us-east-1"}
        return boto3.client("s3", endpoint_url=self.endpoint, config=again, **keys)

    def stop(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait()


class _Turns:
    """WSGI application that executes requests one at a time, with simulated network faults before and after.

    Args:
        app: WSGI application of the server.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self.app, self.network, self.chance = app, Network(), random.Random(0)
        self.turn, self.counts = threading.Lock(), dict[str, int]()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == _CONTROL:
            return self._control(environ, start)
        self.counts[method] = self.counts.get(method, 0) + 1
        network, drawn = self.network, self.chance.random()
        body = _body(environ)
        if network.match not in f"{method} {path}":
            network = Network()
        time.sleep(self.chance.uniform(0.0, network.slow))
        if drawn < network.errors:
            start("500 Internal Server Error", [("Content-Length", "0")])
            return [b""]
        answered: list[Any] = []
        environ["wsgi.input"] = body
        with self.turn:
            content = b"".join(self.app(environ, lambda *words: answered.append(words)))
        time.sleep(self.chance.uniform(0.0, network.slow))
        drawn -= network.errors
        if method in ("PUT", "POST", "DELETE") and drawn < network.lost + network.failed:
            if drawn < network.lost:
                environ[_SOCKET].shutdown(socket.SHUT_RDWR)
            start("500 Internal Server Error", [("Content-Length", "0")])
            return [b""]
        status, headers, *_ = answered[-1]
        start(status, headers)
        return [content]

    def _control(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT":
            self.network = Network(**json.loads(_body(environ).read()))
        content, self.counts = json.dumps(self.counts).encode(), {}
        start("200 OK", [("Content-Length", str(len(content)))])
        return [content]


def _body(environ: dict[str, Any]) -> Any:
    """Return the whole body of a request as a file, read before the request is executed or refused."""
    return io.BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))


def _serve(port: int) -> None:
    from cheroot import wsgi
    from moto.moto_server.werkzeug_app import create_backend_app

    class Gateway(wsgi.Gateway_10):
        def get_environ(self) -> dict[str, Any]:  # type: ignore[override]  # cheroot's types are wrong
            told = {_SOCKET: self.req.conn.socket, "RAW_URI": self.req.uri.decode("latin-1")}  # as moto wants it
            return {**super().get_environ(), **told}  # type: ignore[no-untyped-call]

    app = _Turns(create_backend_app("s3"))
    server = wsgi.Server(("127.0.0.1", port), app, numthreads=32, request_queue_size=128)  # its connections stay
    server.gateway = Gateway
    server.start()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
