"""Conversion of a gallery's rows to and from Lance, and operations on them: remove, append, look up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from limpet.engines.filters import Metadata
from limpet.engines.planning import Appended
from limpet.engines.store import NewGeneration, Vectors

Table = Any
"""A handle of one version of a Lance table; a change moves it to the new version."""

COLUMN_TYPES = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "truth": pa.bool_(),
    "json": pa.json_(),
}
ID_INDEX = "id_idx"
PREFIX = "meta_"
"""Prefix of metadata columns, whose names may then be "id" or "vector"."""
_AT_ONCE = 50_000  # maximum ids per statement
_UNINDEXED = 20_000  # unindexed rows that a lookup by id may scan


def metadata_columns(schema: pa.Schema) -> dict[str, str]:
    """Return the metadata columns by the name of the column of the Lance table."""
    return {name: name.removeprefix(PREFIX) for name in schema.names if name.startswith(PREFIX)}


def schema_of(width: int, columns: Mapping[str, str]) -> pa.Schema:
    """Return the schema of a table with vectors of dimension `width` and these metadata columns."""
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("version", pa.int64(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), width), nullable=False),
            *(pa.field(PREFIX + name, COLUMN_TYPES[kind]) for name, kind in columns.items()),
        ]
    )


def generation_of(name: str, table: Table) -> NewGeneration:
    """Return the generation of a table."""
    kinds = {kind: known for known, kind in COLUMN_TYPES.items()}
    columns = {known: kinds[table.schema.field(one).type] for one, known in metadata_columns(table.schema).items()}
    return NewGeneration(name, table.schema.field("vector").type.list_size, columns)


def items_of(table: Table) -> Iterator[tuple[list[str], list[int], list[Metadata]]]:
    """Yield ids, versions and metadata of the items of all rows, batch by batch."""
    columns = metadata_columns(table.schema)
    for batch in table.to_batches(columns=["id", "version", *columns]):
        values = {known: values_of(batch.column(name)) for name, known in columns.items()}
        metadata: list[Metadata] = [
            {known: listed[row] for known, listed in values.items() if listed[row] is not None}
            for row in range(len(batch))
        ]
        yield batch.column("id").to_pylist(), batch.column("version").to_pylist(), metadata


def rows_of(part: Appended, schema: pa.Schema) -> pa.Table:
    """Return rows in the form of Lance."""
    vectors = np.ascontiguousarray(part.rows.vectors, np.float32)
    arrays = [
        pa.array(part.rows.ids, pa.string()),
        pa.array(part.versions, pa.int64()),
        pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
    ]
    for name, known in metadata_columns(schema).items():
        type_ = schema.field(name).type
        values = [metadata.get(known) for metadata in part.metadata]
        if type_ == COLUMN_TYPES["json"]:
            values = [None if value is None else json.dumps(value) for value in values]
        arrays.append(pa.array(values, type_))
    return pa.Table.from_arrays(arrays, schema=schema)


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a metadata column."""
    values = column.to_pylist()
    if column.type == COLUMN_TYPES["json"]:
        return [None if value is None else json.loads(value) for value in values]
    return list(values)


def vectors_of(rows: pa.Table) -> Vectors:
    """Return the column of vectors as an array, float32 (N, width)."""
    kept = rows.column("vector").combine_chunks()
    flat: Vectors = kept.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(rows), kept.type.list_size)


def among(ids: Sequence[str]) -> str:
    """Return the condition that an id is one of these; parsed ten times faster than one literal each.

    >>> among(["a", "it's"]).replace(chr(0), "~")
    "array_has(string_to_array('a~it''s', '~'), id)"
    """
    joined = "\0".join(ids).replace("'", "''")  # an id never contains this character
    return f"array_has(string_to_array('{joined}', '\0'), id)"


def portions(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield ids in portions that fit one statement."""
    for first in range(0, len(ids), _AT_ONCE):
        yield ids[first : first + _AT_ONCE]


def remove(table: Table, ids: Sequence[str]) -> None:
    """Remove existing rows by id."""
    if len(ids):
        index_ids(table)
    for portion in portions(ids):
        table.delete(among(portion))


def append(table: Table, rows: pa.Table) -> Table:
    """Add rows, and return a handle of the version with them."""
    return lance.write_dataset(rows, table, mode="append")


def index_ids(table: Table) -> None:
    """Rebuild the index of ids over all rows if unindexed rows slow down lookups by id."""
    indexed = indexed_rows(table, ID_INDEX)
    if table.count_rows() - indexed > max(_UNINDEXED, indexed // 10):
        table.create_scalar_index("id", "BTREE", name=ID_INDEX, replace=True)


def indexed_rows(table: Table, index: str) -> int:
    """Return the number of rows that an index covers."""
    return sum(int(known.num_rows_indexed) for known in table.describe_indices() if known.name == index)


def index_folders(table: Table) -> set[str]:
    """Return the names of the folders of a table's indexes."""
    return {str(segment.uuid) for index in table.describe_indices() for segment in index.segments}
