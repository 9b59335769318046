"""Who may do what with what an attachment makes: strangers nothing, writers what they might before, no more."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from attached.test_tables import PARTS
from crash.evidence import evaluation
from crash.server import Server
from crash.shop import GOODS, Shop, source, written
from limpet.attached.postgres import attachment
from limpet.attached.postgres.attachment import PostgresAttachment
from limpet.attached.postgres.ledger import TableLedger
from limpet.engines.postgres.database import PostgresDatabase
from limpet.engines.postgres.table_address import read_table_address
from limpet.errors import GalleryError, LastingStoreError

LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "two columns": (GOODS, {}),
    "two columns of partitions": (PARTS, {}),
    "one column": (GOODS, {"mixing": evaluation()}),
    "one column of partitions": (PARTS, {"mixing": evaluation()}),
    "aside": (GOODS, {"aside": True}),
    "aside of partitions": (PARTS, {"aside": True}),
}
ALL_OF_IT = "TABLES", "SEQUENCES", "FUNCTIONS", "SCHEMAS"
KINDS = "SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"


class People:
    """Roles of a test: nobody with rights, the owner of the table, one that inserts, and one that changes a column."""

    def __init__(self, shop: Shop) -> None:
        self.shop, end = shop, uuid.uuid4().hex[:8]
        self.stranger, self.owner, self.inserts, self.renames = (
            f"{name}_{end}" for name in ("stranger", "owner", "inserts", "renames")
        )
        for role in self.all:
            shop.execute(f"CREATE ROLE {role} LOGIN")

    @property
    def all(self) -> tuple[str, ...]:
        return self.stranger, self.owner, self.inserts, self.renames

    def at(self, shop: Shop) -> People:
        """Return the same roles in another database of the server."""
        found = copy.copy(self)
        found.shop = shop
        return found

    def own(self) -> None:
        """Give the table to its owner, and rights to the others."""
        self.shop.execute(
            f"GRANT USAGE ON SCHEMA shop TO {', '.join(self.all)}; GRANT CREATE ON SCHEMA shop TO {self.owner}; "
            f"GRANT INSERT ON shop.items TO {self.inserts}; "
            f"GRANT UPDATE (title), SELECT (id) ON shop.items TO {self.renames}"
        )
        for (table,) in self.shop.execute("SELECT oid::regclass::text FROM pg_class WHERE relnamespace = "
                                          "'shop'::regnamespace AND relkind IN ('r', 'p')"):  # fmt: skip
            self.shop.execute(f"ALTER TABLE {table} OWNER TO {self.owner}")

    def connect(self, role: str) -> psycopg.Connection[Any]:
        url = self.shop.database.replace("postgres@", f"{role}@")
        return psycopg.connect(url, autocommit=True, prepare_threshold=None)

    def send(self, role: str, *statements: str) -> None:
        with self.connect(role) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@pytest.fixture
def people(make_shop: Callable[..., Shop], postgres_server: Server) -> Iterator[People]:
    found = People(make_shop())
    yield found
    found.shop.execute("ALTER EXTENSION vector SET SCHEMA public")
    found.shop.renew()
    for role in found.all:
        found.shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.fixture(params=LAYOUTS)
def laid_out(request: pytest.FixtureRequest, people: People) -> Iterator[PostgresAttachment]:
    """A table of an owner that a superuser attached and filled; new objects are everybody's by default."""
    made, how = LAYOUTS[request.param]
    people.shop.renew(made)
    people.own()
    for kind in ALL_OF_IT:
        people.shop.execute(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON {kind} TO PUBLIC, {people.stranger}")
    try:
        insert(people, "postgres", "0", "item 0", "old")
        with people.shop.start(**how) as it:
            it.backfill(source(it))
            yield it
    finally:
        for kind in ALL_OF_IT:
            people.shop.execute(f"ALTER DEFAULT PRIVILEGES REVOKE ALL ON {kind} FROM PUBLIC, {people.stranger}")


def insert(people: People, role: str, number: str, title: str, model: Any, *before: str) -> None:
    shelf = bool(people.shop.execute("SELECT 1 FROM pg_attribute WHERE attrelid = 'shop.items'::regclass AND "
                                     "attname = 'shelf'"))  # fmt: skip
    people.send(role, *before, f"INSERT INTO shop.items (id, title, emb{', shelf' * shelf}) VALUES ({number}, '{title}'"
                f", '{written(model, title)}'{', $$a$$' * shelf})")  # fmt: skip


def made_of(shop: Shop, kind: str) -> list[str]:
    """Return what there is in our schema: functions or relations."""
    what = "oid::regprocedure FROM pg_proc WHERE pronamespace" if kind == "function" else \
        "oid::regclass FROM pg_class WHERE relkind IN ('r', 'S', 'v') AND relnamespace"  # fmt: skip
    return [name for (name,) in shop.execute(f"SELECT {what} = 'limpet_attached'::regnamespace ORDER BY 1")]


def reached(people: People, role: str) -> set[str]:
    """Return what of our schema a role can use, having tried it."""
    found = set()
    with people.connect(role) as desk:
        desk.execute("CREATE TEMP TABLE own (LIKE shop.items)" if role == people.owner else
                     "CREATE TEMP TABLE own (id bigint, title text, emb public.vector(8))")  # fmt: skip

        def can(statement: str) -> bool:
            try:
                desk.execute(statement.encode())
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.DivisionByZero):
                return False
            return True

        for function in made_of(people.shop, "function"):
            if "model_of" in function:
                can("SELECT limpet_attached.model_of('pg_class', 'emb')") and found.add(function)
                continue
            for when in ("BEFORE INSERT", "AFTER TRUNCATE", "AFTER DELETE"):
                each = "STATEMENT" if "TRUNCATE" in when else "ROW"
                can(f"CREATE OR REPLACE TRIGGER t {when} ON own FOR EACH {each} EXECUTE FUNCTION "
                    f"{function.removesuffix('()')}('insert')") and found.add(function)  # fmt: skip
            can(f"ALTER FUNCTION {function} COST 1") and found.add(function)
        for relation in made_of(people.shop, "relation"):
            sequence = relation.endswith("_seq")
            asked = ("SELECT", "UPDATE", "USAGE") if sequence else KINDS
            held = [f"has_{'sequence' if sequence else 'table'}_privilege('{relation}', '{one}')" for one in asked]
            can(f"SELECT 1 / ({' OR '.join(held)})::int") and found.add(relation)
            can(f"SELECT * FROM {relation}") and found.add(relation)
        can("CREATE TABLE limpet_attached.mine ()") and found.add("schema")
    return found


