"""What `ratios.py` times of galleries, and the bare engines beside them.

Vectors have 128 numbers and are at hand: no model takes time. Bare is:

- of an import: a table of Arrow and `lance.write_dataset`, or a binary COPY into a table with a primary key; without
  syncing (Lance) and without reading back;
- of a backfill of Lance: one append for each batch;
- of a query: NumPy's product with `argpartition`, `nearest` of Lance, or one SELECT, all without an index;
- of a query of a half-backfilled gallery: the same query when all items are backfilled;
- of a query with a condition: the same with the same condition, in NumPy a mask of `np.isin`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.engines.filters import Filter, In
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere

OLD, NEW = "declared:old", "declared:new"
FORCE = "the new vectors are those of the old model with less noise"
DIM, K, QUERIES, UPSERTS = 128, 10, 100, 40
BATCH = 4096  # items of a commit of a backfill
ITEMS = 20_000  # where something else grows
VALUES = 1000  # of a condition
SPACE = Hypersphere(DIM)

Timed = Callable[[], object]
"""What is timed; whoever returns it has prepared everything that is not."""
Prepare = Callable[[Any, int], Timed]
"""Prepares it in a scene, for so many items."""


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

    def gallery(self, engine: str, columns: Mapping[str, str] | None = None) -> Gallery:
        """Create an empty gallery."""
        name = self.name()
        url = f"{engine}:{self.folder / name}"
        if engine == "postgresql":
            url = f"{self.server}&schema={name}"
            self.opened.callback(self.execute, f"DROP SCHEMA {name} CASCADE")
        return self.opened.enter_context(Gallery.create(url, fingerprint=OLD, space=SPACE, columns=columns))

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
        """Return the seconds that processors have worked for this process, those it waited for, and the server."""
        ended = getrusage(RUSAGE_CHILDREN)
        seconds = time.process_time() + ended.ru_utime + ended.ru_stime
        if self.postmaster:
            server = psutil.Process(self.postmaster)
            gone = server.cpu_times()
            seconds += gone.children_user + gone.children_system
            for process in server.children():
                with suppress(psutil.NoSuchProcess):
                    spent = process.cpu_times()
                    seconds += spent.user + spent.system
        return seconds


class Ready:
    """A source whose vectors are at hand."""

    space = SPACE

    def __init__(self, made: NDArray[np.float32], fingerprint: str = NEW) -> None:
        self.made, self.fingerprint = made, fingerprint

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        rows = np.asarray(ids, "U8").astype(np.int64)
        return EmbeddingSet(self.made[rows], StringArray.of(ids), self.fingerprint, SPACE)


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


def importing(engine: str) -> Prepare:
    """Import items into an empty gallery."""

    def prepare(scene: Scene, size: int) -> Timed:
        gallery, items = scene.gallery(engine), embeddings(size)
        return lambda: gallery.add(items)

    return prepare


def backfilling(engine: str) -> Prepare:
    """Backfill all items of a gallery."""

    def prepare(scene: Scene, size: int) -> Timed:
        gallery, source = scene.backfilled(engine, size, 0), Ready(vectors(size, 2))
        return lambda: gallery.backfill(source, order="id", batch=BATCH)

    return prepare


def upserting(engine: str, threads: int = 1) -> Prepare:
    """Upsert items one by one, in so many threads."""

    def prepare(scene: Scene, size: int) -> Timed:
        gallery, calls = scene.filled(engine, size), UPSERTS * threads
        singles = [embeddings(size)[[number * size // calls % size]] for number in range(calls + 1)]
        gallery.upsert(singles.pop())
        pool = scene.opened.enter_context(ThreadPoolExecutor(threads))
        return lambda: list(pool.map(gallery.upsert, singles))

    return prepare


def querying(engine: str, backfilled: float | None = None) -> Prepare:
    """Query a gallery, one by one; of an upgraded one, by the new model."""

    def prepare(scene: Scene, size: int) -> Timed:
        if backfilled is None:
            return asking(scene.filled(engine, size))
        return asking(scene.backfilled(engine, size, int(backfilled * size)), NEW)

    return prepare


def asking(gallery: Gallery, model: str = OLD, where: Filter | None = None) -> Timed:
    """Query a gallery, one by one."""
    gallery.search(queries()[0], K, fingerprint=model, where=where)
    return lambda: [gallery.search(query, K, fingerprint=model, where=where) for query in queries()]


def selecting(engine: str, values: int = VALUES) -> Prepare:
    """Query a gallery under a condition of so many values."""

    def prepare(scene: Scene, size: int) -> Timed:
        gallery = scene.gallery(engine, {"number": "integer"})
        gallery.add(embeddings(size), metadata={"number": range(size)})
        return asking(gallery, where=In("number", chosen(size, values)))

    return prepare


def chosen(size: int, values: int = VALUES) -> list[int]:
    """Return numbers of items, evenly spread."""
    return list(range(0, size, max(1, size // values)))[:values]


def latency_beside_backfill(engine: str) -> Callable[[Scene, int], float]:
    """Return the 99th percentile of queries while a thread backfills, divided by that of queries before it."""

    def measure(scene: Scene, size: int) -> float:
        gallery, source = scene.backfilled(engine, size, 0), Ready(vectors(size, 2))
        filling = threading.Thread(target=gallery.backfill, args=(source,), kwargs={"order": "random", "batch": BATCH})

        def seconds(going: Callable[[int], bool]) -> float:
            found: list[float] = []
            while going(len(found)):
                began = time.perf_counter()
                gallery.search(queries()[len(found) % QUERIES], K, fingerprint=NEW)
                found.append(time.perf_counter() - began)
            return float(np.percentile(found, 99))

        before = seconds(lambda done: done < 3 * QUERIES)
        filling.start()
        return seconds(lambda done: done < QUERIES or filling.is_alive()) / before

    return measure


# What grows: items stay as many


def of_generations(scene: Scene, count: int) -> Timed:
    """Query the last of so many generations, each of which has vectors of half of the items."""
    gallery, size = scene.filled("memory", ITEMS), ITEMS
    for number in range(count - 1):
        model = f"declared:{number}"
        gallery.start(model, SPACE)
        gallery.swap(force=FORCE)
        gallery.backfill(Ready(vectors(size, 2), model), budget=size // 2, order="random")
    return asking(gallery, gallery.state.by_name[gallery.state.active].fingerprint)


def after_commits(scene: Scene, count: int) -> Timed:
    """Query a gallery in Lance that so many commits of one item changed."""
    gallery, items = scene.filled("lance", ITEMS), embeddings(ITEMS)
    for row in range(count):
        gallery.upsert(items[[row]])
    return asking(gallery)


def after_deletes(scene: Scene, count: int) -> Timed:
    """Query a gallery of which so many items were deleted."""
    gallery = scene.filled("memory", ITEMS)
    gallery.delete([f"{row:08d}" for row in chosen(ITEMS, count)])
    return asking(gallery)


def under_values(scene: Scene, count: int) -> Timed:
    """Query a gallery under a condition of so many values."""
    return selecting("memory", count)(scene, ITEMS)


# What it is compared with


def arrow(rows: slice, size: int, *, numbered: bool = False) -> Any:
    """Return items as a table of Arrow, with their numbers if these are wanted."""
    import pyarrow as pa

    items = embeddings(size)
    flat = pa.array(items.vectors[rows].ravel())
    numbers = {"number": pa.array(np.arange(size)[rows])} if numbered else {}
    ids, made = pa.array(list(items.ids[rows]), pa.string()), pa.FixedSizeListArray.from_arrays(flat, DIM)
    return pa.table({"id": ids, "vector": made, **numbers})


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


def lance_query(scene: Scene, size: int, where: str | None = None) -> Timed:
    """Search a dataset of one write."""
    import lance

    place = str(scene.folder / f"{scene.name()}.lance")
    table = lance.write_dataset(arrow(slice(None), size, numbered=where is not None), place)

    def ask(query: NDArray[np.float32]) -> Any:
        nearest = {"column": "vector", "q": query, "k": K, "metric": "dot", "use_index": False}
        return table.to_table(columns=["id", "_distance"], nearest=nearest, filter=where, prefilter=True)

    ask(queries()[0])
    return lambda: [ask(query) for query in queries()]


def lance_select(scene: Scene, size: int) -> Timed:
    """Search those rows of a dataset whose number is one of many."""
    return lance_query(scene, size, f"number IN ({', '.join(map(str, chosen(size)))})")


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


def numpy_query(_: Scene, size: int, wanted: NDArray[np.int64] | None = None) -> Timed:
    """Multiply, and find the best."""
    made, numbers = vectors(size), np.arange(size)

    def ask() -> None:
        for query in queries():
            scores = made @ query
            if wanted is not None:
                scores[~np.isin(numbers, wanted)] = -np.inf
            best = np.argpartition(scores, -K)[-K:]
            best[np.argsort(-scores[best])]

    return ask


def numpy_select(scene: Scene, size: int) -> Timed:
    """Find the best of those whose number is one of many."""
    return numpy_query(scene, size, np.array(chosen(size)))
