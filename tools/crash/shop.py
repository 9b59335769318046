"""A shop whose table of goods is upgraded while it is used, and two models whose vectors can be told apart."""

from __future__ import annotations

import copy
import subprocess
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import psycopg

from crash.server import PROGRAMS, Server
from limpet.attached.base import OwnedIndex
from limpet.attached.postgres.attachment import PostgresAttachment, open_attachment, start
from limpet.engines.sides import ModelSide
from limpet.geometry import Hypersphere
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import CallableVectors

DIM = 8
OLD, NEW = UpgradeModel("declared:old", 0, "old"), UpgradeModel("declared:new", DIM, "new")
GOODS = """
CREATE SCHEMA shop;
CREATE TABLE shop.items (id bigint PRIMARY KEY, title text, price numeric, emb vector(8));
CREATE INDEX items_emb ON shop.items USING hnsw (emb vector_cosine_ops) WITH (m = 8, ef_construction = 32);
"""
LEFT = """
SET lock_timeout = '20s';
DROP PUBLICATION IF EXISTS out;
DROP SCHEMA IF EXISTS shop CASCADE;
DROP SCHEMA IF EXISTS limpet_attached CASCADE;
UPDATE pg_extension SET extversion = default_version FROM pg_available_extensions WHERE name = extname;
"""


def vector(side: ModelSide, text: str) -> np.ndarray:
    """Return a model's unit vector (8,) of a text: old vectors use the first four dimensions, new ones the others."""
    values = np.zeros(DIM, np.float32)
    values[slice(0, 4) if side == "old" else slice(4, 8)] = _direction(text)
    return values


