"""The ledger alone: what no store can bring about on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from limpet.engines.ledger import GalleryLedger
from limpet.engines.planning import MOST_GENERATIONS
from limpet.engines.sqlite import SqliteDatabase
from limpet.engines.store import Changes, Fill, NewGeneration, Rows, Upsert
from limpet.errors import GalleryError, StoreError
from limpet.support.disk import Disk


class Hastened(SqliteDatabase):
    """A database in which something happens right before items are read, or right after."""

    before: Any = None
    after: Any = None

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if "FROM items" not in statement:
            return super().execute(statement, values)
        self.happen("before")
        found = super().execute(statement, values)
        self.happen("after")
        return found

    def happen(self, when: str) -> None:
        happens = getattr(self, when)
        setattr(self, when, None)
        if happens:
            happens()


@pytest.fixture
def ledger() -> Iterator[GalleryLedger]:
    found = GalleryLedger(Hastened(":memory:", Disk()))
    found.create()
    record(found, Changes([NewGeneration(name, 2, {}) for name in ("g1", "g2")]))
    yield found
    found.database.close()  # type: ignore[attr-defined]


def record(ledger: GalleryLedger, changes: Changes) -> None:
    plan = ledger.plan(changes)
    with ledger.database.transaction():
        ledger.record(plan, changes, {}, {"kind": "test"}, {"sequence": plan.sequence})


def upsert(name: str) -> Upsert:
    return Upsert(["a"], [{}], [Rows(name, ["a"], np.ones((1, 2), np.float32))])


@pytest.mark.parametrize("when", ["before", "after"])
def test_generations_that_change_while_items_are_read_are_not_mixed_up(ledger: GalleryLedger, when: str) -> None:
    record(ledger, Changes(upsert=upsert("g2")))

    def happens() -> None:  # the new generation takes over the bit of the old one
        record(ledger, Changes(drop=["g2"]))
        record(ledger, Changes([NewGeneration("g3", 2, {})]))

    setattr(ledger.database, when, happens)
    assert ledger.fetch(["a"]).generations == [frozenset()]
    assert ledger.scan("", 9, "g3").ids == ["a"]


WRONG = ("abc", 1.5, -1, b"\xff", 2**62, "[" * 50_000, "9" * 5000)


@pytest.mark.parametrize("table", ["queue", "traffic", "generations", "items", "journal", "pointer", "meta"])
def test_nothing_that_is_not_as_it_was_written_is_taken_apart(ledger: GalleryLedger, table: str) -> None:
    record(ledger, Changes(upsert=upsert("g2")))
    ledger.set_queue("g1", ["a"])
    ledger.add_traffic({"a": 3})
    database: Any = ledger.database
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    before = database.execute(f"SELECT * FROM {table}")
    for column in columns:
        for value in WRONG:
            database.execute(f"UPDATE OR REPLACE {table} SET {column} = ?", [value])
            for read in (ledger.pointer, ledger.bits, ledger.generations, ledger.sequence, ledger.format_version,
                         ledger.traffic, lambda: ledger.journal(0), lambda: ledger.queue("g1"),
                         lambda: ledger.fetch(["a"]), lambda: ledger.scan("", 9, None)):  # fmt: skip
                with suppress(StoreError):
                    read()
            database.execute(f"DELETE FROM {table}")
            database.execute_many(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", before)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("queue", "id", b"a"), ("traffic", "retrieved", "three"), ("traffic", "id", b"a"),
        ("generations", "bit", 62), ("generations", "bit", -1), ("generations", "bit", 1), ("generations", "width", 0),
        ("generations", "name", "a b"), ("generations", "columns", '{"a": "colour"}'),
        ("items", "mask", 8), ("items", "mask", -1), ("items", "mask", "x"), ("items", "metadata", "[]"),
        ("items", "version", 1.5), ("items", "id", b"a"),
        ("journal", "event", "{}"), ("journal", "time", -1.0), ("journal", "time", "now"),
        ("pointer", "held", '{"g1": -1}'), ("pointer", "held", '{"g1": 1e999}'), ("pointer", "manifest", "[]"),
        ("pointer", "places", "null"), ("pointer", "sequence", -1), ("pointer", "one", 2), ("meta", "value", "one"),
    ],
)  # fmt: skip
def test_a_damaged_record_is_named(ledger: GalleryLedger, table: str, column: str, value: Any) -> None:
    record(ledger, Changes(upsert=upsert("g2")))
    ledger.set_queue("g1", ["a"])
    ledger.add_traffic({"a": 3})
    ledger.database.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", [value])
    reads: dict[str, Callable[[], Any]] = {
        "queue": lambda: ledger.queue("g1"), "traffic": ledger.traffic, "items": lambda: ledger.scan("", 9, None),
        "generations": lambda: (ledger.bits(), ledger.generations()), "journal": lambda: ledger.journal(0),
        "pointer": ledger.pointer, "meta": ledger.format_version,
    }  # fmt: skip
    with pytest.raises(StoreError, match="is damaged: ") as refusal:
        reads[table]()
    assert "as it was" in str(refusal.value) and len(str(refusal.value)) < 500


def test_a_plan_that_was_overtaken_is_refused(ledger: GalleryLedger) -> None:
    changes = Changes(upsert=upsert("g1"))
    plan = ledger.plan(changes)
    record(ledger, Changes(upsert=upsert("g2")))
    with pytest.raises(GalleryError, match="another writer was faster"), ledger.database.transaction():
        ledger.record(plan, changes, {}, {"kind": "test"}, {})
    assert ledger.fetch(["a"]).generations == [frozenset({"g2"})] and ledger.pointer()[1] == {"sequence": 2}


def test_a_plan_says_what_becomes_of_vectors(ledger: GalleryLedger) -> None:
    one = np.ones((1, 2), np.float32)
    both = Upsert(["a", "b"], [{}, {}], [Rows("g1", ["a", "b"], np.ones((2, 2), np.float32)), Rows("g2", ["a"], one)])
    record(ledger, Changes(upsert=both))
    fill = Fill(Rows("g2", ["b", "a"], np.ones((2, 2), np.float32)), np.array([2, 2]))
    plan = ledger.plan(Changes(delete=["a", "x"], upsert=Upsert(["c"], [{}], [Rows("g1", ["c"], one)]), fill=fill))
    assert (plan.sequence, plan.remove, plan.deleted) == (3, {"g1": ["a"], "g2": ["a"]}, ["a"])
    first, second = plan.append
    assert (first.rows.generation, first.rows.ids, first.versions.tolist()) == ("g1", ["c"], [3])
    assert (second.rows.generation, second.rows.ids, second.versions.tolist()) == ("g2", ["b"], [2])
    assert list(second.holding) == [frozenset({"g1", "g2"})] and plan.filled.tolist() == [True, False]
    nothing = Fill(Rows("g2", ["a"], one), np.array([2]))
    assert ledger.plan(Changes(fill=nothing)).append == [], "no table is touched for nothing"


def test_there_is_an_end_of_generations_and_dropped_ones_make_room(ledger: GalleryLedger) -> None:
    names = [f"n{number}" for number in range(MOST_GENERATIONS - 2)]
    record(ledger, Changes([NewGeneration(name, 2, {}) for name in names]))
    with pytest.raises(GalleryError, match="at most 62"):
        ledger.plan(Changes([NewGeneration("more", 2, {})]))
    record(ledger, Changes(upsert=upsert(names[-1])))
    assert ledger.fetch(["a"]).generations == [frozenset({names[-1]})]
    record(ledger, Changes(drop=["g1"]))
    record(ledger, Changes([NewGeneration("more", 2, {})]))
    assert ledger.fetch(["a"]).generations == [frozenset({names[-1]})]
