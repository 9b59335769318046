"""What only galleries of several stores have: the file that names them, the top, and commits that are taken back."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import psycopg
import pytest

from crash.server import Server
from crash.shards import FILE, sharded
from limpet.cli import main
from limpet.embeddings import EmbeddingSet
from limpet.engines.digested_folder import DigestedFolder
from limpet.engines.ledger import GalleryLedger
from limpet.engines.postgres.database import PostgresDatabase
from limpet.engines.sharded import copies
from limpet.engines.sharded.record import TopRecord
from limpet.engines.sharded.store import ShardedStore, shards_of
from limpet.engines.sqlite import SqliteDatabase
from limpet.engines.store import Changes, Fill, Items, NewGeneration, Pointer, Rows, Store, Upsert
from limpet.engines.stores import open_store
from limpet.engines.top import REMEMBERED, Beside, LedgerTop, Stamped, Top, sqlite_top
from limpet.errors import ConfigError, GalleryError, StoreError
from limpet.galleries import Gallery
from limpet.galleries.backup import restore
from limpet.galleries.doctor import doctor
from limpet.geometry import Hypersphere
from limpet.support.disk import Disk
from limpet.testing.stores import commit, state, store_contract
from limpet.upgrade.vector_sources import CallableVectors

PROMISES = [str(check) for check in store_contract(lambda folder: "")]
IDS = [f"item {number}" for number in range(30)]


def written(ids: list[str], value: float) -> Changes:
    return Changes(upsert=Upsert(ids, [{}] * len(ids), [Rows("g1", ids, np.full((len(ids), 4), value, np.float32))]))


def filled(url: str) -> ShardedStore:
    store = open_store(url, create=True)
    assert isinstance(store, ShardedStore)
    commit(store, Changes(create=[NewGeneration("g1", 4, {})]))
    commit(store, written(IDS, 1))
    return store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ShardedStore]:
    with_items = filled(sharded(tmp_path / "gallery"))
    yield with_items
    with_items.close()


def seen(store: Store) -> dict[str, Any]:
    return state(store, {"g1": 4})


# The file


@pytest.mark.parametrize(("content", "words"), [
    ("[]", "no list of shards"),
    ("{", "no list of shards"),
    ('{"format_version": 2, "top": "top", "shards": ["memory:a"]}', "format_version"),
    ('{"format_version": 1, "top": "top", "shards": []}', "shards"),
    ('{"format_version": 1, "top": "top", "shards": ["memory:a"], "more": 1}', "more"),
    ('{"format_version": 1, "top": "top", "shards": ["memory://"]}', "shards"),
    ('{"format_version": 1, "top": "top", "shards": ["sharded:other.json"]}', "shards"),
    ('{"format_version": 1, "top": "top", "shards": ["audited:folder"]}', "shards"),
    ('{"format_version": 1, "top": "top", "shards": ["postgresql://u@h/d"]}', "shards"),
    ('{"format_version": 1, "top": "postgresql://u@h/d", "shards": ["memory:a"]}', "is no folder"),
    ('{"format_version": 1, "top": "top", "shards": ["lance:s3://bucket/a"]}', "is no folder"),
    ('{"format_version": 1, "top": "top", "shards": [' + ", ".join(['"memory:a"'] * 1025) + "]}", "1024"),
    ('{"format_version": 1, "top": "top", "shards": ["memory:a", "memory:./a"]}', "twice"),
    ('{"format_version": 1, "top": "a", "shards": ["memory:a"]}', "twice"),
    (" " * 2**20 + "{}", "more than"),
])  # fmt: skip
def test_a_file_that_names_no_shards_is_refused_before_anything_is_made(
    tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / FILE).write_text(content)
    for create in (True, False):
        with pytest.raises((GalleryError, ConfigError), match=words):
            open_store(f"sharded:{tmp_path / FILE}", create=create)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_missing_file_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GalleryError, match="There is no file"):
        open_store(f"sharded:{tmp_path / FILE}")
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(GalleryError, match="a named pipe"):
        open_store(f"sharded:{tmp_path / FILE}")


def test_exactly_one_of_file_and_url_names_the_top(tmp_path: Path) -> None:
    url = sharded(tmp_path)
    with pytest.raises(ConfigError, match="names a folder of the top, and the URL another place"):
        open_store(f"{url}?top=postgresql://127.0.0.1:1/none", create=True)
    with pytest.raises(ConfigError, match="is no database"):
        open_store(f"{url}?top=elsewhere", create=True)
    sharded(tmp_path, top="postgresql://127.0.0.1:1/none")
    with pytest.raises(ConfigError, match="names no folder of the top, and the URL no place"):
        open_store(url, create=True)


def test_a_shard_stays_where_the_gallery_was_created_with_it(tmp_path: Path, store: ShardedStore) -> None:
    file = tmp_path / "gallery" / FILE
    said = json.loads(file.read_text())
    file.write_text(json.dumps(said | {"shards": said["shards"][:2]}))
    with pytest.raises(GalleryError, match="names 2 shards, and the gallery was created with 3"):
        open_store(store.url)
    file.write_text(json.dumps(said | {"shards": said["shards"][::-1]}))
    with pytest.raises(GalleryError, match="is not shard 0"):
        open_store(store.url).pointer()
    other = filled(sharded(tmp_path / "other"))
    other.close()
    file.write_text(json.dumps(said | {"shards": [*said["shards"][:2], "memory:../other/shard2"]}))
    with pytest.raises(GalleryError, match="is not shard 2"):
        open_store(store.url).pointer()
    (tmp_path / "gallery" / "shard2").rename(tmp_path / "elsewhere")
    file.write_text(json.dumps(said | {"shards": [*said["shards"][:2], f"memory:{tmp_path / 'elsewhere'}"]}))
    assert open_store(store.url).scan(limit=99).ids == sorted(IDS)


def test_a_shard_of_another_time_is_found_out(tmp_path: Path, store: ShardedStore) -> None:
    store.close()
    shard = tmp_path / "gallery" / "shard1"
    shutil.copytree(shard, tmp_path / "before")
    commit(more := open_store(store.url), written(IDS, 2))
    more.close()
    shutil.rmtree(shard)
    with pytest.raises(GalleryError, match=f"Shard 1 of '{tmp_path}/gallery/{FILE}' cannot be opened"):
        open_store(store.url)
    (tmp_path / "before").rename(shard)
    with pytest.raises(StoreError, match="shard1 do not belong together"):
        open_store(store.url).pointer()


def test_creation_that_was_interrupted_can_be_repeated(tmp_path: Path) -> None:
    url = sharded(tmp_path)
    open_store(f"memory:{tmp_path / 'shard0'}", create=True).close()
    filled(url).close()
    with pytest.raises(GalleryError, match="There is a gallery"):
        open_store(url, create=True)
    commit(taken := open_store(f"memory:{sharded(tmp_path / 'other')[8:-11]}shard1", create=True), Changes())
    taken.close()
    with pytest.raises(GalleryError, match="There is a gallery"):
        open_store(f"sharded:{tmp_path / 'other' / FILE}", create=True)


@pytest.mark.parametrize("part", ["top", "shard2"])
def test_nothing_stays_open_of_a_gallery_that_cannot_be_created_or_opened(tmp_path: Path, part: str) -> None:
    url, process = sharded(tmp_path), psutil.Process()

    def left_open() -> list[str]:
        return [file.path for file in process.open_files() if file.path.startswith(f"{tmp_path}/")]

    (tmp_path / part).mkdir()
    (tmp_path / part / "mine").touch()
    with pytest.raises(GalleryError) as refusal:
        open_store(url, create=True)
    assert left_open() == [] and refusal.tb is not None, "while what refers to connections is kept"
    (tmp_path / part / "mine").unlink()
    filled(url).close()
    with closing(sqlite3.connect(tmp_path / part / "gallery.db")) as connection:
        changed = "top SET document" if part == "top" else "meta SET value"
        connection.execute(f"UPDATE {changed} = '[]'")
        connection.commit()
    with pytest.raises(GalleryError) as refusal:
        open_store(url)
    assert left_open() == [] and refusal.tb is not None


# Commits that come to no decision


class FailingAt(Disk):
    """Fails at one step, counted from 0, and not again."""

    def __init__(self) -> None:
        self.left = -1

    def reached(self, point: str) -> None:
        self.left -= 1
        if self.left == -1:
            raise OSError(5, "an error of the test", point)


def everything(read: Items) -> Changes:
    new = ["item 3", "item 4", "new 1", "new 2", "new 3"]
    rows = [Rows(name, new, np.full((5, 4), 7, np.float32)) for name in ("g1", "g2", "g3")]
    return Changes(
        create=[NewGeneration("g3", 4, {})],
        remainders=[("g1", frozenset({"g2"})), ("g2", frozenset({"g3"}))],
        delete=["item 5", "item 6", "item 7", "nobody"],
        upsert=Upsert(new, [{}] * 5, rows),
        fill=Fill(Rows("g2", read.ids, np.full((len(read), 4), 8, np.float32)), read.versions),
    )


@pytest.mark.parametrize("kind", ["memory", pytest.param("lance", marks=pytest.mark.slow)])
def test_a_commit_that_was_begun_is_taken_back_by_the_next_reader_or_writer(tmp_path: Path, kind: str) -> None:
    first, disk, steps, failed = filled(url := sharded(tmp_path, [kind] * 3)), FailingAt(), 0, 0
    commit(first, Changes(create=[NewGeneration("g2", 4, {})], remainders=[("g1", frozenset({"g2"}))]))
    read = first.fetch(IDS[8:20])
    commit(first, Changes(fill=Fill(Rows("g2", read.ids[:4], np.ones((4, 4), np.float32)), read.versions[:4])))
    first.close()
    before = state(other := open_store(url), {"g1": 4, "g2": 4})
    while True:
        store = open_store(url, disk=disk)
        disk.left = steps
        try:
            commit(store, everything(read))
            break
        except StoreError:
            failed += 1
        disk.left = -1
        if steps % 2:
            assert state(other, {"g1": 4, "g2": 4}) == before
        else:
            with other.writing("the next one") as pointer:
                assert pointer.sequence == before["pointer"][0]
            assert state(store, {"g1": 4, "g2": 4}) == before
        store.close()
        steps += 1
    assert failed > 10 and other.pointer().sequence == before["pointer"][0] + 1
    assert other.vectors("g2", IDS[8:20])[1].tolist() == [[1.0] * 4] * 4 + [[8.0] * 4] * 8
    other.close()


def test_a_commit_is_taken_back_also_where_a_generation_is_gone_that_it_found_in_a_shard(
    store: ShardedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that lost its lock drops it late: after another one stored what takes its own commit back."""
    commit(store, Changes(create=[NewGeneration("g2", 4, {})]))
    commit(store, Changes(fill=Fill(Rows("g2", IDS, np.ones((30, 4), np.float32)), store.fetch(IDS).versions)))
    with monkeypatch.context() as patch:
        patch.setattr(store, "_clear", _refused)
        commit(store, Changes(drop=["g2"]))
    before, dropped, other = seen(store), store.top.read(), open_store(store.url)
    assert isinstance(other, ShardedStore)
    monkeypatch.setattr(store, "_refuse_taken_over", lambda stamped: None)  # it was the writer when it looked
    really = other._prepare

    def prepared(*values: Any) -> Stamped:
        stamped = really(*values)
        store._clear(dropped)
        return stamped

    def reached(point: str) -> None:
        if point == "sharded.decide":
            raise StoreError("An error of the test.")

    monkeypatch.setattr(other, "_prepare", prepared)
    monkeypatch.setattr(other, "_reached", reached)
    with pytest.raises(StoreError, match="of the test"):
        commit(other, replace(written(IDS[3:], 2), delete=IDS[:3]))
    assert store.top.read().document["unfinished"] is not None
    assert seen(store) == before and store.top.read().document["unfinished"] is None
    other.close()


