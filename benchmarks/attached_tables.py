"""An upgrade of vectors in a table of PostgreSQL beside an application: seconds of every step, and what it notices.

    python benchmarks/attached_tables.py                          # 200,000 of 384 and 20,000 of 3,072 numbers
    python benchmarks/attached_tables.py --rows 5000 --dim 64 --rest 5 --out /tmp    # a try

A server is started for it, with a table of vectors in clusters under an HNSW index (as numbers of 16 bits above 2,000
dimensions). Clients of a shop, a process each, search by the vectors that are there, count, rename and insert, in SQL
that stays the same throughout; another one reads a single row again and again, so that its longest wait is how long
nobody could read. Clusters of both models are at the same places, and the first number says which model made a vector:
a search that meets both is sure to find both, and is seen. All clients write with the old model until they are told,
after the second swap; from then on their sessions say limpet.writes_with, and they write with the new one. Somebody
fills what they write from the first swap on, as an operator would.

New vectors are looked up by the texts of rows: no model takes time, but the texts are read. Beside the same
application, rows are written by a bare UPDATE of a column of a copy of the table, with the same indexes and batches, as
many as it manages in a minute, and all by COPY into an empty table; both are dropped then, so that nobody vacuums them
later. For a minute in six parts, with rests between, the backfill keeps a rate, as an operator would choose who wants
the application to notice nothing; then it goes as fast as it can. Phases count statements by when they began. Waits for
locks of more than 100 ms are those seen in pg_locks, which is looked at 50 times a second; "over 100 ms" counts
searches and writes that took so long for whatever reason. The longest read of one row says how long a swap kept
everybody out.

Writes attached_tables_384.md and attached_tables_3072.md.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psycopg
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from all_methods_tables import markdown
from attached_tables_shop import (
    BATCH,
    DECLARED,
    PATIENCE,
    K,
    Seen,
    Table,
    bare_update,
    check,
    copy,
    fill,
    number_in,
    open_shop,
    vectors,
)
from crash.server import Server
from limpet.attached.postgres.attachment import PostgresAttachment, open_attachment, start
from limpet.embeddings import EmbeddingSet
from limpet.engines.sides import ModelSide
from limpet.geometry import Hypersphere
from limpet.upgrade.filling import Backfilled
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import points_of
from machine import describe

RESULTS = Path(__file__).parent / "results"
SHAPES = ((200_000, 384), (20_000, 3072))
QUERIES = 100
BARE, COPIED, PACED = "bare UPDATE of the copy", "COPY into an empty table", "backfill at a rate"
BEFORE, BETWEEN = "before", "between parts of it"
PARTS = 6
"""Of the backfill at a rate, with rests between, so that what else the machine does counts in both."""
SETTINGS = {"shared_buffers": "2GB", "maintenance_work_mem": "2GB", "max_wal_size": "4GB", "log_lock_waits": "on"}


class Ready:
    """A source that looks vectors up by the texts of rows, and notes how long it takes."""

    def __init__(self, it: PostgresAttachment, side: ModelSide, found: NDArray[np.float32]) -> None:
        self.texts, self.found, self.seconds = it.texts, found, 0.0
        self.fingerprint, self.space = DECLARED[side], Hypersphere(found.shape[1])

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors of those of the rows that are there."""
        started = time.perf_counter()
        known, texts = self.texts.read(ids)
        made = points_of(self, known, self.found[[number_in(text) for text in texts]])
        self.seconds += time.perf_counter() - started
        return made


class Beside(threading.Thread):
    """Calls something again and again until ended."""

    def __init__(self, call: Callable[[], object], pause: float) -> None:
        super().__init__(daemon=True)
        self.call, self.pause, self.ended, self.errors = call, pause, threading.Event(), list[BaseException]()
        self.start()

    def run(self) -> None:
        try:
            while not self.ended.wait(self.pause):
                self.call()
        except BaseException as error:
            self.errors.append(error)

    def end(self) -> None:
        """End it.

        Raises:
            BaseException: What stopped it before.
        """
        self.ended.set()
        self.join()
        if self.errors:
            raise self.errors[0]


def sizes(table: Table) -> tuple[int, int, int]:
    """Return bytes of the table with all that belongs to it, of its indexes, and its dead rows."""
    with table.connect() as connection:
        [(everything, indexes, dead)] = connection.execute(
            "SELECT pg_total_relation_size('items'), pg_indexes_size('items'), n_dead_tup FROM pg_stat_user_tables "
            "WHERE relname = 'items'"
        ).fetchall()
    return int(everything), int(indexes), int(dead)


