"""What only the store in PostgreSQL has: urls, schemas, snapshots, plans of the database, and a server that can die."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
import psycopg
import pytest
from psycopg.pq import TransactionStatus

from crash.server import Pooler, Server
from documented import run_example
from limpet.engines.filters import Condition
from limpet.engines.postgres import search as pgvector_search
from limpet.engines.postgres import sharing as postgres_sharing
from limpet.engines.postgres.address import read_address
from limpet.engines.postgres.graphs import form_of, table_of
from limpet.engines.postgres.search import Selection
from limpet.engines.postgres.store import PgvectorStore
from limpet.engines.store import Changes, Fill, Hits, NewGeneration, Rows, Upsert
from limpet.engines.stores import open_store
from limpet.errors import ConfigError, GalleryError, LockedError, StoreError
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from limpet.support.disk import Disk

WIDTH = 8
COLUMNS = {"price": "integer"}


@pytest.fixture
def opened() -> Iterator[Callable[..., PgvectorStore]]:
    """Open or create stores that are closed after the test."""
    stores: list[PgvectorStore] = []

    def build(url: str, **options: Any) -> PgvectorStore:
        store = open_store(url, **options)
        assert isinstance(store, PgvectorStore)
        stores.append(store)
        return store

    yield build
    for store in stores:
        store.close()


@pytest.fixture
def store(postgres_url: str, opened: Callable[..., PgvectorStore]) -> PgvectorStore:
    """40 items with vectors of g1, the first 10 of them with vectors of g2, too."""
    return filled(opened(postgres_url, create=True))


def filled(store: PgvectorStore, items: int = 40) -> PgvectorStore:
    ids = [f"i{number:03d}" for number in range(items)]
    metadata = [{"price": number} for number in range(items)]
    generations = [NewGeneration(name, WIDTH, COLUMNS) for name in ("g1", "g2")]
    rows = [Rows("g1", ids, some_vectors(items)), Rows("g2", ids[:10], some_vectors(10))]
    write(store, Changes(create=generations, upsert=Upsert(ids, metadata, rows)))
    return store


def some_vectors(rows: int, width: int = WIDTH, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)


def write(store: PgvectorStore, changes: Changes) -> None:
    with store.writing("a test"):
        store.commit(changes, {}, {"kind": "test"})


def search(store: PgvectorStore, k: int = 5, generation: str = "g1", **options: Any) -> Hits:
    options.setdefault("at", store.pointer())
    return store.search(some_vectors(3, seed=1), k, generation=generation, **options)


def expected(items: Any, k: int = 5) -> list[list[str]]:
    """Ids of the nearest among some of the 40 items, by a plain product."""
    items = np.array(list(items))
    scores = some_vectors(3, seed=1) @ some_vectors(40)[items].T
    return [[f"i{items[place]:03d}" for place in np.argsort(-row)[:k]] for row in scores]


# Urls


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@db:5433/shop?schema=photos", "postgresql://ann@db:5433/shop?schema=photos"),
        ("postgres://ann@db/shop?sslmode=require", "postgresql://ann@db/shop?sslmode=require"),
        ("postgresql://db/shop?password=s3cret&schema=limpet", "postgresql://db/shop"),
        ("postgresql://ann:[s3cret?#:@db/shop", "postgresql://ann@db/shop"),
        ("postgresql+psycopg://ann:s3cret@db/shop", "postgresql://ann@db/shop"),
        ("postgres+asyncpg://ann:s3cret@db/shop?schema=a", "postgresql://ann@db/shop?schema=a"),
        ("postgresql://ann@db/shop?scram_client_key=s3cret", "postgresql://ann@db/shop"),
        ("postgresql://a%40b@db/my%2Fshop", "postgresql://a%40b@db/my%2Fshop"),
        ("postgresql://ann@/shop?host=/run/pg&port=5433", "postgresql://ann@/shop?host=/run/pg&port=5433"),
        ("postgresql://ann@one:1,two:2/shop", "postgresql://ann@/shop?host=one,two&port=1,2"),
    ],
)
def test_a_url_is_shown_without_its_password_and_leads_to_the_same_place(url: str, shown: str) -> None:
    address = read_address(url)
    again = read_address(address.url)
    without = {name: value for name, value in address.parameters.items() if value != "s3cret" and name != "password"}
    assert (address.url, again.parameters, again.schema) == (shown, without, address.schema)
    assert "s3cret" not in repr(address)


@pytest.mark.parametrize(
    "place", ["s3/cret@db:5/shop", "12/cret@db/shop", "s3@cret@db/shop", "s3%cret@db/shop", "s3cret/shop",
              "@db/shop&password=s3cret", "@db?shop?password=s3cret", "@password=s3cret", "\udcffs3cret@db/shop",
              "@a..s3cret/x"],
)  # fmt: skip
def test_a_url_that_cannot_be_read_is_refused_without_being_repeated(place: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as refusal:
        read_address(f"postgresql://ann:{place}")
    shown = "".join(traceback.format_exception(refusal.value)).replace(f'"postgresql://ann:{place}"', "")
    assert "cret" not in shown.rpartition("limpet.errors.ConfigError")[2] and "ProgrammingError" not in shown


@pytest.mark.parametrize("parameters", ["schema=Photos", "schema=a;b", "schema=a&schema=b", "schema=", "nonsense=1"])
def test_other_parameters_than_libpq_s_and_a_plain_schema_are_refused(parameters: str) -> None:
    with pytest.raises(ConfigError):
        read_address(f"postgresql://db/shop?{parameters}")


def test_a_password_is_in_no_message(postgres_url: str, opened: Callable[..., PgvectorStore]) -> None:
    store = opened(f"{postgres_url}&password=s3cret", create=True)
    assert "s3cret" not in store.url and opened(store.url).pointer() == store.pointer()
    with pytest.raises(StoreError) as refusal:
        open_store("postgresql://ann:s3cret@localhost:1/shop?connect_timeout=2")
    assert "a PostgreSQL server that answers" in str(refusal.value) and "postgresql://ann@localhost:1/shop" in str(
        refusal.value
    )
    error: BaseException | None = refusal.value
    while error is not None:
        assert "s3cret" not in str(error)
        error = error.__cause__


# Schemas


def test_a_database_holds_a_gallery_per_schema(store: PgvectorStore, opened: Callable[..., PgvectorStore]) -> None:
    other = opened(f"{store.url}b", create=True)
    assert (store.pointer().items, other.pointer().items) == (40, 0)
    with other.writing("one"), store.writing("another"):
        pass
    with pytest.raises(GalleryError, match="There is a gallery at"):
        open_store(store.url, create=True)
    with pytest.raises(GalleryError, match="There is no gallery at"):
        open_store(f"{store.url}c")


def test_a_schema_that_holds_something_else_is_left_alone(postgres_url: str) -> None:
    address = read_address(postgres_url)
    with psycopg.connect(**address.parameters, autocommit=True) as connection:  # type: ignore[arg-type]
        connection.execute(f"CREATE SCHEMA {address.schema}".encode())
        connection.execute(f"CREATE TABLE {address.schema}.items (id text)".encode())
        with pytest.raises(GalleryError, match="holds something else: items"):
            open_store(postgres_url, create=True)
        with pytest.raises(GalleryError, match="There is no gallery"):
            open_store(postgres_url)
        connection.execute(f"DROP TABLE {address.schema}.items".encode())
    open_store(postgres_url, create=True).close()


def test_of_many_that_create_a_gallery_one_does(postgres_url: str) -> None:
    outcomes: list[Any] = []

    def create() -> None:
        try:
            outcomes.append(open_store(postgres_url, create=True))
        except GalleryError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    created = [one for one in outcomes if isinstance(one, PgvectorStore)]
    assert [one.pointer().sequence for one in created] == [0]
    assert all("There is a gallery" in str(one) for one in outcomes if one not in created)
    created[0].close()


def test_what_a_role_may_not_do_is_said(store: PgvectorStore, postgres_url: str) -> None:
    role = f"role_{read_address(postgres_url).schema}"
    store.database.execute(f"CREATE ROLE {role} LOGIN")
    with pytest.raises(StoreError, match=r"permission denied[^\n]*\n[^\n]*a role with the rights") as refusal:
        open_store(f"{store.url}d".replace("postgres@", f"{role}@"), create=True)
    assert "intact" in str(refusal.value)


# Searches


@pytest.mark.parametrize(
    ("few", "nearest"), [(0, 50), (0, 1), (2000, 50)], ids=["of the nearest", "joined", "looked up"]
)
@pytest.mark.parametrize("indexed", [False, True], ids=["compared", "indexed"])
def test_every_way_of_choosing_rows_finds_the_same(
    store: PgvectorStore, monkeypatch: pytest.MonkeyPatch, few: int, nearest: int, indexed: bool
) -> None:
    monkeypatch.setattr(pgvector_search, "_FEW_ITEMS", few)
    monkeypatch.setattr(pgvector_search, "_NEAREST", nearest)
    if indexed:
        store.build_index("g1")
    cheap, dear = Condition("price", "<", 30), Condition("price", ">=", 37)
    g2 = frozenset({"g2"})
    assert search(store, exact=not indexed).ids == expected(range(40))
    assert search(store, exact=not indexed, where=cheap).ids == expected(range(30))
    assert search(store, exact=not indexed, without=g2).ids == expected(range(10, 40))
    assert search(store, exact=not indexed, without=g2, where=cheap).ids == expected(range(10, 30))
    found = search(store, exact=not indexed, where=dear)
    assert found.ids == expected(range(37, 40)) and found.metadata[0][0]["price"] == int(found.ids[0][0][1:])


def test_the_index_is_followed_if_and_only_if_a_search_may_be_approximate(
    postgres_url: str, opened: Callable[..., PgvectorStore]
) -> None:
    chosen = (Selection(), Selection("items.mask & %(mask)s = 0", {"mask": 2}))
    store = filled(opened(postgres_url, create=True))
    store.build_index("g1")
    for selection in chosen:  # however few rows there are
        assert "rows_g1_hnsw" in explained(store, "g1", selection, indexed=True)
    ids, rows = [f"n{number}" for number in range(1000)], some_vectors(1000, 256)
    write(store, Changes(create=[NewGeneration("g3", 256, COLUMNS)],
                         upsert=Upsert(ids, [{}] * 1000, [Rows("g3", ids, rows)])))  # fmt: skip
    store.build_index("g3")
    store.tidy()
    assert store.upkeep("g3").indexed == 1000 and store.upkeep("g2").indexed == 0
    for selection in chosen:  # however tempting the index is, and a look-up for each of unknown many rows
        plan = explained(store, "g3", selection, indexed=False)
        assert "hnsw" not in plan and "Nested Loop" not in plan, plan


def explained(store: PgvectorStore, generation: str, selection: Selection, *, indexed: bool) -> str:
    """Return the plan of the database for a search."""
    width = store.ledger.generations()[generation][0]
    form = form_of(width, directions=True)
    statement = b"EXPLAIN " + selection.statement(table_of(generation), 5, form if indexed else None)
    values = {**selection.values, "ids": None, "query": some_vectors(1, width)[0]}
    with store.database.streaming() as connection:
        connection.execute(pgvector_search.SETTINGS, selection.settings(5, form if indexed else None))
        return "\n".join(line for (line,) in connection.execute(statement, values))


@pytest.mark.parametrize("option", ["", "&options=-chnsw.max_scan_tuples%3D1"], ids=["further", "exactly"])
def test_an_approximate_search_goes_on_until_enough_rows_meet_a_condition(
    store: PgvectorStore, opened: Callable[..., PgvectorStore], monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """1 in 50 of 2,000 rows: the nearest 100 hold two of them; it goes on along the index, then compares all."""
    store = opened(store.url + option)
    monkeypatch.setattr(pgvector_search, "_FEW_ITEMS", 0)
    ids, rows = [f"n{number:04d}" for number in range(2000)], some_vectors(2000, seed=3)
    metadata = [{"price": number % 50} for number in range(2000)]
    write(store, Changes(upsert=Upsert(ids, metadata, [Rows("g2", ids, rows)])))
    store.build_index("g2")
    found = search(store, 20, "g2", where=Condition("price", "=", 49), exact=False)
    exact = search(store, 20, "g2", where=Condition("price", "=", 49))
    assert [len(one) for one in found.ids] == [20, 20, 20]
    assert np.mean([len({*one} & {*other}) / 20 for one, other in zip(found.ids, exact.ids, strict=True)]) > 0.9


def test_long_vectors_whose_lengths_count_are_kept_and_not_indexed(
    postgres_url: str, opened: Callable[..., PgvectorStore]
) -> None:
    store, vectors = opened(postgres_url, create=True), some_vectors(2, 2500)
    rows = [Rows("wide", ["a", "b"], vectors)]
    write(store, Changes(create=[NewGeneration("wide", 2500, {})], upsert=Upsert(["a", "b"], [{}, {}], rows)))
    hits = store.search(vectors, 1, generation="wide", at=store.pointer())
    assert hits.ids == [["a"], ["b"]] and (store.vectors("wide", ["b"])[1] == vectors[1:]).all()
    with pytest.raises(GalleryError, match=r"2,500 numbers, of which the length counts"):
        store.build_index("wide")
    with pytest.raises(GalleryError, match="16,001 numbers"):
        write(store, Changes(create=[NewGeneration("wider", 16_001, {})]))
    with pytest.raises(GalleryError, match="too long"):
        write(store, Changes(create=[NewGeneration("g" * 60, 2, {})]))


# Snapshots


def test_searches_at_a_pointer_see_one_commit_while_others_write(
    store: PgvectorStore, opened: Callable[..., PgvectorStore]
) -> None:
    """Between the two searches of a mixed gallery, an item moves from one part of the answer to the other."""
    writer, pointer = opened(store.url), store.pointer()
    assert search(store, generation="g2", at=pointer).ids == expected(range(10))
    moved = [f"i{number:03d}" for number in range(10, 40)]
    write(writer, Changes(fill=Fill(Rows("g2", moved, some_vectors(40)[10:]), store.fetch(moved).versions)))
    assert search(store, generation="g1", without=frozenset({"g2"}), at=pointer).ids == expected(range(10, 40))
    assert search(store, generation="g2", at=pointer).ids == expected(range(10))
    assert search(store, generation="g2", at=store.pointer()).ids == expected(range(40))
    assert search(store, generation="g1", without=frozenset({"g2"}), at=store.pointer()).ids == [[], [], []]


def test_a_dropped_generation_is_searched_at_older_pointers_until_its_table_goes(store: PgvectorStore) -> None:
    pointer = store.pointer()
    write(store, Changes(drop=["g2"]))
    assert search(store, generation="g2", at=pointer).ids == expected(range(10))
    with pytest.raises(GalleryError, match="no generation 'g2'"):
        search(store, generation="g2")
    assert store.tidy().freed > 0
    assert "rows_g2" not in store._tables() and "rows_g1" in store._tables()
    write(store, Changes(create=[NewGeneration("g2", 3, COLUMNS)]))
    assert store.upkeep("g2").rows == 0


def test_a_pointer_that_is_not_there_yet_is_refused(store: PgvectorStore, opened: Callable[..., PgvectorStore]) -> None:
    writer = opened(store.url)
    write(writer, Changes(delete=["i000"]))
    later = writer.pointer()
    write(writer, Changes(delete=["i001"]))
    assert search(store, at=later).ids == expected(range(2, 40))  # no snapshot of it: what is there now
    with pytest.raises(GalleryError, match="Commit 9"):
        search(store, at=type(later)(9, {}))


def test_no_transaction_stays_open_for_long(store: PgvectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_sharing, "KEPT_SECONDS", 0.1)
    pointer = store.pointer()
    search(store, at=pointer)
    assert len(idle_in_transaction(store)) == 1
    until = time.monotonic() + 120
    while idle_in_transaction(store) and time.monotonic() < until:
        time.sleep(0.02)
    assert not idle_in_transaction(store)
    assert search(store, at=pointer).ids == expected(range(40))


def idle_in_transaction(store: PgvectorStore) -> list[Any]:
    return store.database.execute(
        "SELECT pid FROM pg_stat_activity JOIN pg_locks USING (pid) "
        "WHERE state = 'idle in transaction' AND relation = to_regclass('pointer')"
    )


def test_a_stream_of_rows_sees_one_moment_and_lets_its_thread_write(store: PgvectorStore) -> None:
    stream = store.scan_rows("g1", batch=16)
    first = next(stream)
    write(store, Changes(delete=["i020", "i039"]))
    rest = [identifier for ids, _, _ in stream for identifier in ids]
    assert len({*first[0], *rest}) == 40 and store.upkeep("g1").rows == 38


# Writing


class Meddler(Disk):
    """Does something at one step."""

    def __init__(self, point: str, action: Callable[[], Any]) -> None:
        self.point, self.action = point, action

    def reached(self, point: str) -> None:
        if point == self.point:
            self.action()


@pytest.mark.parametrize(
    "spoil",
    ["UPDATE rows_g1 SET vector = vector + '[1e-6,0,0,0,0,0,0,0]'::vector WHERE id = 'x'", "DELETE FROM rows_g1",
     "UPDATE rows_g1 SET version = 7 WHERE id = 'x'"],
)  # fmt: skip
def test_a_vector_that_is_read_back_differently_is_not_committed(store: PgvectorStore, spoil: str) -> None:
    store.disk = Meddler("pgvector.read_back", lambda: store.database.execute(spoil))
    before = store.pointer()
    with pytest.raises(StoreError, match="read back differently"):
        write(store, Changes(upsert=Upsert(["x"], [{}], [Rows("g1", ["x"], some_vectors(1))])))
    assert store.pointer() == before and store.upkeep("g1").rows == 40


def test_a_transaction_with_a_failed_statement_is_no_commit(store: PgvectorStore) -> None:
    with pytest.raises(StoreError, match="rolled back instead"), store.database.transaction(), suppress(StoreError):
        store.database.execute("SELECT no_such_column FROM items")


def test_the_lock_ends_with_its_connection_and_a_writer_without_it_writes_nothing(
    store: PgvectorStore, opened: Callable[..., PgvectorStore]
) -> None:
    other = opened(store.url)
    with pytest.raises(StoreError), store.writing("the first"):
        expected_words = r"\(the first\), since .* \(served by process \d+"
        with pytest.raises(GalleryError, match=expected_words) as refusal, other.writing("the second", timeout=0):
            pass
        [served] = re.findall(r"served by process (\d+)", str(refusal.value))
        other.database.execute("SELECT pg_terminate_backend(?, 5000)", [int(served)])
        with other.writing("the second", timeout=0):
            other.commit(Changes(delete=["i000"]), {}, {"kind": "test"})
        store.commit(Changes(delete=["i001"]), {}, {"kind": "test"})
    assert store.fetch(["i000", "i001"]).ids == ["i001"] and store.pointer().sequence == 2


def test_commits_wait_for_the_disk_whatever_the_role_says(
    store: PgvectorStore, opened: Callable[..., PgvectorStore]
) -> None:
    hasty = opened(f"{store.url}&options=-csynchronous_commit%3Doff")
    assert hasty.database.execute("SHOW synchronous_commit") == [("on",)]
    assert hasty.durable


# A server that dies


def test_what_was_acknowledged_survives_the_server_and_the_store_goes_on_with_the_next_one(
    mortal_server: Server, opened: Callable[..., PgvectorStore]
) -> None:
    store = filled(opened(mortal_server.url(), create=True))
    search(store)
    with pytest.raises(StoreError, match="start the server"), store.writing("a test"):
        store.commit(Changes(delete=["i000"]), {}, {"kind": "test"})
        store.disk = Meddler("pgvector.record", mortal_server.kill)
        store.commit(Changes(delete=["i001"]), {}, {"kind": "test"})
    with pytest.raises(StoreError, match="a PostgreSQL server that answers"):
        store.pointer()
    mortal_server.start()
    store.disk = Disk()
    assert (store.pointer().sequence, store.pointer().items, len(store.journal())) == (2, 39, 2)
    assert search(store).ids == expected(range(1, 40))
    write(store, Changes(delete=["i001"]))
    assert opened(mortal_server.url()).pointer().items == 38
    mortal_server.kill()
    mortal_server.start()
    assert store.pointer().items == 38  # nobody asked while it was away, nobody notices


def test_a_commit_whose_answer_is_lost_says_that_it_may_be_there(
    mortal_server: Server, opened: Callable[..., PgvectorStore]
) -> None:
    store = filled(opened(mortal_server.url(), create=True))
    store.database.disk = Meddler("database.commit", mortal_server.kill)
    with pytest.raises(StoreError, match="there whole, or not at all"):
        write(store, Changes(delete=["i000"]))
    mortal_server.start()
    assert store.pointer().sequence == 1  # here it was not
    mortal_server.execute("ALTER SYSTEM SET fsync = off")
    assert store.durable
    store.database.execute("SELECT pg_reload_conf()")
    until = time.monotonic() + 120
    while store.durable and time.monotonic() < until:
        time.sleep(0.02)
    assert not store.durable


# Processes that fork


def in_child(work: Callable[[], Any]) -> int:
    """Do something in a forked process; return how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def test_a_forked_child_and_its_parent_search_at_the_same_time(store: PgvectorStore) -> None:
    pointer = store.pointer()
    answers = search(store, at=pointer).ids

    def ask() -> None:
        for _ in range(20):
            assert search(store).ids == answers

    def ask_and_close() -> None:
        assert search(store, at=pointer).ids == answers
        ask()
        store.close()

    asking = threading.Thread(target=lambda: outcomes.extend(in_child(ask_and_close) for _ in range(3)))
    outcomes: list[int] = []
    asking.start()
    ask()
    asking.join()
    assert outcomes == [0, 0, 0]
    ask()