def test_strangers_reach_model_of_alone(laid_out: PostgresAttachment, people: People) -> None:
    known = {"limpet_attached.model_of(regclass,text)"}
    assert set(made_of(people.shop, "function")) > known
    for role in (people.stranger, people.inserts, people.renames):
        assert reached(people, role) == known


def test_a_trigger_of_another_table_does_nothing(laid_out: PostgresAttachment, people: People) -> None:
    """The owner of the table may execute what moves its rows and what its partitions need; they know their table."""
    number, aside = laid_out.number, not laid_out.state.swappable
    functions = {
        name.removesuffix("()") for name in reached(people, people.owner) if "_write_" in name or "_move_" in name
    }
    parts = people.shop.execute("SELECT 1 FROM pg_partitioned_table")
    moves = {f"limpet_attached.on_move_{number}"} if not aside and not laid_out.state.shared else set()
    assert functions == ({f"limpet_attached.on_write_{number}"} | moves if parts else moves)
    beside = f"SELECT * FROM limpet_attached.vectors_{number}" if aside else "SELECT"
    before = people.shop.execute(beside)
    with people.connect(people.owner) as desk:
        desk.execute("CREATE TEMP TABLE own AS SELECT * FROM shop.items")
        for function in functions if aside else moves:  # the others change the row at hand, with rights of the writer
            for when, each, statement in (
                ("TRUNCATE", "STATEMENT", "TRUNCATE own"), ("INSERT", "ROW", "INSERT INTO own SELECT * FROM shop.items")
            ):  # fmt: skip
                desk.execute(f"CREATE TRIGGER t AFTER {when} ON own FOR EACH {each} EXECUTE FUNCTION {function}('x')")
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="another table than own"):
                    desk.execute(statement)
                desk.execute("DROP TRIGGER t ON own")
    assert people.shop.execute(beside) == before


