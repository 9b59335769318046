"""A service of several processes: any may be killed, and SIGTERM lets requests end."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import httpx
import psutil
import pytest

from limpet.galleries import Gallery
from service.services import create, drawn, free_port
from service.test_console import hidden
from service.test_keys import bearer, line

ENDED = 30  # seconds that a process may take to end


@dataclass
class Running:
    """A service that the command line started."""

    process: subprocess.Popen[bytes]
    api: httpx.Client
    health: httpx.Client
    url: str
    log: Path

    def children(self) -> list[psutil.Process]:
        """Return its processes: the one that writes, and those that read."""
        made = psutil.Process(self.process.pid).children()
        return [one for one in made if "resource_tracker" not in " ".join(one.cmdline())]

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something, while the service runs."""
        while True:
            assert self.process.poll() is None, self.log.read_text()
            with suppress(httpx.TransportError):
                if holds():
                    return
            threading.Event().wait(0.02)

    def ready(self) -> bool:
        return self.health.get("/readyz").status_code == 200

    def writes(self) -> bool:
        return bool(self.api.get("/v1").json()["writer"] == "here")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    url, keys, port, health = create(f"memory:{tmp_path / 'live'}"), tmp_path / "keys", free_port(), free_port()
    keys.write_text(line("ops", "upgrade", "s3cret"))
    certificate, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", private, "-out", certificate, "-days", "2"]
    named = ["-subj", "/CN=limpet", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *made, *named], check=True, capture_output=True)
    words = ["serve", url, "--port", port, "--health-port", health, "--keys", keys, "--readers", "1"]
    words += ["--certificate", certificate, "--certificate-key", private]
    trusted = ssl.create_default_context(cafile=certificate)
    command = [sys.executable, "-m", "limpet", *map(str, words), "--verbose"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
        httpx.Client(base_url=f"https://127.0.0.1:{port}", headers=bearer("s3cret"), timeout=60, verify=trusted) as api,
        httpx.Client(base_url=f"http://127.0.0.1:{health}") as of_health,
    ):
        found = Running(process, api, of_health, url, tmp_path / "log")
        try:
            found.until(found.ready)
            found.until(found.writes)
            yield found
        finally:
            process.kill()
            for child in psutil.Process(process.pid).children() if process.poll() is None else ():
                child.kill()


@pytest.mark.slow
def test_any_process_may_be_killed_and_sigterm_lets_requests_end(running: Running) -> None:
    entered = running.api.post("/console/login", data={**hidden(running.api.get("/console/login")), "key": "s3cret"})
    assert entered.status_code == 303 and "; secure" in entered.headers["set-cookie"]  # by the process that reads
    assert running.api.get("/console/").status_code == running.api.get("/console/static/console.css").status_code == 200
    writer, reader = running.children()
    if not _listens_at_a_path(writer):
        writer, reader = reader, writer
    place = Path(running.url.removeprefix("memory:"))
    place.rename(away := place.with_name("away"))  # the process that writes cannot start again
    os.kill(writer.pid, signal.SIGKILL)
    running.until(lambda: running.log.read_text().count("Application startup failed") >= 1)
    assert not running.ready()
    away.rename(place)
    running.until(running.ready)
    running.until(running.writes)
    writer = next(one for one in running.children() if one.pid != reader.pid)
    told = len(running.log.read_text())
    acknowledged: list[str] = []
    stop, threads = threading.Event(), list[Future[None]]()

    def write(thread: int) -> None:
        for number in range(10_000):
            if stop.is_set():
                return
            name = f"{thread}-{number}"
            body = {"ids": [name], "vectors": {"g1": drawn(1, seed=number).tolist()}}
            while True:
                try:
                    answer = running.api.post("/v1/items", json=body, headers={"Idempotency-Key": name})
                except httpx.TransportError:  # the process that read was killed, or the service ended
                    if stop.is_set():
                        return
                    continue
                if answer.status_code == 200:
                    acknowledged.append(name)
                    break
                assert answer.status_code == 503, answer.text

    with ThreadPoolExecutor(4) as pool, closing(SimpleNamespace(close=stop.set)):
        threads += [pool.submit(write, thread) for thread in range(4)]
        for victim in (writer, reader):
            before = len(acknowledged)
            running.until(lambda: len(acknowledged) > before + 8 or any(one.done() for one in threads))  # noqa: B023
            os.kill(victim.pid, signal.SIGKILL)
            running.until(lambda: not psutil.pid_exists(victim.pid))  # noqa: B023
            running.until(running.ready)
            after = len(acknowledged)
            running.until(lambda: len(acknowledged) > after + 8 or any(one.done() for one in threads))  # noqa: B023
        metrics = running.health.get("/metrics").text
        running.process.send_signal(signal.SIGTERM)
        stop.set()
        for one in threads:
            one.result()
    running.process.wait(timeout=ENDED)
    said = running.log.read_text()
    assert running.process.returncode == 0 and "s3cret" not in said and "Traceback" not in said[told:]
    assert 'limpet_requests_total{code="200",route="/v1/items"}' in metrics
    assert "limpet_writer_lock 1.0" in metrics and 'limpet_generation_rows{generation="g1"}' in metrics
    with Gallery.open(running.url) as gallery:
        assert gallery.store.fetch(acknowledged).ids == acknowledged
        noted = [one["key"] for entry in gallery.store.journal() for one in entry.event.get("requests", ())]
    assert len(noted) == len(set(noted)) and set(acknowledged) <= set(noted)  # each once


@pytest.mark.slow
def test_no_process_stays_where_the_one_that_started_them_was_killed(running: Running) -> None:
    running.until(running.ready)
    started = running.children()
    running.process.kill()
    _, stay = psutil.wait_procs(started, timeout=ENDED)
    assert len(started) == 2 and not stay


def _listens_at_a_path(process: psutil.Process) -> bool:
    return any(str(one.laddr).endswith("writer.sock") for one in process.net_connections("unix"))