def test_a_child_has_neither_its_parents_lock_nor_its_transaction(
    store: PgvectorStore, opened: Callable[..., PgvectorStore]
) -> None:
    other = opened(store.url)

    def try_to_write() -> None:
        with pytest.raises(GalleryError):
            store.commit(Changes(delete=["i000"]), {}, {"kind": "test"})
        with pytest.raises(GalleryError, match="is writing"), other.writing("a child", timeout=0):
            pass

    with store.writing("a parent"):
        assert in_child(try_to_write) == 0
        store.commit(Changes(delete=["i001"]), {}, {"kind": "test"})
    assert in_child(lambda: write(store, Changes(delete=["i002"]))) == 0
    assert store.pointer().items == 38 and [entry.sequence for entry in store.journal()] == [1, 2, 3]


def test_the_lock_ends_with_the_process_that_held_it_although_its_child_lives(
    store: PgvectorStore, opened: Callable[..., PgvectorStore]
) -> None:
    reading, writing = os.pipe()

    def die_holding_it() -> None:
        writer = opened(store.url)
        with writer.writing("one that dies"):
            if os.fork():
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(writing, f"{os.getpid()}".encode())
            time.sleep(600)

    assert in_child(die_holding_it) == -signal.SIGKILL
    grandchild = psutil.Process(int(os.read(reading, 20)))
    with store.writing("the next", timeout=60):
        assert grandchild.is_running()
    grandchild.kill()
    for end in (reading, writing):
        os.close(end)


