"""Cache of vectors from embedding APIs: one SQLite file, keyed by a digest of model fingerprint and text."""

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
_AT_ONCE = 500  # keys of one query; old versions of SQLite allow 999 parameters
_PATIENCE = 60.0  # seconds to wait for the lock of another process


class VectorCache:
    """A file of vectors by text and model.

    Only its owner may read the file, because vectors reveal information about their texts.

    Args:
        path: The file; it and its folder are created if they do not exist.

    Raises:
        DataError: The file cannot be created, or it is not a cache.
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
        """Return the cached vectors of texts, float32 (dim,) each; texts without one are missing.

        Args:
            fingerprint: Fingerprint of the model.
            texts: The texts, with their prompt.
            dim: Expected dimension of the vectors.

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
        """Store the vectors of texts in one transaction; vectors that exist are not replaced.

        Raises:
            DataError: The file cannot be written.
        """
        rows = [(_key(fingerprint, text), vector.astype("<f4").tobytes()) for text, vector in vectors.items()]
        with self._opened() as connection, connection:
            connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)

    def fingerprints(self, address: str) -> list[str]:
        """Return the fingerprints that the model at an address has had, the latest first."""
        with self._opened() as connection:
            asked = "SELECT fingerprint FROM models WHERE address = ? ORDER BY number DESC"
            return [fingerprint for (fingerprint,) in connection.execute(asked, [address])]

    def remember(self, fingerprint: str, address: str) -> None:
        """Store a fingerprint of the model at an address."""
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
