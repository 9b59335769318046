"""Whether a service keeps its promises under half-open connections, a full disk, a stopped database, and kills.

    python benchmarks/service_faults.py               # writes results/service_faults.json and .md
    python benchmarks/service_faults.py --only job    # one kind of faults; those of the others stay

While a fault lasts, clients write items with an Idempotency-Key each until that is acknowledged, and search. A twin
keeps all vectors in memory and checks every answer: the hits have to be those of the commit that the answer names, or
of the one model that it names. Every write is repeated with its key: it has to get the answer it got before. All
acknowledged writes have to be there, each once.

- **connections**: ten thousand connections that say nothing, or the beginning of a request; one sends a byte a second.
- **disk**: a small file system (tmpfs, for which it needs root) is filled, and emptied again.
- **database**: a PostgreSQL with the gallery is killed, and started again.
- **supervisor**: the process that starts the others is killed, and the service started again at its port.
- **job**: the process that takes the steps of an upgrade is killed at moments spread over each step, of a gallery while
  clients search texts, and of a table that an application owns. The job has to be done after that, or say why not; then
  it is asked for again. Repeated with its key, it must be the same job. `service_load.py` kills processes that write.
- **database of a table**: the same steps of a table, whose PostgreSQL is killed in each and started a second later.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import psycopg

from crash.server import Server
from limpet.embeddings import EmbeddingSet
from limpet.galleries import Gallery
from limpet.service.documents import encoded
from limpet.training.text_models import open_text_model
from service_load import RESULTS, K, Served, Twin, drawn, served, table, texts_and_models, texts_of

BEGUN = (b"", b"GET /v1 HT", b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n{")
HELD = 2000  # half-open connections at a time, about twice as many as the service takes
ITEMS, VECTORS, QUERIES = drawn(1000, 1), drawn(64, 7), drawn(64, 5)
STEPS = ("start", "backfill", "swap", "rollback", "swap", "finish")
JSON = {"Content_Type": "application/json"}
_BROKEN = (OSError, HTTPException)


def made(url: str) -> str:
    """Make a gallery of a thousand items."""
    items = EmbeddingSet(ITEMS, model="old")
    with Gallery.create(url, fingerprint=items.fingerprint, space=items.space) as gallery:
        gallery.add(items)
    return url


class Clients:
    """Clients that write and search; see the module.

    Args:
        service: What they ask; another one may take its place.
    """

    def __init__(self, service: Served) -> None:
        self.service, self.over = service, threading.Event()
        self.written: dict[str, dict[str, Any]] = {}
        self.searched: list[tuple[int, int, list[dict[str, Any]]]] = []
        self.refused = Counter[str]()

    def write(self, name: str) -> dict[str, Any] | None:
        """Write an item until that is acknowledged; None where the load is over before."""
        body = json.dumps({"ids": [name], "vectors": {"g1": encoded(VECTORS[self._number(name)][None])}}).encode()
        while True:
            with suppress(*_BROKEN):
                status, told = self.service.ask("POST", "/v1/items", body, Idempotency_Key=name, **JSON)
                if status == 200:
                    return told
                assert status in (429, 500, 503), (status, told)
                self.refused[f"write {status}"] += 1
            if self.over.wait(0.02) and name not in self.written:
                return None

    def _number(self, name: str) -> int:
        return sum(map(int, name.split("-"))) % len(VECTORS)

    def _writing(self, client: int) -> None:
        number = 0
        while not self.over.is_set():
            name = f"{client}-{number}"
            if (told := self.write(name)) is not None:
                self.written[name] = told
            number += 1

    def _searching(self) -> None:
        number = 0
        while not self.over.is_set():
            query = number % len(QUERIES)
            with suppress(*_BROKEN):
                kind = {"Content_Type": "application/octet-stream"}
                status, told = self.service.ask("POST", f"/v1/search?k={K}", QUERIES[query].tobytes(), **kind)
                if status == 200:
                    self.searched.append((told["commit"], query, told["hits"][0]))
                else:
                    assert status in (429, 500, 503), (status, told)
                    self.refused[f"search {status}"] += 1
            number += 1

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let three of them write and one search while a block runs."""
        with ThreadPoolExecutor(4) as pool:
            threads = [*(pool.submit(self._writing, client) for client in range(3)), pool.submit(self._searching)]
            try:
                yield
            finally:
                self.over.set()
            for one in threads:
                one.result()

    def until_more(self, count: int = 10) -> None:
        """Wait until this number of further writes is acknowledged."""
        before = len(self.written)
        while len(self.written) < before + count:
            time.sleep(0.01)

    def found(self, url: str) -> dict[str, Any]:
        """Repeat all writes, and say what became of all requests; the service has to run."""
        otherwise = sum(self.write(name) != told for name, told in self.written.items())
        with Gallery.open(url) as gallery:
            noted = [one["key"] for entry in gallery.store.journal() for one in entry.event.get("requests", ())]
            there = set(gallery.store.fetch(list(self.written)).ids)
        return {
            "acknowledged": len(self.written), "searches": len(self.searched), "refused": dict(self.refused),
            "repeated otherwise": otherwise, "lost": len(self.written.keys() - there),
            "twice": len(noted) - len(set(noted)),
            "wrong": sum(not self._right(*one) for one in self.searched),
        }  # fmt: skip

    def _right(self, commit: int, query: int, hits: list[dict[str, Any]]) -> bool:
        """Say whether these are the best items of a commit, by their scores: several items have the same vector."""
        numbers = [self._number(name) for name, told in self.written.items() if told["commit"] <= commit]
        of_query = VECTORS @ QUERIES[query]
        scores = np.concatenate([ITEMS @ QUERIES[query], of_query[numbers]])
        own = [float(of_query[self._number(hit["id"])] if "-" in hit["id"] else ITEMS[int(hit["id"])] @ QUERIES[query])
               for hit in hits]  # fmt: skip
        told = [hit["score"] for hit in hits]
        return len(hits) == K and np.allclose(told, np.sort(scores)[::-1][:K], atol=1e-5) and np.allclose(own, told)


