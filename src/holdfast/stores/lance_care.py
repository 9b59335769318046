"""Keeping Lance tables fast and small: approximate indexes, merging pieces, removing versions that nobody asks for."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta

from lancedb.index import IvfFlat

from holdfast.stores.lance_rows import Table

INDEX_FROM = 5_000
"""Rows from which on an approximate index is worth building."""

VECTOR_INDEX = "vector_idx"
PARTITION = 2_048  # rows that are compared for every part of the index that a search looks into
_PIN = "kept"  # tag of the oldest version that must stay
_MARGINS = (0.1, 1.0, 10.0, 60.0)  # seconds
_FOREVER = timedelta(days=36_500)  # an optimisation without one removes versions older than a week


def index_vectors(table: Table) -> None:
    """Build an approximate index if there are enough rows, or let the one that there is cover new rows."""
    if any(index.name == VECTOR_INDEX for index in table.list_indices()):
        merge(table)
    elif table.count_rows() >= INDEX_FROM:
        config = IvfFlat(distance_type="dot", target_partition_size=PARTITION)
        table.create_index("vector", config=config, name=VECTOR_INDEX)


def merge(table: Table) -> None:
    """Merge small pieces, and let indexes cover all rows; does nothing where nothing is to be done."""
    table.optimize(cleanup_older_than=_FOREVER)


def indexed_rows(table: Table) -> int:
    """Return how many rows the approximate index covers."""
    known = table.index_stats(VECTOR_INDEX) if table.count_rows() else None
    return 0 if known is None else int(known.num_indexed_rows)


def prune(table: Table, kept: Iterable[int]) -> None:
    """Remove all versions of a table or branch that are older than the oldest of these.

    Lance removes by age, counted from when it comes to it: a process that was held up meanwhile would lose a version
    that is to be kept. The tag makes Lance refuse then, before it removes anything, and a larger margin is tried.
    """
    oldest = min(kept)
    made = {known["version"]: known["timestamp"].timestamp() for known in table.list_versions()}
    if oldest not in made or min(made) == oldest:
        return
    if _PIN in table.tags.list():
        table.tags.delete(_PIN)  # of a process that was killed here
    table.tags.create(_PIN, oldest)
    try:
        for margin in _MARGINS:
            age = max(0.0, time.time() - made[oldest]) + margin
            if _pruned(table, age):
                return
    finally:
        table.tags.delete(_PIN)


def _pruned(table: Table, age: float) -> bool:
    """Remove all versions older than so many seconds, or say that a tagged one would be among them."""
    try:
        table.optimize(cleanup_older_than=timedelta(seconds=age), delete_unverified=True)
    except RuntimeError as error:
        if "tagged" not in str(error):
            raise
        return False
    return True
