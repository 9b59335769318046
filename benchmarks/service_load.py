"""What `limpet serve` costs, how much it takes, and whether it keeps its promises under load and kills.

    python benchmarks/service_load.py                 # writes results/service_load.json and .md
    python benchmarks/service_load.py --seconds 3     # shorter measurements

A gallery of 20,000 items of 128 numbers in LanceDB is served from one process, and then from one that writes and one
that reads. Clients are threads of this process, on the same processors: a closed loop, in which each sends its next
request once the one before is answered, over a connection that stays open.

- **cost**: processor seconds of the service for a search, beyond those of `Gallery.search` in its place.
- **load**: searches and durable single-item upserts per second, and their latencies, by number of clients.
- **upgrade**: backfill, swap and rollback while clients search. A twin, which keeps all vectors of both models in
  memory, checks every answer: the hits have to be those of one state, old or new.
- **kills**: the process that writes, or one that reads, is killed while clients write with keys; every acknowledged
  write has to be there, and once.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from limpet.data.text_set import TextSet
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.galleries import Gallery
from limpet.service.documents import encoded
from limpet.training.text_models import open_text_model

ITEMS, DIM, K = 20_000, 128, 10
CLIENTS = (1, 4, 16, 64)
RESULTS = Path(__file__).parent / "results"


def drawn(count: int, seed: int) -> np.ndarray:
    made = np.random.default_rng(seed).normal(size=(count, DIM)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


@dataclass
class Served:
    """A service in processes of its own."""

    process: subprocess.Popen[bytes]
    port: int
    health: int
    local: threading.local = field(default_factory=threading.local)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
        """Send a request over this thread's connection; over a new one if the service closed an idle one."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        while True:
            connection, kept = getattr(self.local, "connection", None), True
            if connection is None:
                connection, kept = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120), False
                self.local.connection = connection
            try:
                connection.request(method, path, body, named)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
            except (OSError, http.client.HTTPException):
                connection.close()
                self.local.connection = None
                if not kept:
                    raise

    def take(self, step: str, **options: Any) -> dict[str, Any]:
        _, job = self.ask("POST", f"/v1/upgrade/{step}", json.dumps(options).encode(), Content_Type="application/json")
        while job["status"] in ("queued", "running"):
            _, job = self.ask("GET", f"/v1/jobs/{job['id']}?wait=30")
        assert job["status"] == "done", job
        return job

    def processes(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children()
        return [one for one in children if "resource_tracker" not in " ".join(one.cmdline())]

    def cpu(self) -> float:
        """Return processor seconds of the processes so far."""
        return sum(sum(one.cpu_times()[:2]) for one in self.processes())

    def ready(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.health, timeout=10)
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False


@contextmanager
def served(url: str, *words: str) -> Iterator[Served]:
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    command = [sys.executable, "-m", "limpet", "serve", url, "--port", str(ports[0]), "--health-port", str(ports[1])]
    with subprocess.Popen([*command, *words], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        found = Served(process, *ports)
        try:
            while not found.ready():
                assert process.poll() is None, "the service ended"
                time.sleep(0.05)
            yield found
        finally:
            process.send_signal(signal.SIGTERM)


def closed_loop(service: Served, clients: int, seconds: float, call: Callable[[int, int], None]) -> dict[str, float]:
    """Let clients call again and again; return calls a second, latencies, and the service's processor time of one."""
    before, until = service.cpu(), time.monotonic() + seconds
    latencies = [list[float]() for _ in range(clients)]

    def loop(client: int) -> None:
        number = 0
        while time.monotonic() < until:
            start = time.perf_counter()
            call(client, number)
            latencies[client].append(time.perf_counter() - start)
            number += 1

    start = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        for one in [pool.submit(loop, client) for client in range(clients)]:
            one.result()
    all_of = np.array([one for some in latencies for one in some]) * 1000
    return {
        "per_second": len(all_of) / (time.monotonic() - start), "p50_ms": float(np.percentile(all_of, 50)),
        "p99_ms": float(np.percentile(all_of, 99)), "calls": len(all_of),
        "cpu_ms": 1000 * (service.cpu() - before) / len(all_of),
    }  # fmt: skip


def search_by(service: Served, queries: np.ndarray, *, binary: bool) -> Callable[[int, int], None]:
    kind = "application/octet-stream" if binary else "application/json"
    bodies = [one.tobytes() if binary else json.dumps({"vectors": [one.tolist()], "k": K}).encode() for one in queries]
    path = f"/v1/search?k={K}" if binary else "/v1/search"

    def search(client: int, number: int) -> None:
        status, found = service.ask("POST", path, bodies[(client * 7 + number) % len(bodies)], Content_Type=kind)
        assert status == 200 and len(found["hits"][0]) == K, found

    return search


def upsert_by(service: Served, keys: list[str] | None = None) -> Callable[[int, int], None]:
    vectors = [encoded(one[None]) for one in drawn(256, 7)]

    def upsert(client: int, number: int) -> None:
        name = f"{client}-{number}"
        body = json.dumps({"ids": [name], "vectors": {"g1": vectors[number % 256]}}).encode()
        headers = {"Content_Type": "application/json", **({} if keys is None else {"Idempotency_Key": name})}
        while True:
            try:
                status, found = service.ask("POST", "/v1/items", body, **headers)
            except (OSError, http.client.HTTPException):
                assert keys is not None
                continue
            if status == 200:
                break
            assert status == 503 and keys is not None, found
        if keys is not None:
            keys.append(name)

    return upsert


def cost(service: Served, url: str, seconds: float) -> dict[str, float]:
    """Return processor milliseconds of a search: in process, and in the service by either body."""
    queries = drawn(64, 5)
    found = {}
    with Gallery.open(url) as gallery:
        for _ in range(2):  # the first warms up
            start, count, until = time.process_time(), 0, time.monotonic() + seconds
            while time.monotonic() < until:
                gallery.search(queries[count % 64], K)
                count += 1
            found["Gallery.search"] = 1000 * (time.process_time() - start) / count
    for name, binary in (("binary", True), ("JSON", False)):
        for _ in range(2):
            before = service.cpu()
            done = closed_loop(service, 1, seconds, search_by(service, queries, binary=binary))
            found[name] = 1000 * (service.cpu() - before) / done["calls"]
    return found


class Twin:
    """All vectors of one generation, in memory: says what a search has to find."""

    def __init__(self, gallery: Gallery, generation: str, model: str, queries: Sequence[str]) -> None:
        parts = [(ids, rows) for ids, _, rows in gallery.store.scan_rows(generation)]
        self.place = {name: place for place, name in enumerate(name for ids, _ in parts for name in ids)}
        texts = TextSet(StringArray.of(queries), None, (), StringArray.of(queries))
        points = open_text_model(model).embed(texts, role="query").vectors
        space = gallery.state.by_name[generation].geometry
        self.scores = space.index_form(points, "query") @ np.concatenate([rows for _, rows in parts]).T

    def agrees(self, query: int, hits: Sequence[dict[str, Any]]) -> bool:
        """Say whether these are the nearest items, by scores: several may have the same."""
        scores = self.scores[query]
        best = np.sort(scores)[::-1][:K]
        told = [hit["score"] for hit in hits]
        own = [scores[self.place[hit["id"]]] for hit in hits]
        return len(hits) == K and np.allclose(told, best, atol=1e-4) and np.allclose(own, told, atol=1e-4)


def under_upgrade(folder: Path, seconds: float) -> dict[str, Any]:
    """Search during backfill, swap and rollback; a twin checks every answer."""
    items, texts = 5_000, folder / "texts.csv"
    words = ["red", "blue", "green", "white", "large", "small", "old", "new", "round", "flat", "soft", "hard"]
    rng = np.random.default_rng(3)
    lines = [" ".join(rng.choice(words, 6)) + f" {number}" for number in range(items)]
    texts.write_text("id,text\n" + "".join(f"t{number},{line}\n" for number, line in enumerate(lines)))
    url, models = str(folder / "upgraded"), [f"st:{folder}/shop-gallery/models/v{number}" for number in (1, 2)]
    created = ["gallery", "create", url, "--texts", str(texts), "--model", models[0]]
    for command in (["examples", "copy", "shop-gallery"], created):
        subprocess.run([sys.executable, "-m", "limpet", *command], check=True, cwd=folder, capture_output=True)
    more = [*(word for model in models for word in ("--model", model)), "--texts", str(texts), "--readers", "1"]
    failed, seen = list[Any](), list[tuple[str, int, list[dict[str, Any]]]]()
    with served(url, *more) as service:

        def search(client: int, number: int) -> None:
            query = (client * 11 + number) % 40
            body = json.dumps({"texts": [lines[query]], "k": K}).encode()
            status, found = service.ask("POST", "/v1/search", body, Content_Type="application/json")
            if status == 200:
                seen.append((found["active"], query, found["hits"][0]))
            else:
                failed.append(found)

        service.take("start", model=models[1])
        told: dict[str, Any] = {"idle": closed_loop(service, 4, seconds, search)}
        for name, steps in (("backfill", ["backfill"]), ("swap and rollback", ["swap", "rollback"] * 5 + ["swap"])):
            with ThreadPoolExecutor(1) as pool:
                stepping = pool.submit(lambda steps=steps: [service.take(one) for one in steps])
                parts = []
                while not stepping.done():
                    parts.append(closed_loop(service, 4, 1.0, search))
                stepping.result()
            told[name] = {
                "calls": sum(one["calls"] for one in parts),
                "p50_ms": float(np.median([one["p50_ms"] for one in parts])),
                "p99_ms": max(one["p99_ms"] for one in parts),
            }
        told["after"] = closed_loop(service, 4, seconds, search)
    with Gallery.open(url) as gallery:
        twins = {name: Twin(gallery, name, model, lines[:40]) for name, model in zip(("g1", "g2"), models, strict=True)}
    mixed = [one for one in seen if {hit["generation"] for hit in one[2]} != {one[0]}]
    wrong = [one for one in seen if one not in mixed and not twins[one[0]].agrees(one[1], one[2])]
    return {**told, "checked": len(seen), "failed": len(failed), "mixed": len(mixed), "wrong": len(wrong)}


def killed(url: str, rounds: int) -> dict[str, Any]:
    """Kill the process that writes and the one that reads by turns, while clients write with keys."""
    keys, seconds_to_heal = list[str](), list[float]()
    with served(url, "--readers", "1") as service:
        stop = threading.Event()
        write = upsert_by(service, keys)

        def loop(client: int) -> None:
            number = 0
            while not stop.is_set():
                write(client + 1000, number)
                number += 1

        with ThreadPoolExecutor(8) as pool:
            threads = [pool.submit(loop, client) for client in range(8)]
            for turn in range(rounds):
                victim = service.processes()[turn % 2]
                before = len(keys)
                while len(keys) < before + 50:
                    time.sleep(0.01)
                os.kill(victim.pid, signal.SIGKILL)
                start = time.monotonic()
                while psutil.pid_exists(victim.pid) or not service.ready():
                    time.sleep(0.02)
                seconds_to_heal.append(time.monotonic() - start)
            stop.set()
            for one in threads:
                one.result()
    with Gallery.open(url) as gallery:
        lost = len(keys) - len(gallery.store.fetch(keys).ids)
        noted = [
            one["key"] for entry in gallery.store.journal() for one in entry.event.get("requests", ()) if "key" in one
        ]
    return {
        "kills": rounds, "acknowledged": len(keys), "lost": lost, "twice": len(noted) - len(set(noted)),
        "seconds to heal, median": float(np.median(seconds_to_heal)), "at most": max(seconds_to_heal),
    }  # fmt: skip


def table(head: str, rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return a table of Markdown; numbers with a fraction are rounded."""
    width = len(head.split("|"))
    said = [[f"{one:,.1f}" if isinstance(one, float) else f"{one:,}" if isinstance(one, int) else one for one in row]
            for row in rows]  # fmt: skip
    return [f"| {head} |", "| --- |" + " ---: |" * (width - 1), *(f"| {' | '.join(row)} |" for row in said), ""]


def page(found: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    base, upgrade, kills = found["cost"]["Gallery.search"], found["upgrade"], found["kills"]
    rows = [(name, f"{value:.2f}", f"{value - base:+.2f}") for name, value in found["cost"].items()]
    names = ("per_second", "p50_ms", "p99_ms", "cpu_ms")
    return "\n".join([
        "# `limpet serve` under load", "",
        f"`python benchmarks/service_load.py --seconds {found['seconds']:g} --kills {kills['kills']}`, on two "
        f"processors that others used as well: load average {found['busy'][0]:.1f} before and {found['busy'][1]:.1f} "
        "after, so that times on the clock say little. "
        f"{ITEMS:,} items of {DIM} numbers in LanceDB, {K} hits; clients run on the same processors.", "",
        *table("search | processor ms | over Gallery.search", rows),
        *(line for kind in ("search", "upsert") for line in table(
            f"{kind}: clients | a second | p50 ms | p99 ms | processor ms of the service",
            [(str(clients), *(one[kind][name] for name in names)) for clients, one in found["load"].items()],
        )),
        *table("4 clients search texts | calls | p50 ms | p99 ms", [
            (name, one["calls"], one["p50_ms"], one["p99_ms"]) for name, one in upgrade.items() if isinstance(one, dict)
        ]),
        f"A twin checked {upgrade['checked']:,} answers: {upgrade['failed']} failed, {upgrade['mixed']} mixed, "
        f"{upgrade['wrong']} wrong.", "",
        *table(" | ".join(kills), [[str(one) if isinstance(one, int) else one for one in kills.values()]]),
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS / "service_load")
    arguments = parser.parse_args()
    found: dict[str, Any] = {"seconds": arguments.seconds, "busy": [os.getloadavg()[0]]}
    with tempfile.TemporaryDirectory() as folder:
        url = f"lance:{folder}/live"
        made = EmbeddingSet(drawn(ITEMS, 1), model="old")
        with Gallery.create(url, fingerprint=made.fingerprint, space=made.space) as gallery:
            gallery.add(made)
        with served(url) as service:
            found["cost"] = cost(service, url, arguments.seconds)
            found["load"] = {}
            for clients in CLIENTS:
                search = search_by(service, drawn(64, 5), binary=False)
                found["load"][clients] = {
                    "search": closed_loop(service, clients, arguments.seconds, search),
                    "upsert": closed_loop(service, clients, arguments.seconds, upsert_by(service)),
                }
                print(clients, found["load"][clients], flush=True)
        found["upgrade"] = under_upgrade(Path(folder), arguments.seconds)
        print(found["upgrade"], flush=True)
        found["kills"] = killed(url, arguments.kills)
    found["busy"].append(os.getloadavg()[0])
    arguments.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(page(found))
    print(page(found))


if __name__ == "__main__":
    main()
