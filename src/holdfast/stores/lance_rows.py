"""Rows of a gallery in the form that Lance takes and gives, and what is done with them: remove, append, read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lancedb.index import BTree

from holdfast.errors import StoreError
from holdfast.stores.base import Vectors
from holdfast.stores.lance_places import Edit
from holdfast.stores.planning import Appended

Table = Any
"""A handle of one version of a Lance table or branch."""

COLUMN_TYPES = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "truth": pa.bool_()}
_PREFIX = "meta_"
_AT_ONCE = 50_000  # ids in one statement
_UNINDEXED = 20_000  # ids that may be looked up without the index


def column(name: str) -> str:
    """Return the column of a Lance table for a metadata column, which may be called "id" or "vector", too.

    >>> column("colour")
    'meta_colour'
    """
    return _PREFIX + name


def metadata_columns(schema: pa.Schema) -> dict[str, str]:
    """Return the metadata columns by the name of the column of the Lance table."""
    return {name: name.removeprefix(_PREFIX) for name in schema.names if name.startswith(_PREFIX)}


def schema_of(width: int, columns: Mapping[str, str]) -> pa.Schema:
    """Return the schema of a table with vectors of so many numbers and these metadata columns."""
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("version", pa.int64(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), width), nullable=False),
            *(pa.field(column(name), COLUMN_TYPES[kind]) for name, kind in columns.items()),
        ]
    )


def rows_of(part: Appended, schema: pa.Schema) -> pa.Table:
    """Return rows as Lance takes them."""
    vectors = np.ascontiguousarray(part.rows.vectors, np.float32)
    arrays = [
        pa.array(part.rows.ids, pa.string()),
        pa.array(part.versions, pa.int64()),
        pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
    ]
    for name, known in metadata_columns(schema).items():
        arrays.append(pa.array([metadata.get(known) for metadata in part.metadata], schema.field(name).type))
    return pa.Table.from_arrays(arrays, schema=schema)


def vectors_of(found: pa.Table) -> Vectors:
    """Return the column of vectors as an array, float32 (N, width)."""
    kept = found.column("vector").combine_chunks()
    flat: Vectors = kept.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(found), kept.type.list_size)


def among(ids: Sequence[str]) -> str:
    """Return the condition that an id is one of these; read ten times faster than one literal each.

    >>> among(["a", "it's"]).replace(chr(0), "~")
    "array_has(string_to_array('a~it''s', '~'), id)"
    """
    joined = "\0".join(ids).replace("'", "''")  # an id never has this sign
    return f"array_has(string_to_array('{joined}', '\0'), id)"


def portions(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield ids in portions that fit one statement."""
    for first in range(0, len(ids), _AT_ONCE):
        yield ids[first : first + _AT_ONCE]


def change(table: Table, edit: Edit) -> list[pa.Table]:
    """Do what a commit does to a table, and return the rows that were added."""
    remove(table, edit.remove)
    return append(table, edit.append)


def remove(table: Table, ids: Sequence[str]) -> None:
    """Remove rows by id, those that are there."""
    if len(ids):
        index_ids(table)
    for portion in portions(ids):
        table.delete(among(portion))


def index_ids(table: Table) -> None:
    """Let the index of ids cover all rows if so many are new that looking for ids takes long."""
    state = table.index_stats("id_idx")
    if state is None or state.num_unindexed_rows > max(_UNINDEXED, state.num_indexed_rows // 10):
        table.create_index("id", config=BTree(), replace=True)


def append(table: Table, parts: Iterable[Appended]) -> list[pa.Table]:
    """Add rows, and return them as they were given to Lance."""
    added = [rows_of(part, table.schema) for part in parts]
    for rows in added:
        table.add(rows, write_parallelism=1)  # keeps their order
    return added


def read_back(table: Table, added: Sequence[pa.Table]) -> None:
    """Compare the last rows of a table with what was added last.

    Raises:
        StoreError: They differ.
    """
    if not added:
        return
    given = pa.concat_tables(added)
    last = table.search().offset(max(0, table.count_rows() - len(given))).limit(len(given))
    found = last.select(["id", "version", "vector"]).to_arrow()
    same = all(found.column(name).equals(given.column(name)) for name in ("id", "version"))
    if not same or not np.array_equal(vectors_of(found), vectors_of(given)):
        raise StoreError(
            f"{len(given)} rows that were just written are read back differently.",
            expected="the same ids, versions and vectors",
            to_do="check the disk and the memory. The gallery is as it was before this commit.",
        )