def recall(table: Table, side: ModelSide) -> float:
    """Return recall@10 of the index against exact search; what is as near as the tenth counts."""
    queries = vectors(side, QUERIES, table.dim, seed=1)
    distance = f"{table.indexed} <=> %s::{'vector' if table.dim <= 2000 else 'halfvec'}({table.dim})"
    search = f"SELECT {distance} AS far FROM items ORDER BY far LIMIT {K}"
    found: dict[str, list[list[float]]] = {"on": [], "off": []}
    with table.connect(prepare_threshold=None) as connection:
        for setting, distances in found.items():
            connection.execute(f"SET enable_indexscan = {setting}")
            connection.execute(f"SET enable_seqscan = {'off' if setting == 'on' else 'on'}")
            for query in queries:
                text = "[" + ",".join(map(repr, query.tolist())) + "]"
                distances.append([far for (far,) in connection.execute(search, [text])])
            plan = "".join(line for (line,) in connection.execute(f"EXPLAIN {search}", [text]))
            assert ("Index Scan" in plan) == (setting == "on"), plan
    near = [sum(far <= exact[-1] + 1e-6 for far in one) for one, exact in zip(found["on"], found["off"], strict=True)]
    return sum(near) / (K * QUERIES)


class Run:
    """What is measured of a shape: steps one after another, each a phase of what clients see."""

    def __init__(self, table: Table, rest: float) -> None:
        self.table, self.rest, self.phases = table, rest, list[tuple[str, float, float]]()
        self.waits: dict[tuple[int, float], float] = {}
        self.seen: dict[str, NDArray[np.float64]] = {}
        self.watch = table.connect(application_name="watch")

    def step(self, name: str, call: Callable[[], object] | None = None) -> float:
        """Make a step, a rest if nothing is called, and return the seconds it took."""
        began, clock = time.time(), time.perf_counter()
        (call or (lambda: time.sleep(self.rest)))()
        taken = time.perf_counter() - clock
        self.phases.append((name, began, time.time()))
        print(f"{self.table.rows} x {self.table.dim}: {name}: {taken:.1f} s", file=sys.stderr, flush=True)
        return taken

    def look(self) -> None:
        """Note which clients have waited for a lock for more than 100 ms."""
        for pid, since in self.watch.execute(
            "SELECT pid, extract(epoch FROM waitstart)::float8 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE "
            "NOT granted AND application_name = 'shop' AND clock_timestamp() - waitstart > interval '100 ms'"
        ):
            self.waits[pid, since] = since

    def take(self, seen: Sequence[Seen]) -> None:
        """Take what clients have seen, for `page` and `times`."""
        for kind in ("search", "write", "read"):
            found = [(when, 1000 * taken) for when, of, taken in seen if of == kind]
            self.seen[kind] = np.array(found, float).reshape(-1, 2)

    def turns(self, phase: str, kind: str) -> list[NDArray[np.float64]]:
        """Return the milliseconds of statements of a kind that began in each of the times a phase came."""
        when, taken = self.seen[kind].T
        return [taken[(began <= when) & (when < ended)] for name, began, ended in self.phases if name == phase]

    def taken(self, phase: str, kind: str) -> NDArray[np.float64]:
        """Return the milliseconds of all statements of a kind that began in a phase."""
        return np.concatenate(self.turns(phase, kind))

    def ratio(self, phase: str, before: str, kind: str) -> float:
        """Return how many times their p99 of another phase that of statements of a kind is in one."""
        now, then = (np.percentile(self.taken(one, kind), 99) for one in (phase, before))
        return float(now / then)

    def times(self, phase: str, before: str) -> str:
        """Say how many times their p99 of another phase that of searches and writes is in one."""
        searches, writes = (self.ratio(phase, before, kind) for kind in ("search", "write"))
        return f"p99 of {phase}: {searches:.2f} times of searches, {writes:.2f} of writes that of {before}."

    def page(self, errors: Sequence[float]) -> list[str]:
        """Return what clients saw by phase as a table."""
        rows = []
        for name in dict.fromkeys(name for name, _, _ in self.phases):
            spans = [(began, ended) for phase, began, ended in self.phases if phase == name]
            kinds = {kind: self.taken(name, kind) for kind in ("search", "write", "read")}
            seconds = sum(ended - began for began, ended in spans)
            cells = [name, f"{seconds:.1f}", str(len(kinds["search"]) + len(kinds["write"]))]
            for kind in ("search", "write"):
                cells += (
                    [f"{part:.1f}" for part in np.percentile(kinds[kind], [50, 99])] if len(kinds[kind]) else ["–"] * 2
                )
            slow = sum(int((kinds[kind] > 100).sum()) for kind in ("search", "write"))
            waited, failed = (
                sum(began <= when < ended for when in times for began, ended in spans)
                for times in (self.waits.values(), errors)
            )
            rows.append([*cells, f"{kinds['read'].max(initial=0):.1f}", str(slow), str(waited), str(failed)])
        titles = "phase|s|statements|search p50 ms|p99|write p50 ms|p99|longest read of one row ms|over 100 ms"
        return markdown([*titles.split("|"), "waits for locks", "errors"], rows, 1)