def test_one_of_those_that_serve_a_gallery_writes_whatever_url_they_were_given(
    store: PgvectorStore, opened: Callable[..., PgvectorStore]
) -> None:
    other = opened(f"{store.url}&application_name=another")
    assert other.url != store.url
    with store.exclusive("serve", timeout=1.0) as check:
        for _ in range(2):
            assert store.database._use is not None
            status = store.database._use.connection.info.transaction_status
            assert status == TransactionStatus.INTRANS, "a pooler gives the session to others between transactions"
            check()
        with pytest.raises(LockedError, match="is writing"), other.exclusive("serve", timeout=0.1):
            pass
    with other.exclusive("serve", timeout=1.0):
        pass


def test_who_serves_a_gallery_learns_that_its_lock_is_gone(store: PgvectorStore) -> None:
    ended = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
    learnt = False
    with suppress(StoreError), store.exclusive("serve", timeout=1.0) as check:
        with psycopg.connect(**store.database.address.parameters) as connection:
            assert connection.execute(ended).fetchall() == [(True,)]
        try:
            check()
        except StoreError:
            learnt = True
    assert learnt


# A pooler in between


@pytest.fixture(params=[("transaction", 10), ("session", 60)], ids=["transactions", "sessions"])
def pooler(request: pytest.FixtureRequest, postgres_server: Server) -> Iterator[Pooler]:
    """PgBouncer before the server of all tests; one that pools transactions gives each a session used long ago."""
    if Pooler.program is None:
        pytest.skip("PgBouncer is not installed: apt-get install pgbouncer")
    mode, sessions = request.param
    pooler = Pooler(postgres_server, mode, default_pool_size=sessions, server_round_robin=1)
    yield pooler
    pooler.stop()