@lru_cache(maxsize=100_000)
def _direction(text: str) -> np.ndarray:
    half = np.random.default_rng(zlib.crc32(text.encode())).normal(size=DIM // 2)
    return half / np.linalg.norm(half)


def made_by(values: Sequence[float] | np.ndarray | str) -> ModelSide:
    """Return which model made a vector."""
    row = np.fromstring(values.strip("[]"), sep=",") if isinstance(values, str) else np.asarray(values)
    return "old" if np.abs(row[:4]).sum() > 0 else "new"


def written(side: ModelSide, text: str) -> str:
    """Return a model's vector of a text in the notation of pgvector."""
    return "[" + ",".join(map(repr, vector(side, text).tolist())) + "]"


class Shop:
    """A schema with a table of goods, in its own database.

    Args:
        server: Server on which to create the database.
        name: Name of the database.
        lasting: Whether statements share a session, which is reset after each; otherwise each statement has its own.
    """

    def __init__(self, server: Server, name: str, *, lasting: bool = False) -> None:
        self.server, self.name, self.lasting = server, name, lasting
        self.sessions: list[psycopg.Connection[Any]] = []  # idle sessions
        server.execute(f"CREATE DATABASE {name}")
        self.execute(f"CREATE EXTENSION vector; {GOODS}")

    def renew(self, made: str = GOODS) -> Shop:
        """Remove everything from the database, and create the table of goods, or run other statements."""
        self.execute(LEFT)
        self.execute(made)
        return self

    def drop(self) -> None:
        """Remove the database."""
        self.end_sessions()
        self.server.execute(f"DROP DATABASE {self.name} WITH (FORCE)")

    def end_sessions(self) -> None:
        """Close idle sessions, so that the next statement opens a new one."""
        while self.sessions:
            self.sessions.pop().close()

    @property
    def database(self) -> str:
        return self.server.url(self.name)

    @property
    def url(self) -> str:
        return self.at("shop.items", "text=title")

    def at(self, table: str, *further: str, user: str = "postgres") -> str:
        return "&".join([self.database.replace("postgres@", f"{user}@"), f"table={table}", *further])

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        session = self.sessions.pop() if self.sessions else psycopg.connect(
            self.database, autocommit=True, prepare_threshold=None)  # fmt: skip
        try:
            cursor = session.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []
        finally:
            if self.lasting:
                session.execute("DISCARD ALL")
                self.sessions.append(session)
            else:
                session.close()

    def fill(self, rows: int, side: ModelSide = "old") -> None:
        self.execute(
            "INSERT INTO shop.items SELECT * FROM unnest(%s::bigint[], %s::text[], %s::numeric[], %s::vector[])",
            [list(range(rows)), [f"item {row}" for row in range(rows)], [1.5] * rows,
             [written(side, f"item {row}") for row in range(rows)]],
        )  # fmt: skip

    def start(self, url: str = "", **options: Any) -> PostgresAttachment:
        return start(url or self.url, **{"old": OLD, "new": NEW, **options})

    def open(self) -> PostgresAttachment:
        return open_attachment(self.url)

    def dump(self) -> str:
        """Return the schema from pg_dump without limpet's ledger, and without lines that differ from run to run."""
        words = [str(PROGRAMS / "pg_dump"), "--schema-only", "--exclude-schema=limpet_attached", self.database]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return "\n".join(line for line in done.stdout.splitlines() if not line.startswith(("\\", "--")))

    def unseen(self, statement: str, *values: Any) -> None:
        """Run a statement while limpet's triggers are disabled, and enable them again."""
        names = [str(name) for (name,) in self.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = 'shop.items'::regclass AND tgname LIKE 'zz%'")]  # fmt: skip
        self.execute("ALTER TABLE shop.items DISABLE TRIGGER USER")
        self.execute(statement, values)
        self.execute("; ".join(f"ALTER TABLE shop.items ENABLE ALWAYS TRIGGER {name}" for name in names))

    def copied(self, folder: str) -> Shop:
        """Return a shop with a copy of the database, restored from a dump."""
        other, dump = copy.copy(self), f"{folder}/{self.name}.dump"
        other.name, other.lasting, other.sessions = f"copy_{uuid.uuid4().hex}", False, []
        self.server.execute(f"CREATE DATABASE {other.name}")
        for words in (["pg_dump", "-Fc", "-f", dump, self.database],
                      ["pg_restore", "--single-transaction", "-d", other.database, dump]):  # fmt: skip
            done = subprocess.run([str(PROGRAMS / words[0]), *words[1:]], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        return other

    def contents(self, table: str = "shop.items") -> list[tuple[Any, ...]]:
        return self.execute(f"SELECT * FROM {table} AS one ORDER BY one::text")

    def marks(self) -> dict[int, str]:
        """Return the mark of the model of every row's vector, if both models share a column."""
        return dict(self.execute("SELECT id, coalesce(emb_limpet_model, 'old') FROM shop.items "
                                 "WHERE emb IS NOT NULL ORDER BY id"))  # fmt: skip

    def sides(self) -> dict[int, ModelSide | None]:
        """Return the model that made the active vector of each row; None without a vector."""
        rows = self.execute("SELECT id, emb::text FROM shop.items ORDER BY id")
        return {row: None if emb is None else made_by(emb) for row, emb in rows}


@contextmanager
def lasting_shop(server: Server) -> Iterator[Shop]:
    """Yield a shop that several tests use; each renews it."""
    shop = Shop(server, f"shop_{uuid.uuid4().hex}", lasting=True)
    yield shop
    shop.drop()


def indexed(it: PostgresAttachment) -> None:
    """Build the indexes of the new vectors, unless both models share a column."""
    if not it.state.shared:
        it.index()


def source(attachment: OwnedIndex, side: ModelSide = "new", told: Callable[[], None] = lambda: None) -> CallableVectors:
    """Return a source that embeds the current texts of an attached table or collection.

    Args:
        attachment: The attachment.
        side: Model that embeds.
        told: Called before each batch is embedded.
    """

    def embed(texts: list[str]) -> np.ndarray:
        told()
        return np.stack([vector(side, text) for text in texts])

    return CallableVectors(embed, f"declared:{side}", Hypersphere(DIM), attachment.texts)