def half_open(service: Served, count: int) -> int:
    """Open connections that never become a request."""
    held, opened = deque[socket.socket](), 0
    for number in range(count):
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", service.port), timeout=30)
            held.append(connection)
            connection.sendall(BEGUN[number % len(BEGUN)])
            opened += 1
        while len(held) > HELD:
            held.popleft().close()
    for connection in held:
        connection.close()
    return opened


def slow(service: Served, over: threading.Event) -> None:
    """Send a request a byte a second, again where it is cut off."""
    while not over.is_set():
        with suppress(OSError), socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
            for byte in BEGUN[2] * 10:
                connection.sendall(bytes([byte]))
                if over.wait(1.0):
                    return


def connections(folder: Path, count: int) -> dict[str, Any]:
    """Hold connections open."""
    url = made(f"lance:{folder}/connections")
    with served(url) as service:
        clients = Clients(service)
        with clients.at_work():
            threading.Thread(target=slow, args=(service, clients.over)).start()
            opened = half_open(service, count)
        return {"half-open connections": opened, **clients.found(url)}


def disk(folder: Path, _: int) -> dict[str, Any]:
    """Fill the disk of a gallery, and empty it again."""
    place = folder / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], check=True)
    try:
        url = made(f"lance:{place}/gallery")
        with served(url) as service:
            clients = Clients(service)
            with clients.at_work():
                for _ in range(3):
                    clients.until_more()
                    with suppress(OSError), (place / "ballast").open("wb", buffering=0) as ballast:
                        while True:
                            ballast.write(b"0" * 4096)
                    before = sum(clients.refused.values())
                    while sum(clients.refused.values()) < before + 10:
                        time.sleep(0.01)
                    (place / "ballast").unlink()
                clients.until_more()
            return {"times full": 3, **clients.found(url)}
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextmanager
def postgres() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.stop()


def restart(server: Server, seconds: float) -> None:
    """Kill a database, and start it again after some seconds."""
    server.kill()
    time.sleep(seconds)
    server.start()


def database(_: Path, __: int) -> dict[str, Any]:
    """Kill the database of a gallery, and start it again."""
    with postgres() as server:
        url = made(f"{server.url()}&schema=served")
        with served(url) as service:
            clients = Clients(service)
            with clients.at_work():
                for _ in range(3):
                    clients.until_more()
                    restart(server, 2.0)
                clients.until_more()
            return {"times stopped": 3, **clients.found(url)}


