"""The top of a sharded gallery in a schema of a PostgreSQL database."""

from __future__ import annotations

from limpet.engines.ledger import GalleryLedger
from limpet.engines.postgres.schema import create_schema, gallery_database, is_there, missing
from limpet.engines.postgres.sharing import ConnectionLock
from limpet.engines.store import Document
from limpet.engines.top import KIND, LedgerTop, tables
from limpet.support.disk import Disk


def postgres_top(place: str, disk: Disk, document: Document | None = None) -> LedgerTop:
    """Return the existing top at a URL, or create one with a first document."""
    database = gallery_database(place, disk)
    try:
        if document is not None:
            create_schema(database, KIND, tables(document))
        elif not is_there(database):
            raise missing(database)
        GalleryLedger(database).check_format(database.address.url)
    except BaseException:
        database.close()
        raise
    return LedgerTop(database.address.url, database, ConnectionLock(database))
