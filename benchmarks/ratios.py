"""How much slower limpet is than the bare engine or library below it.

    python benchmarks/ratios.py                          # all rows, five turns
    python benchmarks/ratios.py --only lance             # rows whose name contains a word
    python benchmarks/ratios.py --beside ../before       # in turns with another checkout
    make ratios                                          # compare with the committed record

`ROWS` is the list: a name, our function, the bare function, and the goal. A turn is one process; it runs both functions
of every row, and the order changes from turn to turn. Times are processor seconds, those of the database server
included. A ratio is of one turn. A row without a bare function gives milliseconds.

Vectors have 128 numbers and are at hand: no model takes time. Bare is:

- of an import: a table of Arrow and `lance.write_dataset`, or a binary COPY into a table with a primary key; without
  syncing (Lance) and without reading back;
- of a backfill of Lance: one append for each batch;
- of a query: NumPy's product with `argpartition`, `nearest` of Lance, or one SELECT, all without an index;
- of a query of a half-backfilled gallery: the same query when all items are backfilled;
- of metrics of 512 queries: the product of their vectors with the gallery.

The exit code is 1 if a row got worse than in the record. `--record` writes ratios.json and ratios.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from ratios_metrics import EASY, HARD, multiplying, ranking

RESULTS = Path(__file__).parent / "results"
CHECKOUT = Path(__file__).parents[1]
OLD, NEW = "declared:old", "declared:new"
FORCE = "the new vectors are those of the old model with less noise"
DIM, K, QUERIES, UPSERTS = 128, 10, 100, 40
BATCH = 4096  # items of a commit of a backfill
WARM = 1000  # items of the first, untimed call of both functions
WORSE = 1.15  # times the record, and above its range: what counts as worse
SPACE = Hypersphere(DIM)

Timed = Callable[[], object]
"""What is timed; whoever returns it has prepared everything that is not."""


@dataclass
class Scene:
    """Where the functions of one process work.

    Args:
        folder: For files.
        server: URL of a PostgreSQL server, if a row needs one.
        postmaster: Number of its first process.
    """

    folder: Path
    server: str = ""
    postmaster: int = 0
    opened: ExitStack = field(default_factory=ExitStack)
    numbers: Iterator[int] = field(default_factory=count)

    def gallery(self, engine: str) -> Gallery:
        """Create an empty gallery."""
        name = self.name()
        url = f"{engine}:{self.folder / name}"
        if engine == "postgresql":
            url = f"{self.server}&schema={name}"
            self.opened.callback(self.execute, f"DROP SCHEMA {name} CASCADE")
        return self.opened.enter_context(Gallery.create(url, fingerprint=OLD, space=SPACE))

    def name(self) -> str:
        """Return a name that nothing has yet."""
        return f"made{os.getpid()}x{next(self.numbers)}"

    def execute(self, statement: str) -> None:
        """Run a statement on the server."""
        import psycopg

        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(statement.encode())

    def filled(self, engine: str, size: int) -> Gallery:
        """Create a gallery with old vectors."""
        gallery = self.gallery(engine)
        gallery.add(embeddings(size))
        return gallery

    def backfilled(self, engine: str, size: int, done: int) -> Gallery:
        """Create a gallery of which so many items, drawn at random, have vectors of the new, active model."""
        gallery = self.filled(engine, size)
        gallery.start(NEW, SPACE)
        gallery.swap(force=FORCE)
        gallery.backfill(Ready(vectors(size, 2)), budget=done, order="random")
        return gallery

    def worked(self) -> float:
        """Return the seconds that processors have worked for this process and the server."""
        seconds = time.process_time()
        if self.postmaster:
            server = psutil.Process(self.postmaster)
            ended = server.cpu_times()
            seconds += ended.children_user + ended.children_system
            for process in server.children():
                with suppress(psutil.NoSuchProcess):
                    spent = process.cpu_times()
                    seconds += spent.user + spent.system
        return seconds


class Ready:
    """A source whose vectors are at hand."""

    fingerprint, space = NEW, SPACE

    def __init__(self, made: NDArray[np.float32]) -> None:
        self.made = made

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        rows = np.asarray(ids, "U8").astype(np.int64)
        return EmbeddingSet(self.made[rows], StringArray.of(ids), NEW, SPACE)


@cache
def vectors(size: int, seed: int = 1) -> NDArray[np.float32]:
    """Return unit vectors (size, DIM)."""
    made = np.random.default_rng(seed).standard_normal((size, DIM), np.float32)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made


@cache
def embeddings(size: int) -> EmbeddingSet:
    """Return items with vectors of the old model."""
    return EmbeddingSet(vectors(size), StringArray.of([f"{row:08d}" for row in range(size)]), OLD, SPACE)


@cache
def queries() -> NDArray[np.float32]:
    """Return unit vectors (QUERIES, DIM)."""
    return vectors(QUERIES, 3)


# What is timed of limpet


def importing(engine: str) -> Callable[[Scene, int], Timed]:
    """Import items into an empty gallery."""

    def prepare(scene: Scene, size: int) -> Timed:
        gallery, items = scene.gallery(engine), embeddings(size)
        return lambda: gallery.add(items)

    return prepare


def backfilling(engine: str) -> Callable[[Scene, int], Timed]:
    """Backfill all items of a gallery."""

    def prepare(scene: Scene, size: int) -> Timed:
        gallery, source = scene.backfilled(engine, size, 0), Ready(vectors(size, 2))
        return lambda: gallery.backfill(source, order="id", batch=BATCH)

    return prepare


def upserting(engine: str, threads: int = 1) -> Callable[[Scene, int], Timed]:
    """Upsert items one by one, in so many threads."""

    def prepare(scene: Scene, size: int) -> Timed:
        gallery, calls = scene.filled(engine, size), UPSERTS * threads
        singles = [embeddings(size)[[row]] for row in range(0, size, size // calls)][: calls + 1]
        gallery.upsert(singles.pop())
        pool = scene.opened.enter_context(ThreadPoolExecutor(threads))
        return lambda: list(pool.map(gallery.upsert, singles))

    return prepare


def querying(engine: str, backfilled: float | None = None) -> Callable[[Scene, int], Timed]:
    """Query a gallery, one by one; of an upgraded one, by the new model."""

    def prepare(scene: Scene, size: int) -> Timed:
        if backfilled is None:
            gallery, model = scene.filled(engine, size), OLD
        else:
            gallery, model = scene.backfilled(engine, size, int(backfilled * size)), NEW
        gallery.search(queries()[0], K, fingerprint=model)
        return lambda: [gallery.search(query, K, fingerprint=model) for query in queries()]

    return prepare


# What it is compared with


def arrow(rows: slice, size: int) -> Any:
    """Return items as a table of Arrow."""
    import pyarrow as pa

    items = embeddings(size)
    flat = pa.array(items.vectors[rows].ravel())
    return pa.table(
        {"id": pa.array(list(items.ids[rows]), pa.string()), "vector": pa.FixedSizeListArray.from_arrays(flat, DIM)}
    )


def lance_write(scene: Scene, size: int) -> Timed:
    """Write all items at once."""
    import lance

    place = str(scene.folder / f"{scene.name()}.lance")
    return lambda: lance.write_dataset(arrow(slice(None), size), place)


def lance_append(scene: Scene, size: int) -> Timed:
    """Append items batch by batch."""
    import lance

    place = str(scene.folder / f"{scene.name()}.lance")
    lance.write_dataset(arrow(slice(0, 0), size), place)
    parts = [slice(first, min(first + BATCH, size)) for first in range(0, size, BATCH)]
    return lambda: [lance.write_dataset(arrow(part, size), place, mode="append") for part in parts]


def lance_query(scene: Scene, size: int) -> Timed:
    """Search a dataset of one write."""
    import lance

    place = str(scene.folder / f"{scene.name()}.lance")
    table = lance.write_dataset(arrow(slice(None), size), place)

    def ask(query: NDArray[np.float32]) -> Any:
        nearest = {"column": "vector", "q": query, "k": K, "metric": "dot", "use_index": False}
        return table.to_table(columns=["id", "_distance"], nearest=nearest)

    ask(queries()[0])
    return lambda: [ask(query) for query in queries()]


def copying(scene: Scene, size: int) -> Timed:
    """Copy items into a table with a primary key, in one transaction."""
    import psycopg
    from pgvector.psycopg import register_vector

    table, items = scene.name(), embeddings(size)
    scene.opened.callback(scene.execute, f"DROP TABLE {table}")
    connection = scene.opened.enter_context(psycopg.connect(scene.server, autocommit=True))
    register_vector(connection)
    connection.execute(f"CREATE TABLE {table} (id text PRIMARY KEY, vector vector({DIM}) STORAGE PLAIN)")

    def copy() -> tuple[Any, str]:
        with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)") as into:
            into.set_types(["text", "vector"])
            for row in zip(items.ids, items.vectors, strict=True):
                into.write_row(row)
        return connection, table

    return copy


def postgres_query(scene: Scene, size: int) -> Timed:
    """Search a table without an index of vectors."""
    connection, table = copying(scene, size)()  # type: ignore[misc]

    def ask() -> None:
        for query in queries():
            connection.execute(f"SELECT id FROM {table} ORDER BY vector <#> %s LIMIT {K}", [query]).fetchall()

    return ask


def numpy_query(_: Scene, size: int) -> Timed:
    """Multiply, and find the best."""
    made = vectors(size)

    def ask() -> None:
        for query in queries():
            scores = made @ query
            best = np.argpartition(scores, -K)[-K:]
            best[np.argsort(-scores[best])]

    return ask


@dataclass(frozen=True)
class Row:
    """One ratio.

    Args:
        name: What is measured; names of rows that need a server contain "PostgreSQL".
        size: Items of the gallery.
        ours: Prepares limpet's function for so many items.
        bare: Prepares the function that it is divided by; None for milliseconds of one of `UPSERTS` calls, each of
            which is as many as there are threads.
        goal: At most; None where there is none.
    """

    name: str
    size: int
    ours: Callable[[Scene, int], Timed]
    bare: Callable[[Scene, int], Timed] | None
    goal: float | None = None

    @property
    def title(self) -> str:
        """Name and size."""
        return f"{self.name}, {self.size:,} items" + ("" if self.bare else " (ms)")


ROWS = (
    Row("import, Lance", 20_000, importing("lance"), lance_write, 2.5),
    Row("import, Lance", 100_000, importing("lance"), lance_write, 2.5),
    Row("import, Lance", 1_000_000, importing("lance"), lance_write, 2.5),
    Row("backfill, Lance", 20_000, backfilling("lance"), lance_append, 3.0),
    Row("backfill, Lance", 100_000, backfilling("lance"), lance_append, 3.0),
    Row("import, PostgreSQL", 20_000, importing("postgresql"), copying, 2.0),
    Row("import, PostgreSQL", 100_000, importing("postgresql"), copying, 2.0),
    Row("upsert, Lance", 20_000, upserting("lance"), None, 12.0),
    Row("64 upserts at a time, Lance", 20_000, upserting("lance", 64), None, 64.0),
    Row("upsert, PostgreSQL", 20_000, upserting("postgresql"), None),
    Row("upsert, memory", 20_000, upserting("memory"), None),
    Row("query, memory", 20_000, querying("memory"), numpy_query, 1.1),
    Row("query, memory", 100_000, querying("memory"), numpy_query, 1.1),
    Row("query, Lance", 20_000, querying("lance"), lance_query),
    Row("query, PostgreSQL", 20_000, querying("postgresql"), postgres_query, 1.3),
    Row("query, half backfilled, memory", 20_000, querying("memory", 0.5), querying("memory", 1.0), 1.3),
    Row("query, half backfilled, Lance", 20_000, querying("lance", 0.5), querying("lance", 1.0), 1.3),
    Row("metrics, easy, 50 relevant", 50_000, ranking(50, EASY), multiplying(50, EASY), 1.5),
    Row("metrics, hard, 50 relevant", 50_000, ranking(50, HARD), multiplying(50, HARD), 1.5),
    Row("metrics, hard, 5 relevant", 50_000, ranking(5, HARD), multiplying(5, HARD), 1.5),
    Row("metrics, hard, Zipf class sizes", 50_000, ranking(None, HARD), multiplying(None, HARD), 1.5),
    Row("metrics, hard, 2,500 relevant", 50_000, ranking(2500, HARD), multiplying(2500, HARD), 2.0),
)


# Turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="words; rows whose title contains all of them")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="another checkout")
    parser.add_argument("--record", action="store_true", help="write the record instead of comparing with it")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(turn(**json.loads(options.turn))))
        return
    rows = [number for number, row in enumerate(ROWS) if all(word in row.title for word in options.only)]
    checkouts = {"": CHECKOUT} | ({"before": options.beside} if options.beside else {})
    found: dict[str, dict[str, list[float]]] = {name: {} for name in checkouts}
    with a_server(any("PostgreSQL" in ROWS[number].name for number in rows)) as server:
        for number in range(options.turns):
            for name, folder in reversed(checkouts.items()) if number % 2 else checkouts.items():
                for title, value in run(folder, rows=rows, bare_first=bool(number // 2 % 2), **server).items():
                    found[name].setdefault(title, []).append(value)
            print(f"turn {number + 1}", file=sys.stderr)
    record = RESULTS / "ratios.json"
    known = json.loads(record.read_text()) if record.exists() else {}
    lines, worse = table(found, known)
    print("\n".join([*lines, "", *(f"worse than the record: {name}" for name in worse)]))
    if options.record:
        from machine import describe

        known |= {title: sorted(values) for title, values in found[""].items()}
        record.write_text(json.dumps(known, indent=1) + "\n")
        told = f"`python benchmarks/ratios.py --turns {options.turns}` on {describe('psycopg', 'pgvector', 'pylance')}."
        lines, _ = table({"": known}, {})
        record.with_suffix(".md").write_text("\n".join(["# Ratios to the bare engine", "", told, "", *lines, ""]))
    elif worse:
        sys.exit(1)


@contextmanager
def a_server(needed: bool) -> Iterator[dict[str, Any]]:
    """Start a PostgreSQL server where one is needed."""
    if not needed:
        yield {}
        return
    sys.path.insert(0, str(CHECKOUT / "tools"))
    from attached_tables import configured_server

    with configured_server() as server:
        server.execute("CREATE EXTENSION vector")
        postmaster = int((server.folder / "postmaster.pid").read_text().splitlines()[0])
        yield {"server": server.url(), "postmaster": postmaster}


def run(folder: Path, **told: Any) -> dict[str, float]:
    """Let a process with the limpet of a checkout do one turn."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, __file__, "--turn", json.dumps(told)]
    said = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(said))


