"""What only a gallery in Lance tables has to get right: versions, links, files and their durability, indexes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest

from limpet.engines.filters import Condition
from limpet.engines.lance import care as lance_care
from limpet.engines.lance import history as lance_history
from limpet.engines.lance import rows as lance_rows
from limpet.engines.lance import store as lance_store
from limpet.engines.lance.files import FolderFiles
from limpet.engines.lance.places import TableVersion, TableVersions, edit_of_generation, edit_of_remainder
from limpet.engines.lance.store import LanceStore
from limpet.engines.lance.tables import LanceTables
from limpet.engines.planning import Appended, CommitPlan
from limpet.engines.store import Changes, Committed, Fill, Items, NewGeneration, Rows, Store, Upsert
from limpet.engines.stores import open_store
from limpet.errors import GalleryError, LastingStoreError, StoreError
from limpet.support.disk import Disk

WIDTH = 8
G1, G2, G3 = "g1", "g2", "g3"
PAIRS = [(G1, frozenset([G2])), (G2, frozenset([G1]))]


class Watched(Disk):
    """Runs something at a step, once."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self.at: dict[str, Callable[[], object]] = {}

    def reached(self, point: str) -> None:
        self.points.append(point)
        self.at.pop(point, lambda: None)()


@pytest.fixture
def disk() -> Watched:
    return Watched()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "gallery"


@pytest.fixture
def store(folder: Path, disk: Watched) -> Iterator[LanceStore]:
    """A store with two generations, 20 items in the first."""
    made = open_store(str(folder), create=True, disk=disk)
    assert isinstance(made, LanceStore)
    columns = {"colour": "text", "id": "integer", "Colour": "number"}
    commit(made, Changes(create=[NewGeneration(name, WIDTH, columns) for name in (G1, G2)], remainders=PAIRS))
    commit(made, written(names(20)))
    disk.points.clear()
    yield made
    made.close()


def names(count: int, first: int = 0) -> list[str]:
    return [f"i{number:05d}" for number in range(first, first + count)]


def values(ids: Sequence[str], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *ids[0].encode()])
    return rng.standard_normal((len(ids), WIDTH)).astype(np.float32)


def written(ids: Sequence[str], *generations: str, metadata: Mapping[str, Any] | None = None) -> Changes:
    rows = [Rows(name, ids, values(ids)) for name in generations or (G1,)]
    return Changes(upsert=Upsert(ids, [metadata or {}] * len(ids), rows))


def filled(store: Store, ids: Sequence[str], generation: str = G2) -> Changes:
    return Changes(fill=Fill(Rows(generation, ids, values(ids, 1)), store.fetch(ids).versions))


def commit(store: Store, changes: Changes) -> Committed:
    with store.writing("a test"):
        return store.commit(changes, {}, {"kind": "test"})


def found(store: Store, generation: str = G1, without: Iterable[str] = (), **options: Any) -> list[str]:
    query = np.ones((1, WIDTH), np.float32)
    options = {"at": store.pointer(), **options}
    return sorted(store.search(query, 500, generation=generation, without=frozenset(without), **options).ids[0])


def state(store: Store) -> dict[str, Any]:
    rows = {name: {identifier: vector.tolist() for ids, _, vectors in store.scan_rows(name)
                   for identifier, vector in zip(ids, vectors, strict=True)} for name in (G1, G2)}  # fmt: skip
    items = store.scan(limit=1000)
    return {"rows": rows, "ids": items.ids, "generations": items.generations, "sequence": store.pointer().sequence,
            "rest": [found(store, name, others) for name, others in PAIRS]}  # fmt: skip


def places_of(store: LanceStore) -> TableVersions:
    return store._history.current(store.ledger)[1]


def table_of(store: LanceStore, generation: str) -> str:
    return places_of(store).tables[generation].table


def path_of(store: LanceStore, place: TableVersion) -> Path:
    return Path(store.url.removeprefix("lance:")) / f"{place.table}.lance"


def failing(why: str) -> Callable[[], object]:
    return lambda: (_ for _ in ()).throw(OSError(why))


@pytest.mark.parametrize("reopened", [False, True])
def test_what_an_interrupted_writer_left_is_removed_by_the_next(folder: Path, disk: Watched, reopened: bool) -> None:
    """Torn by a power failure, its versions would stop every later pruning."""
    store = open_store(str(folder), create=True, disk=disk)
    commit(store, Changes(create=[NewGeneration(G1, WIDTH, {})]))
    commit(store, written(names(5)))
    before = set(folder.rglob("*.manifest"))
    disk.at["lance.sync"] = failing("gone")
    with pytest.raises(StoreError, match="gone"):
        commit(store, written(names(5, 5)))
    left = {path: path.read_bytes() for path in set(folder.rglob("*.manifest")) - before}
    assert left
    if reopened:
        store.close()
        store = open_store(str(folder), disk=disk)
    commit(store, written(names(5, 10)))
    assert not [path for path, content in left.items() if path.exists() and path.read_bytes() == content]
    store.close()
    assert found(open_store(str(folder))) == [*names(5), *names(5, 10)]


