"""What `limpet serve` costs, how much it takes, and whether it keeps its promises under load and kills.

    python benchmarks/service_load.py                 # writes results/service_load.json and .md
    python benchmarks/service_load.py --seconds 3     # shorter measurements

A gallery of 20,000 items of 128 numbers in LanceDB is served from one process, and then from one that writes and one
that reads. Clients are threads of this process, on the same processors: a closed loop, in which each sends its next
request once the one before is answered, over a connection that stays open.

- **cost**: processor seconds of the service for a search, beyond those of `Gallery.search` in a process that is asked
  over a pipe. The gallery is in memory, and matrix products take one thread: searches are so short that the difference
  shows.
- **open loop**: searches and upserts begin at random moments, at a rate, whether or not those before are answered; a
  latency counts from the moment at which a request was due.
- **memory**: of its processes after the requests of a minute and of an hour, at ten a second.
- **ready**: seconds until a service of a million items answers, the least of four.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
RATES = {"search": (20, 40, 80), "upsert": (50, 200, 400)}  # a second
REQUESTS = (600, 36_000)  # of a minute and of an hour, at ten a second
PACE = 0.5  # seconds between two steps of the upgrade
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
def served(url: str, *words: str, threads: int | None = None, ports: Sequence[int] = ()) -> Iterator[Served]:
    """Serve a URL while a block runs.

    Args:
        url: What.
        words: More options of `limpet serve`.
        threads: Of each matrix product.
        ports: To listen at; free ones if left out.
    """
    environment = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    while len(ports) < 2:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports = [*ports, free.getsockname()[1]]
    command = [sys.executable, "-m", "limpet", "serve", url, "--port", str(ports[0]), "--health-port", str(ports[1])]
    silent, environment = subprocess.DEVNULL, {**os.environ, **environment}
    with subprocess.Popen([*command, *words], stderr=silent, stdout=silent, env=environment) as process:
        found = Served(process, *ports)
        try:
            while not found.ready():
                assert process.poll() is None, "the service ended"
                time.sleep(0.05)
            yield found
        finally:
            process.send_signal(signal.SIGTERM)


def closed_loop(
    service: Served, clients: int, over: float | Future[Any], call: Callable[[int, int], None]
) -> dict[str, float]:
    """Let clients call again and again, for seconds or until something is done.

    Returns:
        Calls a second, latencies, and the service's processor time of a call.
    """
    before, begun = service.cpu(), time.monotonic()
    latencies = [list[float]() for _ in range(clients)]

    def loop(client: int) -> None:
        number = 0
        while not over.done() if isinstance(over, Future) else time.monotonic() < begun + over:
            start = time.perf_counter()
            call(client, number)
            latencies[client].append(time.perf_counter() - start)
            number += 1

    with ThreadPoolExecutor(clients) as pool:
        for one in [pool.submit(loop, client) for client in range(clients)]:
            one.result()
    all_of = np.array([one for some in latencies for one in some]) * 1000
    return {
        "per_second": len(all_of) / (time.monotonic() - begun), "p50_ms": float(np.percentile(all_of, 50)),
        "p99_ms": float(np.percentile(all_of, 99)), "calls": len(all_of),
        "cpu_ms": 1000 * (service.cpu() - before) / len(all_of),
    }  # fmt: skip


def open_loop(rate: float, seconds: float, call: Callable[[int, int], None]) -> dict[str, float]:
    """Call at random moments, at a rate a second, and return latencies from when each call was due."""
    due = time.monotonic() + np.cumsum(np.random.default_rng(0).exponential(1 / rate, max(1, round(rate * seconds))))

    def wait_and_call(number: int) -> float:
        time.sleep(max(0.0, due[number] - time.monotonic()))
        call(1_000_000, number)
        return time.monotonic() - float(due[number])

    with ThreadPoolExecutor(CLIENTS[-1]) as pool:
        took = 1000 * np.array(list(pool.map(wait_and_call, range(len(due)))))
    return {"p50_ms": float(np.percentile(took, 50)), "p99_ms": float(np.percentile(took, 99))}


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


ASKED = """
import sys
import numpy as np
from limpet.galleries import Gallery
queries, number = np.load(sys.argv[2]), 0
with Gallery.open(sys.argv[1]) as gallery:
    while sys.stdin.buffer.read(1):
        gallery.search(queries[number % len(queries)], int(sys.argv[3]))
        number += 1
        sys.stdout.buffer.write(b".")
        sys.stdout.buffer.flush()
