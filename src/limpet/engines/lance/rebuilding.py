"""Rebuild items from the rows of an earlier commit, which hold all data of an item that has a vector."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from limpet.engines.filters import Metadata
from limpet.engines.ledger import GalleryLedger
from limpet.engines.store import GoneBack, NewGeneration

_Found = Iterable[tuple[Sequence[str], Sequence[int], Sequence[Metadata]]]
"""Ids, versions and metadata of the items of some rows, batch by batch."""


def rebuild_items(ledger: GalleryLedger, sequence: int, rows: Sequence[tuple[NewGeneration, _Found]]) -> GoneBack:
    """Restore generations, items and the pointer's counts of them to their state at a commit.

    Args:
        ledger: The ledger; inside the transaction that has recorded the rollback as a commit.
        sequence: Number of the commit to go back to.
        rows: Rows of every generation of that commit.
    """
    database = ledger.database
    before = {row[0]: row[1:] for row in database.execute("SELECT id, version, mask FROM items")}
    names = {bit: name for name, bit in ledger.bits().items()}
    held = {known: frozenset(name for bit, name in names.items() if known & bit) for _, known in before.values()}
    database.execute("DELETE FROM items WHERE mask != 0 OR version > ?", [sequence])
    for table in ("generations", "queue"):
        database.execute(f"DELETE FROM {table}")
    for bit, (generation, batches) in enumerate(rows):
        values = [generation.name, bit, generation.width, json.dumps(dict(generation.columns))]
        database.execute("INSERT INTO generations VALUES (?, ?, ?, ?)", values)
        for ids, versions, metadata in batches:
            database.execute_many(
                "INSERT INTO items VALUES (?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET mask = items.mask | excluded.mask",
                ([one, version, 1 << bit, json.dumps(dict(known))]
                 for one, version, known in zip(ids, versions, metadata, strict=True)),
            )  # fmt: skip
    now = {row[0]: row[1:] for row in database.execute("SELECT id, version, mask FROM items")}
    bits = {1 << bit: generation.name for bit, (generation, _) in enumerate(rows)}
    holding = {known: frozenset(name for bit, name in bits.items() if known & bit) for _, known in now.values()}
    counts = Counter(" ".join(sorted(holding[known])) for _, known in now.values())
    database.execute("UPDATE pointer SET held = ?", [json.dumps(counts)])
    unfilled = sum(
        one in now and now[one][0] == version and not held[known] <= holding[now[one][1]]
        for one, (version, known) in before.items()
    )
    lost = sorted(one for one, (version, _) in before.items() if version > sequence)
    return GoneBack(lost, sorted(now.keys() - before.keys()), unfilled)