def supervisor(folder: Path, _: int) -> dict[str, Any]:
    """Kill the process that starts the others, and start the service again at the same port."""
    url = made(f"lance:{folder}/supervisor")
    with ExitStack() as services:
        service = services.enter_context(served(url, "--readers", "1"))
        clients = Clients(service)
        with clients.at_work():
            clients.until_more()
            left, start = service.processes(), time.monotonic()
            os.kill(service.process.pid, signal.SIGKILL)
            _, stay = psutil.wait_procs(left, timeout=30)
            ended = time.monotonic() - start
            ports = service.port, service.health
            clients.service = services.enter_context(served(url, "--readers", "1", ports=ports))
            clients.until_more()
        return {"processes that stay": len(stay), "seconds until the others ended": ended, **clients.found(url)}


class Steered:
    """Takes steps of an upgrade, and kills the process that takes them.

    Args:
        service: What is asked.
        kill: What is done instead of killing the service's first process, which takes the steps.
    """

    def __init__(self, service: Served, kill: Callable[[], None] | None = None) -> None:
        self.service, self.found, self.usual = service, Counter[str](), dict[str, float]()
        self.kill = kill or self._kill_writer

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> dict[str, Any]:
        """Ask until there is an answer."""
        while True:
            with suppress(*_BROKEN):
                status, told = self.service.ask(method, path, body, **headers)
                if status < 500:
                    return told
            time.sleep(0.05)

    def take(self, step: str, key: str, share: float | None, **options: Any) -> None:
        """Take a step, with a kill after this share of its usual time; again until it is done."""
        body, number = json.dumps(options).encode(), 0
        while True:
            name, start = f"{key}-{number}", time.monotonic()
            killing = threading.Timer((share or 0) * self.usual.get(step, 0.3), self.kill)
            if share is not None and number == 0:
                killing.start()
            job = self.ask("POST", f"/v1/upgrade/{step}", body, Idempotency_Key=name, **JSON)
            while job.get("status") in ("queued", "running"):
                job = self.ask("GET", f"/v1/jobs/{job['id']}?wait=20")
            if share is None:
                self.usual[step] = time.monotonic() - start
            elif number == 0:
                killing.join()
                self.found["kills"] += 1
                self.found["taken before the kill, told after it"] += "before the service" in str(job.get("result"))
            if job.get("status") != "done":
                self.found["failed, and said why"] += 1
                why = job.get("problem") or job
                print(step, share, why, flush=True)
                assert why["status"] != 500 and number < 3, job
                number += 1
                continue
            again = self.ask("POST", f"/v1/upgrade/{step}", body, Idempotency_Key=name, **JSON)
            self.found["another job"] += (again.get("id"), again.get("status")) != (job["id"], "done")
            self.found["done"] += 1
            return

    def _kill_writer(self) -> None:
        with suppress(psutil.NoSuchProcess):
            self.service.processes()[0].kill()


def shares(rounds: int) -> list[float | None]:
    """Return when to kill, as shares of the usual time of a step: the first round measures it."""
    return [None, *np.linspace(0.1, 1, rounds).tolist()]


def job(folder: Path, rounds: int) -> dict[str, Any]:
    """Kill the process that takes the steps of a gallery's upgrades, while clients search."""
    texts, file, models = texts_and_models(folder, 1000)
    url, lines = f"lance:{folder}/jobs", list(texts.values())
    created = [sys.executable, "-m", "limpet", "gallery", "create", url, "--texts", str(file), "--model", models[0]]
    subprocess.run(created, check=True, capture_output=True)
    twins = {one.fingerprint: one for one in (Twin(model, texts, lines[:40]) for model in models)}
    more = [*(word for model in models for word in ("--model", model)), "--texts", str(file), "--readers", "1"]
    checked, failed, over = list[tuple[str, int, list[dict[str, Any]]]](), Counter[str](), threading.Event()
    with served(url, *more) as service, ThreadPoolExecutor(2) as pool:

        def search() -> None:
            number = 0
            while not over.is_set():
                query = number % 40
                body = json.dumps({"texts": [lines[query]], "k": K}).encode()
                status, told = service.ask("POST", "/v1/search", body, **JSON)
                if status == 200:
                    checked.append((told["model"], query, told["hits"][0]))
                else:
                    failed[str(told)] += 1
                number += 1

        searching, steered = [pool.submit(search) for _ in range(2)], Steered(service)
        for turn, share in enumerate(shares(rounds)):
            for place, step in enumerate(STEPS):
                options = {"model": models[(turn + 1) % 2]} if step == "start" else {}
                steered.take(step, f"{turn}-{place}", share, **options)
        verified = service.take("verify")["result"]["passed"]
        over.set()
        for one in searching:
            one.result()
    mixed = sum(len({hit["generation"] for hit in hits}) != 1 for _, _, hits in checked)
    wrong = sum(not twins[model].agrees(query, hits) for model, query, hits in checked)
    return {**steered.found, "searches": len(checked), "failed": sum(failed.values()), "mixed": mixed, "wrong": wrong,
            "verified": verified, "rounds": rounds}  # fmt: skip


