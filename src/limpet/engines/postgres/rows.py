"""The table of a generation's vectors in PostgreSQL: create it, add rows, and read them back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from psycopg import errors

from limpet.engines.planning import Appended
from limpet.engines.postgres.database import PostgresDatabase
from limpet.engines.postgres.graphs import WIDEST, index_of, table_of
from limpet.engines.store import NewGeneration, Vectors
from limpet.errors import GalleryError, StoreError

ROWS = "SELECT id, version, vector_send(vector) FROM"
"""Rows as the database encodes them, see `decoded`."""

_READ_AT_ONCE = 10_000
_LONGEST_NAME = 63
_WIDEST_INLINE = 1900  # maximum vector components that fit on a database page with the rest of their row


def create_table(database: PostgresDatabase, generation: NewGeneration) -> None:
    """Create the empty table of a generation, replacing one that was dropped."""
    table = table_of(generation.name)
    if len(index_of(generation.name)) > _LONGEST_NAME + 2:
        raise GalleryError(
            f"The generation's name '{generation.name}' is too long for PostgreSQL, which would cut it off.",
            expected=f"names of tables and indexes up to {_LONGEST_NAME} letters, such as rows_g1_hnsw",
            to_do="choose a shorter one.",
            intact="Nothing was changed.",
        )
    if generation.width > WIDEST:
        raise GalleryError(
            f"Vectors of {generation.width:,} numbers in PostgreSQL.",
            expected=f"at most {WIDEST:,}, which pgvector keeps",
            to_do="keep the gallery in a LanceDB folder, or shorten the vectors.",
            intact="Nothing was changed.",
        )
    database.execute("SET LOCAL lock_timeout = '30s'")
    database.execute(f"DROP TABLE IF EXISTS {table}")
    database.execute(
        f"CREATE TABLE {table} (id {database.dialect.text} PRIMARY KEY, version bigint NOT NULL, "
        f"vector vector({int(generation.width)}) NOT NULL)"
    )
    if generation.width <= _WIDEST_INLINE:  # several times faster to read than out-of-line storage
        database.execute(f"ALTER TABLE {table} ALTER COLUMN vector SET STORAGE PLAIN")


def drop_table(database: PostgresDatabase, table: str) -> None:
    """Remove a table; one that is still being read after a while stays until the next time."""
    try:
        with database.transaction():
            database.execute("SET LOCAL lock_timeout = '10s'")
            database.execute(f'DROP TABLE "{table}"')
    except StoreError as error:
        if not isinstance(error.__cause__, errors.LockNotAvailable):
            raise


def append(database: PostgresDatabase, part: Appended) -> None:
    """Add rows."""
    with database.copying(f"COPY {table_of(part.rows.generation)} FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(["text", "int8", "vector"])
        for row in zip(part.rows.ids, part.versions.tolist(), part.rows.vectors, strict=True):
            copy.write_row(row)


def read_back(database: PostgresDatabase, part: Appended) -> None:
    """Read back rows that were added.

    Raises:
        StoreError: They differ from what was written.
    """
    for first in range(0, len(part.rows.ids), _READ_AT_ONCE):
        some = slice(first, first + _READ_AT_ONCE)
        ids, versions = list(part.rows.ids[some]), part.versions[some].tolist()
        found = {row[0]: row for row in read(database, part.rows.generation, ids)}
        there = [found[identifier] for identifier in ids if identifier in found]
        vectors = decoded([row[2] for row in there], part.rows.vectors.shape[1])
        written = np.ascontiguousarray(part.rows.vectors[some], np.float32)
        same = [row[:2] for row in there] == list(zip(ids, versions, strict=True))
        if not same or vectors.tobytes() != written.tobytes():
            raise StoreError(
                f"Vectors written to '{database.address.url}' were read back differently.",
                expected=f"the rows of generation '{part.rows.generation}' from '{ids[0]}' to '{ids[-1]}'",
                to_do="check the server's disk and memory. The gallery is as it was before.",
            )


def read(database: PostgresDatabase, generation: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return id, version and encoded vector of the existing rows among these ids."""
    return database.rows(f"{ROWS} {table_of(generation)} WHERE id = ANY(%s)", [list(ids)], binary=True)


def decoded(encoded: Sequence[bytes], width: int) -> Vectors:
    """Decode vectors (N, width) of pgvector's binary format: two 16-bit numbers, then the values, all big-endian."""
    row = np.dtype([("head", ">u2", (2,)), ("values", ">f4", (width,))])
    return np.frombuffer(b"".join(encoded), row)["values"].astype(np.float32)