def replace_some(store: PgvectorStore, items: int) -> None:
    """Write and read through a store that has so many items at first."""
    for number in range(5):
        new = Upsert(["n"], [{}], [Rows("g1", ["n"], some_vectors(1))])
        write(store, Changes(delete=[f"i{number:03d}"], upsert=new))
        assert store.pointer().items == store.upkeep("g1").rows == items - number
        assert len(store.scan(limit=99)) == items - number and store.fetch(["n"]).versions.tolist() == [number + 2]


def test_galleries_that_share_sessions_are_not_mixed(pooler: Pooler, opened: Callable[..., PgvectorStore]) -> None:
    urls = {f"{pooler.url}&schema=t{uuid.uuid4().hex}": items for items in (10, 20, 30)}
    stores = [(filled(opened(url, create=True), items), items) for url, items in urls.items()]
    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(replace_some, *one) for one in stores]:
            done.result()
    for store, _ in stores:
        store._snapshots.close()  # of these threads, which an index would wait for
    for store, items in stores:
        store.build_index("g1")
        assert store.upkeep("g1").indexed == items - 4
        assert search(store, exact=False).ids == search(store).ids and store.tidy().freed >= 0
        store.close()
    with psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None) as connection:
        for _ in range(12):
            [(path, lock)] = connection.execute(
                "SELECT current_setting('search_path'), EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory')"
            )
            assert (path, lock) == ('"$user", public', False), "nothing is left in sessions that others get"


