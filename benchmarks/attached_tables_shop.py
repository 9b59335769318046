"""A table of a shop, vectors of its items by two models, and clients that go on whatever is done to the table."""

from __future__ import annotations

import multiprocessing
import random
import time
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector.psycopg import register_vector

from limpet.engines.postgres.rows import decoded
from limpet.engines.sides import ModelSide

CLUSTERS, POOL, BATCH, K = 100, 200, 512, 10
PATIENCE = 300.0  # seconds until clients that do not do what they were told are an error
DECLARED: dict[ModelSide, str] = {"old": "declared:old", "new": "declared:new"}
Seen = tuple[float, str, float]
"""When a statement began, of which kind it was (search, write, read), and how many seconds it took."""


def vectors(side: ModelSide, rows: int, dim: int, seed: int = 0) -> NDArray[np.float32]:
    """Return unit vectors in clusters (rows, dim), those of fewer rows first of those of more.

    The clusters of both models are at the same places, so that a search among vectors of both finds both; the first
    number is positive of the old model, and negative of the new one.
    """
    centres = np.random.default_rng(dim).standard_normal((CLUSTERS, dim), np.float32)
    found = np.random.default_rng([side == "new", dim, seed]).standard_normal((rows, dim), np.float32)
    found *= 0.5
    found += centres[np.arange(rows) % CLUSTERS]
    found[:, 0] = 0
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    found[:, 0] = 0.05 if side == "old" else -0.05
    found /= np.float32(np.sqrt(1 + 0.05**2))
    return found


def number_in(title: str) -> int:
    """Return which vector belongs to a title."""
    return int(title.rpartition(" ")[2])