def test_writers_need_no_further_rights(laid_out: PostgresAttachment, people: People) -> None:
    """Neither to change other columns than theirs, nor to look into the schemas of pgvector or of limpet."""
    shop, apart = people.shop, "CREATE SCHEMA IF NOT EXISTS apart; ALTER EXTENSION vector SET SCHEMA apart"
    shop.execute(f"{apart}; REVOKE USAGE ON SCHEMA limpet_attached FROM PUBLIC")
    try:
        insert(people, people.inserts, "1", "item 1", "old")
        insert(people, people.inserts, "2", "item 2", "new", "SET limpet.writes_with = 'declared:new'")
        people.send(people.renames, "UPDATE shop.items SET title = 'item 9' WHERE id = 0")
        if not laid_out.state.swappable:
            assert laid_out.status().lacking == {"old": 0, "new": 3}
        elif laid_out.state.shared:
            assert shop.marks() == {0: "new before", 1: "old", 2: "new"}
        else:
            assert laid_out.status().lacking == {"old": 2, "new": 2}
            assert shop.sides() == {0: "old", 1: "old", 2: None}
    finally:
        shop.execute("ALTER EXTENSION vector SET SCHEMA public; DROP SCHEMA apart")


def test_nobody_hides_writes_by_a_setting(laid_out: PostgresAttachment, people: People) -> None:
    shop = people.shop
    lacking = laid_out.status().lacking
    hidden = "SET limpet.filling = 'on'"
    insert(people, people.inserts, "1", "item 1", "old", hidden)
    people.send(people.renames, hidden, "UPDATE shop.items SET title = 'item 9' WHERE id = 0")
    assert lacking["new"] == 0 and laid_out.status().lacking["new"] == 2
    if laid_out.state.shared:
        assert shop.marks() == {0: "new before", 1: "old"}


@pytest.mark.parametrize("fires", [False, True])
def test_nobody_hides_writes_behind_the_rights_of_somebody_else(
    fires: bool, how: dict[str, Any], people: People
) -> None:
    """A setting is the session's: it counts only where the session itself may write into the ledger."""
    shop = people.shop
    shop.fill(4)
    people.own()
    shop.execute(
        "CREATE FUNCTION shop.write(vector) RETURNS void LANGUAGE sql SECURITY DEFINER AS "
        "$$UPDATE shop.items SET emb = $1 WHERE id = 0$$; "
        "CREATE TABLE shop.asked (id bigint); "
        "CREATE FUNCTION shop.ask() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS "
        "$$BEGIN UPDATE shop.items SET title = 'asked' WHERE id = NEW.id; RETURN NULL; END$$; "
        "CREATE TRIGGER ask AFTER INSERT ON shop.asked FOR EACH ROW EXECUTE FUNCTION shop.ask(); "
        "CREATE VIEW shop.titles AS SELECT id, title FROM shop.items; "
        "CREATE VIEW shop.asks AS SELECT id FROM shop.asked; "
        "CREATE RULE asks AS ON INSERT TO shop.asks DO INSTEAD "
        "UPDATE shop.items SET title = 'ruled' WHERE id = NEW.id; "
        f"GRANT SELECT, UPDATE ON shop.titles TO {people.renames}; "
        f"GRANT INSERT ON shop.asked, shop.asks TO {people.renames}; "
        f"GRANT EXECUTE ON FUNCTION shop.write TO {people.renames}"
    )
    with shop.start(fire_triggers=fires, **how) as it:
        it.backfill(source(it))
        people.send(people.renames, "SET limpet.filling = 'on'",
                    f"SELECT shop.write('{written('old', 'another')}')",
                    "INSERT INTO shop.asked VALUES (1)", "UPDATE shop.titles SET title = 'viewed' WHERE id = 2",
                    "INSERT INTO shop.asks VALUES (3)")  # fmt: skip
        assert it.status().lacking["new"] == 4
        it.backfill(source(it))
        assert it.status().lacking["new"] == 0


