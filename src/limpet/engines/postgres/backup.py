"""Backup of a gallery's PostgreSQL tables as text files, which every server version reads on every machine."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import closing

from limpet.engines.digested_folder import DigestedFolder
from limpet.engines.ledger import GalleryLedger
from limpet.engines.postgres.database import PostgresDatabase, quoted
from limpet.engines.postgres.graphs import built, chosen, definition, form_of, index_of
from limpet.engines.postgres.rows import create_table
from limpet.engines.store import NewGeneration

_INDEXED = "indexed.json"
_COPY = ".copy"


def copy_out(database: PostgresDatabase, tables: Sequence[str], into: DigestedFolder) -> None:
    """Write tables and the list of approximate indexes to files; inside a transaction with one snapshot."""
    listed = ", ".join(map(quoted, tables))
    database.execute(f"LOCK TABLE {listed} IN ACCESS SHARE MODE")  # gc waits before it removes these tables
    for table in tables:
        with closing(_rows(database, table)) as rows:
            into.write(f"{table}{_COPY}", rows)
    indexed = [name for name in sorted(GalleryLedger(database).generations()) if built(database, name)]
    into.write(_INDEXED, [json.dumps(indexed).encode()])


def _rows(database: PostgresDatabase, table: str) -> Generator[bytes | bytearray | memoryview]:
    with database.copying(f"COPY {quoted(table)} TO STDOUT (ENCODING 'UTF8')") as copy:
        yield from copy


def copy_in(database: PostgresDatabase, backup: DigestedFolder) -> None:
    """Fill the ledger of an empty gallery and create its generations' tables from a backup; in a transaction."""
    copy_ledger_in(database, backup)
    ledger = GalleryLedger(database)
    for name, (width, columns) in ledger.generations().items():
        create_table(database, NewGeneration(name, width, columns))
        _copy_in(database, f"rows_{name}", backup)
    for name in json.loads(b"".join(backup.read(_INDEXED))):
        form = form_of(ledger.generations()[name][0], directions=True)
        if form is not None:
            database.execute(f"CREATE INDEX {index_of(name)} ON {definition(name, form, chosen(database))}")


def copy_ledger_in(database: PostgresDatabase, backup: DigestedFolder) -> None:
    """Fill the ledger of an empty gallery from a backup; in a transaction."""
    tables = {name.removesuffix(_COPY) for name in backup.digests if name.endswith(_COPY)}
    _replace(database, "meta", backup)
    GalleryLedger(database).check_format(f"backup in {backup.path}")
    for table in sorted(table for table in tables if table != "meta" and not table.startswith("rows_")):
        _replace(database, table, backup)


def _replace(database: PostgresDatabase, table: str, backup: DigestedFolder) -> None:
    database.execute(f"DELETE FROM {quoted(table)}")
    _copy_in(database, table, backup)


def _copy_in(database: PostgresDatabase, table: str, backup: DigestedFolder) -> None:
    with database.copying(f"COPY {quoted(table)} FROM STDIN (ENCODING 'UTF8')") as copy:
        for block in backup.read(f"{table}{_COPY}"):
            copy.write(block)
