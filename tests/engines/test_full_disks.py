"""Disks without room."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from limpet.engines.sqlite import ROOM, ROOM_TO_READ, SqliteDatabase, connect_read_only
from limpet.errors import StoreError
from limpet.support.disk import Disk


@pytest.mark.parametrize(
    ("block", "free", "writes", "reads"),
    [
        (1024, ROOM_TO_READ - 1024, False, False),
        (1024, ROOM_TO_READ, False, True),
        (1024, ROOM, True, True),
        (4096, 0, True, True),  # where SQLite says itself what does not fit
    ],
)
def test_database_on_small_blocks_wants_room_before_it_maps_memory(
    block: int, free: int, writes: bool, reads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gallery.db"
    database = SqliteDatabase(path, Disk())
    database.execute("CREATE TABLE numbers (number bigint)")
    full = SimpleNamespace(f_frsize=block, f_bfree=free // block, f_bavail=free // block)
    monkeypatch.setattr(os, "statvfs", lambda folder: full)
    if writes:
        with database.transaction():
            database.execute("INSERT INTO numbers VALUES (1)")
    else:
        with pytest.raises(StoreError, match="is full") as caught, database.transaction():
            database.execute("INSERT INTO numbers VALUES (1)")
        assert "intact" in str(caught.value)
    database.close()
    if reads:
        connect_read_only(path).close()
    else:
        with pytest.raises(StoreError, match="is full"):
            connect_read_only(path)