@pytest.mark.parametrize("laid_out", [name for name in LAYOUTS if "partitions" in name], indirect=True)
def test_partitions_are_made_by_the_owner_of_the_table(laid_out: PostgresAttachment, people: People) -> None:
    people.send(people.owner, "CREATE TABLE shop.items_c PARTITION OF shop.items FOR VALUES IN ('c')",
                "CREATE TABLE shop.items_d (LIKE shop.items)",
                "ALTER TABLE shop.items ATTACH PARTITION shop.items_d FOR VALUES IN ('d')",
                f"GRANT UPDATE (shelf) ON shop.items TO {people.renames}")  # fmt: skip
    insert(people, people.inserts, "1", "item 1", "old")
    insert(people, people.inserts, "2", "item 2", "new", "SET limpet.writes_with = 'declared:new'")
    lacking = laid_out.status().lacking
    for shelf in ("c", "d"):
        people.send(people.renames, f"UPDATE shop.items SET shelf = '{shelf}' WHERE id = 1")
    assert laid_out.status().lacking == lacking
    assert not laid_out.verify().problems


def test_triggers_of_the_owner_have_its_rights_alone(people: People) -> None:
    shop = people.shop
    people.own()
    shop.fill(1)
    people.send(people.owner, "CREATE TABLE shop.seen (who text)", f"GRANT INSERT ON shop.seen TO {people.inserts}",
                "CREATE FUNCTION shop.see() RETURNS trigger LANGUAGE plpgsql AS "
                "$$BEGIN INSERT INTO shop.seen VALUES (current_user); RETURN NULL; END$$",
                "CREATE TRIGGER see AFTER UPDATE ON shop.items FOR EACH ROW EXECUTE FUNCTION shop.see()")  # fmt: skip
    with shop.start():
        insert(people, people.inserts, "2", "item 2", "new", "SET limpet.writes_with = 'declared:new'")
    assert shop.execute("SELECT who FROM shop.seen") == [(people.owner,)]
    assert shop.sides()[2] is None


@pytest.mark.parametrize("kind", ["ltree", "citext", "shop.short"])
@pytest.mark.parametrize("how", [{}, {"aside": True}])
def test_keys_are_compared_as_their_index_does(kind: str, how: dict[str, Any], shop: Shop) -> None:
    """Whatever schemas writers see: the functions look for operators in none that others may create in."""
    extension = f"CREATE EXTENSION {kind}" if kind != "shop.short" else "CREATE DOMAIN shop.short AS varchar(9)"
    shop.execute(f"{extension}; CREATE TABLE shop.tags (id {kind} PRIMARY KEY, title text, emb vector(8)); "
                 "CREATE FUNCTION shop.evil(varchar, varchar) RETURNS bool LANGUAGE plpgsql AS "
                 "$$BEGIN RAISE 'evil'; END$$; "
                 "CREATE OPERATOR public.= (FUNCTION = shop.evil, LEFTARG = varchar, RIGHTARG = varchar)")  # fmt: skip
    try:
        with shop.start(shop.at("shop.tags", "text=title"), **how) as it:
            shop.execute("SET limpet.writes_with = 'declared:new'; "
                         f"INSERT INTO shop.tags VALUES ('a', 'a', '{written('new', 'a')}')")  # fmt: skip
            lacking = {"old": 0, "new": 1} if how else {"old": 1, "new": 0}
            assert it.status().lacking == lacking
            it.backfill(source(it, "new" if how else "old"), of="new" if how else "old")
            assert it.status().lacking == {"old": 0, "new": 0}
            shop.execute("UPDATE shop.tags SET id = 'b'; DELETE FROM shop.tags")
            assert it.status().items == 0
            it.cancel()
    finally:
        shop.execute("DROP TABLE shop.tags; DROP OPERATOR public.= (varchar, varchar)")
        if kind != "shop.short":
            shop.execute(f"DROP EXTENSION {kind}")


