"""Maintenance of Lance tables: build approximate indexes, merge fragments, remove unused versions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from limpet.engines.lance.rows import Table

INDEX_FROM = 5_000
"""Minimum number of rows for an approximate index."""

VECTOR_INDEX = "vector_idx"
PARTITION = 2_048  # rows per partition of the index

PIECES = {1_024: 8, 16_384: 8, 262_144: 32}
"""Maximum number of fragments with fewer rows than each key before a commit merges them into larger ones.

A row is rewritten a few times at most on its way through the sizes, whatever the number of commits.
"""

INDEX_LAG, INDEX_LAG_SHARE = 2_048, 1 / 32
"""Rows, or the share of all rows, that may be unindexed before a commit that merges fragments extends the indexes to
them."""
INDEX_PARTS = 4
"""Maximum number of index segments after the first one before they are merged."""

_ALL = 2**31  # more than any number of versions
_REMOVED = 0.45
"""Share of removed rows above which a commit rewrites a fragment without them, since searches read them as well.

A backfill that removes all rows of a remainder rewrites about as many rows as it had.
"""


def index_vectors(table: Table) -> None:
    """Build an approximate index if there are enough rows, or extend the existing one to new rows."""
    if any(index.name == VECTOR_INDEX for index in table.describe_indices()):
        merge(table)
    elif table.count_rows() >= INDEX_FROM:
        table.create_index("vector", "IVF_FLAT", name=VECTOR_INDEX, metric="dot", target_partition_size=PARTITION)


def merge(table: Table) -> None:
    """Merge all small fragments, and extend indexes to all rows; do nothing if neither is needed."""
    table.optimize.compact_files()
    _cover(table, {index.name for index in table.describe_indices()}, 0)


def merge_pieces(table: Table) -> None:
    """Merge small fragments if there are more than `PIECES` allows; rewrite fragments that lost many rows."""
    before = table.version
    for rows, most in PIECES.items():
        if sum(piece.physical_rows < rows for piece in table.get_fragments()) > most:
            table.optimize.compact_files(target_rows_per_fragment=rows, materialize_deletions_threshold=_REMOVED)
    pieces = ((piece.physical_rows, piece.num_deletions) for piece in table.get_fragments())
    emptied = [rows for rows, removed in pieces if removed > _REMOVED * rows]
    if emptied:
        table.optimize.compact_files(target_rows_per_fragment=max(emptied), materialize_deletions_threshold=_REMOVED)
    if table.version != before:
        _cover(table, {VECTOR_INDEX}, max(INDEX_LAG, INDEX_LAG_SHARE * table.count_rows()))


def _cover(table: Table, names: Collection[str], lag: float) -> None:
    """Extend those of the named indexes that lack more than `lag` rows to all rows."""
    rows = table.count_rows()
    for index in table.describe_indices():
        if index.name in names and rows - index.num_rows_indexed > lag:
            added = len(index.segments) - 1
            merged = added if added >= INDEX_PARTS else 0
            table.optimize.optimize_indices(index_names=[index.name], num_indices_to_merge=merged)


def prune(table: Table, gone: Collection[int], *, certain: bool) -> None:
    """Remove versions of a table, and all files that no other version needs.

    Args:
        table: The newest version to keep.
        gone: The versions.
        certain: Whether no other writer is at work. If so, file ages are ignored; otherwise files that no version ever
            had stay for seven days, since they may belong to a commit in progress.
    """
    which: dict[str, Any] = {"versions": sorted(gone)} if gone else {"retain_versions": _ALL}
    table.cleanup_old_versions(**which, delete_unverified=certain)
