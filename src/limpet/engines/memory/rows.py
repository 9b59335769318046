"""Vectors as rows of the ledger's own database, written in its transactions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from limpet.engines.filters import Metadata
from limpet.engines.ledger import read_metadata, read_versions, reading
from limpet.engines.planning import CommitPlan
from limpet.engines.sqlite import SqliteDatabase
from limpet.engines.store import Vectors
from limpet.errors import StoreError

TABLES = (
    "CREATE TABLE IF NOT EXISTS rows (generation text NOT NULL, id text NOT NULL, version bigint NOT NULL, "
    "written bigint NOT NULL, vector blob NOT NULL, PRIMARY KEY (generation, id))",
    "CREATE INDEX IF NOT EXISTS rows_by_commit ON rows (generation, written)",
)
"""Statements that create the tables, in addition to those of the ledger."""
_OLD = "FROM rows WHERE generation = ? AND written <= ?"


class StoredRows:
    """The vectors of all generations, with the commit that wrote each."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database

    def write(self, plan: CommitPlan) -> None:
        """Apply the removals and additions of a plan; inside the transaction that records it."""
        for generation, ids in plan.remove.items():
            clause, value = self.database.dialect.among("id", ids)
            self.database.execute(f"DELETE FROM rows WHERE generation = ? AND {clause}", [generation, value])
        for part in plan.append:
            name, written = part.rows.generation, plan.sequence
            rows = zip(part.rows.ids, part.versions.tolist(), _blobs(part.rows.vectors), strict=True)
            self.database.execute_many(
                "INSERT INTO rows VALUES (?, ?, ?, ?, ?)",
                ((name, identifier, version, written, blob) for identifier, version, blob in rows),
            )

    def read_back(self, plan: CommitPlan) -> None:
        """Read back what was written, and compare it.

        Raises:
            StoreError: They differ.
        """
        expected: dict[tuple[str, str], bytes] = {}
        for part in plan.append:
            keys = ((part.rows.generation, identifier) for identifier in part.rows.ids)
            expected.update(zip(keys, _blobs(part.rows.vectors), strict=True))
        clause, names = self.database.dialect.among("generation", list({name for name, _ in expected}))
        found = self.database.execute(  # without the generation SQLite would scan the whole table
            f"SELECT generation, id, vector FROM rows WHERE {clause} AND written = ?", [names, plan.sequence]
        )
        if {(generation, identifier): vector for generation, identifier, vector in found} != expected:
            raise StoreError(
                f"Vectors written to '{self.database.path}' were read back differently.",
                expected=f"the same {len(expected)} rows",
                to_do="check the disk. The gallery is as it was before; nothing of this commit is in it.",
            )

    def drop(self, generations: Sequence[str]) -> None:
        """Remove whole generations."""
        for name in generations:
            self.database.execute("DELETE FROM rows WHERE generation = ?", [name])

    def gone(self, generation: str, since: int, ids: Collection[str]) -> list[str]:
        """Return which rows of a commit no longer exist."""
        [(left,)] = self.database.execute(f"SELECT count(*) {_OLD}", [generation, since])
        if left == len(ids):
            return []
        return sorted(set(ids) - {row[0] for row in self.database.execute(f"SELECT id {_OLD}", [generation, since])})

    def added(
        self, generation: str, since: int, width: int
    ) -> tuple[list[str], NDArray[np.int64], Vectors, list[Metadata]]:
        """Return ids, versions, vectors (N, width) and metadata of the rows that later commits wrote, by id."""
        rows = self.database.execute(
            "SELECT rows.id, rows.version, vector, metadata FROM rows JOIN items ON items.id = rows.id "
            "WHERE generation = ? AND written > ? ORDER BY rows.id",
            [generation, since],
        )
        with reading(f"The table of vectors of {generation}"):
            ids = [row[0] for row in rows]
            vectors = np.frombuffer(b"".join(row[2] for row in rows), "<f4").reshape(len(ids), width)
            versions = read_versions([row[1] for row in rows])
            return ids, versions, vectors, read_metadata(ids, [row[3] for row in rows])


def _blobs(vectors: Vectors) -> list[bytes]:
    return [row.tobytes() for row in np.ascontiguousarray(vectors, "<f4")]
