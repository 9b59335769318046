"""What applications, operators and administrators do to a table while it is attached, and what becomes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psycopg
import pytest

from attached.test_tables import PARTS
from crash.server import PATIENCE
from crash.shop import GOODS, NEW, OLD, Shop, indexed, made_by, source, vector, written
from limpet.attached.postgres import attachment
from limpet.attached.postgres.attachment import PostgresAttachment, open_attachment, start
from limpet.attached.postgres.indexes import index_name
from limpet.attached.postgres.start import plan
from limpet.attached.recognition import recognised
from limpet.engines.postgres.database import PostgresDatabase
from limpet.engines.sides import ModelSide
from limpet.errors import DataError, GalleryError, LastingStoreError, UpgradeStateError
from limpet.geometry import Hypersphere
from limpet.upgrade.vector_sources import CallableVectors


def check(shop: Shop, side: ModelSide, table: str = "shop.items") -> None:
    """Every vector that serves is of its row's text, by one model."""
    for row, title, emb in shop.execute(f"SELECT id, title, emb::text FROM {table}"):
        found = [float(part) for part in emb.strip("[]").split(",")]
        assert abs(vector(side, title) - found).max() < 1e-5, (row, title)


def turned(it: PostgresAttachment) -> None:
    it.backfill(source(it))
    indexed(it)
    it.swap()


KEYS = {
    "another row takes the key": ["UPDATE shop.items SET id = 100 WHERE id = 1",
                                  "UPDATE shop.items SET id = 1 WHERE id = 2"],
    "all keys move on": ["UPDATE shop.items SET id = id + 10", "UPDATE shop.items SET id = id - 9"],
    "deleted and inserted again": ["DELETE FROM shop.items WHERE id = 1",
                                   f"INSERT INTO shop.items VALUES (1, 'a', 1, '{written('old', 'a')}')"],
}  # fmt: skip


@pytest.mark.parametrize("kind", KEYS)
def test_a_vector_is_not_written_into_another_row_of_the_same_key(kind: str, shop: Shop, how: dict[str, Any]) -> None:
    shop.fill(4)
    asked: list[int] = []

    def write() -> None:  # while vectors are made of the texts that were read
        asked.append(1)
        for statement in KEYS[kind] if len(asked) == 1 else ():
            shop.execute(statement)

    with shop.start(**how) as it:
        it.backfill(source(it, told=write))
        turned(it)
        check(shop, "new")


@pytest.mark.parametrize("kind", KEYS)
def test_the_same_beside_the_table(kind: str, shop: Shop) -> None:
    shop.fill(4)
    asked: list[int] = []

    def write() -> None:
        asked.append(1)
        for statement in KEYS[kind] if len(asked) == 1 else ():
            shop.execute(statement)

    with shop.start(aside=True) as it:
        it.backfill(source(it, told=write))
        it.backfill(source(it))
        assert it.status().lacking["new"] == 0
        side = f"limpet_attached.vectors_{it.number}"
        for title, made in shop.execute(f"SELECT title, vector::text FROM shop.items JOIN {side} USING (id)"):
            assert abs(vector("new", title) - [float(part) for part in made.strip("[]").split(",")]).max() < 1e-5
        assert shop.execute(f"SELECT count(*) FROM {side}") == shop.execute("SELECT count(*) FROM shop.items")


def test_merges_replicas_and_savepoints(shop: Shop, how: dict[str, Any]) -> None:
    shop.fill(3)
    new = {text: written("new", text) for text in "abcde"}
    with shop.start(**how) as it:
        turned(it)
        it.rollback(writes="new")
        shop.execute(
            "MERGE INTO shop.items AS t USING (VALUES (1, 'a', %s::vector), (9, 'b', %s)) AS n (id, title, emb) ON t.id"
            " = n.id WHEN MATCHED THEN UPDATE SET title = n.title, emb = n.emb "
            "WHEN NOT MATCHED THEN INSERT (id, title, emb) VALUES (n.id, n.title, n.emb)", [new["a"], new["b"]],
        )  # fmt: skip
        with psycopg.connect(shop.database) as client:
            client.execute("SET session_replication_role = replica")
            client.execute("UPDATE shop.items SET title = 'c', emb = %s WHERE id = 2", [new["c"]])
            client.execute("SAVEPOINT here")
            client.execute("INSERT INTO shop.items (id, title, emb) VALUES (30, 'd', %s)", [new["d"]])
            client.execute("ROLLBACK TO here")
            client.execute("UPDATE shop.items SET title = 'e', emb = %s WHERE id = 0", [new["e"]])
        assert it.status().lacking == {"old": 4, "new": 0}
        it.swap(source(it))
        check(shop, "new")
        it.rollback(source(it, "old"), writes="old")
        check(shop, "old")
        shop.execute("TRUNCATE shop.items")
        assert it.status().items == 0
        it.cancel()