def test_a_role_with_the_rights_of_the_owner_attaches(people: People) -> None:
    """Neither a superuser nor the owner itself; what it makes goes to the owner as far as that needs it."""
    shop, worker = people.shop, people.renames
    people.own()
    shop.execute(f"GRANT {people.owner} TO {worker}; GRANT CREATE ON DATABASE {shop.name} TO {worker}")
    insert(people, people.inserts, "1", "item 1", "old")
    with shop.start(shop.at("shop.items", "text=title", user=worker)) as it:
        insert(people, people.inserts, "2", "item 2", "new", "SET limpet.writes_with = 'declared:new'")
        it.backfill(source(it))
        it.index()
        it.swap()
        insert(people, people.inserts, "3", "item 3", "old", "SET limpet.writes_with = 'declared:old'")
        assert it.status().lacking == {"old": 1, "new": 1} and shop.sides() == {1: "new", 2: "new", 3: None}
        it.rollback(source(it, "old"))
        assert not shop.execute(f"SELECT has_schema_privilege('{people.owner}', 'limpet_attached', 'CREATE')")[0][0]
        with pytest.raises(LastingStoreError, match=f"belongs to {worker}, and postgres is a superuser"):
            shop.open()
        it.cancel()


def test_a_schema_that_somebody_planted_is_not_run_by_a_superuser(people: People) -> None:
    shop, planter = people.shop, people.stranger
    shop.execute(f"GRANT CREATE ON DATABASE {shop.name} TO {planter}")
    people.send(planter, "CREATE SCHEMA limpet_attached", "CREATE TABLE limpet_attached.attachments (id int)",
                "CREATE FUNCTION limpet_attached.evil() RETURNS int LANGUAGE plpgsql AS "
                f"$$BEGIN EXECUTE 'ALTER ROLE {planter} SUPERUSER'; RETURN 1; END$$",
                "CREATE VIEW limpet_attached.format AS SELECT limpet_attached.evil() AS version")  # fmt: skip
    for call in (shop.start, shop.open):
        with pytest.raises(LastingStoreError, match=f"belongs to {planter}"):
            call()
    assert shop.execute(f"SELECT rolsuper FROM pg_roles WHERE rolname = '{planter}'") == [(False,)]


