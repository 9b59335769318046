"""Rows of an attached table as vector sources read them: texts and existing vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from limpet.attached.postgres.layout import arrays, given, held, key_texts, same_key, text_of
from limpet.attached.postgres.ledger import TableEntry, TableRecord
from limpet.embeddings import EmbeddingSet
from limpet.engines.postgres.database import RETRIES, PostgresDatabase, Row
from limpet.engines.postgres.rows import decoded
from limpet.engines.sides import ModelSide
from limpet.errors import ConfigError
from limpet.geometry import Hypersphere, Space
from limpet.upgrade.vector_sources import points_of

_LOCK_TIMEOUT = 2.0  # seconds


def id_of(key: Sequence[str]) -> str:
    """Return the id of a row outside of its table: its key as text, or a JSON list for a key of several columns.

    >>> id_of(["17"]), id_of(["17", "de"])
    ('17', '["17", "de"]')
    """
    return key[0] if len(key) == 1 else json.dumps(list(key), ensure_ascii=False)


def key_of(identifier: str, record: TableRecord) -> list[str]:
    """Return the key that `id_of` wrote.

    Raises:
        ConfigError: The id is not one of this table.
    """
    width = len(record.table.key)
    if width == 1:
        return [identifier]
    try:
        key = json.loads(identifier)
    except ValueError:
        key = None
    if not isinstance(key, list) or len(key) != width:
        raise ConfigError(f"The id {identifier!r}.", expected=f"a JSON list of {width} texts, one for each column")
    return [str(part) for part in key]


class _TableRows:
    """Current rows of an attached table by id.

    Args:
        database: A connection of its own; several threads may call it, one at a time.
    """

    side: ModelSide | None = None
    """The model whose vectors are read; None to read texts."""

    def __init__(self, database: PostgresDatabase, entry: TableEntry) -> None:
        self._database, self._entry, self._record = database, entry, entry.record

    def _select(self, ids: Sequence[str]) -> dict[str, Row]:
        reach = self._database.reached
        return self._by_id(self._database.patiently(lambda: reach(lambda: self._rows(ids), RETRIES), 3))

    def _rows(self, ids: Sequence[str]) -> list[Row]:
        with self._database.transaction(_LOCK_TIMEOUT):
            layout = held(self._database, self._entry.id)[1]
            wanted = f"vector_send({layout.current(self.side)}::vector)" if self.side else text_of(self._record)
            return self._database.rows(
                f"SELECT {key_texts(self._record)}, {wanted} FROM {layout.rows} JOIN {given(self._record)} ON "
                f"{same_key(self._record, 't', 'd')}",
                arrays(self._record, [key_of(identifier, self._record) for identifier in ids]),
            )

    @staticmethod
    def _by_id(rows: Sequence[Row]) -> dict[str, Row]:
        return {id_of([str(part) for part in row[:-1]]): row for row in rows if row[-1] is not None}


def blank_text(record: TableRecord) -> str:
    """Return the SQL for whether a row has no text: NULL, empty, or white space; false for a table without texts."""
    return f"{text_of(record)} !~ '\\S'" if record.table.texts else "false"


class TableTexts(_TableRows):
    """Texts of rows, several columns joined by line breaks; an `ItemSource`."""

    def read(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the ids of existing rows, in the order given, and their texts; an empty text for NULL.

        Raises:
            ConfigError: No text column was named.
        """
        if not self._record.table.texts:
            raise ConfigError(
                "No column of texts was named when the upgrade was started.",
                to_do="cancel, and start with &text=COLUMN in the URL; or give vectors as files.",
            )
        found = self._select(ids)
        there = [identifier for identifier in ids if identifier in found]
        return there, [str(found[identifier][-1]) for identifier in there]


class TableVectors(_TableRows):
    """The up-to-date vectors of one model in the table, normalized: a `VectorSource` for adapters and heads."""

    side: ModelSide | None = "old"

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the model."""
        return self._record.old.fingerprint

    @property
    def space(self) -> Space:
        """The hypersphere."""
        return Hypersphere(self._record.old.dim)

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the normalized vectors of the rows with a nonzero vector, in the order given."""
        found = self._select(ids)
        there = [identifier for identifier in ids if identifier in found]
        vectors = decoded([found[identifier][-1] for identifier in there], self._record.old.dim)
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
        usable = np.isfinite(lengths) & (lengths > 0)
        directions = (vectors[usable] / lengths[usable, None]).astype(np.float32)
        return points_of(self, [one for one, use in zip(there, usable, strict=True) if use], directions)
