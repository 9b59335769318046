"""An upgrade in a table of PostgreSQL: every step and its way back."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import psycopg
import pytest

from crash.distance import Distance
from crash.server import Server
from crash.shop import DIM, NEW, OLD, Shop, indexed, source, vector, written
from limpet.attached.postgres import attachment, filling
from limpet.attached.postgres.attachment import PostgresAttachment, start
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.engines.postgres.database import PostgresDatabase
from limpet.engines.postgres.table_address import read_table_address
from limpet.errors import GalleryError, StoreError, UpgradeStateError
from limpet.geometry import Hypersphere
from limpet.upgrade.vector_sources import CallableVectors


@pytest.fixture
def far(postgres_server: Server) -> Iterator[Distance]:
    """The server behind a network that counts round trips."""
    distance = Distance(postgres_server.sockets)
    yield distance
    distance.close()


class Ready:
    """A source whose vectors are at hand, so that nothing but the database takes time."""

    def __init__(self, it: PostgresAttachment, rows: int) -> None:
        self.fingerprint, self.space = it.state.new, Hypersphere(DIM)
        self._made = np.stack([vector("new", f"item {row}") for row in range(rows)])

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        return EmbeddingSet(self._made[list(map(int, ids))], StringArray.of(ids), self.fingerprint, self.space)


def test_all_the_way_and_back(shop: Shop) -> None:
    shop.fill(20)
    shop.execute("INSERT INTO shop.items VALUES (100, 'not embedded yet', NULL, NULL)")
    schema, rows = shop.dump(), shop.contents()
    with shop.start() as it:
        assert (it.state.phase, it.status().lacking) == ("started", {"old": 0, "new": 20})
        assert it.status().application.empty == 1
        with pytest.raises(UpgradeStateError, match="Cannot swap: not every row was given a new vector"):
            it.swap()
        done = it.backfill(source(it), batch=7)
        assert (done.written, done.lacking, done.missing) == (20, 0, 0)
        assert it.state.filled and set(shop.sides().values()) == {"old", None}
        it.index()
        assert [one.built for one in it.status().indexes] == [True] * 3
        it.swap()
        assert set(shop.sides().values()) == {"new", None}
        assert shop.execute("SELECT limpet_attached.model_of('shop.items', 'emb')") == [("declared:new",)]
        it.rollback()
        assert set(shop.sides().values()) == {"old", None}
        it.swap()
        it.rollback()
        it.cancel()
    assert shop.dump() == schema and shop.contents() == rows


BLANK = {3: "''", 4: "' '", 5: r"E'\t\n\u3000'", 6: "NULL"}


@pytest.mark.parametrize("aside", [False, True])
def test_rows_without_text_are_counted_and_keep_no_other_row_from_its_vector(
    aside: bool, shop: Shop, how: dict[str, Any]
) -> None:
    if aside and how:
        pytest.skip("vectors are beside the table or in its column")
    shop.fill(20)
    for row, text in BLANK.items():
        shop.execute(f"UPDATE shop.items SET title = {text} WHERE id = {row}")
    with shop.start(aside=aside, **how) as it:
        done = it.backfill(source(it), batch=4)
        assert (done.written, done.without_text, done.missing, done.stopped) == (16, 4, 0, "done")
        assert done.without_text_ids == ("3", "4", "5", "6") and it.state.filled
        assert (it.status().lacking["new"], it.status().application.without_text) == (4, {"old": 0, "new": 4})
        shop.execute("UPDATE shop.items SET title = 'item 3', emb = %s WHERE id = 3", [written("old", "item 3")])
        assert it.backfill(source(it)).written == 1
        assert it.status().application.without_text["new"] == 3
        if not aside and not how:
            it.index()
            with pytest.raises(UpgradeStateError, match="--allow-missing 3"):
                it.swap(source(it))
            it.swap(source(it), allow_missing=3)


@pytest.mark.parametrize("force", [False, True])
def test_queries_that_ask_for_the_model_go_on_after_the_last_end(force: bool, shop: Shop) -> None:
    shop.fill(3)
    schema = shop.dump()
    search = "SELECT limpet_attached.model_of('shop.items', 'emb') AS model, id FROM shop.items ORDER BY id LIMIT 1"
    with shop.start() as it:
        shop.execute(f"CREATE FUNCTION shop.search() RETURNS record LANGUAGE sql AS $${search}$$")
        it.cancel(force=force)
        [note] = it.notes
    assert shop.execute(search) == [(None, 0)] and shop.execute("SELECT shop.search()::text") == [("(,0)",)]
    with shop.start() as it:  # and it begins again
        assert shop.execute(search) == [("declared:old", 0)]
        it.cancel()
    shop.execute(f"DROP FUNCTION shop.search(); {note.partition('any more: ')[2]}")
    assert shop.dump() == schema
    assert shop.execute("SELECT to_regnamespace('limpet_attached')") == [(None,)]
    with shop.start() as it:
        assert not [one for one in it.notes if "DROP SCHEMA" in one] and "two more columns" in it.notes[0]


def test_two_columns_of_one_table(shop: Shop) -> None:
    shop.execute("ALTER TABLE shop.items ADD COLUMN two vector(8)")
    shop.fill(4)
    shop.execute("UPDATE shop.items SET two = emb")
    schema, rows = shop.dump(), shop.contents()
    places = [shop.at("shop.items", "text=title", f"vector={name}") for name in ("emb", "two")]
    with shop.start(places[0]) as one, shop.start(places[1]) as two:
        for it in (one, two):
            it.backfill(source(it))
            it.index()
            it.swap()
            it.rollback()
        one.cancel()
        assert (two.state.phase, [index.built for index in two.status().indexes]) == ("started", [True] * 2)
        two.swap()
        two.rollback()
        two.cancel()
    assert shop.dump() == schema and shop.contents() == rows


def test_vectors_of_the_last_moment_are_made_while_others_read_and_write(shop: Shop) -> None:
    shop.fill(3)
    wrote: list[int] = []

    def write() -> None:  # while vectors are made of texts that were read before
        if len(wrote) < 4:
            wrote.append(1)
            shop.execute(
                "SET lock_timeout = '100ms'; "
                f"UPDATE shop.items SET title = 'a', emb = '{written('old', 'a')}' WHERE id = 1; "
                f"INSERT INTO shop.items (id, title, emb) VALUES ({10 + len(wrote)}, 'a', '{written('old', 'a')}')"
            )

    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        shop.execute("UPDATE shop.items SET title = 'b' WHERE id = 2")
        it.swap(source(it, told=write))
        rows = dict(shop.execute("SELECT id, emb::text FROM shop.items"))
    texts = {0: "item 0", 1: "a", 2: "b", 11: "a", 12: "a", 13: "a", 14: "a"}
    assert rows.keys() == texts.keys() and len(wrote) == 4
    for row, text in texts.items():
        assert abs(vector("new", text) - [float(part) for part in rows[row].strip("[]").split(",")]).max() < 1e-5


def test_an_application_that_writes_faster_than_vectors_are_made(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.fill(3)
    monkeypatch.setattr(attachment, "ROUNDS", 3)

    def write() -> None:
        shop.execute("UPDATE shop.items SET emb = emb, title = title || 'a' WHERE id = 1")

    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        write()
        with pytest.raises(UpgradeStateError, match=r"1 rows have no up-to-date vector of the new.*: '1'") as refused:
            it.swap(source(it, told=write))
        assert "let it pause" in refused.value.to_do and it.state.phase == "started"
        it.swap(source(it, told=lambda: write() if it.state.phase == "started" else None), allow_missing=1)
        assert it.status().lacking["new"] == 0, "filled after the swap"


def test_nobody_waits_long_for_a_swap_that_is_slow(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.fill(3)
    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        shop.execute(
            "CREATE FUNCTION shop.slow() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(2); END'"
        )
        shop.execute(
            "CREATE EVENT TRIGGER slow ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION shop.slow()"
        )
        try:
            with (
                pytest.raises(StoreError, match="due to statement timeout"),
                monkeypatch.context() as patch,
            ):
                patch.setattr(attachment, "HELD", 0.2)
                it.swap()
        finally:
            shop.execute("DROP EVENT TRIGGER slow")
        assert it.state.phase == "started" and set(shop.sides().values()) == {"old"}
        it.swap()


def test_writers_wait_for_the_rows_of_the_last_moment_where_vectors_are_made_quickly(shop: Shop) -> None:
    shop.fill(3)
    waited: list[str] = []

    def write() -> None:  # whenever vectors are made, so that without a wait there would be no end
        try:
            shop.execute("SET lock_timeout = '50ms'; UPDATE shop.items SET title = title || 'a' WHERE id = 1")
        except psycopg.errors.LockNotAvailable:
            waited.extend(title for (title,) in shop.execute("SELECT title FROM shop.items WHERE id = 1"))

    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        write()
        it.swap(source(it, told=write))
        assert it.state.phase == "swapped" and it.status().lacking["new"] == 0
    assert len(waited) == 1, "readers do not wait"


def test_rows_that_a_source_does_not_have_hold_a_swap_up_once(shop: Shop) -> None:
    shop.fill(3)
    asked: list[list[str]] = []

    class Some:
        """Vectors of all rows but one."""

        def __init__(self, whole: CallableVectors) -> None:
            self.whole, self.fingerprint, self.space = whole, whole.fingerprint, whole.space

        def embed(self, ids: Sequence[str]) -> EmbeddingSet:
            asked.append(list(ids))
            return self.whole.embed([one for one in ids if one != "1"])

    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        shop.execute("UPDATE shop.items SET title = title || 'a' WHERE id IN (1, 2)")
        with pytest.raises(UpgradeStateError, match="1 rows have no up-to-date vector of the new model"):
            it.swap(Some(source(it)))
        assert asked == [["1", "2"], ["1"]]


def test_few_statements_are_sent_while_everybody_waits_for_a_swap(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.fill(3)
    sent: list[str] = []
    whole = PostgresDatabase.rows

    def noted(self: PostgresDatabase, statement: str, *rest: Any, **options: Any) -> Any:
        sent.append(statement)
        return whole(self, statement, *rest, **options)

    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        monkeypatch.setattr(PostgresDatabase, "rows", noted)
        it.swap(source(it))
    [locked] = [number for number, statement in enumerate(sent) if statement.endswith("IN ACCESS EXCLUSIVE MODE")]
    assert len(sent) - locked - 1 <= 11


def test_few_rows_are_written_while_everybody_waits_for_a_swap(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.fill(100)
    locked: list[int] = []
    whole = attachment.write_batch

    def noted(*arguments: Any) -> int:
        locked.append(len(arguments[-1]))
        return whole(*arguments)

    monkeypatch.setattr(attachment, "write_batch", noted)
    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        shop.execute("UPDATE shop.items SET title = title || 'a' WHERE id < 60")
        it.swap(source(it))
        assert sum(locked) <= attachment.FEW and set(shop.sides().values()) == {"new"}


def test_a_backfill_far_from_the_server_takes_few_round_trips_and_large_transactions(
    far: Distance, shop: Shop, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    rows, sizes = 2000, list[int]()
    shop.fill(rows)
    whole = filling.write_batch

    def noted(*arguments: Any) -> Any:
        sizes.append(len(arguments[-1]))
        return whole(*arguments)

    with start(far.url(shop.name) + "&table=shop.items&text=title", old=OLD, new=NEW, **how) as it:
        made = Ready(it, rows)
        began = far.round_trips
        it.backfill(made, budget=0)
        alone = far.round_trips - began
        monkeypatch.setattr(filling, "write_batch", noted)
        began = far.round_trips
        done = it.backfill(made)
        took = far.round_trips - began
        assert done.written == rows and set(it.status().lacking.values()) == {0}
    assert min(sizes[:-1]) >= 16 and sum(sizes) == rows
    assert 0 < took - alone <= 8 * (rows / 512 + 1)


def test_portions_grow_where_rows_are_written_fast_and_shrink_only_where_that_helps() -> None:
    for fixed, each, expected in ((0.001, 0.00002, 512), (0.001, 0.0002, 64), (0.0, 1.0, 16), (0.5, 0.0, 512),
                                  (0.05, 0.00005, 512)):  # fmt: skip
        portions = filling.Portions(512, 0.02)
        sizes = []
        for _ in range(200):
            sizes.append(portions.rows)
            portions.took(portions.rows, fixed + each * portions.rows)
        assert sorted(sizes[20:])[len(sizes[20:]) // 2] == expected, (fixed, each, sizes)
        assert min(sizes) == 16


def test_portions_forget_that_a_server_was_busy() -> None:
    portions = filling.Portions(512, 0.02)
    for number in range(400):
        portions.took(portions.rows, portions.rows * (0.01 if number < 200 else 0.00001))
        if number == 199:
            assert portions.rows <= 32
    assert portions.rows == 512


@pytest.mark.slow
def test_a_server_that_dies_in_the_middle(mortal_server: Server) -> None:
    shop = Shop(mortal_server, "mortal")
    shop.fill(60)
    asked: list[int] = []

    def die() -> None:
        asked.append(1)
        if len(asked) == 3:
            mortal_server.kill()
            threading.Timer(0.2, mortal_server.start).start()

    with shop.start() as it:
        done = it.backfill(source(it, told=die), batch=5)
        assert (done.lacking, it.status().lacking["new"], it.state.filled) == (0, 0, True)
        it.index()
        mortal_server.kill()
        mortal_server.start()
        with pytest.raises(StoreError, match="fails"):
            it.swap()  # the connection is lost, and nothing else
        it.swap()
    assert set(shop.sides().values()) == {"new"}


def test_a_swapped_table_that_lost_a_column_can_be_cancelled(shop: Shop, how: dict[str, Any]) -> None:
    """No other step is possible any more; the vectors that serve stay."""
    shop.fill(2)
    with shop.start(**how) as it:
        it.backfill(source(it))
        indexed(it)
        it.swap(writes="new")
        with pytest.raises(UpgradeStateError, match="the upgrade is swapped"):
            it.cancel(force=True)
        shop.execute("ALTER TABLE shop.items DROP COLUMN title CASCADE")
        with pytest.raises(GalleryError, match="title is gone"):
            it.rollback()
        it.cancel(force=True)
    assert shop.sides() == {0: "new", 1: "new"}
    names = shop.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'shop.items'::regclass AND attnum > 0 "
                         "AND NOT attisdropped ORDER BY attname")  # fmt: skip
    assert [name for (name,) in names] == ["emb", "id", "price"]


def test_steps_are_durable_where_the_database_waits_for_no_disk(shop: Shop) -> None:
    session = PostgresDatabase(
        read_table_address(shop.at("shop.items", "options=-c%20synchronous_commit%3Doff")).database
    )
    try:
        for said in ("off", "local"):
            session.alone(f"SET synchronous_commit TO {said}")
            assert session.execute("SELECT current_setting('synchronous_commit')") == [
                ("on" if said == "off" else said,)
            ]
    finally:
        session.close()