def job_of_table(folder: Path, rounds: int, of_database: bool = False) -> dict[str, Any]:
    """Kill what takes the steps of the upgrade of a table that an application owns, or the database of the table."""
    texts, _, models = texts_and_models(folder, 500)
    old, new = (open_text_model(model) for model in models)
    before, after = (np.asarray(one.embed(texts_of(texts), role="document").vectors) for one in (old, new))
    found, wrong, usual = Counter[str](), 0, dict[str, float]()
    options = {
        "start": {"model": models[1], "old": old.fingerprint}, "swap": {"writes": "new"}, "rollback": {"writes": "old"},
    }  # fmt: skip
    with postgres() as server:
        for turn, share in enumerate(shares(rounds)):
            name = f"rows_{turn}"
            with psycopg.connect(server.url()) as connection:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
                columns = f"id text PRIMARY KEY, title text, embedding vector({before.shape[1]})"
                connection.execute(f"CREATE TABLE {name} ({columns})".encode())
                rows = [(one, text, str(vector.tolist())) for (one, text), vector in zip(texts.items(), before,
                                                                                       strict=True)]  # fmt: skip
                connection.cursor().executemany(f"INSERT INTO {name} VALUES (%s, %s, %s)".encode(), rows)
            url = f"{server.url()}&table={name}&id=id&text=title&vector=embedding"
            with served(url, *(word for model in models for word in ("--model", model))) as service:
                steered = Steered(service, partial(restart, server, 1.0) if of_database else None)
                steered.usual = usual
                for place, step in enumerate(("start", "backfill", "index", *STEPS[2:])):
                    steered.take(step, f"{turn}-{place}", share, **options.get(step, {}))
                found += steered.found
            with psycopg.connect(server.url()) as connection:
                rows = connection.execute(f"SELECT id, embedding::text FROM {name}".encode()).fetchall()
            held = {one: np.array(json.loads(vector), np.float32) for one, vector in rows}
            same = (np.allclose(held[one], vector, atol=1e-5) for one, vector in zip(texts, after, strict=True))
            wrong += len(texts) - sum(same) if len(held) == len(texts) else len(texts)
    return {**found, "rows": len(texts) * (rounds + 1), "wrong": wrong, "rounds": rounds}


FAULTS: Mapping[str, Callable[[Path, int], dict[str, Any]]] = {
    "connections": connections, "disk": disk, "database": database, "supervisor": supervisor, "job": job,
    "job of a table": job_of_table, "database of a table": partial(job_of_table, of_database=True),
}  # fmt: skip


def page(found: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# `limpet serve` under faults", "",
        "`python benchmarks/service_faults.py`, on two processors that others used as well. A round kills once in every"
        " step. A load average is that at the end of its run; it is missing where it was not recorded.", "",
    ]  # fmt: skip
    for name, told in found.items():
        rows = [(key, json.dumps(value) if isinstance(value, dict) else str(value)) for key, value in told.items()]
        lines += table(f"{name} | ", rows)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7, help="kills of every step of an upgrade")
    parser.add_argument("--only", choices=list(FAULTS))
    parser.add_argument("--out", type=Path, default=RESULTS / "service_faults")
    arguments = parser.parse_args()
    file = arguments.out.with_suffix(".json")
    found: dict[str, Any] = json.loads(file.read_text()) if arguments.only and file.exists() else {}
    for name in [arguments.only] if arguments.only else FAULTS:
        with tempfile.TemporaryDirectory() as folder:
            size = arguments.connections if name == "connections" else arguments.rounds
            told = FAULTS[name](Path(folder), size)
        found[name] = {**told, "load average": round(os.getloadavg()[0], 1)}
        print(name, found[name], flush=True)
        file.write_text(json.dumps(found, indent=1) + "\n")
        arguments.out.with_suffix(".md").write_text(page(found))


if __name__ == "__main__":
    main()
