"""Sources of existing items, by URL: tables, collections of vector databases, files of vectors."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from limpet.engines.address import Address, Roles, Sample, read_address, scheme_of
from limpet.engines.source import Source
from limpet.registry import Registry

__all__ = ["SOURCES", "Address", "Roles", "Sample", "Source", "address_of", "open_source", "read_address", "scheme_of"]

SOURCES: Registry[type[Any]] = Registry(
    "kind of source",
    "sources",
    {
        "chroma": "limpet.engines.chroma.source:ChromaCollection",
        "faiss": "limpet.engines.files.faiss:FaissIndex",
        "lance": "limpet.engines.lance.source:LanceTable",
        "milvus": "limpet.engines.milvus.source:MilvusCollection",
        "parquet": "limpet.engines.files.parquet:ParquetTable",
        "postgresql": "limpet.engines.postgres.source:PostgresTable",
        "qdrant": "limpet.engines.qdrant.source:QdrantCollection",
    },
    fits=lambda thing: isinstance(thing, type) and all(hasattr(thing, name) for name in ("options", "batches")),
    expected="a class that is a limpet.engines.sources.Source",
)
"""Kinds of sources by the scheme of their URLs: each is a class made from an `Address`."""


def address_of(given: str) -> Address | None:
    """Return the address in a text, or None for a path; an existing file of that name takes precedence.

    Raises:
        ConfigError: The text is a URL that cannot be parsed.
    """
    scheme = scheme_of(given)
    known = scheme is not None and (scheme in SOURCES or "://" in given)
    with suppress(OSError):  # a URL may be longer than a file name can be
        known = known and not Path(given).exists()
    return read_address(given) if known else None


def open_source(url: str | Address) -> Source:
    """Open the items at a URL; only their schema is read.

    Args:
        url: ``postgresql://USER@HOST/DATABASE?table=NAME&vector=COLUMN``, ``lance:PATH#TABLE`` and the like; see
            `limpet.engines.address.read_address`.

    Raises:
        ConfigError: The URL is wrong, or names a missing table or column.
        DataError: A file cannot be read.
        StoreError: A service is unreachable, or refuses.
    """
    address = read_address(url) if isinstance(url, str) else url
    kind = SOURCES[address.scheme]
    address.refuse_unknown(kind.options)
    source: Source = kind(address)
    return source
