"""What `lifecycle_speed.py` times in a process of its own, with the limpet of one checkout: a gallery, or a table.

Steps have other names in checkouts before `limpet upgrade` had one lifecycle; `start_upgrade` and `attach_table` know
both.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere

OLD, NEW = "declared:old", "declared:new"
FORCE = "the new vectors are those of the old model with less noise"
K = 10
SIZE = 512  # rows of a batch of a table, and of a bare UPDATE
APPENDED = 4096  # rows of a batch of a gallery, and of a bare append


def main() -> None:
    told = json.loads(sys.argv[1])
    clock = Clock(told.pop("server"))
    if told.pop("what") == "gallery":
        gallery_steps(clock, **told)
    else:
        table_steps(clock, **told)
    print(json.dumps(clock.steps))


class Clock:
    """Seconds of steps, and seconds of processors.

    Args:
        server: Number of the process of a database server, whose processes count as well.
    """

    def __init__(self, server: int | None) -> None:
        self.server = None if server is None else psutil.Process(server)
        self.steps: dict[str, tuple[float, float]] = {}

    @contextmanager
    def step(self, name: str, count: int = 1) -> Iterator[None]:
        """Time what is done ``count`` times inside."""
        began, worked = time.perf_counter(), self.worked()
        yield
        took = time.perf_counter() - began, self.worked() - worked
        self.steps[name] = took[0] / count, took[1] / count

    def worked(self) -> float:
        """Return the seconds that processors have worked for this process and the server."""
        seconds = time.process_time()
        if self.server is not None:
            ended = self.server.cpu_times()
            seconds += ended.children_user + ended.children_system
            for process in self.server.children():
                with suppress(psutil.NoSuchProcess):
                    spent = process.cpu_times()
                    seconds += spent.user + spent.system
        return seconds


class Ready:
    """A source whose vectors are at hand."""

    def __init__(self, made: NDArray[np.float32]) -> None:
        self.made, self.fingerprint, self.space = made, NEW, Hypersphere(made.shape[1])

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        rows = [int(identifier) for identifier in ids]
        return EmbeddingSet(
            ids=StringArray.of(ids), vectors=self.made[rows], fingerprint=self.fingerprint, space=self.space
        )


def vectors_of(rows: int, dim: int, seed: int) -> NDArray[np.float32]:
    """Return unit vectors (rows, dim)."""
    made = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))


def start_upgrade(gallery: Any, space: Hypersphere) -> None:
    """Begin an upgrade, and let new queries search."""
    (gallery.start if hasattr(gallery, "start") else gallery.prepare)(NEW, space)
    gallery.swap(force=FORCE)


def gallery_steps(clock: Clock, url: str, rows: int, dim: int, queries: int, upserts: int, bare: bool) -> None:
    """Time the life of a gallery; queries are asked one by one, and all at once as a batch.

    Args:
        clock: Where steps are noted.
        url: Of the gallery, which is made.
        rows: Of the gallery.
        dim: Of the vectors.
        queries: How many.
        upserts: Of one item each.
        bare: Time what a user without limpet would do, too.
    """
    space, asked = Hypersphere(dim), vectors_of(queries, dim, 3)
    names, vectors = [f"{row:08d}" for row in range(rows)], vectors_of(rows, dim, 1)
    source = Ready(vectors_of(rows, dim, 2))

    def made(part: slice) -> EmbeddingSet:
        return EmbeddingSet(ids=StringArray.of(names[part]), vectors=vectors[part], fingerprint=OLD, space=space)

    old, singles = made(slice(None)), [made(slice(row, row + 1)) for row in range(upserts)]
    with Gallery.create(url, fingerprint=OLD, space=space) as gallery:

        def ask(fingerprint: str) -> None:
            for query in asked:
                gallery.search(query, K, fingerprint=fingerprint)

        with clock.step("import"):
            gallery.add(old)
        gallery.search(asked, K, fingerprint=OLD)
        with clock.step("query", queries):
            ask(OLD)
        with clock.step("batch of queries"):
            gallery.search(asked, K, fingerprint=OLD)
        with clock.step("upsert", upserts):
            for one in singles:
                gallery.upsert(one)
        start_upgrade(gallery, space)
        with clock.step("backfill of a half"):
            gallery.backfill(source, budget=rows // 2, order="random")
        gallery.search(asked[0], K, fingerprint=NEW)
        with clock.step("query, half backfilled", queries):
            ask(NEW)
        with clock.step("backfill of the rest"):
            gallery.backfill(source)
        gallery.search(asked[0], K, fingerprint=NEW)
        with clock.step("query, backfilled", queries):
            ask(NEW)
    if bare:
        {"memory": _bare_numpy, "lance": _bare_lance, "postgresql": _bare_postgres}[url.partition(":")[0]](
            clock, url, old, asked
        )


def _bare_numpy(clock: Clock, _: str, old: EmbeddingSet, asked: NDArray[np.float32]) -> None:
    with clock.step("bare query", len(asked)):
        for query in asked:
            scores = old.vectors @ query
            best = np.argpartition(scores, -K)[-K:]
            best[np.argsort(-scores[best])]


def _bare_lance(clock: Clock, url: str, old: EmbeddingSet, _: NDArray[np.float32]) -> None:
    """Write without syncing and without reading back."""
    import lance
    import pyarrow as pa

    place = f"{url.partition(':')[2]}-bare.lance"

    def table(rows: slice) -> pa.Table:
        flat = pa.array(old.vectors[rows].ravel())
        return pa.table(
            {"id": pa.array(list(old.ids[rows])), "vector": pa.FixedSizeListArray.from_arrays(flat, old.dim)}
        )

    with clock.step("bare import"):
        lance.write_dataset(table(slice(None)), place)
    with clock.step("bare backfill of a half"):
        for first in range(0, len(old) // 2, APPENDED):
            lance.write_dataset(table(slice(first, min(first + APPENDED, len(old) // 2))), place, mode="append")


def _bare_postgres(clock: Clock, url: str, old: EmbeddingSet, asked: NDArray[np.float32]) -> None:
    """Copy into a table with a primary key in one transaction."""
    import psycopg
    from pgvector.psycopg import register_vector

    with psycopg.connect(url.partition("&schema=")[0], autocommit=True) as connection:
        register_vector(connection)
        connection.execute("DROP TABLE IF EXISTS bare")
        connection.execute(f"CREATE TABLE bare (id text PRIMARY KEY, vector vector({old.dim}) STORAGE PLAIN)")
        with (
            clock.step("bare import"),
            connection.cursor() as cursor,
            cursor.copy("COPY bare FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.set_types(["text", "vector"])
            for row in zip(old.ids, old.vectors, strict=True):
                copy.write_row(row)
        with clock.step("bare query", len(asked)):
            for query in asked:
                connection.execute("SELECT id FROM bare ORDER BY vector <#> %s LIMIT 10", [query]).fetchall()


def attach_table(url: str, dim: int) -> Any:
    """Begin an upgrade of the table ``items``."""
    from limpet.attached.postgres import attachment

    place = f"{url}&table=items&text=title&vector=emb"
    begin: Any = getattr(attachment, "start", None) or vars(attachment)["attach"]
    try:
        model = importlib.import_module("limpet.upgrade.model").UpgradeModel
    except ImportError:
        model = importlib.import_module("limpet.attached.base").ModelIdentity
    return begin(place, old=model(OLD, dim), new=model(NEW, dim))


def table_steps(clock: Clock, url: str, rows: int, dim: int, seconds: float, bare: bool) -> None:
    """Time a row of a fill, or of a bare UPDATE; by the clock of whole batches.

    Args:
        clock: Where the step is noted.
        url: Of the database, in which `fresh_tables` made the tables.
        rows: Of the table.
        dim: Of the vectors.
        seconds: After which the fill is stopped.
        bare: Update the table that is not attached.
    """
    made = vectors_of(rows, dim, 2)
    if bare:
        _bare_update(clock, url, made)
        return
    StringArray.of([""])  # what is imported for it
    with attach_table(url, dim) as it:
        with clock.step("fill"):
            done = it.backfill(Ready(made), seconds=seconds, batch=SIZE)
        wall, worked = clock.steps["fill"]
        clock.steps["fill"] = wall / done.written, worked / done.written


def _bare_update(clock: Clock, url: str, made: NDArray[np.float32]) -> None:
    import psycopg
    from pgvector.psycopg import register_vector

    with psycopg.connect(url, autocommit=True) as connection:
        register_vector(connection)
        with clock.step("fill", len(made)):
            for first in range(0, len(made), SIZE):
                part = made[first : first + SIZE]
                connection.execute(
                    "UPDATE bare SET fresh = d.made FROM unnest(%b::bigint[], %b::vector[]) AS d(id, made) "
                    "WHERE bare.id = d.id",
                    [list(range(first, first + len(part))), list(part)],
                )


def fresh_tables(url: str, made: NDArray[np.float32]) -> None:
    """Make both tables of `table_steps` anew, each with old vectors."""
    import psycopg
    from pgvector.psycopg import register_vector

    with psycopg.connect(url, autocommit=True) as connection:
        register_vector(connection)
        connection.execute("DROP SCHEMA IF EXISTS limpet_attached CASCADE")
        for name, further in (("items", ""), ("bare", f", fresh vector({made.shape[1]})")):
            connection.execute(f"DROP TABLE IF EXISTS {name}")
            connection.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, title text, emb vector({made.shape[1]})"
                               f"{further})")  # fmt: skip
            with (
                connection.cursor() as cursor,
                cursor.copy(f"COPY {name} (id, title, emb) FROM STDIN (FORMAT BINARY)") as copy,
            ):
                copy.set_types(["int8", "text", "vector"])
                for row, vector in enumerate(made):
                    copy.write_row((row, f"item {row}", vector))
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


if __name__ == "__main__":
    main()