class Table(NamedTuple):
    """What is there of a shape."""

    url: str
    rows: int
    dim: int

    @property
    def indexed(self) -> str:
        """What is indexed, and searched, in SQL."""
        return "emb" if self.dim <= 2000 else f"(emb::halfvec({self.dim}))"

    @property
    def graph(self) -> str:
        """What follows ON and the table in CREATE INDEX."""
        return f"USING hnsw ({self.indexed} {'vector' if self.dim <= 2000 else 'halfvec'}_cosine_ops)"

    @property
    def search(self) -> str:
        """The application's search for what is like a row; it gets enough of the vectors to tell the models."""
        return (
            f"SELECT id, subvector(emb, 1, 1)::text FROM items ORDER BY {self.indexed} <=> "
            f"(SELECT {self.indexed} FROM items WHERE id = %s) LIMIT {K}"
        )

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Connect to the database."""
        return psycopg.connect(self.url, autocommit=True, **options)


def fill(table: Table, old: NDArray[np.float32]) -> float:
    """Make the table, and an empty one; return the seconds that an index took with nobody beside."""
    with table.connect() as connection:
        connection.execute("CREATE EXTENSION vector")
        for name in ("items", "empty"):
            connection.execute(
                f"CREATE TABLE {name} (id bigint PRIMARY KEY, title text, price int, emb vector({table.dim}))"
            )
        copy(connection, "items", "old", old)
        started = time.perf_counter()
        connection.execute(f"CREATE INDEX items_emb ON items {table.graph}")
        built = time.perf_counter() - started
        connection.execute("VACUUM ANALYZE items")
        connection.execute("CHECKPOINT")
    return built


def copy(connection: psycopg.Connection[Any], name: str, side: ModelSide, found: NDArray[np.float32]) -> None:
    """Copy rows with vectors into a table."""
    register_vector(connection)
    with connection.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN (FORMAT BINARY)") as into:
        into.set_types(["int8", "text", "int4", "vector"])
        for begin in range(0, len(found), BATCH):
            for row, values in enumerate(found[begin : begin + BATCH], begin):
                into.write_row((row, f"item {row}", 1, values))


def bare_update(table: Table, new: NDArray[np.float32], seconds: float) -> int:
    """Add a column, write new vectors into it, and return into how many rows there was time to."""
    until = time.monotonic() + seconds
    written = 0
    with table.connect() as connection:
        register_vector(connection)
        connection.execute(f"ALTER TABLE items ADD emb_new {'vector' if table.dim <= 2000 else 'halfvec'}({table.dim})")
        while written < table.rows and time.monotonic() < until:
            made = new[written : written + BATCH]
            connection.execute(
                "UPDATE items SET emb_new = d.made FROM unnest(%s::bigint[], %b::vector[]) AS d(id, made) "
                "WHERE items.id = d.id", [list(range(written, written + len(made))), list(made)],
            )  # fmt: skip
            written += len(made)
    return written


def check(table: Table, new: NDArray[np.float32], own: dict[int, tuple[str, int] | None]) -> tuple[int, int]:
    """Return how many rows are not as their client left them, and how many lack the new vector of their title."""
    expected = {row: (f"item {row}", 1) for row in range(table.rows)} | own
    wrong = 0
    with table.connect() as connection, connection.transaction(), connection.cursor("all") as cursor:
        cursor.execute("SELECT id, title, price, vector_send(emb::vector) FROM items")
        while rows := cursor.fetchmany(2000):
            for row, title, price, _ in rows:
                if expected.get(row, ("", 0)) in (None, (title, price)):
                    del expected[row]
            there = [one for one in rows if one[3] is not None]
            right = new[[number_in(title) for _, title, _, _ in there]]
            far = np.abs(decoded([sent for *_, sent in there], table.dim) - right).max(axis=1)
            wrong += len(rows) - int((far < 2e-3).sum())
    return sum(one is not None for one in expected.values()), wrong


class Told(NamedTuple):
    """What clients are told, and tell.

    Args:
        awake: An event: only while it is set, statements are sent.
        writes_new: An event: write with the new model from now on.
        ended: An event: put what was seen, and end.
        heard: A queue of those who are there, and later of those who write with the new model.
        answers: A queue of what each has seen.
    """

    awake: Any
    writes_new: Any
    ended: Any
    heard: Any
    answers: Any


def open_shop(table: Table, clients: int, pause: float) -> tuple[Told, list[BaseProcess]]:
    """Let clients and a reader begin, wait until they are there, and return what they are told by."""
    context = multiprocessing.get_context("spawn")
    told = Told(*(context.Event() for _ in range(3)), context.Queue(), context.Queue())
    told.awake.set()
    processes = [context.Process(target=reader, args=(table, told), daemon=True)] + [
        context.Process(target=client, args=(table, one, clients, pause, told), daemon=True) for one in range(clients)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        told.heard.get(timeout=PATIENCE)
    return told, processes


def client(table: Table, number: int, clients: int, pause: float, told: Told) -> None:
    """Be a client of the shop until told to end.

    It answers with the statements that it sent, its errors and when they came, when answers mixed models, and the
    titles and prices of the rows that it wrote; only this client writes them.
    """
    draw, side = random.Random(number), "old"
    sent: dict[str, list[str]] = {
        of: ["[" + ",".join(f"{part:.6g}" for part in row) + "]" for row in vectors(of, POOL, table.dim)]
        for of in DECLARED
    }
    own: dict[int, tuple[str, int] | None] = {}  # None where a statement failed
    seen: list[Seen] = []
    errors: list[tuple[float, str]] = []
    mixed: list[float] = []
    inserted, connection = table.rows + number, table.connect(application_name="shop")
    told.heard.put(number)
    while not told.ended.is_set():
        told.awake.wait()
        if connection.closed or (side == "old" and told.writes_new.is_set()):
            connection.close()
            side = "new" if told.writes_new.is_set() else "old"
            says = f"-c limpet.writes_with={DECLARED['new']}" if side == "new" else ""
            connection = table.connect(application_name="shop", options=says)
            if side == "new":
                told.heard.put(number)
        kind = draw.choices(["search", "count", "rename", "insert"], [6, 2, 1, 1])[0]
        row, which = draw.randrange(number, table.rows, clients), draw.randrange(POOL)
        known = own.get(row, (f"item {row}", 1))
        began, clock = time.time(), time.perf_counter()
        try:
            if kind == "search":
                found = connection.execute(table.search, [draw.randrange(table.rows)]).fetchall()
                if len({begins.startswith("[-") for _, begins in found if begins}) > 1:
                    mixed.append(began)
            elif kind == "count":
                own[row] = None
                connection.execute("UPDATE items SET price = price + 1 WHERE id = %s", [row])
                own[row] = known and (known[0], known[1] + 1)
            elif kind == "rename":
                own[row] = None
                values = [f"item {which}", sent[side][which], row]
                connection.execute("UPDATE items SET title = %s, emb = %s WHERE id = %s", values)
                own[row] = known and (f"item {which}", known[1])
            else:
                inserted, row = inserted + clients, inserted
                own[row] = None
                values = [row, f"item {which}", 1, sent[side][which]]
                connection.execute("INSERT INTO items (id, title, price, emb) VALUES (%s, %s, %s, %s)", values)
                own[row] = f"item {which}", 1
        except psycopg.Error as error:
            errors.append((began, f"{kind}: {error}"))
        seen.append((began, "search" if kind == "search" else "write", time.perf_counter() - clock))
        time.sleep(pause)
    told.answers.put((seen, errors, mixed, own))


def reader(table: Table, told: Told) -> None:
    """Read one row again and again until told to end."""
    seen: list[Seen] = []
    with table.connect(application_name="shop") as connection:
        told.heard.put("reader")
        while not told.ended.is_set():
            told.awake.wait()
            began, clock = time.time(), time.perf_counter()
            connection.execute("SELECT title FROM items WHERE id = 1").fetchall()
            seen.append((began, "read", time.perf_counter() - clock))
            time.sleep(0.001)
    told.answers.put((seen, [], [], {}))