def test_one_writer_holds_the_lock_however_sessions_are_shared(
    pooler: Pooler, postgres_server: Server, postgres_url: str, opened: Callable[..., PgvectorStore]
) -> None:
    direct = filled(opened(postgres_url, create=True))
    pooled = postgres_url.replace(str(postgres_server.sockets), str(pooler.folder))
    first, second = opened(pooled), opened(pooled)

    def others_are_refused() -> None:
        for other in (second, direct):
            with pytest.raises(GalleryError, match=r"the first.* is writing"), other.writing("another", timeout=0.05):
                pass

    for _ in range(3):
        with first.writing("the first"):
            others_are_refused()
            first.commit(Changes(delete=[f"i{first.pointer().sequence:03d}"]), {}, {"kind": "test"})
            others_are_refused()
            with pytest.raises(GalleryError, match="no generation"):
                first.commit(Changes(drop=["g9"]), {}, {"kind": "test"})
            others_are_refused()
        for other in (second, direct):
            write(other, Changes(delete=[f"i{other.pointer().sequence:03d}"]))
    assert direct.pointer().items == 31 and direct.pointer().sequence == 10

    def die() -> None:
        with first.writing("one that dies"):
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == -signal.SIGKILL
    with second.writing("the next", timeout=60):
        pass


