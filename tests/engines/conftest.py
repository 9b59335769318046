"""Tables of vectors in every kind of place that this process can write to."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import lancedb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crash.server import Server

Write = Callable[[pa.Table], str]
"""Writes a table with the columns id, emb, title, price and kind, and returns the beginning of its URL."""

_COLUMNS = {"id": "text PRIMARY KEY", "emb": "vector", "title": "text", "price": "float8", "kind": "text"}


@pytest.fixture(params=["postgresql", "lance", "parquet"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    """Write a table to one kind of place after another."""

    def to_lance(table: pa.Table) -> str:
        name = f"t{uuid.uuid4().hex}"
        lancedb.connect(tmp_path / "db").create_table(name, table)
        return f"lance:{tmp_path / 'db'}#{name}?vector=emb"

    def to_parquet(table: pa.Table) -> str:
        name = f"t{uuid.uuid4().hex}"
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=7)
        return f"parquet:{tmp_path / name}.parquet?vector=emb"

    def to_postgres(table: pa.Table) -> str:
        name = f"t{uuid.uuid4().hex}"
        server: Server = request.getfixturevalue("postgres_server")
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            columns = ", ".join(f"{column} {_COLUMNS[column]}" for column in table.column_names)
            connection.execute(f"CREATE TABLE {name} ({columns})".encode())
            with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                for row in table.to_pylist():
                    vector = None if row["emb"] is None else str(row["emb"])
                    copy.write_row([vector if column == "emb" else value for column, value in row.items()])
        return f"{server.url()}&table={name}&vector=emb"

    return {"postgresql": to_postgres, "lance": to_lance, "parquet": to_parquet}[request.param]