def test_a_table_with_another_name(shop: Shop, how: dict[str, Any]) -> None:
    shop.fill(3)
    with shop.start(**how) as it:
        it.declare_writes("new")
        shop.execute("ALTER TABLE shop.items RENAME TO wares")
        shop.execute("INSERT INTO shop.wares (id, title, emb) VALUES (50, 'a', %s)", [written("new", "a")])
        shop.execute("CREATE TABLE shop.items (id int PRIMARY KEY, emb vector(8))")
        it.backfill(source(it, "old"), of="old")
        it.declare_writes("old")
        turned(it)
        check(shop, "new", "shop.wares")
        assert it.status().place == "shop.wares.emb"
        assert "'shop.wares'" in next(iter(it.status().application.queries.values()))
        with pytest.raises(GalleryError, match=r"no upgrades of .* in progress; the database has: shop.wares.emb"):
            open_attachment(shop.url)  # another table has that name
        with open_attachment(shop.at("shop.wares")) as again:
            again.rollback()
            again.cancel()


@pytest.mark.parametrize("column", ["emb", "title", "added"])
def test_a_column_that_is_dropped_with_all_that_names_it_stops_no_application(
    column: str, shop: Shop, how: dict[str, Any]
) -> None:
    shop.fill(3)
    added = "emb_limpet_kept" if how else "emb_limpet_new"
    with shop.start(**how) as it:
        shop.execute(f"ALTER TABLE shop.items DROP COLUMN {added if column == 'added' else column} CASCADE")
        text = "price = 3" if column == "title" else "title = 'b'"
        shop.execute(f"UPDATE shop.items SET {text} WHERE id = 1")
        shop.execute("INSERT INTO shop.items (id, price) VALUES (60, 1)")
        assert "is gone" in it.verify().problems[0]
        with pytest.raises(GalleryError, match="is gone"):
            it.backfill(source(it))
        it.cancel(force=True)
    assert "limpet" not in shop.dump()


def test_the_extension_is_dropped(shop: Shop, how: dict[str, Any]) -> None:
    shop.fill(3)
    with shop.start(**how) as it:
        it.backfill(source(it))
        shop.execute("DROP EXTENSION vector CASCADE")
        try:
            for call in (it.status, it.cancel, lambda: it.backfill(source(it))):
                with pytest.raises(GalleryError, match="emb is gone"):
                    call()
            it.cancel(force=True)
        finally:
            shop.execute("CREATE EXTENSION vector")
    assert "limpet" not in shop.dump()


