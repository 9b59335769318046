"""The schema of a gallery in PostgreSQL: create it, and check whether it exists and is usable."""

from __future__ import annotations

from collections.abc import Sequence

from limpet.engines.ledger import GalleryLedger
from limpet.engines.postgres.address import read_address
from limpet.engines.postgres.database import PostgresDatabase
from limpet.engines.postgres.search import INDEX, INDEXED
from limpet.engines.postgres.sharing import lock_key
from limpet.errors import GalleryError
from limpet.support.disk import Disk


def gallery_database(place: str, disk: Disk) -> PostgresDatabase:
    """Return the database of a gallery."""
    address = read_address(place)
    return PostgresDatabase(address, schema=address.schema, disk=disk)


def create_schema(database: PostgresDatabase, kind: str, more: Sequence[str] = (), *, vectors: bool = False) -> None:
    """Create a schema with the ledger of an empty gallery; all or nothing.

    Args:
        database: The database.
        kind: Kind of the store.
        more: Statements that create further tables of the store.
        vectors: Whether it will hold vectors: pgvector is created if the database lacks it.

    Raises:
        GalleryError: The schema is not empty.
    """
    schema = database.address.schema
    with database.transaction():
        database.execute("SELECT pg_advisory_xact_lock(?)", [lock_key(schema)])
        _refuse_other_tables(database)
        if vectors and not database.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
            database.execute("SET LOCAL search_path TO DEFAULT")
            database.execute("CREATE EXTENSION vector")
        if not database.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?", [schema]):
            database.execute(f'CREATE SCHEMA "{schema}"')
        database.execute(f"SELECT set_config('search_path', {database.path}, true)")
        GalleryLedger(database).create(kind, [f"CREATE INDEX {INDEX} ON {INDEXED}", *more])
    database.forget()  # connections look up the schema of the extension when they start


def is_there(database: PostgresDatabase) -> bool:
    """Say whether the schema holds a gallery."""
    found = database.execute("SELECT to_regclass(quote_ident(?) || '.pointer')", [database.address.schema])
    return found[0][0] is not None


def missing(database: PostgresDatabase) -> GalleryError:
    """Build the error for a missing gallery."""
    return GalleryError(
        f"There is no gallery at '{database.address.url}', in the schema '{database.address.schema}'.",
        expected="one that was created",
        to_do="check the database and ?schema=NAME, name a table of your own by ?table=NAME, or create a gallery with "
        "`limpet gallery create`.",
        intact="Nothing was changed.",
    )


def _refuse_other_tables(database: PostgresDatabase) -> None:
    schema, url = database.address.schema, database.address.url
    if is_there(database):
        raise GalleryError(
            f"There is a gallery at '{url}'.",
            to_do="open it, or choose another schema: ?schema=NAME; it is as it was.",
        )
    rows = database.execute("SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(?)", [schema])
    if rows:
        names = sorted(str(name) for (name,) in rows)
        raise GalleryError(
            f"The schema '{schema}' of '{url}' holds something else: {', '.join(names[:3])}"
            f"{' …' if len(names) > 3 else ''}.",
            to_do="choose another: ?schema=NAME.",
            intact="Nothing was changed.",
        )
