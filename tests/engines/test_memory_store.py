"""What only the store in RAM has: rows that old pointers still see, and their end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.engines.filters import Condition
from limpet.engines.ledger import best_first
from limpet.engines.memory import store as module
from limpet.engines.sqlite import SqliteDatabase
from limpet.engines.store import Changes, NewGeneration, Pointer, Rows, Store, Upsert
from limpet.engines.stores import open_store
from limpet.errors import GalleryError, StoreError
from limpet.support.disk import Disk


def written(
    store: Store, value: float, *, ids: tuple[str, ...] = ("a", "b", "c"), drop: tuple[str, ...] = ()
) -> Pointer:
    rows = Rows("g1", ids, np.full((len(ids), 2), value, np.float32))
    create = (
        () if store.pointer().sequence else [NewGeneration("g1", 2, {"value": "number"}), NewGeneration("g2", 2, {})]
    )
    upsert = Upsert(ids, [{"value": value}] * len(ids), [rows])
    with store.writing("a test"):
        return store.commit(Changes(create, upsert=upsert, drop=drop), {}, {"kind": "test"}).pointer


def found(store: Store, at: Pointer) -> list[float]:
    return store.search(np.ones((1, 2), np.float32), 9, generation="g1", at=at).scores[0].tolist()


@pytest.fixture(params=["memory://", "memory:{}/gallery"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(request.param.format(tmp_path), create=True)


def test_old_pointers_see_what_was_there_until_it_is_tidied_away(store: Store) -> None:
    pointers = [written(store, value) for value in (1, 2, 3)]
    assert [found(store, at) for at in pointers] == [[2] * 3, [4] * 3, [6] * 3]
    assert store.tidy(older_than=60.0).freed == 0 and found(store, pointers[0]) == [2] * 3
    assert store.tidy(older_than=0.0).freed >= 2 * 3 * 2 * 4, "two removed commits of three rows"
    for old in (pointers[0], Pointer(0, {}), Pointer(99, {})):
        with pytest.raises(GalleryError, match="ask for the pointer again"):
            found(store, old)
    assert found(store, pointers[2]) == found(store, store.pointer()) == [6] * 3
    assert found(store, written(store, 4, ids=("b", "d"))) == [8, 8, 6, 6]
    assert store.upkeep("g1").rows == 4


def test_no_commit_reads_a_whole_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"memory:{tmp_path}/gallery", create=True)
    written(store, 1)
    asked, execute = list[str](), SqliteDatabase.execute

    def noted(database: SqliteDatabase, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            plan = execute(database, f"EXPLAIN QUERY PLAN {statement}", values)
            asked.extend(f"{row[-1]}: {statement}" for row in plan)
        return execute(database, statement, values)

    monkeypatch.setattr(SqliteDatabase, "execute", noted)
    written(store, 2, ids=("a",))
    assert any("SEARCH rows" in one for one in asked)
    assert not [one for one in asked if one.startswith(("SCAN rows", "SCAN items"))]


def test_a_pointer_that_is_young_enough_keeps_its_rows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now, later = time.monotonic, [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now() + later[0])
    pointers = []
    for value in range(1, 5):
        pointers.append(written(store, value))
        later[0] += 100
    assert store.tidy(older_than=250).freed == 3 * 2 * 4, "the rows of the first commit"
    assert [found(store, at) for at in pointers[1:]] == [[4] * 3, [6] * 3, [8] * 3]
    with pytest.raises(GalleryError, match="returned, 2 or later"):
        found(store, pointers[0])


def test_what_is_left_after_tidying_is_still_known_by_item(store: Store) -> None:
    written(store, 1, ids=("z", "y", "x"))
    with store.writing("a test"):
        upsert = Upsert(
            ["a", "b"], [{}, {}], [Rows(name, ["b", "a"], np.ones((2, 2), np.float32)) for name in ("g2", "g1")]
        )
        store.commit(Changes(delete=["z", "y"], upsert=upsert), {}, {"kind": "test"})
    store.tidy(older_than=0.0)
    written(store, 1, ids=("n",))
    query = np.ones((1, 2), np.float32)
    assert store.search(query, 9, generation="g1", without=frozenset({"g2"}), at=store.pointer()).ids == [["n", "x"]]
    assert store.search(query, 9, generation="g2", without=frozenset({"g1"}), at=store.pointer()).ids == [[]]


def test_many_removed_rows_are_forgotten_without_being_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_ROWS", 10)
    monkeypatch.setattr(module, "_KEPT_SECONDS", 0.0)
    for value in range(40):
        written(store, value)
    assert found(store, store.pointer()) == [78] * 3
    assert store.upkeep("g1").bytes <= 14 * 2 * 4


def test_a_dropped_generation_is_seen_by_older_pointers_only(store: Store) -> None:
    before = written(store, 1)
    after = written(store, 2, drop=("g2",))
    query = np.ones((1, 2), np.float32)
    assert store.search(query, 1, generation="g2", at=before).ids == [[]]
    with pytest.raises(GalleryError, match="no generation 'g2'"):
        store.search(query, 1, generation="g2", at=after)


def again(store: Store) -> Store:
    return open_store(store.url) if store.url != "memory://" else store


def test_a_generation_made_anew_starts_empty(store: Store) -> None:
    written(store, 1)
    other = again(store)
    with store.writing("a test"):
        store.commit(Changes(drop=["g1"]), {}, {"kind": "test"})
        store.commit(Changes([NewGeneration("g1", 3, {})]), {}, {"kind": "test"})
    for one in (store, other, again(store)):
        assert one.search(np.ones((1, 3), np.float32), 1, generation="g1", at=one.pointer()).ids == [[]]
    assert store.scan(limit=9).generations == [frozenset()] * 3 and store.vectors("g1", ["a"])[1].shape == (0, 3)


def test_tidying_gives_room_on_disk_back(tmp_path: Path) -> None:
    store = open_store(f"memory:{tmp_path}", create=True)
    ids = tuple(f"i{number}" for number in range(3000))
    written(store, 1, ids=ids)
    with store.writing("a test"):
        store.commit(Changes(delete=ids), {}, {"kind": "test"})
    before = sum(found.stat().st_size for found in tmp_path.iterdir())
    freed = store.tidy(older_than=0.0).freed
    after = sum(found.stat().st_size for found in tmp_path.iterdir() if found.suffix != ".db-shm")
    assert after < before / 4 and freed > 100_000


def test_a_filter_is_asked_anew_for_new_rows(store: Store) -> None:
    where = Condition("value", ">=", 2)
    for value, expected in ((1, 0), (2, 3), (3, 3), (1, 0)):
        at = written(store, value)
        hits = store.search(np.ones((1, 2), np.float32), 9, generation="g1", where=where, at=at)
        assert len(hits.ids[0]) == expected


def test_searches_are_cut_into_pieces_without_a_difference(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    written(store, 1)
    queries = np.arange(14, dtype=np.float32).reshape(7, 2)
    whole = store.search(queries, 2, generation="g1", at=store.pointer())
    monkeypatch.setattr("limpet.engines.memory.table._SCORES_AT_ONCE", 6)
    pieces = store.search(queries, 2, generation="g1", at=store.pointer())
    assert pieces.ids == whole.ids == [["a", "b"]] * 7
    assert [list(scores) for scores in pieces.scores] == [[row.sum()] * 2 for row in queries]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 0.9, 1.0])
def test_a_search_finds_the_items_that_no_other_generation_has(store: Store, share: float) -> None:
    with store.writing("a test"):
        generations = [NewGeneration(name, 2, {"value": "number"}) for name in ("g1", "g2")]
        store.commit(Changes(generations), {}, {"kind": "test"})
    rng = np.random.default_rng(0)
    kept: dict[str, dict[str, NDArray[np.float32]]] = {"g1": {}, "g2": {}}
    for number in range(4):  # rows die and come again among those that stay
        ids = [f"i{row:02d}" for row in rng.permutation(40)[: 40 if number == 0 else 8]]
        new = [identifier for identifier in ids if rng.random() < share]
        vectors = {"g1": rng.normal(size=(len(ids), 2)), "g2": rng.normal(size=(len(new), 2))}
        parts = {"g1": Rows("g1", ids, vectors["g1"].astype(np.float32)),
                 "g2": Rows("g2", new, vectors["g2"].astype(np.float32))}  # fmt: skip
        with store.writing("a test"):
            upsert = Upsert(ids, [{"value": float(identifier[1:])} for identifier in ids], [*parts.values()])
            at = store.commit(Changes(upsert=upsert), {}, {"kind": "test"}).pointer
        kept["g2"] = {one: vector for one, vector in kept["g2"].items() if one not in ids}
        for name, part in parts.items():
            kept[name].update(zip(part.ids, part.vectors, strict=True))
        for others, where in itertools.product(
            (frozenset[str](), frozenset({"g2"})), (None, Condition("value", "<", 20))
        ):
            left = {
                identifier: float(vector.sum()) for identifier, vector in kept["g1"].items()
                if not (others and identifier in kept["g2"]) and (where is None or int(identifier[1:]) < 20)
            }  # fmt: skip
            hits = store.search(np.ones((2, 2), np.float32), 50, generation="g1", without=others, where=where, at=at)
            assert hits.ids == [sorted(left, key=lambda one: -left[one])] * 2
            assert np.allclose(hits.scores[0], sorted(left.values(), reverse=True), atol=1e-6)
            assert [one["value"] for one in hits.metadata[0]] == [float(identifier[1:]) for identifier in hits.ids[0]]


class Lying(Disk):
    """Writes something else than it was given."""

    def __init__(self) -> None:
        self.store: Store | None = None

    def reached(self, point: str) -> None:
        if point == "memory.read_back" and self.store is not None:
            self.store.database.execute("UPDATE rows SET vector = zeroblob(8) WHERE id = 'b'")  # type: ignore[attr-defined]


def test_a_commit_whose_rows_find_no_room_in_ram_is_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = written(store, 1)
    with monkeypatch.context() as patched, pytest.raises(StoreError, match="no room in memory"):
        patched.setattr("limpet.engines.memory.store.MemoryTable.add", no_room)
        written(store, 2)
    with pytest.raises(GalleryError, match="ask for the pointer again"):
        found(store, before)
    assert store.pointer().sequence == 2 and found(store, store.pointer()) == [4] * 3


def no_room(*_: object, **__: object) -> None:
    raise MemoryError


def test_a_search_for_more_than_there_is_takes_no_more_room(store: Store) -> None:
    at = written(store, 1)
    hits = store.search(np.ones((1, 2), np.float32), 2**40, generation="g1", at=at)
    assert hits.ids == [["a", "b", "c"]]


def test_a_search_that_finds_no_room_says_what_to_do(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    at = written(store, 1)
    with monkeypatch.context() as patched, pytest.raises(StoreError, match="no room in memory") as refusal:
        patched.setattr("limpet.engines.memory.table.best_first", no_room)
        found(store, at)
    assert "fewer" in str(refusal.value) and found(store, at) == [2] * 3


def test_a_gallery_that_does_not_fit_into_memory_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(open_store(f"memory:{tmp_path}", create=True), 1)
    with monkeypatch.context() as patched, pytest.raises(StoreError, match="no room in memory"):
        patched.setattr("limpet.engines.memory.rows.np.frombuffer", no_room)
        open_store(f"memory:{tmp_path}")
    assert open_store(f"memory:{tmp_path}").pointer().sequence == 1


def test_vectors_are_read_back(tmp_path: Path) -> None:
    disk = Lying()
    store = open_store(f"memory:{tmp_path}", create=True, disk=disk)
    before = written(store, 1)
    disk.store = store
    with pytest.raises(StoreError, match="read back differently"):
        written(store, 2)
    assert store.pointer() == before and found(store, before) == [2] * 3
    assert found(open_store(f"memory:{tmp_path}"), before) == [2] * 3


def test_the_best_come_first_and_of_equal_ones_the_smaller_id() -> None:
    scores = np.array([1, 3, -np.inf, 3, 2, 3], np.float32)
    assert best_first(list("fedcba"), scores, 2).tolist() == [5, 3]
    assert best_first(list("fedcba"), scores, 9).tolist() == [5, 3, 1, 4, 0]
    assert best_first([], np.empty(0, np.float32), 3).tolist() == [] and best_first(["a"], scores[:1], 0).tolist() == []