def measure(server: Server, rows: int, dim: int, options: argparse.Namespace) -> list[str]:
    """Carry an upgrade of a table through and back and through; return what is said about it."""
    name = f"shop_{rows}_{dim}"
    server.execute(f"CREATE DATABASE {name}")
    table = Table(server.url(name), rows, dim)
    found: dict[ModelSide, NDArray[np.float32]] = {side: vectors(side, rows, dim) for side in DECLARED}
    print(f"{rows} x {dim}: filling", file=sys.stderr, flush=True)
    quiet = fill(table, found["old"])
    server.execute(f"CREATE DATABASE {name}_copy TEMPLATE {name} STRATEGY file_copy")
    copied = Table(server.url(f"{name}_copy"), rows, dim)
    recalls, stood = [recall(table, "old")], {"before": sizes(table)}
    told, processes = open_shop(table, options.clients, options.pause / 1000)
    url = f"{table.url}&table=items&text=title"
    run = Run(table, options.rest)
    looking, seconds = Beside(run.look, 0.02), dict[str, float]()

    def step(name: str, call: Callable[[], object]) -> None:
        seconds[name] = run.step(name, call)

    bare = list[int]()

    def bare_copy() -> None:
        with table.connect() as connection:
            copy(connection, "empty", "new", found["new"])

    run.step("warming up")
    run.step(BEFORE)
    step(BARE, lambda: bare.append(bare_update(copied, found["new"], options.bare)))
    step(COPIED, bare_copy)
    run.watch.execute("DROP TABLE empty")
    server.execute(f"DROP DATABASE {name}_copy")
    opened: list[PostgresAttachment] = []
    old, new = (UpgradeModel(DECLARED[side], dim) for side in DECLARED)
    step("start", lambda: opened.append(start(url, old=old, new=new)))
    with opened[0] as it, open_attachment(url) as other:
        ready: dict[ModelSide, Ready] = {side: Ready(it, side, found[side]) for side in DECLARED}
        part = list[Backfilled]()

        def paced() -> None:
            rate, seconds = options.rate * 384 / dim, options.seconds / PARTS
            part.append(it.backfill(ready["new"], batch=BATCH, rate=rate, seconds=seconds))

        seconds[PACED] = 0
        for _ in range(PARTS):
            seconds[PACED] += run.step(PACED, paced)
            run.step(BETWEEN, lambda: time.sleep(options.seconds / PARTS))
        step("backfill", lambda: it.backfill(ready["new"], batch=BATCH))
        reading, stood["after the backfill"] = ready["new"].seconds, sizes(table)
        step("index", it.index)
        stood["after the index"] = sizes(table)
        run.step("indexed")

        def keep_filled() -> None:
            for side in DECLARED:
                other.backfill(Ready(other, side, found[side]), of=side, batch=BATCH)

        step("swap", lambda: it.swap(ready["new"]))
        filling = Beside(keep_filled, 0.2)
        run.step("swapped")
        step("rollback", lambda: it.rollback(ready["old"]))
        run.step("rolled back")
        step("swap again", lambda: it.swap(ready["new"]))
        run.step("swapped again")
        told.writes_new.set()
        for _ in range(options.clients):
            told.heard.get(timeout=PATIENCE)
        step("declare writes", lambda: it.declare_writes("new"))
        run.step("clients write new vectors")
        filling.end()
        it.backfill(ready["new"])
        step("finish", it.finish)
    stood["after finish"] = sizes(table)
    run.step("after")
    told.ended.set()
    parts = [told.answers.get(timeout=PATIENCE) for _ in processes]
    for process in processes:
        process.join()
    looking.end()
    run.watch.close()
    recalls.append(recall(table, "new"))
    errors = [one for _, of_client, _, _ in parts for one in of_client]
    own = {row: last for *_, of_client in parts for row, last in of_client.items()}
    lost, wrong = check(table, found["new"], own)
    seen = [one for of_client, *_ in parts for one in of_client]
    run.take(seen)
    mega = 1 << 20
    slowly = sum(one.written for one in part)
    done = {BARE: bare[0], COPIED: rows, PACED: slowly, "backfill": rows - slowly}
    rates = {one: f"{count / seconds[one]:,.0f}" for one, count in done.items()}
    return [
        f"## {rows:,} rows of {dim:,} numbers", "",
        *markdown(["step", "s", "rows/s"],
                  [[one, f"{taken:.2f}", rates.get(one, "")] for one, taken in seconds.items()], 1),
        "",
        f"Of the backfill, {reading:.1f} s went into reading texts and looking vectors up. An index over old "
        f"vectors, with nobody beside, took {quiet:.1f} s. Recall@{K} over {QUERIES} queries: {recalls[0]:.3f} of the "
        f"old index, {recalls[1]:.3f} of the new one.",
        "",
        *run.page([when for when, _ in errors]),
        "",
        *(f"- {run.times(phase, before)}"
          for phase, before in ((PACED, BEFORE), (PACED, BETWEEN), ("backfill", BEFORE))),
        "",
        f"Answers that mix models: {sum(len(mixed) for _, _, mixed, _ in parts)} of "
        f"{sum(kind == 'search' for _, kind, _ in seen):,}. Writes lost: {lost} of "
        f"{sum(kind == 'write' for _, kind, _ in seen):,}. Rows without the new vector of their title at the end: "
        f"{wrong}. Errors: {len(errors)}{''.join(f'; {said}' for _, said in errors[:3])}.",
        "",
        *markdown(["", "table MiB", "of it indexes", "dead rows"],
                  [[when, f"{whole / mega:,.0f}", f"{part / mega:,.0f}", f"{dead:,}"]
                   for when, (whole, part, dead) in stood.items()], 1),
        "",
    ]  # fmt: skip


