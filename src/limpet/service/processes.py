"""The processes of a service: one writer, some readers, and the supervisor that starts them."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from limpet.errors import ServiceError
from limpet.service import metrics
from limpet.service.connections import BoundedConnection
from limpet.service.settings import READY, SOCKET, ServiceSettings

METRICS = "metrics"
"""Subfolder of a service's folder with the metrics of its processes."""
DRAIN = 20
"""Seconds for requests to finish when the service is asked to stop."""
_IDLE = 30  # keep-alive timeout in seconds; clients close idle connections earlier
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds before a process that could not start is retried


class ServiceProcesses(Multiprocess):
    """Starts the processes, replaces those that end, and lets all of them finish their requests on SIGTERM.

    Args:
        settings: Settings of the service; its folder exists.
        verbose: Log every request.
    """

    def __init__(self, settings: ServiceSettings, *, verbose: bool = False) -> None:
        listening = _listening(settings.host, settings.port)
        self.settings = replace(settings, port=listening.getsockname()[1])
        try:
            self.health = None if settings.health_port is None else _health(self.settings, self)
        except ServiceError:
            listening.close()
            raise
        of_writer = listening
        if settings.readers:
            of_writer = socket.socket(socket.AF_UNIX)
            of_writer.bind(str(settings.folder / SOCKET))
        tls = {"ssl_certfile": settings.certificate, "ssl_keyfile": settings.certificate_key}
        writing = self._config(_writing_app, verbose, **({} if settings.readers else tls))
        self.writer = Multiprocess(writing, [of_writer])
        super().__init__(self._config(_reading_app, verbose, **tls), [listening])
        self.processes_num = settings.readers
        self._was_ready, self._pause, self._not_before = False, _PAUSE, 0.0

    def _config(self, make: Callable[[ServiceSettings], ASGIApp], verbose: bool, **options: Any) -> Config:
        return Config(
            partial(make, self.settings), factory=True, workers=1, access_log=False, server_header=False,
            limit_concurrency=self.settings.limits.connections, timeout_graceful_shutdown=DRAIN,
            timeout_keep_alive=_IDLE, http=BoundedConnection,
            log_config=log_settings(verbose), **options,
        )  # fmt: skip

    def init_processes(self) -> None:
        """Start all processes."""
        if self.health is not None:
            folder = self.settings.folder / METRICS
            folder.mkdir()
            os.environ[metrics.FOLDER] = str(folder)  # the processes read it when they start
            threading.Thread(target=self.health.serve_forever, name="health", daemon=True).start()
        self.writer.init_processes()
        super().init_processes()

    def keep_subprocess_alive(self) -> None:
        """Replace processes that ended.

        A process that cannot start ends a service that never was ready. Later, for example while a database is stopped,
        it is retried. Live processes are not pinged: one that starts may take long to respond.
        """
        if self.should_exit.is_set():
            return
        if not self.lacking():
            self._pause = _PAUSE
        ended = [(of, place) for of in (self.writer, self) for place, one in enumerate(of.processes)
                 if one.exitcode is not None]  # fmt: skip
        self._was_ready |= any(self._ready(of.processes[place]) for of, place in ended)
        failed = [(of, place) for of, place in ended if of.processes[place].exitcode == STARTUP_FAILURE]
        if failed and not self._was_ready:
            self.should_exit.set()
            return
        if failed and time.monotonic() < self._not_before:
            ended = [one for one in ended if one not in failed]
        elif failed:
            self._not_before, self._pause = time.monotonic() + self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        for of, place in ended:
            of.processes[place] = Process(of.config, of.sockets)
            of.processes[place].start()

    def _ready(self, process: Process) -> bool:
        """Say whether a process has been ready, even if it was killed since."""
        return (self.settings.folder / READY / str(process.pid)).exists()

    def terminate_all(self) -> None:
        """Let all processes finish their requests; the writing process serves the others until then."""
        super().terminate_all()
        super().join_all()
        self.writer.terminate_all()

    def join_all(self) -> None:
        """Wait for the end of all processes."""
        self.writer.join_all()
        if self.health is not None:
            self.health.shutdown()

    def restart_all(self) -> None:
        """Replace one process after the other."""
        self.writer.restart_all()
        super().restart_all()

    def lacking(self) -> str:
        """Say which process is not ready; empty if all are."""
        known = [("the process that writes", self.writer.processes), ("a process that reads", self.processes)]
        for what, processes in known:
            for one in processes:
                if one.process.exitcode is not None or not self._ready(one):
                    return f"{what} is not ready"
        return "" if self.writer.processes else "starting"


def _writing_app(settings: ServiceSettings) -> ASGIApp:
    """Create the application in its own process; the supervisor would only wait for the import of FastAPI."""
    from limpet.service.app import writing_app

    _end_with_parent()
    return writing_app(settings)


def _reading_app(settings: ServiceSettings) -> ASGIApp:
    from limpet.service.app import reading_app

    _end_with_parent()
    return reading_app(settings)


def _end_with_parent() -> None:
    """End this process as on SIGTERM if its supervisor was killed: it would keep the port, and the lock."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def ended() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ended, daemon=True).start()


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; requests wait in it while a process is replaced."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=2048)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error


def _cannot_listen(host: str, port: int, error: OSError) -> ServiceError:
    return ServiceError(
        0, f"Cannot listen at {host}, port {port}: {error.strerror or error}.",
        to_do="choose another --port or --health-port, or end what listens there.",
    )  # fmt: skip


def log_settings(verbose: bool) -> dict[str, Any]:
    """Return the log configuration of processes: one JSON object per line, to standard error."""
    return {
        "version": 1, "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonLines}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}},
        "loggers": {
            "limpet": {"handlers": ["stderr"], "level": "DEBUG" if verbose else "INFO", "propagate": False},
            "uvicorn": {"handlers": ["stderr"], "level": "INFO" if verbose else "WARNING", "propagate": False},
        },
    }  # fmt: skip


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        said = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname, "process": record.process, "message": record.getMessage(),
        }  # fmt: skip
        if request := getattr(record, "request", ""):
            said["request"] = request
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said)


def _health(settings: ServiceSettings, service: ServiceProcesses) -> ThreadingHTTPServer:
    """Serve /livez, /readyz and /metrics on a port of their own, without keys."""
    folder = settings.folder / METRICS

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            lacking = service.lacking() if self.path == "/readyz" else ""
            bodies = {
                "/livez": b"ok\n", "/readyz": f"{lacking or 'ok'}\n".encode(),
                "/metrics": metrics.exposition(folder) if self.path == "/metrics" else b"",
            }  # fmt: skip
            body = bodies.get(self.path, b"not found\n")
            self.send_response(503 if lacking else 200 if self.path in bodies else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    port = int(settings.health_port or 0)
    try:
        return ThreadingHTTPServer((settings.host, port), Health)
    except OSError as error:
        raise _cannot_listen(settings.host, port, error) from error