"""
"""A process that searches whenever it is told to by a byte: as a service has to, with a pause after each."""


def cost(service: Served, url: str, seconds: float, folder: Path) -> dict[str, float]:
    """Return processor milliseconds of a search by `Gallery.search` and by the service, medians of rounds by turns."""
    queries, place = drawn(64, 5), folder / "queries.npy"
    np.save(place, queries)
    command = [sys.executable, "-c", ASKED, url, str(place), str(K)]
    found = {"Gallery.search": list[float](), "binary": list[float](), "JSON": list[float]()}
    piped, environment = subprocess.PIPE, {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=piped, stdout=piped, bufsize=0, env=environment) as process:
        assert process.stdin is not None and process.stdout is not None
        sent, answers = process.stdin, process.stdout

        def ask(client: int, number: int) -> None:
            sent.write(b".")
            assert answers.read(1) == b"."

        own = psutil.Process(process.pid)
        calls: dict[str, tuple[Callable[[], float], Callable[[int, int], None]]] = {
            "Gallery.search": (lambda: sum(own.cpu_times()[:2]), ask),
            "binary": (service.cpu, search_by(service, queries, binary=True)),
            "JSON": (service.cpu, search_by(service, queries, binary=False)),
        }
        for _ in range(1 + max(3, round(seconds))):
            for name, (cpu, call) in calls.items():
                before, until, number = cpu(), time.monotonic() + 1, 0
                while time.monotonic() < until:
                    call(0, number)
                    number += 1
                found[name].append(1000 * (cpu() - before) / number)
        sent.close()
    return {name: float(np.median(rounds[1:])) for name, rounds in found.items()}  # the first warms up


def memory(service: Served) -> dict[int, float]:
    """Return the MiB that the processes hold after so many requests; every tenth writes one of ten items again."""
    search, write = search_by(service, drawn(64, 5), binary=False), upsert_by(service)

    def call(number: int) -> None:
        (search if number % 10 else write)(0, number % 100)

    found, done = dict[int, float](), 0
    for requests in REQUESTS:
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(call, range(done, requests)):
                pass
        found[requests] = sum(one.memory_info().rss for one in service.processes()) / 2**20
        done = requests
    return found


def ready(folder: Path, rows: int) -> dict[str, float]:
    """Return how long a service takes until it answers, and the processor seconds of its processes until then."""
    url, seconds, processor = f"lance:{folder}/large", list[float](), list[float]()
    made = EmbeddingSet(drawn(rows, 2), model="old")
    with Gallery.create(url, fingerprint=made.fingerprint, space=made.space) as gallery:
        gallery.add(made)
    del made
    for _ in range(4):
        start = time.monotonic()
        with served(url) as service:
            seconds.append(time.monotonic() - start)
            processor.append(service.cpu() + sum(psutil.Process(service.process.pid).cpu_times()[:2]))
    return {"rows": rows, "seconds": min(seconds), "processor": min(processor)}


class Twin:
    """All vectors of one model, in memory: says what a search has to find.

    Args:
        model: As `limpet serve --model` takes it.
        items: Texts by id.
        queries: Texts.
    """

    def __init__(self, model: str, items: Mapping[str, str], queries: Sequence[str]) -> None:
        opened = open_text_model(model)
        found, points = opened.embed(texts_of(items), role="document"), opened.embed(texts_of(queries), role="query")
        self.fingerprint, self.place = opened.fingerprint, {name: place for place, name in enumerate(items)}
        space = opened.space
        forms = space.index_form(np.asarray(found.vectors), "gallery")
        self.scores = space.index_form(np.asarray(points.vectors), "query") @ forms.T

    def agrees(self, query: int, hits: Sequence[dict[str, Any]]) -> bool:
        """Say whether these are the nearest items, by scores: several may have the same."""
        scores = self.scores[query]
        best = np.sort(scores)[::-1][:K]
        told = [hit["score"] for hit in hits]
        own = [scores[self.place[hit["id"]]] for hit in hits]
        return len(hits) == K and np.allclose(told, best, atol=1e-4) and np.allclose(own, told, atol=1e-4)


def texts_of(texts: Mapping[str, str] | Sequence[str]) -> TextSet:
    """Return texts by id, or by number."""
    named = texts if isinstance(texts, Mapping) else {str(number): text for number, text in enumerate(texts)}
    return TextSet(StringArray.of(named.values()), None, (), StringArray.of(named))


def texts_and_models(folder: Path, items: int) -> tuple[dict[str, str], Path, list[str]]:
    """Draw texts by id, and return them with a file of them and two models."""
    words = ["red", "blue", "green", "white", "large", "small", "old", "new", "round", "flat", "soft", "hard"]
    rng, file = np.random.default_rng(3), folder / "texts.csv"
    texts = {f"t{number}": " ".join(rng.choice(words, 6)) + f" {number}" for number in range(items)}
    file.write_text("id,text\n" + "".join(f"{name},{text}\n" for name, text in texts.items()))
    copy = [sys.executable, "-m", "limpet", "examples", "copy", "shop-gallery"]
    subprocess.run(copy, check=True, cwd=folder, capture_output=True)
    return texts, file, [f"st:{folder}/shop-gallery/models/v{number}" for number in (1, 2)]


def under_upgrade(folder: Path, seconds: float) -> dict[str, Any]:
    """Search during backfill, swap and rollback; a twin checks every answer."""
    texts, file, models = texts_and_models(folder, 5_000)
    url, lines = str(folder / "upgraded"), list(texts.values())
    created = [sys.executable, "-m", "limpet", "gallery", "create", url, "--texts", str(file), "--model", models[0]]
    subprocess.run(created, check=True, capture_output=True)
    more = [*(word for model in models for word in ("--model", model)), "--texts", str(file), "--readers", "1"]
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

        def take(steps: list[str]) -> None:
            for one in steps:
                service.take(one)
                time.sleep(PACE)

        for name, steps in (("backfill", ["backfill"]), ("swap and rollback", ["swap", "rollback"] * 10 + ["swap"])):
            with ThreadPoolExecutor(1) as pool:
                stepping = pool.submit(take, steps)
                told[name] = closed_loop(service, 4, stepping, search)
                stepping.result()
        told["after"] = closed_loop(service, 4, seconds, search)
    twins = {name: Twin(model, texts, lines[:40]) for name, model in zip(("g1", "g2"), models, strict=True)}
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
    base, upgrade, kills, ready = (found[name] for name in ("cost", "upgrade", "kills", "ready"))
    base, (minute, hour) = base["Gallery.search"], found["memory"].values()
    rows = [(name, f"{value:.2f}", f"{value - base:+.2f}") for name, value in found["cost"].items()]
    names = ("per_second", "p50_ms", "p99_ms", "cpu_ms")
    return "\n".join([
        "# `limpet serve` under load", "",
        f"`python benchmarks/service_load.py --seconds {found['seconds']:g} --kills {kills['kills']}`, on two "
        f"processors: load average {found['busy'][0]:.1f} before and {found['busy'][1]:.1f} after. "
        f"{ITEMS:,} items of {DIM} numbers in LanceDB, {K} hits; clients run on the same processors.", "",
        *table("search, in memory | processor ms | over Gallery.search", rows),
        *(line for kind in ("search", "upsert") for line in table(
            f"{kind}: clients | a second | p50 ms | p99 ms | processor ms of the service",
            [(str(clients), *(one[kind][name] for name in names)) for clients, one in found["load"].items()],
        )),
        *table("open loop: requests a second | p50 ms | p99 ms", [
            (f"{name}, {rate}", *one.values()) for name, rates in found["open"].items() for rate, one in rates.items()
        ]),
        *table("4 clients search texts | calls | p50 ms | p99 ms", [
            (name, one["calls"], one["p50_ms"], one["p99_ms"]) for name, one in upgrade.items() if isinstance(one, dict)
        ]),
        f"Between two steps of the upgrade are {PACE} seconds. A twin checked "
        f"{upgrade['checked']:,} answers: {upgrade['failed']} failed, {upgrade['mixed']} mixed, "
        f"{upgrade['wrong']} wrong.", "",
        f"Its processes held {minute:,.0f} MiB after {REQUESTS[0]:,} requests, those of a minute at ten a second, and "
        f"{hour:,.0f} MiB after {REQUESTS[1]:,}, those of an hour; every tenth wrote an item.", "",
        f"A service of {ready['rows']:,} items answered {ready['seconds']:.1f} seconds after it was started; its "
        f"processes took {ready['processor']:.1f} processor seconds until then.", "",
        *table(" | ".join(kills), [[str(one) if isinstance(one, int) else one for one in kills.values()]]),
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the service that has to be ready")
    parser.add_argument("--out", type=Path, default=RESULTS / "service_load")
    arguments = parser.parse_args()
    found: dict[str, Any] = {"seconds": arguments.seconds, "busy": [os.getloadavg()[0]]}
    with tempfile.TemporaryDirectory() as folder:
        url, in_memory = f"lance:{folder}/live", f"memory:{folder}/memory"
        made = EmbeddingSet(drawn(ITEMS, 1), model="old")
        for one in (url, in_memory):
            with Gallery.create(one, fingerprint=made.fingerprint, space=made.space) as gallery:
                gallery.add(made)
        with served(in_memory, threads=1) as service:
            found["cost"] = cost(service, in_memory, arguments.seconds, Path(folder))
            print(found["cost"], flush=True)
            found["memory"] = memory(service)
            print(found["memory"], flush=True)
        with served(url) as service:
            found["load"] = {}
            for clients in CLIENTS:
                search = search_by(service, drawn(64, 5), binary=False)
                found["load"][clients] = {
                    "search": closed_loop(service, clients, arguments.seconds, search),
                    "upsert": closed_loop(service, clients, arguments.seconds, upsert_by(service)),
                }
                print(clients, found["load"][clients], flush=True)
            calls = {"search": search, "upsert": upsert_by(service)}
            found["open"] = {
                name: {rate: open_loop(rate, arguments.seconds, calls[name]) for rate in rates}
                for name, rates in RATES.items()
            }
            print(found["open"], flush=True)
        found["upgrade"] = under_upgrade(Path(folder), arguments.seconds)
        print(found["upgrade"], flush=True)
        found["kills"] = killed(url, arguments.kills)
        print(found["kills"], flush=True)
        found["ready"] = ready(Path(folder), arguments.rows)
    found["busy"].append(os.getloadavg()[0])
    arguments.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(page(found))
    print(page(found))


if __name__ == "__main__":
    main()