@pytest.mark.parametrize("tear", [lambda whole: whole[:100], lambda whole: bytes(len(whole) - 16) + whole[-16:]])
def test_torn_files_of_later_versions_do_not_stop_pruning(folder: Path, tear: Callable[[bytes], bytes]) -> None:
    disk = Watched()
    store = open_store(str(folder), create=True, disk=disk)
    commit(store, Changes(create=[NewGeneration(G1, WIDTH, {})]))
    commit(store, written(names(5)))
    before = set(folder.rglob("*.manifest"))
    disk.at["lance.read_back"] = failing("gone")
    with pytest.raises(StoreError, match="gone"):
        commit(store, written(names(7)))  # writes again what is there: one version without it, one with it
    store.close()
    torn, *others = sorted(set(folder.rglob("*.manifest")) - before)[::-1]
    assert others, "the later of them is whole, so that Lance opens the table"
    torn.write_bytes(tear(torn.read_bytes()))
    store = open_store(str(folder))
    commit(store, written(names(5, 10)))
    with store.writing("a test"):
        store.tidy(older_than=0.0)
    assert found(store) == [*names(5), *names(5, 10)]
    store.close()


# What a commit does to the rows of a remainder


NO_ITEMS = Items([], np.empty(0, np.int64), [], [])


def appended(generation: str, ids: Sequence[str], holding: Sequence[set[str]]) -> Appended:
    rows = Rows(generation, ids, np.ones((len(ids), 2), np.float32))
    return Appended(rows, np.ones(len(ids), np.int64), [{}] * len(ids), [frozenset(one) for one in holding])


def test_rows_join_and_leave_a_remainder_with_their_items() -> None:
    """g1 gains a (alone) and b (with g2), loses c; a backfill of g2 meets d, which g1 has, and e, which it has not."""
    both = {G1, G2}
    append = [
        appended(G1, ["a", "b"], [{G1}, both]),
        appended(G2, ["b"], [both]),
        appended(G2, ["d", "e"], [both, {G2}]),
    ]
    plan = CommitPlan(5, {G1: ["b", "c"]}, append, np.ones(2, np.bool_), [], NO_ITEMS, {})
    whole, rest = edit_of_generation(plan, G1), edit_of_remainder(plan, PAIRS[0])
    assert (list(whole.remove), [part.rows.ids for part in whole.append]) == (["b", "c"], [["a", "b"]])
    assert (list(rest.remove), [part.rows.ids for part in rest.append]) == (["b", "c", "d"], [["a"]])
    other = edit_of_remainder(plan, (G2, frozenset([G1])))
    assert (list(other.remove), [part.rows.ids for part in other.append]) == ([], [["e"]])


def test_places_survive_being_written_as_plain_values() -> None:
    places = TableVersions(
        {G1: TableVersion("g1-0", 4, "0f")}, {(G1, frozenset(["b", "a"])): TableVersion("g1_without_a_b-1", 7)}
    )
    assert TableVersions.read(places.plain()) == places
    assert TableVersions.read({}) == TableVersions()


# Links


def test_a_new_remainder_is_made_of_links(store: LanceStore) -> None:
    def data(place: TableVersion) -> set[int]:
        return {file.stat().st_ino for file in (path_of(store, place) / "data").iterdir()}

    pair = (G1, frozenset([G2, G3]))
    commit(store, Changes(create=[NewGeneration(G3, WIDTH, {})], remainders=[*PAIRS, pair]))
    places = places_of(store)
    assert data(places.remainders[pair]) and data(places.remainders[pair]) <= data(places.tables[G1]) | data(
        places.remainders[PAIRS[0]]
    )
    assert found(store, G1, [G2, G3]) == names(20)


def test_files_are_copied_where_there_are_no_links(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "hardlink_to", lambda *paths: failing("no links")())
    commit(store, Changes(create=[NewGeneration(G3, WIDTH, {})], remainders=[*PAIRS, (G1, frozenset([G3]))]))
    commit(store, filled(store, names(5), G3))
    assert found(store, G1, [G3]) == names(15, 5)


