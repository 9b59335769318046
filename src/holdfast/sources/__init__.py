"""Items that are somewhere already, by URL: tables, collections of vector databases, files of vectors."""

from __future__ import annotations

from typing import Any

from holdfast.registry import Registry
from holdfast.sources.address import Address, Roles, Sample, read_address, scheme_of
from holdfast.sources.base import Source

__all__ = ["SOURCES", "Address", "Roles", "Sample", "Source", "open_source", "read_address", "scheme_of"]

SOURCES: Registry[type[Any]] = Registry(
    "kind of source",
    "sources",
    {
        "faiss": "holdfast.sources.faiss:FaissIndex",
        "lance": "holdfast.sources.lance:LanceTable",
        "milvus": "holdfast.sources.milvus:MilvusCollection",
        "parquet": "holdfast.sources.parquet:ParquetTable",
        "postgresql": "holdfast.sources.postgresql:PostgresTable",
        "qdrant": "holdfast.sources.qdrant:QdrantCollection",
    },
    fits=lambda thing: isinstance(thing, type) and all(hasattr(thing, name) for name in ("options", "batches")),
    expected="a class that is a holdfast.sources.Source",
)
"""Kinds of sources by the scheme of their URLs: each is a class made of an `Address`."""


def open_source(url: str | Address) -> Source:
    """Open the items at a URL; their schema is looked at, and nothing else read.

    Args:
        url: ``postgresql://USER@HOST/DATABASE?table=NAME&vector=COLUMN``, ``lance:PATH#TABLE`` and the like; see
            `holdfast.sources.address.read_address`.

    Raises:
        ConfigError: The URL is wrong, or names what is not there.
        DataError: A file cannot be read.
        StoreError: A service is out of reach, or refuses.
    """
    address = read_address(url) if isinstance(url, str) else url
    kind = SOURCES[address.scheme]
    address.refuse_unknown(kind.options)
    source: Source = kind(address)
    return source
