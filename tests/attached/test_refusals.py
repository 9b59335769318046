"""What cannot work is refused before anything changes, in words that say what to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from crash.server import Server
from crash.shop import GOODS, NEW, OLD, Shop, source, written
from limpet.attached.postgres.attachment import PostgresAttachment, open_attachment, start
from limpet.attached.postgres.start import plan
from limpet.errors import (
    ConfigError,
    DataError,
    GalleryError,
    LastingStoreError,
    LimpetError,
    LockedError,
    StoreError,
    UpgradeStateError,
)
from limpet.upgrade.model import UpgradeModel

TABLES: dict[str, tuple[str, str, type[LimpetError], str]] = {
    "a view": ("CREATE VIEW shop.other AS SELECT * FROM shop.items", "shop.other", ConfigError, "is a view"),
    "a materialised view": ("CREATE MATERIALIZED VIEW shop.one AS SELECT * FROM shop.items", "shop.one", ConfigError,
                            "is a materialised view"),
    "a partition": ("CREATE TABLE shop.all (id int, emb vector(8)) PARTITION BY LIST (id); CREATE TABLE shop.other "
                    "PARTITION OF shop.all FOR VALUES IN (1)", "shop.other", ConfigError, "is a partition of another"),
    "inheritance": ("CREATE TABLE shop.other () INHERITS (shop.items)", "shop.items", ConfigError, "inherit"),
    "no primary key": ("CREATE TABLE shop.other (id int, emb vector(8))", "shop.other", DataError, "no primary key"),
    "repeated ids": ("CREATE TABLE shop.other (id int, emb vector(8)); INSERT INTO shop.other (id) VALUES (1), (1)",
                     "shop.other&id=id", DataError, "may be the same in several rows"),
    "ids that may be null": ("CREATE TABLE shop.other (id int UNIQUE, emb vector(8))", "shop.other&id=id", DataError,
                             "or NULL"),
    "no vectors": ("CREATE TABLE shop.other (id int PRIMARY KEY)", "shop.other", ConfigError, "no columns of vectors"),
    "two columns": ("ALTER TABLE shop.items ADD COLUMN two vector(3)", "shop.items", ConfigError, "has 2 columns"),
    "mixed dimensions": ("CREATE TABLE shop.other (id int PRIMARY KEY, emb vector); INSERT INTO shop.other VALUES "
                         "(1, '[1,2]'), (2, '[1,2,3]'), (3, '[1,2]')", "shop.other", DataError,
                         "2 of dimension 2, 1 of dimension 3"),
    "a view on the vectors": ("CREATE VIEW shop.other AS SELECT id, emb FROM shop.items", "shop.items", GalleryError,
                              "view shop.other"),
    "a computed column": ("ALTER TABLE shop.items ADD COLUMN norm float GENERATED ALWAYS AS (vector_norm(emb)) STORED",
                          "shop.items", GalleryError, "norm"),
    "a computed text": ("ALTER TABLE shop.items ADD COLUMN up text GENERATED ALWAYS AS (upper(title)) STORED",
                        "shop.items&text=up", ConfigError, "computed from others"),
    "a check": ("ALTER TABLE shop.items ADD CONSTRAINT known CHECK (emb IS NOT NULL)", "shop.items", GalleryError,
                "constraint known"),
    "a default": ("ALTER TABLE shop.items ALTER emb SET DEFAULT '[1,1,1,1,1,1,1,1]'", "shop.items", GalleryError,
                  "has the default"),
    "a trigger on the vectors": ("CREATE FUNCTION shop.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'; "
                                 "CREATE TRIGGER t AFTER UPDATE OF emb ON shop.items FOR EACH ROW EXECUTE FUNCTION "
                                 "shop.f()", "shop.items", GalleryError, "trigger t on table shop.items"),
    "a publication": ("CREATE PUBLICATION out FOR TABLE shop.items", "shop.items", GalleryError, "publication out"),
    "columns of a publication": ("CREATE PUBLICATION out FOR TABLE shop.items (id, emb)", "shop.items", GalleryError,
                                 "the column 'emb', or all columns"),
    "a publication of a partition": ("CREATE TABLE shop.other (id int PRIMARY KEY, emb vector(8)) PARTITION BY RANGE "
                                     "(id); CREATE TABLE shop.part PARTITION OF shop.other DEFAULT; CREATE PUBLICATION "
                                     "out FOR TABLE shop.part", "shop.other", GalleryError, "publication out"),
    "a trigger after ours": ("CREATE FUNCTION shop.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'; CREATE TRIGGER "
                             "zzz BEFORE UPDATE ON shop.items FOR EACH ROW EXECUTE FUNCTION shop.f()", "shop.items",
                             GalleryError, "trigger zzz would be fired after ours"),
    "statistics of the vectors": ("CREATE STATISTICS shop.known ON title, emb FROM shop.items", "shop.items",
                                  GalleryError, "statistics object shop.known"),
    "a key with a sign": ('CREATE TABLE shop.other ("i%s" int PRIMARY KEY, emb vector(8))', "shop.other", ConfigError,
                          "The name 'i%s'"),
    "a name that is taken": ("ALTER TABLE shop.items ADD COLUMN emb_limpet_new int", "shop.items", GalleryError,
                             "columns of the names"),
    "pgvector too old": ("UPDATE pg_extension SET extversion = '0.6.2' WHERE extname = 'vector'", "shop.items",
                         GalleryError, "pgvector 0.6.2"),
    "sparse vectors": ("CREATE TABLE shop.other (id int PRIMARY KEY, emb sparsevec(8))", "shop.other&vector=emb",
                       ConfigError, "type sparsevec"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_cannot_be_attached(name: str, shop: Shop) -> None:
    statement, table, kind, said = TABLES[name]
    shop.execute(statement)
    schema = shop.dump()
    with pytest.raises(kind, match=said) as refused:
        shop.start(shop.at(table))
    assert isinstance(refused.value, ConfigError) or "Nothing was changed" in refused.value.intact
    assert shop.dump() == schema


def test_other_models_for_the_vectors_that_are_there(shop: Shop) -> None:
    shop.fill(2)
    with pytest.raises(ConfigError, match="have the dimension 8, those of declared:old 16"):
        shop.start(old=UpgradeModel("declared:old", 16))
    with shop.start() as it:
        with pytest.raises(DataError, match="vectors of declared:old"):
            it.backfill(source(it, "old"))
        with pytest.raises(UpgradeStateError, match="an upgrade already: from declared:old to declared:new, started"):
            shop.start(new=UpgradeModel("declared:third", 8))
        with shop.start() as again:
            assert again.number == it.number
        with pytest.raises(ConfigError, match="no table 'items'"):  # not the one of the same name in another schema
            shop.start(shop.at("items"))


def test_an_attachment_that_cannot_be_opened_leaves_no_connection(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: PostgresAttachment) -> None:
        raise StoreError("The database fails.")

    shop.start().close()
    monkeypatch.setattr(PostgresAttachment, "entry", property(lost))
    kept: list[StoreError] = []  # with its traceback, which holds what was open
    for opened in (shop.start, shop.open):
        with pytest.raises(StoreError, match="The database fails") as refused:
            opened()
        kept.append(refused.value)
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'limpet'"
    until = time.monotonic() + 120
    while shop.execute(ours) != [(0,)] and time.monotonic() < until:
        time.sleep(0.01)  # until the server sees that they are closed
    assert shop.execute(ours) == [(0,)] and len(kept) == 2


@pytest.mark.slow
def test_standbys_are_told_apart(shop: Shop, postgres_server: Server, tmp_path: object) -> None:
    shop.fill(1)
    standby = Server(original=postgres_server)
    try:
        with pytest.raises(GalleryError, match="standby"):
            start(f"{standby.url(shop.name)}&table=shop.items", old=OLD, new=NEW)
    finally:
        standby.stop()


def test_rights_that_are_lacking_are_named(shop: Shop) -> None:
    role = f"poor_{shop.name[-8:]}"
    shop.execute(f"CREATE ROLE {role} LOGIN")
    try:
        url = shop.at("shop.items", user=role)
        found = []
        for _ in range(8):  # each statement that is printed gives what it says, until nothing is lacking
            try:
                with start(url, old=OLD, new=NEW) as it:
                    it.cancel()
                break
            except LastingStoreError as error:
                found += error.expected.split("; ")
                shop.execute(error.expected)
        else:
            raise AssertionError(found)
        assert any("GRANT CREATE ON DATABASE" in statement for statement in found)
        assert any(f'GRANT USAGE ON SCHEMA "shop" TO {role}' in statement for statement in found)
        assert any(f"GRANT postgres TO {role}" in statement for statement in found)
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_rows_that_are_hidden(shop: Shop) -> None:
    role = f"owner_{shop.name[-8:]}"
    shop.execute(
        f"CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA shop TO {role}; ALTER TABLE shop.items OWNER TO {role}"
    )
    shop.execute(f"GRANT CREATE ON DATABASE {shop.name} TO {role}")
    shop.execute("ALTER TABLE shop.items ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON shop.items USING (id < 5)")
    shop.fill(8)
    try:
        url = shop.at("shop.items", "text=title", user=role)
        shop.execute("ALTER TABLE shop.items FORCE ROW LEVEL SECURITY")
        with pytest.raises(GalleryError, match="row-level security hides rows"):
            start(url, old=OLD, new=NEW)
        shop.execute("ALTER TABLE shop.items NO FORCE ROW LEVEL SECURITY")
        with start(url, old=OLD, new=NEW) as it:
            assert it.backfill(source(it)).written == 8
            it.cancel()
    finally:
        shop.execute(f"ALTER TABLE shop.items OWNER TO postgres; DROP OWNED BY {role}; DROP ROLE {role}")


def test_rows_that_are_hidden_from_who_may_not_alter_the_table(shop: Shop) -> None:
    role = f"reader_{shop.name[-8:]}"
    shop.execute(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA shop TO {role}; GRANT SELECT, TRIGGER ON shop.items TO "
        f"{role}; GRANT CREATE ON DATABASE {shop.name} TO {role}; ALTER TABLE shop.items ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY p ON shop.items USING (id < 5)"
    )
    shop.fill(8)
    try:
        with pytest.raises(GalleryError, match="row-level security hides rows") as refused:
            start(shop.at("shop.items", user=role), old=OLD, new=NEW, aside=True)
        assert "--aside" not in refused.value.to_do
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_publication_of_other_columns_hinders_nothing(shop: Shop) -> None:
    shop.execute("CREATE PUBLICATION out FOR TABLE shop.items (id, title)")
    shop.fill(2)
    schema = shop.dump()
    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        it.swap()
        it.rollback()
        it.cancel()
    assert shop.dump() == schema


def attached(shop: Shop) -> PostgresAttachment:
    shop.fill(10)
    it = shop.start()
    it.backfill(source(it), budget=5)
    return it


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER TABLE shop.items RENAME COLUMN title TO name", "title .text. is name of type text now"),
        ("ALTER TABLE shop.items DROP COLUMN emb_limpet_mark CASCADE", "emb_limpet_mark is gone"),
        ("ALTER TABLE shop.items RENAME COLUMN emb_limpet_new TO mine", "emb_limpet_new .*is mine"),
        ("ALTER TABLE shop.items DROP COLUMN title CASCADE", "title is gone"),
        ("DROP TABLE shop.items", "shop.items is gone"),
    ],
)
def test_a_table_that_changed_meanwhile(change: str, said: str, shop: Shop) -> None:
    with attached(shop) as it:
        shop.execute(change)
        for call in (it.status, it.index, it.cancel, lambda: it.backfill(source(it))):
            with pytest.raises(GalleryError, match=said):
                call()
        assert it.verify().problems
        it.cancel(force=True)
    assert shop.execute("SELECT proname FROM pg_proc WHERE pronamespace = 'limpet_attached'::regnamespace") == [
        ("model_of",)
    ]
    assert "limpet" not in shop.dump()


def test_what_triggers_need_is_not_dropped_by_accident(shop: Shop) -> None:
    with attached(shop) as it:
        with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="zz_limpet"):
            shop.execute("ALTER TABLE shop.items DROP COLUMN title")
        shop.execute("ALTER TABLE shop.items RENAME COLUMN title TO name")
        shop.execute("UPDATE shop.items SET name = 'other' WHERE id = 1")  # the application goes on
        shop.execute("UPDATE shop.items SET emb = %s WHERE id = 2", [written("old", "b")])
        shop.execute("INSERT INTO shop.items (id, name, emb) VALUES (50, 'a', %s)", [written("old", "a")])
        shop.execute("ALTER TABLE shop.items RENAME COLUMN name TO title")
        assert it.status().lacking == {"old": 3, "new": 8}  # nobody could see of which texts they are
        shop.execute("ALTER TABLE shop.items RENAME TO wares")  # another name of the table changes nothing
        it.backfill(source(it))
        it.index()
        it.swap()
        it.rollback(allow_missing=3)
        it.cancel()
    assert "limpet" not in shop.dump()


def test_cancelled_in_the_middle_of_a_backfill(shop: Shop) -> None:
    shop.fill(50)
    rows = shop.contents()
    with shop.start() as it, shop.open() as other:

        def leave() -> None:
            if not left:
                left.append(1)
                other.cancel()

        left: list[int] = []
        with pytest.raises(GalleryError, match="was finished or cancelled"):
            it.backfill(source(it, told=leave), batch=10)
        with pytest.raises(GalleryError, match="was finished or cancelled"):
            it.status()
    assert shop.contents() == rows
    with pytest.raises(GalleryError, match="no upgrades"):
        open_attachment(shop.url)


def test_nobody_waits_behind_a_lock_that_is_not_to_be_had(shop: Shop) -> None:
    shop.fill(5)
    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        with psycopg.connect(shop.database) as reader:
            reader.execute("SELECT count(*) FROM shop.items")  # and its transaction stays open
            with pytest.raises(LockedError, match="in use by a long transaction"):
                it.swap(attempts=2)
            assert it.state.phase == "started" and set(shop.sides().values()) == {"old"}
        it.swap()
    assert set(shop.sides().values()) == {"new"}


def test_rollbacks_name_rows_without_an_old_vector(shop: Shop) -> None:
    shop.fill(5)
    with shop.start() as it:
        it.backfill(source(it))
        it.index()
        it.swap(writes="new")
        shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (77, 'a', %s)", [written("new", "a")])
        with pytest.raises(UpgradeStateError, match=r"1 rows have no up-to-date vector of the old model.*'77'"):
            it.rollback()
        it.rollback(allow_missing=1, writes="old")
        assert shop.sides()[77] is None
        with pytest.raises(UpgradeStateError, match="77"):
            it.cancel()
        it.backfill(source(it, "old"), of="old")
        it.cancel()
    assert set(shop.sides().values()) == {"old"}


def test_a_plan_changes_nothing(shop: Shop) -> None:
    schema = shop.dump()
    found = plan(shop.url, old=OLD, new=NEW)
    assert shop.dump() == schema and not found.lacking and not found.refusals
    for step in ("start", "index", "swap", "rollback", "cancel"):  # what is printed can be run as it is, but the ledger
        for statement in found.steps[step]:
            shop.execute(statement)
    shop.execute("DROP SCHEMA limpet_attached CASCADE")
    lacks = [f"shop.emb_limpet_lacks_{side}" for side in ("old", "new")]
    shop.execute(f"DROP INDEX IF EXISTS {', '.join(lacks)}")
    assert shop.dump() == schema


def test_wide_vectors_are_of_half_precision(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(GOODS)
    with shop.start(new=UpgradeModel("declared:wide", 3072)):
        [(kind,)] = shop.execute("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = "
                                 "'emb_limpet_new'")  # fmt: skip
        assert kind == "halfvec(3072)"


def test_no_application_is_ended_by_a_swap(shop: Shop) -> None:
    """One that read the table goes on to write it while a swap waits: it passes the swap by."""
    shop.fill(5)
    errors: list[BaseException] = []

    def write(client: psycopg.Connection) -> None:
        try:
            client.execute("UPDATE shop.items SET price = 7 WHERE id = 2")
            client.commit()
        except BaseException as error:
            errors.append(error)

    with (
        shop.start() as it,
        psycopg.connect(shop.database) as client,
        psycopg.connect(shop.database, autocommit=True) as watch,
    ):
        it.backfill(source(it))
        it.index()
        client.execute("SELECT count(*) FROM shop.items")
        writing = threading.Thread(target=write, args=[client])
        waits = "SELECT pid FROM pg_locks WHERE relation = 'shop.items'::regclass AND NOT granted"

        swap = threading.Thread(target=it.swap)
        swap.start()
        while not watch.execute(waits).fetchall():
            pass
        writing.start()
        writing.join()
        swap.join()
        assert not errors and it.state.phase == "swapped"
    assert shop.execute("SELECT price FROM shop.items WHERE id = 2") == [(7,)]