@pytest.mark.parametrize("how", ["moved", "copied", "copied without links"])
def test_a_gallery_in_mid_upgrade_can_be_moved(store: LanceStore, folder: Path, tmp_path: Path, how: str) -> None:
    commit(store, filled(store, names(5)))
    before, other = state(store), tmp_path / "elsewhere" / "gallery"
    other.parent.mkdir()
    store.close()
    if how == "moved":
        folder.rename(other)
    else:
        subprocess.run(["cp", "-r", *(["--preserve=links"] if how == "copied" else []), folder, other], check=True)
        shutil.rmtree(folder)
    again = open_store(str(other))
    assert state(again) == before
    commit(again, filled(again, names(5, 5)))
    commit(again, Changes(delete=names(1, 19)))
    with again.writing("a test"):
        again.tidy(older_than=0.0)
    assert found(again, G1, [G2]) == names(9, 10) and found(again, G2) == names(10)
    again.close()


def test_a_remainder_that_is_announced_late_has_the_right_rows(store: LanceStore) -> None:
    """g2 holds 0..4 and g3 holds 3..9: each new branch starts from the one that lacks least."""
    commit(store, Changes(create=[NewGeneration(G3, WIDTH, {})]))
    commit(store, filled(store, names(5)))
    commit(store, filled(store, names(7, 3), G3))
    late = [(G1, frozenset([G2, G3])), (G1, frozenset([G3])), (G3, frozenset([G1])), (G2, frozenset([G3]))]
    commit(store, Changes(remainders=[*PAIRS, *late], delete=names(1, 19)))
    assert found(store, G1, [G2, G3]) == names(9, 10)
    assert found(store, G1, [G3]) == names(3) + names(9, 10)
    assert found(store, G3, [G1]) == []
    assert found(store, G2, [G3]) == names(3)
    with pytest.raises(GalleryError, match="announced"):
        found(store, G3, [G2])


def test_a_remainder_that_is_not_announced_any_more_goes_with_tidying(store: LanceStore, folder: Path) -> None:
    pair = (G1, frozenset([G2, G3]))
    commit(store, Changes(create=[NewGeneration(G3, WIDTH, {})], remainders=[*PAIRS, pair]))
    commit(store, Changes(remainders=[pair]))
    store.tidy(older_than=0.0)
    assert found(store, G1, [G2, G3]) == names(20)
    commit(store, Changes(remainders=[]))
    store.tidy(older_than=0.0)
    assert sorted(path.name.split("-")[0] for path in folder.glob("*.lance")) == [G1, G2, G3]


def test_a_search_reads_few_rows_that_left_a_remainder(store: LanceStore) -> None:
    for first in range(19):
        commit(store, filled(store, names(1, first)))
        left = store._tables.reader(places_of(store).remainders[PAIRS[0]])
        stored = sum(piece.physical_rows for piece in left.get_fragments())
        assert left.count_rows() == 19 - first and stored <= 2 * left.count_rows()
        assert found(store, G1, [G2]) == names(19 - first, first + 1)


# What an interrupted writer leaves


def test_versions_that_no_pointer_names_are_undone_by_the_next_commit(store: LanceStore, disk: Watched) -> None:
    before, places = state(store), places_of(store)
    for place in (places.tables[G1], places.remainders[PAIRS[0]]):
        lance.dataset(str(path_of(store, place))).delete("true")
    assert state(store) == before
    commit(store, written(["new"]))
    assert disk.points.count("lance.restore") == 2
    assert found(store) == [*names(20), "new"] and found(store, G1, [G2]) == [*names(20), "new"]


def test_tables_that_no_pointer_names_are_removed(store: LanceStore, folder: Path) -> None:
    shutil.copytree(path_of(store, places_of(store).tables[G1]), folder / "g9-stray.lance")
    (folder / "half-stray.lance").mkdir()
    again = open_store(str(folder))
    commit(again, written(["new"]))
    again.close()
    assert not list(folder.glob("*stray*")) and found(store) == [*names(20), "new"]


@pytest.mark.parametrize("torn", ["table", "remainder"])
def test_what_a_power_failure_tore_is_passed_over(store: LanceStore, folder: Path, torn: str) -> None:
    before, places = state(store), places_of(store)
    path = path_of(store, places.tables[G1] if torn == "table" else places.remainders[PAIRS[0]])
    lance.dataset(str(path)).delete("true")
    sorted((path / "_versions").glob("*.manifest"))[0].write_bytes(b"")
    store.close()
    again = open_store(str(folder))
    assert state(again) == before
    commit(again, written(["new"]))
    again.tidy(older_than=0.0)
    assert found(again) == found(again, G1, [G2]) == [*names(20), "new"]
    again.close()


