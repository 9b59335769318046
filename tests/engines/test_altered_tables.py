"""Lance tables that Lance reads without complaint, and that are not what was committed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import lance
import numpy as np
import pytest

from limpet.engines.store import Changes, NewGeneration, Rows, Store, Upsert
from limpet.engines.stores import open_store
from limpet.errors import LastingStoreError


def found(store: Store) -> int:
    [ids] = store.search(np.ones((1, 2), np.float32), 9, generation="g1", at=store.pointer()).ids
    return len(ids)


def alter_unnoticed(table: Path) -> None:
    """Change one bit of a table's newest manifest such that Lance reads as many rows as before."""
    rows = lance.dataset(table).count_rows()
    manifest = min((table / "_versions").glob("*.manifest"))  # the newest has the lowest number
    sound = manifest.read_bytes()
    for position in range(len(sound)):
        altered = bytearray(sound)
        altered[position] ^= 1
        manifest.write_bytes(altered)
        try:
            if lance.dataset(table).to_table().num_rows == rows:
                return
        except (OSError, ValueError, RuntimeError):
            continue
    raise AssertionError("Lance notices every change.")


def test_a_table_that_lance_reads_and_nobody_committed_is_refused(tmp_path: Path) -> None:
    folder, ids = tmp_path / "gallery", ["a", "b", "c"]
    with closing(open_store(str(folder), create=True)) as store, store.writing("a test"):
        store.commit(Changes(create=[NewGeneration("g1", 2, {})]), {}, {"kind": "test"})
        rows = Rows("g1", ids, np.eye(3, 2, dtype=np.float32))
        store.commit(Changes(upsert=Upsert(ids, [{}] * 3, [rows])), {}, {"kind": "test"})
        assert found(store) == 3
    [table] = {path.parent.parent for path in folder.rglob("*.manifest") if "g1" in str(path)}
    alter_unnoticed(table)
    with closing(open_store(str(folder))) as store, pytest.raises(LastingStoreError):
        found(store)