def test_one_service_holds_the_lock_however_sessions_are_shared(
    pooler: Pooler, postgres_server: Server, postgres_url: str, opened: Callable[..., PgvectorStore]
) -> None:
    direct = opened(postgres_url, create=True)
    pooled = postgres_url.replace(str(postgres_server.sockets), str(pooler.folder))
    first, second = opened(pooled), opened(pooled)
    for _ in range(3):
        with first.exclusive("serve", timeout=1.0) as check:
            for other in (second, direct):
                check()
                with pytest.raises(LockedError, match="is writing"), other.exclusive("serve", timeout=0.05):
                    pass
                write(other, Changes())
        for other in (second, direct):
            with other.exclusive("serve", timeout=1.0) as check:
                check()


# A standby that takes over


@pytest.fixture
def pair(mortal_server: Server) -> Iterator[tuple[Server, Server, str]]:
    """A server, a standby of it, and a url that leads to the one that accepts writes."""
    standby = Server(original=mortal_server)
    hosts = f"{mortal_server.sockets},{standby.sockets}"
    yield mortal_server, standby, f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"
    standby.stop()


def caught_up(primary: Server, standby: Server) -> None:
    with psycopg.connect(primary.url()) as one, psycopg.connect(standby.url(), autocommit=True) as other:
        [(written,)] = one.execute("SELECT pg_current_wal_lsn()::text").fetchall()
        until = time.monotonic() + 120
        while not other.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [written]).fetchall()[0][0]:
            assert time.monotonic() < until
            time.sleep(0.01)