def test_a_stranger_delays_no_start_and_no_end(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = people.shop
    shop.fill(1)
    monkeypatch.setattr(attachment, "ATTEMPTS", 1)
    with people.connect(people.stranger) as desk, desk.transaction():
        desk.execute("SELECT pg_advisory_xact_lock(hashtext('limpet_attached'))")
        with shop.start() as it:
            for table in ("format", "attachments"):
                for statement in ("SELECT FROM limpet_attached.{} FOR KEY SHARE",
                                  "BEGIN; LOCK limpet_attached.{} IN ACCESS SHARE MODE"):  # fmt: skip
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        people.send(people.stranger, statement.format(table))
            it.cancel()
        with shop.start() as it:
            it.cancel(force=True)


def test_a_ledger_that_another_process_makes_meanwhile_is_used(shop: Shop) -> None:
    shop.fill(1)
    session = PostgresDatabase(read_table_address(shop.url).database)
    with ThreadPoolExecutor() as pool:
        with session.transaction():
            TableLedger(session).lock()
            attaching = pool.submit(shop.start)
            waits = "SELECT 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
            while not (attaching.done() or shop.execute(waits)):
                pass
        with attaching.result() as it:
            assert it.status().items == 1
            it.cancel()
    session.close()


def test_a_schema_without_a_ledger_is_not_written_into(shop: Shop) -> None:
    shop.execute("CREATE SCHEMA limpet_attached")
    with pytest.raises(GalleryError, match="without the tables of a ledger"):
        shop.start()


def test_processes_that_attach_at_once_share_one_ledger(shop: Shop) -> None:
    shop.fill(3)
    shop.execute("CREATE TABLE shop.words AS SELECT * FROM shop.items; ALTER TABLE shop.words ADD PRIMARY KEY (id)")
    urls = [shop.url, shop.at("shop.words", "text=title")] * 2
    with ThreadPoolExecutor() as pool:
        attached = list(pool.map(shop.start, urls))
    numbers = [one.number for one in attached]
    assert numbers[:2] == numbers[2:] and len(set(numbers)) == 2
    for one in attached[:2]:
        one.cancel()
    for one in attached:
        one.close()


RISES = """
IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE format('ALTER ROLE %I SUPERUSER', session_user);
END IF;
"""


def rises(people: People) -> bool:
    """Let the table's owner insert a row, with a trigger that takes what rights it gets; say whether it got some."""
    people.send(people.owner,
                f"CREATE FUNCTION shop.rise() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {RISES} RETURN NEW; END$$",
                "CREATE TRIGGER rise BEFORE UPDATE ON shop.items FOR EACH ROW "
                "EXECUTE FUNCTION shop.rise()")  # fmt: skip
    try:
        insert(people, people.owner, "1", "item 1", "new", "SET limpet.writes_with = 'declared:new'")
    except psycopg.errors.InsufficientPrivilege as error:
        assert "which owned it when it was attached" in str(error)
    return is_superuser(people)


def is_superuser(people: People) -> bool:
    return bool(people.shop.execute(f"SELECT rolsuper FROM pg_roles WHERE rolname = '{people.owner}'")[0][0])


def test_forced_row_level_security_gives_no_rights_of_the_attacher(people: People) -> None:
    people.own()
    people.shop.execute("ALTER TABLE shop.items ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; "
                        "CREATE POLICY everything ON shop.items USING (true)")  # fmt: skip
    with people.shop.start():
        assert not rises(people)
        assert people.shop.sides() == {1: None}


def test_a_hidden_row_is_not_found_by_a_vector_of_the_other_model(people: People) -> None:
    people.own()
    people.shop.execute("ALTER TABLE shop.items ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; "
                        f"CREATE POLICY added ON shop.items FOR INSERT TO {people.inserts} "
                        "WITH CHECK (true)")  # fmt: skip
    with people.shop.start(), pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be moved"):
        insert(people, people.inserts, "1", "item 1", "new", "SET limpet.writes_with = 'declared:new'")


def test_a_later_owner_gets_no_rights_of_the_earlier_one(people: People) -> None:
    with people.shop.start() as it:
        people.own()
        assert not rises(people) and people.shop.sides() == {}
        it.declare_writes("old")  # gives the trigger to the new owner
        insert(people, people.owner, "1", "item 1", "new", "SET limpet.writes_with = 'declared:new'")
        assert not is_superuser(people) and people.shop.sides() == {1: None}


def test_casts_of_the_owner_are_not_run_by_the_attacher(people: People) -> None:
    people.own()
    with people.shop.start(aside=True) as it:
        [(name,)] = people.shop.execute("SELECT tgname FROM pg_trigger WHERE tgname LIKE 'zz_limpet_%_row'")
        people.send(people.owner, f"DROP TRIGGER {name} ON shop.items", "CREATE TYPE shop.own AS (x bigint)",
                    "CREATE FUNCTION shop.cast(shop.own) RETURNS bigint LANGUAGE plpgsql AS "
                    f"$$BEGIN {RISES} RETURN ($1).x; END$$",
                    "CREATE CAST (shop.own AS bigint) WITH FUNCTION shop.cast(shop.own) AS IMPLICIT",
                    "ALTER TABLE shop.items ALTER id TYPE shop.own USING ROW(id)::shop.own")  # fmt: skip
        people.shop.execute("SET session_replication_role = replica; "
                            "INSERT INTO shop.items (id) VALUES (ROW(2)::shop.own)")  # fmt: skip
        for statement in ("INSERT INTO shop.items (id) VALUES (ROW(1)::shop.own)", "DELETE FROM shop.items"):
            with pytest.raises(psycopg.errors.DatatypeMismatch, match="another type than when it was attached"):
                people.send(people.owner, statement)
        assert not is_superuser(people)
        it.cancel(force=True)