@contextmanager
def configured_server() -> Iterator[Server]:
    """Start a server with `SETTINGS`, and stop it."""
    server = Server()
    try:
        for setting, value in SETTINGS.items():
            server.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
        server.kill()
        server.start()
        yield server
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, action="append", help="of a shape; again for further ones")
    parser.add_argument("--dim", type=int, action="append", help="up to 4,000; one for each --rows")
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--pause", type=float, default=10.0, help="milliseconds after every statement of a client")
    parser.add_argument("--rest", type=float, default=20.0, help="seconds of a phase in which nothing is done")
    parser.add_argument("--rate", type=float, default=150.0, help="rows of 384 numbers a second, and fewer wider ones")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the backfill at a rate")
    parser.add_argument("--bare", type=float, default=60.0, help="seconds of the bare UPDATE")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    shapes = list(zip(options.rows or [], options.dim or [], strict=True)) or SHAPES
    settings = ", ".join(f"{setting} {value}" for setting, value in SETTINGS.items())
    with configured_server() as server:
        with psycopg.connect(server.url()) as connection:
            version = connection.info.server_version
        for rows, dim in shapes:
            waited = long_waits(server)
            measured = measure(server, rows, dim, options)
            lines = [
                f"# An upgrade of vectors of {dim:,} numbers in a table of PostgreSQL beside an application",
                "",
                f"`python {' '.join(['benchmarks/attached_tables.py', *sys.argv[1:]])}` on "
                f"{describe('psycopg', 'pgvector')}, PostgreSQL {version // 10_000}.{version % 10_000} as it comes but "
                f"for {settings}. {options.clients} clients that pause {options.pause:g} ms after every statement; "
                f"batches of {BATCH}. The server logged {long_waits(server) - waited} waits for locks of more than a "
                "second, whoever waited.",
                "",
                *measured,
            ]
            (options.out / f"attached_tables_{dim}.md").write_text("\n".join(lines))
            print("\n".join(lines), flush=True)


def long_waits(server: Server) -> int:
    """Return how many waits for locks of more than a second the server has logged."""
    return (server.folder / "log").read_text().count("still waiting for")


if __name__ == "__main__":
    main()