def take_over(primary: Server, standby: Server) -> None:
    primary.kill()
    standby.start()
    standby.promote()


def test_commits_of_a_server_that_took_over_are_not_taken_for_those_that_it_lacks(
    pair: tuple[Server, Server, str], opened: Callable[..., PgvectorStore]
) -> None:
    primary, standby, url = pair
    store = filled(opened(url, create=True), 20)
    caught_up(primary, standby)
    kept = store.fetch(["i015"])
    standby.kill()

    def upsert(metadata: dict[str, Any]) -> None:
        write(store, Changes(upsert=Upsert(["x"], [metadata], [Rows("g1", ["x"], some_vectors(1))])))

    upsert({"price": 1})
    lost, pointer = store.fetch(["x"]), store.pointer()
    with pytest.raises(StoreError), store.writing("across") as before:
        take_over(primary, standby)
        store.commit(Changes(delete=["i001"]), {}, {"kind": "test"})
    assert before == pointer and store.pointer().sequence == 1, "what the standby lacked is gone, nothing is half there"
    upsert({"price": 2})
    again = store.fetch(["x"])
    assert again.versions.tolist() == lost.versions.tolist() == [2]
    with pytest.raises(GalleryError, match="Commit 2 of the gallery"):
        search(store, at=pointer)
    rows = Rows("g2", ["x"], some_vectors(1, seed=5))  # of an item that is something else by now
    for read, fills in ((lost, [False]), (again, [True])):
        with store.writing("a backfill"):
            assert (
                store.commit(Changes(fill=Fill(rows, read.versions, read)), {}, {"kind": "test"}).filled.tolist()
                == fills
            )
    with store.writing("a backfill"):
        fill = Fill(Rows("g2", ["i015"], some_vectors(1)), kept.versions, kept)
        assert store.commit(Changes(fill=fill), {}, {"kind": "test"}).filled.tolist() == [True]


def test_a_gallery_knows_its_state_after_another_server_took_over(
    pair: tuple[Server, Server, str], make_embeddings: Any
) -> None:
    primary, standby, url = pair
    space = Hypersphere(4)
    with Gallery.create(url, fingerprint="declared:a", space=space) as gallery, Gallery.open(url) as other:
        caught_up(primary, standby)
        standby.kill()
        gallery.start("declared:b", space)
        assert gallery.state.by_name["g2"].fingerprint == "declared:b"
        take_over(primary, standby)
        for _ in range(8):
            with suppress(StoreError):
                other.start("declared:c", space)
                break
        until = time.monotonic() + 120
        while True:
            with suppress(StoreError):
                assert gallery.state.by_name["g2"].fingerprint == "declared:c"
                break
            assert time.monotonic() < until


def test_the_documented_example(postgres_url: str) -> None:
    run_example(PgvectorStore, {"postgresql://shop@127.0.0.1:54320/shop?schema=live": postgres_url})
