"""What only galleries in a bucket have: two places that belong together, a bad network, and writers taken for dead."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from crash.object_server import BUCKET, Network, ObjectServer
from crash.server import Server
from limpet.cli import main
from limpet.engines.lance import store as lance_store
from limpet.engines.lance.store import LanceTableStore
from limpet.engines.s3 import bucket as s3_bucket
from limpet.engines.s3.bucket import Bucket
from limpet.engines.s3.store import S3Store
from limpet.engines.store import Changes, NewGeneration, Rows, Store, Upsert
from limpet.engines.stores import open_store
from limpet.errors import ConfigError, GalleryError, StoreError
from limpet.galleries import Gallery
from limpet.galleries.backup import restore
from limpet.galleries.doctor import doctor
from limpet.support.disk import Disk
from limpet.testing.stores import commit, state, store_contract

IDS = [f"item {number:02}" for number in range(30)]
QUERY = np.ones((1, 4), np.float32)


def written(ids: list[str], value: float) -> Changes:
    return Changes(upsert=Upsert(ids, [{}] * len(ids), [Rows("g1", ids, np.full((len(ids), 4), value, np.float32))]))


def opened(url: str, disk: Disk | None = None, *, create: bool = False) -> S3Store:
    store = open_store(url, create=create, disk=disk)
    assert isinstance(store, S3Store)
    return store


@pytest.fixture
def store(s3_url: str) -> Iterator[S3Store]:
    made = opened(s3_url, create=True)
    commit(made, Changes(create=[NewGeneration("g1", 4, {})]))
    commit(made, written(IDS, 1))
    yield made
    made.close()


def rows_of(store: Store) -> dict[str, float]:
    ids, vectors = store.vectors("g1", IDS)
    assert sorted(one for part, _, _ in store.scan_rows("g1") for one in part) == sorted(ids)
    return dict(zip(ids, vectors[:, 0].tolist(), strict=True))


ONE = dict.fromkeys(IDS, 1.0)


class FailingAt(Disk):
    """Fails at one named step."""

    def __init__(self, point: str) -> None:
        self.point = point

    def reached(self, point: str) -> None:
        if point == self.point:
            raise OSError(5, "an error of the test")


# Two places


def test_reads_of_the_ledger_share_one_connection(store: S3Store) -> None:
    """A new connection costs the server a process, and the reader several round trips."""
    served = {store.database.execute("SELECT pg_backend_pid()")[0][0] for _ in range(3)}
    assert len(served) == 1


@pytest.mark.parametrize(
    "url", ["s3://bucket/a", "s3://bucket/a?ledger=sqlite:x", "s3://bucket/a?top=postgresql://h/d"]
)
def test_a_url_without_a_ledger_is_refused(object_server: ObjectServer, url: str) -> None:
    for create in (True, False):
        with pytest.raises(ConfigError, match="names no database"):
            open_store(url, create=create)


def test_a_lance_folder_in_a_bucket_is_refused_with_the_url_to_write() -> None:
    with pytest.raises(ConfigError, match=r"s3://BUCKET/PREFIX\?ledger="):
        open_store("lance:s3://bucket/a", create=True)


def test_bucket_and_ledger_belong_together(store: S3Store, s3_url: str, postgres_server: Server) -> None:
    prefix, _, ledger = s3_url.partition("?ledger=")
    assert store.url == s3_url
    other = f"{postgres_server.url()}&schema=t{uuid.uuid4().hex}"
    with pytest.raises(GalleryError, match="There is a gallery at"):
        opened(s3_url, create=True)
    with pytest.raises(GalleryError, match="there is a gallery of"):
        opened(f"{prefix}?ledger={other}", create=True)
    with pytest.raises(GalleryError, match="There is no gallery"):
        opened(f"{prefix}?ledger={other}")
    opened(f"{prefix}-2?ledger={other}", create=True).close()
    for mixed in (f"{prefix}-2?ledger={ledger}", f"{prefix}?ledger={other}", f"{prefix}-3?ledger={ledger}"):
        with pytest.raises(GalleryError, match="does not hold the vectors"):
            opened(mixed)
    Bucket(f"{prefix}-4").write("a", [b"somebody's"])
    with pytest.raises(GalleryError, match="holds something else"):
        opened(f"{prefix}-4?ledger={postgres_server.url()}&schema=t{uuid.uuid4().hex}", create=True)
    assert rows_of(store) == ONE


def test_creation_that_was_interrupted_is_repeated(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*words: Any) -> None:
        raise StoreError("An error of the test.")

    with monkeypatch.context() as patch:
        patch.setattr("limpet.engines.s3.store.create_schema", fails)
        with pytest.raises(StoreError, match="of the test"):
            opened(s3_url, create=True)
    with pytest.raises(GalleryError, match="There is no gallery"):
        opened(s3_url)
    opened(s3_url, create=True).close()


def test_a_backup_is_restored_below_another_prefix(
    store: S3Store, postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_bucket, "_COPIED", 0)  # as if every object were too large for one request
    commit(store, Changes(create=[NewGeneration("g2", 4, {})], remainders=[("g1", frozenset({"g2"}))]))
    commit(store, written(IDS[:3], 2))
    store.add_traffic({IDS[0]: 3})
    before = state(store, {"g1": 4})
    with Gallery(store) as gallery:
        gallery.backup(tmp_path / "backup")
    url = f"s3://{BUCKET}/{uuid.uuid4().hex}?ledger={postgres_server.url()}&schema=t{uuid.uuid4().hex}"
    with monkeypatch.context() as patch:
        patch.setattr("limpet.engines.s3.store.copy_ledger_in", lambda *words: None)
        with pytest.raises(GalleryError):
            restore(tmp_path / "backup", url)
    restore(tmp_path / "backup", url)
    with closing(opened(url)) as copy:
        assert state(copy, {"g1": 4}) == before and copy.traffic() == {IDS[0]: 3}
        found = copy.search(QUERY, 50, generation="g1", without=frozenset({"g2"}), at=copy.pointer())
        assert len(found.ids[0]) == 30
        commit(copy, written(IDS[:1], 5))
        assert copy.damage() == []
    with pytest.raises(GalleryError, match="There is a gallery"):
        restore(tmp_path / "backup", url)


def test_a_restore_that_fails_leaves_a_schema_as_it_was_and_no_objects(
    store: S3Store, postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema is somebody else's, who let this role create tables there."""
    with Gallery(store) as gallery:
        gallery.backup(tmp_path / "backup")
    schema = f"t{uuid.uuid4().hex}"
    role = f"role_{schema}"
    postgres_server.execute(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA {schema}; GRANT ALL ON SCHEMA {schema} TO {role}")
    ledger = postgres_server.url().replace("postgres@", f"{role}@")
    url = f"s3://{BUCKET}/{schema}?ledger={ledger}&schema={schema}"
    with monkeypatch.context() as patch, pytest.raises(GalleryError):
        patch.setattr("limpet.engines.s3.store.copy_ledger_in", lambda *words: None)
        restore(tmp_path / "backup", url)
    assert Bucket(url.partition("?")[0]).sizes("") == {}
    with psycopg.connect(postgres_server.url()) as connection:
        there = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
        assert connection.execute(there, [schema]).fetchall() == []
    restore(tmp_path / "backup", url)
    with closing(opened(url)) as copy:
        assert rows_of(copy) == ONE
        copy._remove()
    postgres_server.execute(f"DROP SCHEMA {schema}; DROP ROLE {role}")


# The network


@pytest.mark.slow
def test_a_random_history_over_a_bad_network_is_what_an_obvious_store_has(
    s3_url: str, object_server: ObjectServer
) -> None:
    [check] = [one for one in store_contract(lambda folder: s3_url) if "random history" in str(one) and "0" in str(one)]
    object_server.network(Network(errors=0.03, lost=0.03, failed=0.03, slow=0.002))
    try:
        check()
    finally:
        object_server.network()


def test_a_commit_without_a_network_fails_and_leaves_everything(
    store: S3Store, s3_url: str, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(s3_bucket, "_RETRIES", {"max_retries": 0})
    with pytest.raises(StoreError, match="fails"):
        opened(s3_url)
    monkeypatch.undo()
    store._bucket.remove([name for name in store._bucket.sizes("") if "/data/" in name])
    with pytest.raises(StoreError, match="cannot be read"), closing(store_again(s3_url, object_server)) as again:
        rows_of(again)


def store_again(url: str, server: ObjectServer) -> S3Store:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        return opened(url)


# Writers that were taken for dead


def test_nothing_is_written_under_a_name_that_an_interrupted_writer_used(store: S3Store, s3_url: str) -> None:
    prefix = Bucket(s3_url.partition("?")[0])
    with closing(opened(s3_url, FailingAt("lance.read_back"))) as failing, pytest.raises(StoreError):
        commit(failing, written(IDS, 7))
    left = set(prefix.sizes(""))
    commit(store, written(IDS[:1], 2))
    assert rows_of(store) == ONE | {IDS[0]: 2.0}
    place = next(iter(store._current()[1]))
    assert f"{place.table}.lance/_versions/{2**64 - 1 - place.version}.manifest" not in left
    assert left <= set(prefix.sizes("")), "another writer may still be about to remove what it listed"
    store.tidy(older_than=0.0)
    with closing(opened(s3_url)) as again:
        assert rows_of(again) == rows_of(store) == ONE | {IDS[0]: 2.0} and again.damage() == []


def lose_locks(server: Server) -> None:
    """End the sessions of the writers that there are."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
        )


@pytest.mark.parametrize("point", ["lance.append", "lance.sync", "database.commit"])
def test_a_writer_whose_lock_was_lost_commits_nothing(
    store: S3Store, s3_url: str, postgres_server: Server, point: str
) -> None:
    class Overtaken(Disk):
        done = False

        def reached(self, reached: str) -> None:
            if reached == point and not self.done:
                self.done = True
                lose_locks(postgres_server)
                commit(store, written(IDS[:2], 2))

    with closing(opened(s3_url, Overtaken())) as old, pytest.raises(StoreError):
        commit(old, written(IDS, 7))
    expected = ONE | dict.fromkeys(IDS[:2], 2.0)
    assert rows_of(store) == expected
    commit(store, written(IDS[:1], 3))
    assert rows_of(store) == expected | {IDS[0]: 3.0} and store.damage() == []


def test_a_writer_whose_lock_was_lost_removes_nothing_that_counts(
    store: S3Store, s3_url: str, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listed what to remove, and stood still; what another one has written since stays."""
    for value in range(2, 6):
        commit(store, written(IDS[:3], value))

    class Overtaken(Disk):
        def reached(self, reached: str) -> None:
            if reached == "lance.prune":
                lose_locks(postgres_server)
                commit(store, written(IDS[3:6], 9))
                commit(store, Changes(create=[NewGeneration("g2", 4, {})], remainders=[("g1", frozenset({"g2"}))]))

    monkeypatch.setattr(lance_store, "TRIMMED_EVERY", 1000)
    with closing(opened(s3_url, Overtaken())) as old:
        with pytest.raises(StoreError), old.writing("tidying"):
            old.tidy(older_than=0.0)
        with pytest.raises(StoreError), old.writing("the old one"):
            lose_locks(postgres_server)
            old._tables.clear([])
    with closing(opened(s3_url)) as again:
        assert rows_of(again) == ONE | dict.fromkeys(IDS[:3], 5.0) | dict.fromkeys(IDS[3:6], 9.0)
        assert again.damage() == []


def test_commits_that_a_server_lost_are_not_taken_for_those_that_came_instead(store: S3Store, s3_url: str) -> None:
    """A standby that took over lacks the last commit; its number comes again."""
    pointer = store.pointer()
    before = [store.database.execute(f"SELECT * FROM {table}") for table in ("pointer", "items")]
    commit(store, written(IDS, 2))
    with closing(opened(s3_url)) as reader:
        lost = reader.pointer()
        assert rows_of(reader) == dict.fromkeys(IDS, 2.0)
        with store.database.transaction():
            for table, rows in zip(("pointer", "items"), before, strict=True):
                store.database.execute(f"DELETE FROM {table}")
                marks = ", ".join("?" * len(rows[0]))
                store.database.execute_many(f"INSERT INTO {table} VALUES ({marks})", rows)
            for table in ("journal", "places"):
                store.database.execute(f"DELETE FROM {table} WHERE sequence > ?", [pointer.sequence])
        with closing(opened(s3_url)) as new:
            commit(new, written(IDS[:1], 3))
            assert rows_of(reader) == rows_of(new) == ONE | {IDS[0]: 3.0}
        reader._history._known.clear()
        with pytest.raises(GalleryError, match="not there any more"):
            reader.search(QUERY, 1, generation="g1", at=lost)


# Readers


def test_what_is_being_read_is_not_removed(store: S3Store, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(opened(s3_url)) as other:
        reading = other.scan_rows("g1", batch=7)
        values = [value for _, _, part in [next(reading)] for value in part[:, 0].tolist()]
        at = other.pointer()
        searched = LanceTableStore.search

        def slowly(self: LanceTableStore, *words: Any, **more: Any) -> Any:
            commit(store, written(IDS, 2))
            store.tidy(older_than=0.0)
            return searched(self, *words, **more)

        with monkeypatch.context() as patch:
            patch.setattr(LanceTableStore, "search", slowly)
            assert other.search(QUERY, 50, generation="g1", at=at).scores[0].tolist() == [4.0] * 30
        values += [value for _, _, part in reading for value in part[:, 0].tolist()]
        assert values == [1.0] * 30
        store.tidy(older_than=0.0)
        assert store._history.named().keys() == {store.pointer().sequence}
        with pytest.raises(GalleryError, match="not there any more"):
            other.search(QUERY, 1, generation="g1", at=at)
        assert rows_of(other) == dict.fromkeys(IDS, 2.0) and store.waiting() < 50_000


def test_the_lease_of_a_reader_ends_with_its_connection(store: S3Store, postgres_server: Server) -> None:
    held = threading.Event()

    def killed() -> None:
        with store._leases.held(1):
            held.set()
            while 1 in store._leases.sequences():
                pass

    thread = threading.Thread(target=killed)
    thread.start()
    held.wait()
    assert store._leases.sequences() == {1}
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE objsubid = 2 AND granted")
    thread.join()
    assert store._leases.sequences() == set()


def test_reading_by_a_standby_is_refused(store: S3Store, s3_url: str, postgres_server: Server) -> None:
    """Its locks are not known to the primary, where `gc` runs."""
    standby = Server(original=postgres_server)
    try:
        with closing(opened(s3_url.replace(str(postgres_server.sockets), str(standby.sockets)))) as reader:
            at = reader.pointer()
            for read in (
                lambda: reader.search(QUERY, 1, generation="g1", at=at),
                lambda: reader.vectors("g1", IDS),
                lambda: next(reader.scan_rows("g1")),
            ):
                with pytest.raises(GalleryError, match="is a standby") as refusal:
                    read()
                assert "primary" in refusal.value.to_do
    finally:
        standby.stop()


def test_a_gallery_in_a_bucket_is_upgraded_examined_and_backed_up(
    s3_url: str, unit: Callable[[int, int], np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from limpet.embeddings import EmbeddingSet
    from limpet.geometry import Hypersphere
    from limpet.upgrade.vector_sources import CallableVectors

    space, vectors = Hypersphere(8), unit(30, 8)
    source = CallableVectors(lambda ids: vectors[[IDS.index(one) for one in ids]], "declared:new", space)
    with Gallery.create(s3_url, fingerprint="declared:old", space=space) as gallery:
        gallery.add(EmbeddingSet(vectors, IDS, "declared:old", space, "document"))
        gallery.start("declared:new", space)
        gallery.backfill(source)
        gallery.link("g2", "g1", force="a test")
        gallery.swap()
        found = gallery.search(vectors[:3], 1, fingerprint="declared:new")
        assert [hits[0].id for hits in found.hits] == IDS[:3]
        gallery.finish()
        assert doctor(gallery).healthy
    assert main(["gallery", "backup", s3_url, str(tmp_path / "backup")]) == 0
    assert "gallery restore 's3://…?ledger=postgresql://…'" in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def unit() -> Callable[[int, int], np.ndarray]:
    def drawn(rows: int, width: int) -> np.ndarray:
        made = np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)
        return made / np.linalg.norm(made, axis=1, keepdims=True)  # type: ignore[no-any-return]

    return drawn