def turn(rows: Sequence[int], bare_first: bool, server: str = "", postmaster: int = 0) -> dict[str, float]:
    """Return what each row gives in this process, by title."""
    found = {}
    for row in (ROWS[number] for number in rows):
        with tempfile.TemporaryDirectory(prefix="limpet-ratios-") as folder:
            scene = Scene(Path(folder), server, postmaster)
            with scene.opened:
                functions = [row.ours, row.bare] if row.bare else [row.ours]
                for function in functions:
                    function(scene, WARM)()
                took = [timed(scene, row, one) for one in (functions[::-1] if bare_first else functions)]
                took = took[::-1] if bare_first else took
                found[row.title] = took[0] / took[1] if row.bare else 1000 * took[0] / UPSERTS
    return found


def timed(scene: Scene, row: Row, function: Callable[[Scene, int], Timed]) -> float:
    """Return the processor seconds of one call."""
    embeddings(row.size)
    prepared = function(scene, row.size)
    began = scene.worked()
    prepared()
    return scene.worked() - began


def table(found: dict[str, dict[str, list[float]]], known: dict[str, list[float]]) -> tuple[list[str], list[str]]:
    """Return lines of a table in Markdown, and the titles of rows that got worse than the record."""
    before, worse = found.get("before"), []
    heads = ["row", *(["before"] if before else []), "min", "median", "max", "goal", *(["record"] if known else [])]
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for row in ROWS:
        values = found[""].get(row.title)
        if values is None:
            continue
        median, record = statistics.median(values), known.get(row.title)
        if record and median > max(WORSE * statistics.median(record), max(record)):
            worse.append(row.title)
        cells = [row.title]
        cells += [f"{statistics.median(before[row.title]):.2f}"] if before else []
        cells += [f"{value:.2f}" for value in (min(values), median, max(values))]
        cells += ["" if row.goal is None else f"≤ {row.goal:g}"]
        cells += [f"{statistics.median(record):.2f}" if record else ""] if known else []
        lines.append(f"| {' | '.join(cells)} |")
    return lines, worse


if __name__ == "__main__":
    main()
