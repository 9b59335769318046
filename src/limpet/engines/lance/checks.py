"""Read back what a commit wrote to Lance, as a new process would.

Lance may acknowledge data that never reached the disk: an error of the last write of a small file is lost. So nothing
that a commit wrote takes effect before it is opened without caches and compared: rows, removals, indexes and versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader
from numpy.typing import NDArray

from limpet.engines.lance.files import TableFiles, open_table
from limpet.engines.lance.rows import COLUMN_TYPES, Table, among, index_folders, portions, values_of
from limpet.errors import StoreError

Piece = Any
"""A fragment of a Lance table: a file of rows, and a file with its removals."""


def fresh(files: TableFiles, name: str, version: int) -> Table:
    """Open a version of a table without caches."""
    return open_table(files, name, version, lance.Session())


def compare(
    files: TableFiles,
    name: str,
    before: Table | None,
    version: int,
    removed: Sequence[str],
    added: Sequence[pa.Table],
) -> Table:
    """Compare a version of a table with the one before it and with the changes.

    Fragments that were removed and added (by a merge, for example) hold the same rows except for those removed and
    added; in the other fragments, only removals have changed.

    Returns:
        The version, opened without caches.

    Raises:
        StoreError: The data differs.
        OSError, ValueError: A file cannot be read.
    """
    after = fresh(files, name, version)
    old, new = ({} if table is None else {one.fragment_id: one for one in table.get_fragments()}
                for table in (before, after))  # fmt: skip
    gone = [piece for number, piece in old.items() if number not in new]
    come = [piece for number, piece in new.items() if number not in old]

    def kept() -> Iterator[pa.Table]:
        yield from chain(_without(_rows(before, gone), removed), added)

    def rows() -> Iterator[pa.Table]:
        return _rows(after, come)

    if not _alike(kept(), rows()) and not (gone and _total(kept()) == _total(rows())):  # a merge may change the order
        raise _different("rows are")
    stayed = [(piece, new[number]) for number, piece in old.items() if number in new]
    changed = [(was, now) for was, now in stayed if was.metadata.to_json() != now.metadata.to_json()]
    _compare_removals(files, name, before, after, changed, removed)
    _read_history(files, name, 0 if before is None else before.version, after)
    known = set() if before is None else index_folders(before)
    read_indexes(files, name, after, known)
    return after


def read_whole(files: TableFiles, name: str, version: int) -> None:
    """Read all files of a version of a table: rows, removals, indexes.

    Raises:
        OSError, ValueError: A file cannot be read.
    """
    table = fresh(files, name, version)
    for _ in table.scanner(scan_in_order=True).to_batches():
        pass
    table.validate()
    read_indexes(files, name, table, set())


def read_indexes(files: TableFiles, name: str, table: Table, known: set[str]) -> None:
    """Read every index file of a table except known ones."""
    for folder in index_folders(table) - known:
        for file in sorted(files.below(name, f"_indices/{folder}")):
            options = None if files.options is None else dict(files.options)
            for _ in LanceFileReader(f"{files.uri(name)}/{file}", options).read_all().to_batches():
                pass


def _rows(table: Table, pieces: Sequence[Piece]) -> Iterator[pa.Table]:
    if pieces:
        for batch in table.scanner(fragments=list(pieces), scan_in_order=True).to_batches():
            yield pa.Table.from_batches([batch])


def _without(rows: Iterable[pa.Table], ids: Sequence[str]) -> Iterator[pa.Table]:
    gone = pa.array(ids, pa.string())
    return (part.filter(pc.invert(pc.is_in(part.column("id"), gone))) for part in rows)


def _alike(expected: Iterable[pa.Table], rows: Iterable[pa.Table]) -> bool:
    """Say whether two streams have the same rows in the same order, regardless of their batches."""
    wanted, there = _parts(expected), _parts(rows)
    ours, theirs = next(wanted, None), next(there, None)
    while ours is not None and theirs is not None:
        count = min(len(ours), len(theirs))
        if not all(map(_equal, ours.slice(0, count).columns, theirs.slice(0, count).columns)):
            return False
        ours = ours.slice(count) if len(ours) > count else next(wanted, None)
        theirs = theirs.slice(count) if len(theirs) > count else next(there, None)
    return ours is None and theirs is None


def _parts(rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    return (part for part in rows if len(part))


def _equal(wanted: pa.ChunkedArray, there: pa.ChunkedArray) -> bool:
    if pa.types.is_fixed_size_list(wanted.type):
        return np.array_equal(_bits(wanted), _bits(there))
    if wanted.type == COLUMN_TYPES["json"]:  # may be serialized differently
        return values_of(wanted) == values_of(there)
    return bool(wanted.equals(there))


def _total(rows: Iterable[pa.Table]) -> tuple[int, int]:
    """Return the number of rows, and a hash of their content that does not depend on their order."""
    count = total = 0
    for part in rows:
        keys = np.zeros(len(part), np.uint64)
        for column, factor in zip(part.columns, _factors(part.num_columns), strict=True):
            keys = (keys ^ (keys >> np.uint64(29))) * factor + _keys(column)
        count, total = count + len(part), total + int(((keys ^ (keys >> np.uint64(31))) * _factors(1)[0]).sum())
    return count, total % 2**64


def _keys(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    if not pa.types.is_fixed_size_list(column.type):
        values = values_of(column)
        if column.type == COLUMN_TYPES["json"]:
            values = [json.dumps(value, sort_keys=True) for value in values]
        return np.fromiter(map(hash, values), np.int64, len(column)).view(np.uint64)
    width = column.type.list_size
    keys: NDArray[np.uint64] = (_bits(column).reshape(-1, width) * _factors(width)).sum(axis=1)
    return keys


def _bits(column: pa.ChunkedArray) -> NDArray[np.uint32]:
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which copies even a single chunk
    return np.ascontiguousarray(whole.flatten().to_numpy(zero_copy_only=False)).view(np.uint32)


@lru_cache(maxsize=8)
def _factors(count: int) -> NDArray[np.uint64]:
    """Return odd 64-bit numbers."""
    return np.random.default_rng(count).integers(2**62, 2**63, count, np.uint64) * np.uint64(2) + np.uint64(1)


def _compare_removals(
    files: TableFiles,
    name: str,
    before: Table | None,
    after: Table,
    changed: Sequence[tuple[Piece, Piece]],
    removed: Sequence[str],
) -> None:
    """Check, row by row, that the rows removed from remaining fragments are those that were to be removed."""
    if not changed:
        return
    was, now = zip(*changed, strict=True)
    for piece in now:
        piece.validate()
    asked = [_addresses(before, was, among(portion)) for portion in portions(list(removed))]
    gone, gone_now = (
        [_removed(files, name, table, piece) for piece in pieces] for table, pieces in ((before, was), (after, now))
    )
    if not np.array_equal(np.sort(np.concatenate([*gone, *asked])), np.sort(np.concatenate(gone_now))):
        raise _different("removals are")


def _removed(files: TableFiles, name: str, table: Table, piece: Piece) -> NDArray[np.uint64]:
    first, file = np.uint64(piece.fragment_id << 32), piece.deletion_file()
    if file is None:
        return np.empty(0, np.uint64)
    if file.endswith(".arrow"):  # few: listed one by one
        listed: NDArray[np.uint32] = pa.ipc.open_file(files.read(name, file)).read_all().column(0).to_numpy()
        return first + listed.astype(np.uint64)
    gone = np.ones(piece.physical_rows, np.bool_)
    gone[_addresses(table, [piece]) - first] = False
    return first + np.flatnonzero(gone).astype(np.uint64)


def _addresses(table: Table, pieces: Sequence[Piece], condition: str | None = None) -> NDArray[np.uint64]:
    rows = table.scanner(columns=[], with_row_address=True, fragments=list(pieces), filter=condition).to_table()
    addresses: NDArray[np.uint64] = rows.column("_rowaddr").to_numpy()
    return addresses


def _read_history(files: TableFiles, name: str, last: int, after: Table) -> None:
    """Read the versions after one, and their transactions, since cleanup reads all of them."""
    for version in range(last + 1, after.version + 1):
        with suppress(TypeError):  # it was read, but merges of indexed fragments have no Python type (RewrittenIndex)
            after.read_transaction(version)
        if version < after.version:
            fresh(files, name, version)


def _different(what: str) -> StoreError:
    return StoreError(
        f"{what.capitalize()} read back differently from what was just written.",
        to_do="check the disk and the memory. The gallery is as it was before this commit.",
    )
