"""A dump in the middle of an upgrade, restored elsewhere: it is known again, goes on, goes back and ends."""

from __future__ import annotations

import copy
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attached.shop import Shop, indexed, source, written
from attached.test_rights import LAYOUTS
from crash.server import PROGRAMS
from limpet.attached.postgres.attachment import PostgresAttachment, open_attachment

PHASES = "attached", "filling", "filled", "indexed", "swapped", "rolled back", "completed"
FEWER = {"one column": {"indexed"}, "aside": {"swapped", "rolled back", "completed"}}
CASES = [
    (layout, phase)
    for layout in LAYOUTS
    for phase in PHASES
    if phase not in FEWER.get(layout.removesuffix(" of partitions"), ())
]
ROWS = 6


class Copies:
    """Dumps of a database, each restored into a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Shop] = []

    def restore(self, shop: Shop, *options: str, into: Shop | None = None, fails: bool = False) -> Shop:
        """Restore the dump of a database, or of what options name, into a fresh one or a given one, all or nothing."""
        dump = str(self.folder / f"{uuid.uuid4().hex}.dump")
        _run("pg_dump", "-Fc", "-f", dump, *options, shop.database)
        other = into or self.empty(shop)
        _run("pg_restore", "--single-transaction", "--exit-on-error", "-d", other.database, dump, fails=fails)
        return other

    def empty(self, shop: Shop) -> Shop:
        other = copy.copy(shop)
        other.name, other.lasting, other.sessions = f"copy_{uuid.uuid4().hex}", False, []
        shop.server.execute(f"CREATE DATABASE {other.name}")
        self.made.append(other)
        return other


def _run(program: str, *words: str, fails: bool = False) -> None:
    done = subprocess.run([str(PROGRAMS / program), *words], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stderr


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    found = Copies(tmp_path)
    yield found
    for one in found.made:
        one.server.execute(f"DROP DATABASE {one.name} WITH (FORCE)")


def filled_shop(shop: Shop, made: str) -> Shop:
    """Make a table whose columns have other numbers after a restore, since one was dropped."""
    shop.renew(made.replace("title text", "gone text, title text"))
    shop.execute("ALTER TABLE shop.items DROP COLUMN gone")
    for row in range(ROWS):
        insert(shop, row, f"item {row}", "old")
    return shop


def insert(shop: Shop, row: int, title: str, model: Any, table: str = "shop.items") -> None:
    shelf = bool(shop.execute("SELECT 1 FROM pg_partitioned_table"))
    columns, values = ("id, title, emb, shelf", "%s, %s, %s, 'b'") if shelf else ("id, title, emb", "%s, %s, %s")
    shop.execute(f"INSERT INTO {table} ({columns}) VALUES ({values})", [row, title, written(model, title)])


def brought(it: PostgresAttachment, phase: str) -> None:
    """Bring an attachment into a phase."""
    if phase == "attached":
        return
    it.backfill(source(it), budget=2, batch=2)
    if phase == "filling":
        return
    it.backfill(source(it))
    if phase == "filled":
        return
    indexed(it)
    if phase == "indexed":
        return
    it.swap(writes="new")
    if phase == "rolled back":
        it.rollback(source(it, "old"), writes="old")
    elif phase == "completed":
        it.complete()


def same_tables(one: str, other: str) -> bool:
    """Return whether two dumps say the same, in any order of columns."""
    return sorted(line.strip(" ,") for line in one.splitlines()) == sorted(
        line.strip(" ,") for line in other.splitlines()
    )


@pytest.mark.parametrize(("layout", "phase"), CASES)
def test_an_upgrade_goes_on_after_a_restore(
    layout: str, phase: str, make_shop: Callable[..., Shop], copies: Copies
) -> None:
    made, how = LAYOUTS[layout]
    shop = filled_shop(make_shop(), made)
    schema = copies.restore(shop).dump()
    with shop.attach(**how) as it:
        brought(it, phase)
        assert it.state.phase == phase
        serving = it.state.fingerprint(it.state.serving)
        writes = it.state.writes
        other = copies.restore(shop)
    asked = "SELECT limpet_attached.model_of('shop.items', 'emb')"
    assert other.execute(asked) == [(serving,)]
    lacking = "new" if writes == "old" else "old"
    insert(other, ROWS, "a", writes)  # the application goes on at once
    other.execute("UPDATE shop.items SET title = 'b', emb = %s WHERE id = 0", [written(writes, "b")])
    with open_attachment(other.url) as it:
        [note] = it.status().notes
        assert "restored from a dump" in note and "shop.items" in note
        assert it.state.phase == phase and other.execute(asked) == [(serving,)]
        assert it.status().lacking[lacking] >= 2
        assert not [one for one in it.verify().problems if "replaced rows" not in one]
        assert it.journal()[-1]["kind"] == "restored"
    with open_attachment(other.url) as it:
        assert it.status().notes == ()
        aside = not it.state.swappable
        it.backfill(source(it))
        if not aside:
            if it.state.phase not in ("swapped", "completed"):
                indexed(it)
                it.swap(source(it), writes="new")
            assert set(other.sides().values()) == {"new"} and it.status().lacking["new"] == 0
            it.rollback(source(it, "old"), writes="old")
            assert other.execute(asked) == [("declared:old",)]
        assert set(other.sides().values()) == {"old"} and len(other.sides()) == ROWS + 1
        it.detach()
    assert other.dump() == schema
    titles = dict(other.execute("SELECT id, title FROM shop.items"))
    assert titles == {0: "b", ROWS: "a"} | {row: f"item {row}" for row in range(1, ROWS)}