@pytest.fixture
def settings(shop: Shop) -> Iterator[Callable[[str], None]]:
    """Settings of the database, such as an application may need."""
    names: list[str] = []

    def give(setting: str) -> None:
        names.append(setting.split(" = ")[0])
        shop.server.execute(f"ALTER DATABASE {shop.name} SET {setting}")
        shop.end_sessions()

    yield give
    for name in names:
        shop.server.execute(f"ALTER DATABASE {shop.name} RESET {name}")
    shop.end_sessions()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_what_was_written_while_a_swap_waited_is_seen_at_any_isolation_level(
    level: str, shop: Shop, settings: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fill(3)
    settings(f"default_transaction_isolation = '{level}'")
    held = attachment.held

    def late(session: Any, number: int, mode: str = "ACCESS SHARE") -> Any:
        if mode == "ACCESS EXCLUSIVE" and not wrote:
            wrote.append(1)
            shop.execute("UPDATE shop.items SET title = 'a' WHERE id = 1")
        return held(session, number, mode)

    wrote: list[int] = []
    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        monkeypatch.setattr(attachment, "held", late)
        with pytest.raises(UpgradeStateError, match="1 rows have no up-to-date vector of the new model"):
            it.swap()
        assert wrote


def test_timeouts_of_the_application_end_no_step(
    shop: Shop, how: dict[str, Any], settings: Callable[[str], None]
) -> None:
    shop.fill(3)
    schema = shop.dump()
    settings("statement_timeout = '100ms'")
    settings("lock_timeout = '100ms'")
    settings("idle_in_transaction_session_timeout = '1ms'")
    with shop.start(**how) as it:
        it.backfill(source(it, told=lambda: time.sleep(0.4)))
        with psycopg.connect(shop.database, options="-c idle_in_transaction_session_timeout=0") as client:
            client.execute("UPDATE shop.items SET price = 7 WHERE id = 1")
            later = threading.Timer(0.5, client.rollback)
            later.start()
            indexed(it)  # which waits for transactions that began before
            later.join()
        it.swap()
        it.rollback()
        it.cancel()
    assert shop.dump() == schema


def test_a_lock_that_does_not_give_way_is_waited_for_no_longer_than_others(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fill(3)
    asked: list[str] = []
    whole = PostgresDatabase.rows

    def noted(session: PostgresDatabase, statement: str, *values: Any) -> Any:
        asked.append(statement)
        return whole(session, statement, *values)

    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        with psycopg.connect(shop.database) as client:  # as VACUUM and CREATE INDEX CONCURRENTLY hold it
            client.execute("LOCK TABLE shop.items IN SHARE UPDATE EXCLUSIVE MODE")
            with monkeypatch.context() as patch, pytest.raises(Exception, match="its lock was not to be had"):
                patch.setattr(PostgresDatabase, "rows", noted)
                it.swap(attempts=1)
        it.swap()
    assert any("pg_locks" in one for one in asked)
    assert not any("set_config('lock_timeout'" in one for one in asked), "as long as for an automatic vacuum"


def test_nobody_waits_behind_a_swap_that_an_automatic_vacuum_hinders(shop: Shop) -> None:
    shop.fill(300)
    slow = ("threshold = 0", "scale_factor = 0", "cost_delay = 100", "cost_limit = 1")
    vacuums = ("SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE usesysid IS NULL AND granted "
               "AND relation = 'shop.items'::regclass AND mode = 'ShareUpdateExclusiveLock'")  # fmt: skip
    hindered = ("SELECT count(*) FROM pg_locks WHERE relation = 'shop.items'::regclass AND NOT granted "
                f"AND mode = 'AccessExclusiveLock' AND EXISTS ({vacuums})")  # fmt: skip
    ended, looks = threading.Event(), list[int]()

    def watch() -> None:
        with psycopg.connect(shop.database, autocommit=True) as client:
            while not ended.wait(0.005):
                looks.extend(count for (count,) in client.execute(hindered.encode()))

    watcher = threading.Thread(target=watch)
    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        shop.execute(f"ALTER TABLE shop.items SET ({', '.join(f'autovacuum_vacuum_{one}' for one in slow)})")
        shop.execute("ALTER SYSTEM SET autovacuum_naptime = 1")
        shop.execute("SELECT pg_reload_conf()")
        try:
            shop.execute("UPDATE shop.items SET price = 2")
            shop.end_sessions()  # the server counts its rows then
            until = time.monotonic() + PATIENCE
            while not shop.execute(vacuums):
                assert time.monotonic() < until, "no vacuum came"
                time.sleep(0.01)
            watcher.start()
            it.swap()
        finally:
            ended.set()
            shop.execute("ALTER SYSTEM RESET autovacuum_naptime")
            shop.execute("SELECT pg_reload_conf()")
        watcher.join()
        assert it.state.phase == "swapped" and looks and not any(looks), "readers wait behind a lock that waits"


def test_vectors_that_take_long_after_all_keep_no_writer_waiting(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.fill(3)
    monkeypatch.setattr(attachment, "LONGEST", 0.5)
    monkeypatch.setattr(attachment, "QUICK", PATIENCE)  # however busy this machine is
    monkeypatch.setattr(attachment, "FREE_ROUNDS", 1)
    stuck: list[int] = []

    def written(row: int) -> bool:
        try:
            shop.execute(f"SET lock_timeout = '50ms'; UPDATE shop.items SET title = title || 'a' WHERE id = {row}")
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    def write() -> None:
        if written(1):
            return
        stuck.append(1)
        if len(stuck) == 1:  # a service that hangs until a writer, who waits, waits no longer
            until = time.monotonic() + PATIENCE
            while not written(2):
                assert time.monotonic() < until, "a writer waits for the service"

    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        write()
        it.swap(source(it, told=write))
        check(shop, "new")
    assert len(stuck) >= 2


def test_what_was_bound_to_the_column_later_is_told_before_a_swap(shop: Shop) -> None:
    shop.fill(3)
    view = "CREATE VIEW shop.late AS SELECT id, emb FROM shop.items"
    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        shop.execute(view)
        with pytest.raises(UpgradeStateError, match=r"Cannot swap: .*view shop.late"):
            it.swap()
        shop.execute("DROP VIEW shop.late")
        it.swap()
        shop.execute(view)
        with pytest.raises(UpgradeStateError, match=r"Cannot rollback: .*view shop.late"):
            it.rollback()
        shop.execute("DROP VIEW shop.late")
        it.rollback()


def test_indexes_that_are_built_while_somebody_else_cancels_go(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.fill(3)
    schema = shop.dump()
    with shop.start() as it, shop.open() as other:
        it.backfill(source(it))
        alone = it._database.alone
        left: list[str] = []

        def late(statement: str) -> None:
            if not left and "lacks_old" in statement:
                left.append(statement)
                other.cancel()
            alone(statement)

        monkeypatch.setattr(it._database, "alone", late)
        with pytest.raises(GalleryError, match="was finished or cancelled"):
            it.index()
        assert left
    assert shop.dump() == schema


def test_partitions_whose_long_names_begin_alike_have_indexes_of_their_own(make_shop: Callable[..., Shop]) -> None:
    begin = "parts_of_a_year_with_a_long_name"
    shop = make_shop(PARTS.replace("shop.items_", f"shop.{begin}_"))
    for row, shelf in enumerate("abBabB"):
        shop.execute("INSERT INTO shop.items (id, title, emb, shelf) VALUES (%s, %s, %s, %s)",
                     [row, f"item {row}", written("old", f"item {row}"), shelf])  # fmt: skip
    schema = shop.dump()
    with shop.start() as it:
        turned(it)
        it.rollback()
        it.cancel()
    assert shop.dump() == schema
    assert len({index_name("items_emb", "new", f"{begin}_{part}") for part in ("a", "b", "b1", "b2")}) == 4


def test_one_of_two_columns_whose_names_end_alike_is_cancelled(shop: Shop) -> None:
    shop.execute("ALTER TABLE shop.items ADD COLUMN my_emb vector(8)")
    shop.fill(4)
    shop.execute("UPDATE shop.items SET my_emb = emb")
    places = [shop.at("shop.items", "text=title", f"vector={name}") for name in ("emb", "my_emb")]
    with shop.start(places[0]) as one, shop.start(places[1]) as two:
        for it in (one, two):
            it.backfill(source(it))
            it.index()
        one.cancel()
        two.swap()
        two.rollback()
        two.cancel()


SAID = """
COMMENT ON COLUMN shop.items.emb IS 'made by ada'; COMMENT ON INDEX shop.items_emb IS 'it''s ours';
ALTER TABLE shop.items ALTER emb SET STATISTICS 77, ALTER emb SET (n_distinct = 5), ALTER emb SET STORAGE external,
    ALTER emb SET COMPRESSION pglz;
ALTER TABLE shop.items REPLICA IDENTITY FULL;
CREATE STATISTICS shop.known ON title, price FROM shop.items;
"""


def test_what_people_said_of_the_column_stays_said(shop: Shop, how: dict[str, Any]) -> None:
    role = f"reader_{shop.name[-8:]}"
    shop.fill(3)
    shop.execute(f"CREATE ROLE {role}; GRANT SELECT (emb), UPDATE (emb) ON shop.items TO {role} WITH GRANT OPTION")
    shop.execute(SAID)
    try:
        schema = shop.dump()
        with shop.start(**how) as it:
            turned(it)
            it.rollback()
            it.cancel()
        assert shop.dump() == schema
        with shop.start(**how) as it:
            turned(it)
            it.declare_writes("new")
            it.finish()
        assert shop.dump() == schema
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_role_that_may_not_read_the_ledger_is_told_how_it_may(shop: Shop) -> None:
    role = f"other_{shop.name[-8:]}"
    shop.execute(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA shop TO {role}")
    url = shop.at("shop.items", user=role)
    try:
        with shop.start():
            for call in (lambda: open_attachment(url), lambda: start(url, old=OLD, new=NEW)):
                with pytest.raises(LastingStoreError, match=f"belongs to postgres.*role is {role}") as refused:
                    call()
                assert refused.value.expected == f"GRANT postgres TO {role};"
            shop.execute(refused.value.expected)
            open_attachment(url).close()
            shop.execute(f"REVOKE postgres FROM {role}")
            with psycopg.connect(shop.database.replace("postgres@", f"{role}@")) as client:  # an application needs none
                shown = client.execute("SELECT limpet_attached.model_of('shop.items', 'emb')").fetchall()
            assert shown == [("declared:old",)]
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize("hidden", [False, True])
def test_who_reads_a_table_reads_the_vectors_beside_it(hidden: bool, shop: Shop) -> None:
    role = f"client_{shop.name[-8:]}"
    shop.fill(2)
    shop.execute(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA shop TO {role}; GRANT SELECT ON shop.items TO {role}"
    )
    if hidden:
        shop.execute("ALTER TABLE shop.items ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON shop.items USING (id = 1)")
    try:
        found = plan(shop.url, old=OLD, new=NEW, aside=True)
        assert any("row-level security" in note for note in found.notes) == hidden
        with shop.start(aside=True) as it, psycopg.connect(shop.database.replace("postgres@", f"{role}@")) as client:
            it.backfill(source(it))
            [query] = it.status().application.queries.values()
            query = query.replace("…", "id", 1).replace("…", "'[0,0,0,0,1,0,0,0]'")
            if hidden:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    client.execute(query)
            else:
                assert len(client.execute(query).fetchall()) == 2
            client.rollback()
            it.cancel()
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_keys_that_are_lists_and_names_with_dots_and_signs(make_shop: Callable[..., Shop], how: dict[str, Any]) -> None:
    shop = make_shop('CREATE SCHEMA shop; CREATE TABLE shop."My.Order" ("Select" int[] PRIMARY KEY, "user" text, '
                     '"Emb" vector(8)); CREATE INDEX ON shop."My.Order" USING hnsw '
                     '("Emb" vector_cosine_ops)')  # fmt: skip
    shop.execute("INSERT INTO shop.\"My.Order\" VALUES (ARRAY[1, 2], 'a', %s)", [written("old", "a")])
    schema = shop.dump()
    with shop.start(shop.at("shop.My.Order", "text=user"), **how) as it:
        it.declare_writes("new")
        shop.execute("INSERT INTO shop.\"My.Order\" VALUES (ARRAY[3], 'b', %s)", [written("new", "b")])
        it.backfill(source(it, "old"), of="old")
        it.declare_writes("old")
        turned(it)
        found = shop.execute('SELECT "Emb"::text FROM shop."My.Order"')
        assert {made_by(emb) for (emb,) in found} == {"new"} and len(found) == 2
        query = (
            next(iter(it.status().application.queries.values()))
            .replace("…", '"user"', 1)
            .replace("…", "'[1,0,0,0,0,0,0,0]'")
        )
        assert sorted(shop.execute(query)) == [("declared:new", "a"), ("declared:new", "b")]
        it.rollback()
        it.cancel()
    assert shop.dump() == schema


def test_no_name_of_a_session_stands_for_what_triggers_mean(shop: Shop, how: dict[str, Any]) -> None:
    """Triggers run with the rights of whoever attached: what a session makes for itself must not be taken for ours."""
    shop.fill(2)
    with shop.start(**how), psycopg.connect(shop.database) as client:
        client.execute(
            "CREATE FUNCTION pg_temp.no(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'taken'; END $$"
        )
        client.execute("CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (pg_temp.no(1))")
        client.execute("SET search_path = pg_temp, public")
        client.execute("INSERT INTO shop.items (id, title, emb) VALUES (5, 'a', %s)", [written("old", "a")])
        client.execute("UPDATE shop.items SET title = 'b', emb = %s WHERE id = 5", [written("old", "b")])
        client.rollback()


def test_triggers_that_are_switched_off_for_replicas_or_partitions_are_noticed(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(PARTS)
    with shop.start() as it:
        assert not it.verify().problems
        shop.execute("ALTER TABLE shop.items DISABLE TRIGGER USER; ALTER TABLE shop.items ENABLE TRIGGER USER")
        assert "switched off, if only where session_replication_role is replica" in it.verify().problems[0]
        it.declare_writes("old")
        assert not it.verify().problems
        shop.execute(f"ALTER TABLE shop.items_b1 DISABLE TRIGGER zz_limpet_{it.number}_row")
        assert f"zz_limpet_{it.number}_row are switched off" in it.verify().problems[0]


def test_functions_that_return_rows_of_the_table_are_named_before(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(
        GOODS + "CREATE FUNCTION shop.cheap() RETURNS SETOF shop.items LANGUAGE sql AS 'SELECT * FROM shop.items'"
    )
    assert any("shop.cheap()" in note for note in plan(shop.url, old=OLD, new=NEW).notes)


@pytest.mark.parametrize(("operators", "sign"), [("vector_l2_ops", "<->"), ("vector_ip_ops", "<#>")])
def test_applications_are_told_to_search_as_the_index_compares(
    operators: str, sign: str, make_shop: Callable[..., Shop]
) -> None:
    shop = make_shop(GOODS.replace("vector_cosine_ops", operators))
    with shop.start() as it:
        assert f'"emb" {sign} ' in next(iter(it.status().application.queries.values()))


def test_what_was_named_otherwise_at_the_start_is_told(shop: Shop) -> None:
    with shop.start():
        with pytest.raises(UpgradeStateError, match="has an upgrade already, with other columns as texts: title"):
            shop.start(shop.at("shop.items", "text=price"))
        with pytest.raises(UpgradeStateError, match="has an upgrade already, for these models"):
            plan(shop.url, old=OLD, new=NEW)


def test_a_model_that_people_named_is_recognised_by_the_vectors_that_are_there(shop: Shop, how: dict[str, Any]) -> None:
    shop.fill(6)

    def named(side: ModelSide, it: PostgresAttachment) -> CallableVectors:
        return CallableVectors(lambda texts: np.stack([vector(side, text) for text in texts]), f"text:{64 * '1'}",
                               Hypersphere(8), it.texts)  # fmt: skip

    with shop.start(**how) as it:
        turned(it)
        it.declare_writes("new")
        shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (50, 'a', %s)", [written("new", "a")])
        with pytest.raises(DataError, match=r"of 6 items the two have a cosine of 0\.000"):
            recognised(named("new", it), it)
        it.rollback(recognised(named("old", it), it), writes="old")
        check(shop, "old")
        it.cancel()


def test_an_application_is_never_ended_for_a_circle_of_rows_beside(shop: Shop) -> None:
    shop.fill(16)
    with shop.start(aside=True) as it, psycopg.connect(shop.database) as app:
        app.execute("UPDATE shop.items SET title = 'item 90' WHERE id = 9")
        filling = threading.Thread(target=lambda: it.backfill(source(it)))
        filling.start()
        try:
            time.sleep(2)  # longer than deadlock_timeout, after which whoever waits looks for circles only once
            app.execute("UPDATE shop.items SET title = 'item 30' WHERE id = 3")
            app.commit()
        finally:
            app.rollback()
            filling.join()
        assert it.status().lacking["new"] == 0
