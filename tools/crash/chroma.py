"""A Chroma server for `crash.collections`, and a client that reads and writes its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
from chromadb.errors import ChromaError

from crash.applications import ChromaApplication as Application
from crash.applications import chroma_client
from crash.chroma_server import ChromaServer
from crash.collections import Row

__all__ = ["ERRORS", "Application", "Client", "service"]

ERRORS = (httpx.HTTPError, ChromaError, ValueError)
"""Errors of the client if the server was killed; ValueError if the server never answered."""


@contextmanager
def service() -> Iterator[ChromaServer]:
    """Yield a running server."""
    server = ChromaServer()
    try:
        yield server
    finally:
        server.stop()


class Client:
    """A connection of an application or of the watcher.

    Args:
        url: URL of the server.
    """

    def __init__(self, url: str) -> None:
        self._client = chroma_client(url)

    def _collection(self, name: str) -> Any:
        return self._client.get_collection(name, embedding_function=None)

    def rows(self, collection: str) -> dict[int, Row]:
        """Return all rows of a collection; reads until two consecutive reads are equal.

        Chroma reads text, tags and vector of a row one after another, so a single read may mix two versions of a row.
        """
        before, after = self._read(collection), self._read(collection)
        while not _same(before, after):
            before, after = after, self._read(collection)
        return after

    def _read(self, collection: str) -> dict[int, Row]:
        found = self._collection(collection).get(include=["embeddings", "documents", "metadatas"])
        rows = zip(*(found[name] for name in ("ids", "embeddings", "documents", "metadatas")), strict=True)
        return {int(one): {"key": int(one), "emb": np.array(emb), "text": text, "tags": meta.get("tags", [])}
                for one, emb, text, meta in rows}  # fmt: skip

    def put(self, collection: str, row: Row) -> None:
        """Write a whole row."""
        metadata = {"text": row["text"], "tags": [str(one) for one in row["tags"]]}
        self._collection(collection).upsert([str(row["key"])], [row["emb"]], [metadata], [row["text"]])

    def delete(self, collection: str, row: int) -> None:
        """Delete a row."""
        self._collection(collection).delete([str(row)])


def _same(one: dict[int, Row], other: dict[int, Row]) -> bool:
    return one.keys() == other.keys() and all(
        row["text"] == other[key]["text"]
        and row["tags"] == other[key]["tags"]
        and np.allclose(row["emb"], other[key]["emb"], atol=1e-5)
        for key, row in one.items()
    )