def test_a_process_that_may_not_write_searches_beside_a_commit_that_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(url := sharded(tmp_path, ["lance"] * 2)).close()
    disk = FailingAt()
    store = open_store(url, disk=disk)
    reader = open_store(url)
    monkeypatch.setattr(LedgerTop, "move", _refused)
    at = reader.pointer()
    monkeypatch.undo()
    disk.left = 12
    with pytest.raises(StoreError):
        commit(store, written(IDS, 3))
    monkeypatch.setattr(reader, "_recover", _refused)  # as in a folder that is read-only
    assert isinstance(reader, ShardedStore)
    assert LedgerTop.read(reader.top).document["unfinished"] is not None  # type: ignore[arg-type]
    assert reader.pointer().commit == at.commit
    hits = reader.search(np.ones((1, 4), np.float32), 50, generation="g1", at=reader.pointer())
    assert sorted(hits.ids[0]) == sorted(IDS) and {*hits.scores[0].tolist()} == {4.0}
    store.close(), reader.close()


def _refused(*values: object) -> None:
    raise StoreError("read-only")


def test_a_writer_whose_lock_was_taken_prepares_no_further_shard(
    tmp_path: Path, store: ShardedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, other = seen(store), open_store(store.url)
    really = store._prepare

    def prepared(*values: Any) -> Stamped:
        stamped = really(*values)
        (tmp_path / "gallery" / "top" / "writer.lock").unlink()
        with other.writing("another one"):
            pass
        return stamped

    monkeypatch.setattr(store, "_prepare", prepared)
    with pytest.raises(GalleryError, match="Another writer took over"):
        commit(store, written(IDS, 2))
    assert seen(other) == before
    commit(other, written(IDS[:1], 5))
    assert other.vectors("g1", IDS[:2])[1].tolist() == [[5.0] * 4, [1.0] * 4]
    other.close()


def test_a_writer_whose_lock_was_taken_clears_no_further_shard(
    tmp_path: Path, store: ShardedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would drop as unknown may be what the next writer created."""
    other, shard = open_store(store.url), store.shards[1]
    commit(store, Changes(create=[NewGeneration("g2", 4, {})]))
    really = shard.writing

    def writing(who: str) -> AbstractContextManager[Any]:
        if who == "clear":
            monkeypatch.undo()
            (tmp_path / "gallery" / "top" / "writer.lock").unlink()
            commit(other, Changes(create=[NewGeneration("g3", 4, {})]))
        return really(who)

    monkeypatch.setattr(shard, "writing", writing)
    commit(store, Changes(drop=["g2"]))
    read = other.fetch(IDS)
    commit(other, Changes(fill=Fill(Rows("g3", IDS, np.ones((30, 4), np.float32)), read.versions, read)))
    assert other.vectors("g3", IDS)[0] == IDS
    other.close()


class DyingAtThe(Disk):
    """Fails at one named step, the second time that it is reached."""

    def __init__(self, point: str) -> None:
        self.point, self.times = point, 0

    def reached(self, point: str) -> None:
        self.times += point == self.point
        if self.times == 2:
            raise OSError(5, "an error of the test", point)


def test_a_writer_whose_lock_was_taken_forgets_no_commit_that_another_began(
    tmp_path: Path, store: ShardedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first look at the top is what it writes over."""
    before, other, really = seen(store), open_store(store.url, disk=DyingAtThe("sharded.apply")), store.top.read

    def read() -> Stamped:
        found = really()
        monkeypatch.undo()
        (tmp_path / "gallery" / "top" / "writer.lock").unlink()
        with pytest.raises(StoreError, match="of the test"):
            commit(other, written(IDS, 5))
        return found

    with store.writing("the first"):
        monkeypatch.setattr(store.top, "read", read)
        with pytest.raises(GalleryError, match="another writer was faster"):
            store.commit(written(IDS, 2), {}, {"kind": "test"})
    assert seen(store) == before
    other.close()


def test_a_commit_that_was_decided_is_not_read_again(store: ShardedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard or a top that fails just then would make it look as if it were not there."""
    with store.writing("a test"):
        monkeypatch.setattr(store, "pointer", _refused)
        done = store.commit(written(IDS, 2), {"made": [1, "two"]}, {"kind": "test"})
        monkeypatch.undo()
    assert done.pointer == store.pointer()


def test_readers_of_all_rows_wait_for_no_long_commit(store: ShardedStore) -> None:
    """They read between two commits, or ask for their turn; while one is written they wait, and say so in the end."""
    other = open_store(store.url)
    rows = other.scan_rows("g1", batch=4)
    first = next(rows)
    commit(store, written(IDS, 2))
    vectors = [first[2], *(vectors for _, _, vectors in rows)]
    assert np.concatenate(vectors).tolist() == [[1.0] * 4] * 30, "the rows of one commit, the one that was there"
    other.close()


def test_a_step_whose_clearing_fails_is_done_and_cleared_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(sharded(tmp_path / "gallery", ["lance"] * 2))
    pairs = [("g1", frozenset({"g2"})), ("g2", frozenset({"g1"})), ("g1", frozenset({"g3"}))]
    commit(store, Changes(create=[NewGeneration(name, 4, {}) for name in ("g2", "g3")], remainders=pairs[:2]))
    monkeypatch.setattr(ShardedStore, "_clear", _refused)
    commit(store, Changes(remainders=pairs))
    read = store.fetch(IDS)
    for name, others in pairs:
        hits = store.search(np.ones((1, 4), np.float32), 99, generation=name, without=others, at=store.pointer())
        assert len(hits.ids[0]) == (30 if name == "g1" else 0)
    commit(store, Changes(fill=Fill(Rows("g2", IDS[:9], np.ones((9, 4), np.float32)), read.versions[:9])))
    commit(store, Changes(drop=["g2"], remainders=pairs[2:]))
    read = store.fetch(IDS)
    assert set(read.generations) == {frozenset({"g1"})} and store.upkeep("g1").rows == 30
    with pytest.raises(GalleryError, match="no generation 'g2'"):
        store.vectors("g2", IDS)
    done = commit(store, Changes(fill=Fill(Rows("g3", IDS, np.ones((30, 4), np.float32)), read.versions, read)))
    assert done.pointer.held == {frozenset({"g1", "g3"}): 30}
    with pytest.raises(StoreError):
        commit(store, Changes(create=[NewGeneration("g2", 4, {})]))
    monkeypatch.undo()
    commit(store, Changes(create=[NewGeneration("g2", 4, {})]))
    assert store.upkeep("g2").rows == 0 and store.pointer().held == done.pointer.held
    assert {names for shard in store.shards for names in shard.pointer().held} == {frozenset({"g1", "g3"})}
    store.close()


def test_items_keep_their_shard_and_a_row_commit_writes_to_no_other(store: ShardedStore) -> None:
    before = [shard.pointer().sequence for shard in store.shards]
    for number, shard in enumerate(store.shards):
        assert set(shards_of(shard.scan(limit=99).ids, 3).tolist()) == {number}
    commit(store, written(["item 0"], 2))
    moved = [shard.pointer().sequence - was for shard, was in zip(store.shards, before, strict=True)]
    assert moved == [int(shards_of(["item 0"], 3)[0] == number) for number in range(3)]


@pytest.mark.parametrize("deleted", [[], ["item 3"], IDS])
def test_a_fill_reads_its_items_once_also_where_some_were_deleted(
    deleted: list[str], store: ShardedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store, Changes(create=[NewGeneration("g2", 4, {})]))
    fill = Fill(Rows("g2", IDS, np.ones((30, 4), np.float32)), store.fetch(IDS).versions)
    commit(store, Changes(delete=deleted))
    fetch, asked = GalleryLedger.fetch, list[str]()

    def counted(ledger: GalleryLedger, ids: Any) -> Items:
        asked.extend(ids)
        return fetch(ledger, ids)

    monkeypatch.setattr(GalleryLedger, "fetch", counted)
    done = commit(store, Changes(fill=fill))
    assert sorted(asked) == sorted(IDS)
    assert done.filled.tolist() == [one not in deleted for one in IDS]
    assert sorted(store.vectors("g2", IDS)[0]) == sorted(set(IDS).difference(deleted))


def test_a_swap_writes_to_no_shard(tmp_path: Path) -> None:
    rng, space = np.random.default_rng(0), Hypersphere(4)
    vectors = rng.normal(size=(30, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with Gallery.create(sharded(tmp_path, ["lance", "memory"]), fingerprint="declared:old", space=space) as gallery:
        gallery.add(EmbeddingSet(vectors, IDS, "declared:old", space, "document"))
        gallery.start("declared:new", space)
        gallery.backfill(CallableVectors(lambda ids: vectors[[IDS.index(one) for one in ids]], "declared:new", space))
        gallery.link("g2", "g1", force="a test")
        shards = gallery.store.shards  # type: ignore[attr-defined]
        before = [shard.pointer().sequence for shard in shards]
        gallery.swap()
        gallery.rollback()
        gallery.swap()
        assert [shard.pointer().sequence for shard in shards] == before
        found = gallery.search(vectors[:3], 1, fingerprint="declared:new")
        assert [hits[0].id for hits in found.hits] == IDS[:3]
        gallery.finish()
        assert doctor(gallery).healthy


# What somebody altered


WRONG = (None, 3, "", [], {}, [[]], {"0": "sha256:none"}, ["0", "1"], [7, 0.5, 1], [[3, 0.5], {"9": "x"}])


def test_altered_records_are_refused_with_a_sentence(tmp_path: Path, store: ShardedStore) -> None:
    top, shard = (tmp_path / "gallery" / name / "gallery.db" for name in ("top", "shard0"))
    store.close()
    refusals = 0
    for path, table, column in ((top, "top", "document"), (shard, "pointer", "manifest")):
        with closing(sqlite3.connect(path)) as connection:
            [(text,)] = connection.execute(f"SELECT {column} FROM {table}")
            for key in json.loads(text):
                for value in WRONG:
                    altered = json.dumps(json.loads(text) | {key: value})
                    connection.execute(f"UPDATE {table} SET {column} = ?", [altered])
                    connection.commit()
                    refusals += _refused_or_read(store.url)
            connection.execute(f"UPDATE {table} SET {column} = ?", [text])
            connection.commit()
    assert refusals > 60 and _refused_or_read(store.url) == 0


def _refused_or_read(url: str) -> int:
    try:
        with closing(open_store(url)) as opened:
            opened.pointer(), opened.scan(limit=9), opened.vectors("g1", IDS)
            with opened.writing("a test"):
                opened.tidy(older_than=0.0)
    except GalleryError:
        return 1
    return 0


# The top


class LosingReplies(Top):
    """A top of which a test says what becomes of the next moves."""

    def __init__(self, top: LedgerTop) -> None:
        super().__init__(top.url, top.lock)
        self.top, self.next = top, list[str]()
        self.before_reply: Callable[[], object] = lambda: None

    def read(self) -> Stamped:
        return self.top.read()

    def put(self, after: Stamped, beside: Beside) -> bool:
        what = self.next.pop() if self.next else "right"
        if what == "error":
            raise StoreError("An error of the test.")
        done = self.top.put(after, beside)
        if what == "lost":
            self.before_reply()
            raise StoreError("A reply that the test lost.")
        return done

    def journal(self, after: int) -> list[Any]:
        return self.top.journal(after)

    def file(self, digest: str) -> bytes:
        return self.top.file(digest)

    def digests(self) -> set[str]:
        return self.top.digests()

    def exclusive(self, who: str, timeout: float) -> AbstractContextManager[Callable[[], object]]:
        return self.top.exclusive(who, timeout)

    def close(self) -> None:
        self.top.close()


@pytest.fixture
def top(tmp_path: Path) -> Iterator[LosingReplies]:
    made = LosingReplies(sqlite_top(str(tmp_path / "top"), Disk(), {"count": 0}))
    yield made
    made.close()


def test_a_move_whose_reply_is_lost_is_found_also_below_others(top: LosingReplies) -> None:
    over = top.read()
    top.next, top.before_reply = ["lost"], lambda: moved(top, REMEMBERED - 1)
    assert top.move({"count": 1}, over, "mine").tag == 1
    assert top.read().tag == REMEMBERED and top.read().document == {"count": REMEMBERED - 1}


def moved(top: LosingReplies, times: int) -> None:
    for number in range(times):
        top.top.move({"count": number + 1}, top.read(), f"other {number}")


def test_a_move_below_too_many_others_is_of_unknown_fate(top: LosingReplies) -> None:
    top.next, top.before_reply = ["lost"], lambda: moved(top, REMEMBERED)
    with pytest.raises(StoreError, match="It is unknown"):
        top.move({"count": 1}, top.read(), "mine")


def test_a_move_that_failed_is_not_there(top: LosingReplies) -> None:
    top.next = ["error"]
    with pytest.raises(StoreError, match="An error of the test"):
        top.move({"count": 1}, top.read(), "mine")
    assert top.read() == Stamped({"count": 0}, 0)


def test_a_move_over_what_has_moved_is_refused(top: LosingReplies) -> None:
    over = top.read()
    top.move({"count": 1}, over, "first")
    with pytest.raises(GalleryError, match="another writer was faster"):
        top.move({"count": 1}, over, "second")
    assert top.read().commits == ("first",)


# Copies and commands


def test_a_backup_is_restored_with_its_journal_files_order_and_traffic(tmp_path: Path, store: ShardedStore) -> None:
    store.set_queue("g1", ["item 2", "item 1"])
    store.add_traffic({"item 2": 5})
    before = seen(store)
    with Gallery(store) as gallery:
        gallery.backup(tmp_path / "backup")
    url = sharded(tmp_path / "restored")
    restore(tmp_path / "backup", url)
    copy = open_store(url)
    assert seen(copy) == before
    assert (copy.queue("g1"), copy.traffic()) == (["item 2", "item 1"], {"item 2": 5})
    commit(copy, written(IDS, 9))
    copy.close()
    with pytest.raises(GalleryError, match="names 2 shards"):
        restore(tmp_path / "backup", sharded(tmp_path / "two", ["memory"] * 2))
    assert [path.name for path in (tmp_path / "two").iterdir()] == [FILE]
    open_store(f"memory:{tmp_path / 'taken' / 'shard2'}", create=True).close()
    with pytest.raises(GalleryError, match="There is a gallery"):
        restore(tmp_path / "backup", sharded(tmp_path / "taken"))
    assert sorted(path.name for path in (tmp_path / "taken").iterdir()) == ["shard2", FILE]


def test_no_shard_is_copied_before_all_have_begun_to_be_read(
    tmp_path: Path, store: ShardedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, really = threading.Event(), SqliteDatabase.copy_to

    def copy_to(self: SqliteDatabase, path: Path, on_bytes: Callable[[int], None]) -> None:
        def told(count: int) -> None:
            on_bytes(count)
            copied.set()

        if path.parent.name == "shard2":
            assert not copied.wait(0.5)
        really(self, path, told)

    monkeypatch.setattr(SqliteDatabase, "copy_to", copy_to)
    with Gallery(store) as gallery:
        gallery.backup(tmp_path / "backup")
    assert copied.is_set()


def test_a_copy_of_shards_of_two_commits_is_none(
    tmp_path: Path, store: ShardedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer took over after some shards had begun to be read."""
    other, really = open_store(store.url), store.shards[2].backup

    def backup(into: DigestedFolder) -> Pointer:
        (tmp_path / "gallery" / "top" / "writer.lock").unlink()
        commit(other, written(IDS, 2))
        return really(into)

    monkeypatch.setattr(store.shards[2], "backup", backup)
    with Gallery(store) as gallery, pytest.raises(StoreError, match="took over"):
        gallery.backup(tmp_path / "backup")
    other.close()


def test_a_restore_that_was_interrupted_is_repeated(tmp_path: Path, store: ShardedStore) -> None:
    before = seen(store)
    with Gallery(store) as gallery:
        gallery.backup(tmp_path / "backup")
    restore(tmp_path / "backup", url := sharded(tmp_path / "restored"))
    with pytest.raises(GalleryError, match="There is a gallery of"):
        restore(tmp_path / "backup", url)
    shutil.rmtree(tmp_path / "restored" / "top")
    shutil.rmtree(tmp_path / "restored" / "shard2")
    sqlite_top(str(tmp_path / "restored" / "top"), Disk(), TopRecord("", ()).plain()).close()
    with pytest.raises(GalleryError, match="was not restored to its end"):
        open_store(url)
    kept = (tmp_path / "restored" / "shard0" / "gallery.db").stat().st_ino
    restore(tmp_path / "backup", url)
    copy = open_store(url)
    assert seen(copy) == before and (tmp_path / "restored" / "shard0" / "gallery.db").stat().st_ino == kept
    copy.close()


def test_a_restore_does_not_replace_a_gallery_that_appeared_meanwhile(
    tmp_path: Path, store: ShardedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two restores of a backup to one place share its shards; the later one must not take back what came since."""
    with Gallery(store) as gallery:
        gallery.backup(tmp_path / "backup")
    url, restored = sharded(tmp_path / "restored"), copies.restore_store

    def and_others(place: str, *values: Any, **more: Any) -> None:
        restored(place, *values, **more)
        if place.endswith("shard2"):
            patch.undo()
            restore(tmp_path / "backup", url)
            with closing(open_store(url)) as other:
                commit(other, written(IDS, 2))

    with monkeypatch.context() as patch, pytest.raises(GalleryError, match="There is a gallery of"):
        patch.setattr(copies, "restore_store", and_others)
        restore(tmp_path / "backup", url)
    with closing(open_store(url)) as copy:
        assert copy.vectors("g1", IDS)[1].tolist() == [[2.0] * 4] * 30


def test_commands_work_on_a_gallery_of_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    for name in ("old", "new"):
        np.savez(tmp_path / f"{name}.npz", ids=IDS, vectors=rng.normal(size=(30, 8)).astype(np.float32))
    url, old, new = sharded(tmp_path / "gallery"), str(tmp_path / "old.npz"), str(tmp_path / "new.npz")

    def run(*words: str) -> Any:
        assert main([*words, "--json"]) == 0, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    run("gallery", "create", url, "--embeddings", old, "--name", "old")
    run("upgrade", "start", url, "--model", new, "--name", "new")
    run("upgrade", "backfill", url, "--model", new, "--name", "new")
    run("upgrade", "index", url)
    assert run("upgrade", "verify", url)["passed"]
    run("upgrade", "swap", url)
    run("upgrade", "rollback", url)
    run("upgrade", "swap", url)
    assert run("doctor", url)["healthy"]
    run("upgrade", "finish", url)
    run("gallery", "gc", url)
    found = run("gallery", "status", url)
    assert (found["kind"], found["items"]) == ("sharded", 30)
    run("gallery", "export", url, "--out", str(tmp_path / "exported.parquet"))
    run("gallery", "delete", url, "--ids", *IDS[:3])
    assert run("gallery", "status", url)["items"] == 27


@pytest.mark.parametrize("position", range(len(PROMISES)), ids=PROMISES)
def test_a_top_in_postgresql_keeps_the_promises_of_stores(postgres_url: str, position: int) -> None:
    store_contract(lambda folder: sharded(folder / "gallery", top=postgres_url))[position]()


def test_a_commit_whose_reply_is_lost_with_its_connection_is_found(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, put = filled(sharded(tmp_path, top=postgres_url)), LedgerTop.put

    def lost(self: LedgerTop, after: Stamped, beside: Beside) -> bool:
        put(self, after, beside)
        if after.document["unfinished"] is not None:
            return True
        assert isinstance(self.database, PostgresDatabase) and self.database._use is not None
        self.database._use.connection.close()
        raise StoreError("A reply that the test lost.")

    monkeypatch.setattr(LedgerTop, "put", lost)
    done = commit(store, written(IDS, 2))
    assert done.pointer == store.pointer() and store.vectors("g1", IDS)[1].tolist() == [[2.0] * 4] * 30
    store.close()


def test_a_top_in_postgresql_takes_no_extension_of_the_database(tmp_path: Path, postgres_server: Server) -> None:
    name = f"top_{uuid.uuid4().hex}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    open_store(sharded(tmp_path, top=postgres_server.url(name)), create=True).close()
    with psycopg.connect(postgres_server.url(name)) as connection:
        assert not connection.execute("SELECT FROM pg_extension WHERE extname = 'vector'").fetchall()
    postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")
