"""A Chroma server of one's own for `crash.collections`, and how an application reads and writes its rows."""

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
"""What the client raises when the server was killed; a ValueError where it never answered."""


@contextmanager
def service() -> Iterator[ChromaServer]:
    """Give a server."""
    server = ChromaServer()
    try:
        yield server
    finally:
        server.stop()


class Client:
    """A connection of an application, or of who looks.

    Args:
        url: Of the service.
    """

    def __init__(self, url: str) -> None:
        self._client = chroma_client(url)

    def _collection(self, name: str) -> Any:
        return self._client.get_collection(name, embedding_function=None)

    def rows(self, collection: str) -> dict[int, Row]:
        """Return all rows of a collection.

        Chroma reads the vector of a row after its text: where the text is not the same afterwards, all is read again.
        """
        it = self._collection(collection)
        while True:
            found = it.get(include=["embeddings", "documents", "metadatas"])
            again = it.get(include=["documents"])
            after = dict(zip(again["ids"], again["documents"], strict=True))
            rows = zip(found["ids"], found["embeddings"], found["documents"], found["metadatas"], strict=True)
            read = {int(one): {"key": int(one), "emb": np.array(emb), "text": text, "tags": meta["tags"]}
                    for one, emb, text, meta in rows}  # fmt: skip
            if all(after.get(str(key)) == row["text"] for key, row in read.items()):
                return read

    def put(self, collection: str, row: Row) -> None:
        """Write a row as a whole."""
        metadata = {"text": row["text"], "tags": [str(one) for one in row["tags"]]}
        self._collection(collection).upsert([str(row["key"])], [row["emb"]], [metadata], [row["text"]])

    def delete(self, collection: str, row: int) -> None:
        """Delete a row."""
        self._collection(collection).delete([str(row)])
