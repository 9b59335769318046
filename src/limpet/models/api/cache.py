"""Vectors that were paid for, kept by a digest of text and model in one SQLite file."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError

_TABLES = """
CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS models (
    number INTEGER PRIMARY KEY, fingerprint TEXT UNIQUE NOT NULL, address TEXT NOT NULL, since TEXT NOT NULL
);
"""
_AT_ONCE = 500  # keys of one question; SQLite allows 999 in its oldest form
_PATIENCE = 60.0  # seconds to wait for another process


class VectorCache:
    """A file of vectors by text and model.

    Vectors tell of their texts, so that only its owner may read the file.

    Args:
        path: The file; it and its folder are made where they are not there.

    Raises:
        DataError: It cannot be made, or is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise self._unusable(error) from error
        with self._opened() as connection:
            connection.executescript(_TABLES)

    def get(self, fingerprint: str, texts: Sequence[str], dim: int) -> dict[str, NDArray[np.float32]]:
        """Return the vectors (dim,) of those of the texts that are known.

        Raises:
            DataError: The file cannot be read, or a vector in it is damaged.
        """
        keys = {_key(fingerprint, text): text for text in texts}
        asked = list(keys)
        rows: dict[bytes, bytes] = {}
        with self._opened() as connection:
            for start in range(0, len(asked), _AT_ONCE):
                some = asked[start : start + _AT_ONCE]
                marks = ",".join("?" * len(some))
                rows |= dict(connection.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", some))
        found = {keys[key]: np.frombuffer(vector, "<f4") for key, vector in rows.items() if len(vector) == 4 * dim}
        if len(found) < len(rows) or not all(np.isfinite(vector).all() for vector in found.values()):
            raise self._unusable(ValueError("a vector in it is damaged"))
        return found

    def put(self, fingerprint: str, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep the vectors of texts, all or none; those that are there stay.

        Raises:
            DataError: The file cannot be written.
        """
        rows = [(_key(fingerprint, text), vector.astype("<f4").tobytes()) for text, vector in vectors.items()]
        with self._opened() as connection, connection:
            connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)

    def fingerprints(self, address: str) -> list[str]:
        """Return the fingerprints under which a model was met, the latest first."""
        with self._opened() as connection:
            asked = "SELECT fingerprint FROM models WHERE address = ? ORDER BY number DESC"
            return [fingerprint for (fingerprint,) in connection.execute(asked, [address])]

    def remember(self, fingerprint: str, address: str) -> None:
        """Keep the fingerprint of a model."""
        with self._opened() as connection, connection:
            connection.execute(
                "INSERT OR IGNORE INTO models (fingerprint, address, since) VALUES (?, ?, datetime('now'))",
                [fingerprint, address],
            )

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=_PATIENCE)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                yield connection
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> DataError:
        return DataError(
            f"The cache '{self.path}' cannot be used: {error}.",
            expected="a file that limpet made, which can be read and written, on a disk with room",
            to_do="free its disk, or remove the file or name another --api.cache: then its texts are paid for again.",
            intact="Everything else is intact.",
        )


def _key(fingerprint: str, text: str) -> bytes:
    return hashlib.sha256(f"{fingerprint}\0{text}".encode("utf-8", "surrogatepass")).digest()