def test_a_commit_that_counts_is_no_failure_if_its_writer_may_not_trim(
    store: LanceStore, folder: Path, disk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file was removed just before the commit counted, and after it was checked."""
    monkeypatch.setattr(lance_store, "TRIMMED_EVERY", 1)
    disk.at["database.commit"] = (folder / "writer.lock").unlink
    commit(store, written(["new"]))
    assert not disk.at and found(store) == [*names(20), "new"]


def test_tidying_opens_no_version_that_it_removes(
    store: LanceStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a bucket, each would be a request of its own, one after the other, while writers wait."""
    for number in range(9):
        commit(store, written(names(2, number)))
    before, really, opened = len(list(folder.glob(f"{G1}-*.lance/_versions/*"))), lance.dataset, list[int]()

    def dataset(*words: Any, version: int, **more: Any) -> Any:
        opened.append(version)
        return really(*words, version=version, **more)

    monkeypatch.setattr(lance, "dataset", dataset)
    with store.writing("a test"):
        store._trim(0.0, 0)
    left = len(list(folder.glob(f"{G1}-*.lance/_versions/*")))
    assert before - left > 9 and len(opened) < 9


@pytest.mark.parametrize("harm", [lambda path: path.write_bytes(b""), lambda path: cut(path)], ids=["empty", "torn"])
def test_an_old_version_that_cannot_be_read_stops_no_tidying(
    store: LanceStore, folder: Path, harm: Callable[[Path], object]
) -> None:
    for number in range(3):
        commit(store, written(names(2, number)))
    place = places_of(store).tables[G1]
    old = path_of(store, place) / "_versions" / f"{2**64 - 1 - (place.version - 3)}.manifest"
    harm(old)
    with store.writing("a test"):
        store._trim(0.0, 0)
    assert [path.name for path in old.parent.glob("*.manifest")] == [f"{2**64 - 1 - place.version}.manifest"]
    assert found(store) == names(20) and store.damage() == []


def test_a_torn_version_of_a_dropped_generation_does_not_stop_tidying(store: LanceStore, folder: Path) -> None:
    """What a power failure leaves of a version that was begun and never counted: an empty list of files."""
    place = places_of(store).tables[G2]
    commit(store, Changes(drop=[G2]))
    (path_of(store, place) / "_versions" / f"{2**64 - 2 - place.version}.manifest").touch()
    store.close()
    again = open_store(str(folder))
    again.tidy(older_than=3600.0)
    again.tidy(older_than=0.0)
    assert not path_of(again, place).exists() and found(again) == names(20)
    again.close()


# Reading back


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("harm", [cut, Path.unlink, lambda path: path.write_bytes(b"")], ids=["torn", "gone", "empty"])
@pytest.mark.parametrize("what", ["_deletions/*.arrow", "data/*.lance", "_versions/*.manifest"])
def test_a_write_that_lance_swallowed_is_not_acknowledged(
    store: LanceStore, folder: Path, disk: Watched, what: str, harm: Callable[[Path], object]
) -> None:
    """After the files were synced one of them is not what was written; a fresh process would meet it."""
    before, there = state(store), set(folder.rglob(what))
    disk.at["lance.read_back"] = lambda: harm(sorted(set(folder.rglob(what)) - there)[0])
    changes = Changes(delete=names(2), upsert=written(names(3, 2)).upsert)
    with pytest.raises(StoreError):
        commit(store, changes)
    assert state(store) == before
    commit(store, changes)
    store.close()
    again = open_store(str(folder))
    assert found(again) == names(18, 2) and found(again, G1, [G2]) == names(18, 2)
    again.close()


def test_an_index_that_cannot_be_read_is_not_acknowledged(
    store: LanceStore, folder: Path, disk: Watched, clusters: np.ndarray
) -> None:
    there = set(folder.rglob("_indices/*/*"))
    disk.at["lance.read_back"] = lambda: cut(
        max(set(folder.rglob("_indices/*/*")) - there, key=lambda one: one.stat().st_size)
    )
    with pytest.raises(StoreError):
        store.build_index(G1)
    assert store.upkeep(G1).indexed == 0
    store.build_index(G1)
    assert store.upkeep(G1).indexed == 6_000


@pytest.mark.parametrize("harm", ["row lost", "row doubled", "value changed"])
def test_a_merge_that_changes_rows_is_not_acknowledged(
    store: LanceStore, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """Merged rows come in another order: they are compared as a set."""
    for identifier in names(6, 100):
        commit(store, written([identifier]))
    before = state(store)

    def wrong(table: Any) -> None:
        lance_care.merge(table)
        if harm == "value changed":
            table.update({"version": "version + 1"}, where="id = 'i00103'")
        elif harm == "row lost":
            table.delete("id = 'i00103'")
        else:
            row = table.to_table(filter="id = 'i00103'")
            lance.write_dataset(row, table, mode="append")
            table.checkout_latest()
            table.optimize.compact_files()

    monkeypatch.setattr("limpet.engines.lance.store.merge", wrong)
    with pytest.raises(StoreError, match="differently"):
        store.keep_up(G1)
    assert state(store) == before
    monkeypatch.undo()
    store.keep_up(G1)
    assert {**state(store), "sequence": 0} == {**before, "sequence": 0}


def test_a_damaged_list_of_files_is_refused_before_lance_sees_it(store: LanceStore, folder: Path) -> None:
    """Lance would panic at some of these, and take others for another table."""
    place = places_of(store).tables[G1]
    manifest = path_of(store, place) / "_versions" / f"{2**64 - 1 - place.version}.manifest"
    store.close()
    content = bytearray(manifest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    manifest.write_bytes(content)
    again = open_store(str(folder))
    with pytest.raises(StoreError, match="damaged"):
        found(again)
    again.close()


def test_a_row_that_is_read_back_differently_fails_the_commit(store: LanceStore, folder: Path, disk: Watched) -> None:
    before, home = state(store), folder / f"{table_of(store, G1)}.lance" / "data"
    there = set(home.iterdir())

    def damage() -> None:
        [new] = set(home.iterdir()) - there
        vector = values(["new"])[0, 0].tobytes()
        content = new.read_bytes()
        assert content.count(vector) == 1
        new.write_bytes(content.replace(vector, np.float32(9).tobytes()))

    disk.at["lance.read_back"] = damage
    with pytest.raises(StoreError, match="read back"):
        commit(store, written(["new"]))
    assert state(store) == before
    commit(store, written(["new"]))
    assert found(store) == [*names(20), "new"]


class Shadow(Disk):
    """Keeps a second folder with exactly what was asked to be made durable."""

    def __init__(self, folder: Path, shadow: Path) -> None:
        self.folder, self.shadow, self.calls = folder, shadow, 0

    def sync_one(self, path: Path) -> None:
        super().sync_one(path)
        self.calls += 1
        copy = self.shadow / path.relative_to(self.folder) if path.is_relative_to(self.folder) else None
        if copy is not None and path.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def test_what_was_synced_is_enough_to_open_the_gallery_again(folder: Path, tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    store = open_store(str(folder), create=True, disk=Shadow(folder, shadow))
    commit(store, Changes(create=[NewGeneration(name, WIDTH, {}) for name in (G1, G2)], remainders=PAIRS))
    steps: list[Callable[[], object]] = [
        lambda: commit(store, written(names(30))),
        lambda: commit(store, filled(store, names(9))),
        lambda: commit(store, written(names(3, 5), G1, G2)),
        lambda: commit(store, Changes(delete=names(2))),
        lambda: store.tidy(older_than=0.0),
        lambda: commit(store, filled(store, names(4, 20))),
    ]
    for step in steps:
        step()
        after = tmp_path / "after"
        shutil.rmtree(after, ignore_errors=True)
        shutil.copytree(shadow, after)
        for path in after.rglob("*"):
            if path.is_file() and not (folder / path.relative_to(after)).exists():
                path.unlink()  # what tidying removed may be gone
        with sqlite3.connect(folder / "gallery.db") as now, sqlite3.connect(after / "gallery.db") as then:
            then.executescript("PRAGMA journal_mode = DELETE")
            now.backup(then)
        now.close(), then.close()
        left = open_store(str(after))
        assert state(left) == state(store)
        left.close()
    store.close()


# Reading


def test_columns_may_be_called_like_those_of_the_table(store: LanceStore) -> None:
    commit(store, written(["x"], metadata={"colour": "red", "id": 7, "Colour": 0.5}))
    query = values(["x"])
    for condition in (Condition("id", "=", 7), Condition("Colour", "<", 1.0), Condition("colour", "!=", "it's")):
        hits = store.search(query, 3, generation=G1, where=condition, at=store.pointer())
        assert hits.ids == [["x"]] and hits.metadata == [[{"colour": "red", "id": 7, "Colour": 0.5}]]


def test_of_many_equal_scores_the_smallest_ids_are_found(store: LanceStore) -> None:
    """All 300 copies score alike: whichever Lance finds first, the answer is the smallest ids, for every query."""
    ids = [f"c{number:03d}" for number in np.random.default_rng(0).permutation(300)]
    same = np.full((300, WIDTH), 5, np.float32)
    commit(store, Changes(upsert=Upsert(ids, [{}] * 300, [Rows(G1, ids, same)])))
    queries = np.stack([np.ones(WIDTH, np.float32), values(names(20))[3]])
    hits = store.search(queries, 4, generation=G1, at=store.pointer())
    assert hits.ids[0] == ["c000", "c001", "c002", "c003"]
    alone = [store.search(query[None], 4, generation=G1, at=store.pointer()) for query in queries]
    assert hits.ids == [one.ids[0] for one in alone]
    for row, scores in enumerate(hits.scores):
        np.testing.assert_array_equal(scores, alone[row].scores[0])


def test_more_queries_than_lance_is_asked_at_once_are_answered_in_order(store: LanceStore) -> None:
    vectors = store.vectors(G1, names(20))[1]
    queries = np.tile(20 * vectors / (vectors**2).sum(1, keepdims=True), (8, 1)).astype(np.float32)
    hits = store.search(queries, 1, generation=G1, at=store.pointer())
    scores = queries @ vectors.T
    assert [ids[0] for ids in hits.ids] == [names(20)[place] for place in scores.argmax(1)]
    np.testing.assert_allclose([one[0] for one in hits.scores], scores.max(1), rtol=1e-5)


def test_threads_read_their_pointers_while_others_write(store: LanceStore) -> None:
    wrong: list[object] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            pointer = store.pointer()
            rest, new = found(store, G1, [G2], at=pointer), found(store, G2, at=pointer)
            if sorted(rest + new) != names(20) or len(new) != pointer.covered([G2]):
                wrong.append((rest, new))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for first in range(0, 20, 4):
        commit(store, filled(store, names(4, first)))
    ended.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_a_missing_table_is_told_as_a_failure_of_the_store(store: LanceStore, folder: Path) -> None:
    shutil.rmtree(folder / f"{table_of(store, G1)}.lance")
    again = open_store(str(folder))
    with pytest.raises(StoreError, match="cannot be read"):
        found(again)
    again.close()


# Upkeep


@pytest.fixture
def clusters(store: LanceStore) -> np.ndarray:
    """Adds 6,000 vectors around 60 points, and returns 50 queries near some of them."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((60, WIDTH))
    near = centres[rng.integers(0, 60, 6_050)] + 0.1 * rng.standard_normal((6_050, WIDTH))
    near = (near / np.linalg.norm(near, axis=1, keepdims=True)).astype(np.float32)
    ids = names(6_000, 100)
    commit(store, Changes(delete=names(20), upsert=Upsert(ids, [{}] * 6_000, [Rows(G1, ids, near[:6_000])])))
    return near[6_000:]


def test_an_index_finds_nearly_the_same_and_covers_new_rows(store: LanceStore, clusters: np.ndarray) -> None:
    store.build_index(G2)
    assert store.upkeep(G2).indexed == 0  # nothing to index
    store.build_index(G1)
    assert store.upkeep(G1).indexed == store.upkeep(G1).rows == 6_000
    assert store.journal()[-1].event == {"kind": "index", "generation": G1}
    rest = store._version(G1, frozenset([G2]), store.pointer())
    assert lance_rows.indexed_rows(store._tables.reader(rest), lance_care.VECTOR_INDEX) == 6_000
    for without in (frozenset[str](), frozenset([G2])):
        exact, near = (
            store.search(clusters, 10, generation=G1, without=without, exact=flag, at=store.pointer()).ids
            for flag in (True, False)
        )
        recall = np.mean([len({*one} & {*other}) / 10 for one, other in zip(exact, near, strict=True)])
        assert recall >= 0.95
    commit(store, written(names(500, 9_000)))
    assert store.upkeep(G1).indexed == 6_000
    best = store.search(values(names(500, 9_000))[:1] * 9, 1, generation=G1, exact=False, at=store.pointer())
    assert best.ids[0][0] in names(500, 9_000)  # rows that no index covers are compared one by one
    store.build_index(G1)
    assert store.upkeep(G1).indexed == 6_500
    sequence = store.pointer().sequence
    store.build_index(G1)
    assert store.pointer().sequence == sequence  # nothing to do


def test_ids_are_indexed_again_when_many_are_new(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def covered() -> int:
        with store._now(G1) as table:
            return int(table.count_rows() - lance_rows.indexed_rows(table, "id_idx"))

    monkeypatch.setattr(lance_rows, "_UNINDEXED", 50)
    commit(store, written(names(40, 100)))
    assert covered() == 60
    commit(store, Changes(delete=names(1)))
    assert covered() == 0


def test_tidying_keeps_what_a_pointer_named_lately(store: LanceStore, folder: Path) -> None:
    pointers = [store.pointer()]
    for number in range(5):
        commit(store, written([f"x{number}"]))
        pointers.append(store.pointer())
    commit(store, filled(store, names(5)))
    store.tidy(older_than=3600.0)
    for number, pointer in enumerate(pointers):
        assert found(store, at=pointer) == found(store, G1, [G2], at=pointer)
        assert len(found(store, at=pointer)) == 20 + number
    versions, now = folder / f"{table_of(store, G1)}.lance" / "_versions", state(store)
    old = set(versions.glob("*.manifest"))
    tidied = store.tidy(older_than=0.0)
    assert {**state(store), "sequence": 0} == {**now, "sequence": 0}
    assert tidied.freed > 0 and len(old) > 5 and len(set(versions.glob("*.manifest"))) == 1
    with pytest.raises(GalleryError, match="not there any more"):
        found(store, at=pointers[0])


def test_a_dropped_generation_stays_for_readers_until_tidying(store: LanceStore, folder: Path) -> None:
    commit(store, filled(store, names(5)))
    before, table = store.pointer(), folder / f"{table_of(store, G2)}.lance"
    commit(store, Changes(drop=[G2]))
    assert found(store, G2, at=before) == names(5) and found(store, G1, [G2], at=before) == names(15, 5)
    with pytest.raises(GalleryError, match="g2"):
        found(store, G2)
    store.tidy(older_than=0.0)
    assert not table.exists() and found(store) == names(20)


def test_what_waits_and_what_is_freed_is_told(store: LanceStore, folder: Path) -> None:
    def on_disk() -> int:
        files = [path.stat() for path in folder.rglob("*.lance/**/*") if path.is_file()]
        return sum({file.st_ino: file.st_size for file in files}.values())

    for _number in range(5):
        commit(store, written(names(20)))
    live = on_disk() - store.waiting()
    assert store.waiting() > 0 and store.upkeep(G1).bytes <= live
    kept = store.tidy(older_than=3600.0)
    assert kept.waiting == store.waiting() > 0
    before = on_disk()
    tidied = store.tidy(older_than=0.0)
    assert tidied.freed == before - on_disk() > 0
    assert 0 <= tidied.waiting == store.waiting() < kept.waiting / 5


def test_ordinary_writes_keep_pieces_and_files_few(
    store: LanceStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limpet.engines.lance.store.KEPT_SECONDS", 0.0)
    monkeypatch.setattr("limpet.engines.lance.store.TRIMMED_EVERY", 8)
    pieces, files = [], []
    for number in range(60):
        commit(store, written(names(1, number % 40)))
        table = store._tables.reader(places_of(store).tables[G1])
        pieces.append(sum(piece.physical_rows < 1_024 for piece in table.get_fragments()))
        files.append(sum(len(inside) for _, _, inside in os.walk(folder)))
    assert max(pieces) <= lance_care.PIECES[1_024] + 1
    assert max(files[32:]) <= 1.2 * max(files[:32]), "no more than between two trims"
    assert found(store) == found(store, G1, [G2]) == names(40)


def test_indexes_keep_up_with_ordinary_writes_in_few_parts(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_care, "INDEX_LAG", 4)
    monkeypatch.setattr(lance_care, "INDEX_FROM", 10)
    store.build_index(G1)
    behind, parts = [], []
    for number in range(45):
        commit(store, written(names(1, 100 + number)))
        table = store._tables.reader(places_of(store).tables[G1])
        (index,) = [one for one in table.describe_indices() if one.name == lance_care.VECTOR_INDEX]
        behind.append(table.count_rows() - index.num_rows_indexed)
        parts.append(len(index.segments))
    assert max(behind) <= 4 + lance_care.PIECES[1_024] + 1, "until pieces are merged"
    assert 2 < max(parts) <= lance_care.INDEX_PARTS + 1
    assert found(store) == found(store, G1, [G2]) == sorted(names(20) + names(45, 100))
    query = values(["i00144"])
    quick, exact = (store.search(query, 5, generation=G1, exact=how, at=store.pointer()).ids for how in (False, True))
    assert quick == exact


def test_pieces_that_an_index_covers_are_merged(store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lance moves the index along then, and cannot show in Python that it did; the commit is whole all the same."""
    monkeypatch.setattr(lance_rows, "_UNINDEXED", 2)
    for gone, new in zip(names(19), names(19, 100), strict=True):
        commit(store, Changes(delete=[gone], upsert=written([new]).upsert))
    assert found(store) == found(store, G1, [G2]) == names(1, 19) + names(19, 100)


def test_a_reader_that_takes_its_time_is_spared(store: LanceStore, folder: Path) -> None:
    commit(store, written(names(300, 100)))
    reading = store.scan_rows(G1, batch=10)
    ids = list(next(reading)[0])
    other = open_store(str(folder))
    commit(other, Changes(delete=names(300, 100)))
    commit(other, written(names(5, 900)))
    other.tidy(older_than=0.0)
    assert other.waiting() > 0
    for more, _, _ in reading:
        ids += more
    assert sorted(ids) == [*names(20), *names(300, 100)]
    other.tidy(older_than=0.0)
    assert not list((folder / "readers").iterdir())
    other.close()


def test_a_reader_that_comes_while_its_commit_is_forgotten_is_spared_for_as_long_as_it_reads(
    store: LanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer, seen = store.pointer(), store._leases.sequences
    commit(store, written(["x"]))
    answers = [set[int]()]
    monkeypatch.setattr(store._leases, "sequences", lambda: answers.pop() if answers else {pointer.sequence})
    for _ in range(2):
        store.tidy(older_than=0.0)
        assert found(store, at=pointer) == names(20)
    monkeypatch.setattr(store._leases, "sequences", seen)
    store.tidy(older_than=0.0)
    with pytest.raises(GalleryError, match="not there any more"):
        found(store, at=pointer)


@pytest.mark.parametrize("hours", [-30.0, 30.0])
def test_a_clock_that_jumps_removes_nothing_that_is_young(
    store: LanceStore, folder: Path, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    pointer, now = store.pointer(), time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600.0 * hours)
    commit(store, written(["x"]))
    monkeypatch.setattr(time, "time", lambda: now() + 7200.0 * hours)
    commit(store, written(["y"]))
    store.tidy(older_than=3600.0)
    assert found(store, at=pointer) == names(20)
    store.tidy(older_than=0.0)
    with pytest.raises(GalleryError, match="not there any more"):
        found(store, at=pointer)


def test_commits_of_another_start_of_the_machine_are_no_older_than_this_one(
    store: LanceStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = store.pointer()
    commit(store, written(["x"]))
    store.close()
    monkeypatch.setattr(lance_history, "_boot", lambda: "another")
    monkeypatch.setattr(lance_history, "_since_boot", lambda: 30.0)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    again = open_store(str(folder))
    again.tidy(older_than=60.0)
    assert found(again, at=pointer) == names(20)
    again.tidy(older_than=20.0)
    with pytest.raises(GalleryError, match="not there any more"):
        found(again, at=pointer)
    again.close()


def test_no_name_is_synced_before_what_it_names(store: LanceStore, disk: Watched, monkeypatch: Any) -> None:
    synced, sync = list[list[bool]](), disk.sync

    def watched(paths: Iterable[Path]) -> None:
        files = list(paths)
        synced.append([path.is_dir() for path in files])
        sync(files)

    monkeypatch.setattr(disk, "sync", watched)
    commit(store, Changes(create=[NewGeneration(G3, WIDTH, {})]))
    commit(store, written(names(5, 100)))
    assert any(any(folders) and not all(folders) for folders in synced)
    assert all(folders == sorted(folders) for folders in synced)


def test_a_table_whose_manifest_was_altered_is_not_opened(store: LanceStore, folder: Path) -> None:
    place = places_of(store).tables[G1]
    manifest = folder / f"{place.table}.lance" / "_versions" / f"{2**64 - 1 - place.version}.manifest"
    sound = manifest.read_bytes()
    store.close()
    earlier = max(one for one in manifest.parent.glob("*.manifest") if one != manifest)
    manifest.write_bytes(earlier.read_bytes())
    with closing(open_store(str(folder))) as again:
        with pytest.raises(LastingStoreError):
            found(again)
        assert again.damage()
        manifest.write_bytes(sound)
    with closing(open_store(str(folder))) as again:
        assert len(found(again)) == 20 and not again.damage()


def test_tables_are_cleared_only_by_who_is_certain_to_write(store: LanceStore, folder: Path) -> None:
    def uncertain() -> None:
        raise GalleryError("Somebody else writes.", expected="one writer")

    tables = LanceTables(FolderFiles(folder, Disk()), Disk(), uncertain)
    try:
        with pytest.raises(GalleryError, match="Somebody else"):
            tables.clear([])
        assert len(found(store)) == 20
    finally:
        tables.close()


def test_history_forgets_no_commit_that_a_reader_holds(store: LanceStore) -> None:
    for number in range(3):
        commit(store, written(names(2, 100 + number)))
    held, *others, last = sorted(store._history.named())
    forgotten = store._history.forget(0.0, 1, {held})
    assert held not in forgotten and set(forgotten) == set(others[:-1])
    assert {held, last} <= set(store._history.named())
