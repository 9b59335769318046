"""A dump in the middle of an upgrade, restored elsewhere: it is known again, goes on, goes back and ends."""

from __future__ import annotations

import copy
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attached.test_application import Application, Fillers, check
from attached.test_rights import LAYOUTS, People, reached
from attached.test_rights import insert as insert_as
from attached.test_rights import people as people  # a fixture
from crash.server import PROGRAMS
from crash.shop import GOODS, Shop, indexed, source, written
from limpet.attached.opening import upgrade_journal
from limpet.attached.postgres.attachment import PostgresAttachment, open_attachment
from limpet.errors import GalleryError

STAGES = "started", "filling", "filled", "indexed", "swapped", "turned back"
FEWER = {"one column": {"indexed"}, "aside": {"swapped", "turned back"}}
CASES = [
    pytest.param(layout, stage, marks=[pytest.mark.slow] if "partitions" in layout and stage != "swapped" else [])
    for layout in LAYOUTS
    for stage in STAGES
    if stage not in FEWER.get(layout.removesuffix(" of partitions"), ())
]
ROWS = 6


class Copies:
    """Dumps of a database, each restored into a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Shop] = []

    def restore(
        self, shop: Shop, *options: str, into: Shop | None = None, fails: bool = False, how: tuple[str, ...] = ()
    ) -> Shop:
        """Restore the dump of a database, or of what options name, into a fresh one or a given one, all or nothing."""
        dump = str(self.folder / f"{uuid.uuid4().hex}.dump")
        _run("pg_dump", "-Fc", "-f", dump, *options, shop.database)
        other = into or self.empty(shop)
        _run("pg_restore", "--single-transaction", "--exit-on-error", *how, "-d", other.database, dump, fails=fails)
        return other

    def empty(self, shop: Shop) -> Shop:
        other = copy.copy(shop)
        other.name, other.lasting, other.sessions = f"copy_{uuid.uuid4().hex}", False, []
        shop.server.execute(f"CREATE DATABASE {other.name}")
        self.made.append(other)
        return other


def _run(program: str, *words: str, fails: bool = False) -> None:
    done = subprocess.run([str(PROGRAMS / program), *words], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stderr


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    found = Copies(tmp_path)
    yield found
    for one in found.made:
        one.server.execute(f"DROP DATABASE {one.name} WITH (FORCE)")


def filled_shop(shop: Shop, made: str) -> Shop:
    """Make a table whose columns have other numbers after a restore, since one was dropped."""
    shop.renew(made.replace("title text", "gone text, title text"))
    shop.execute("ALTER TABLE shop.items DROP COLUMN gone")
    for row in range(ROWS):
        insert(shop, row, f"item {row}", "old")
    return shop


def insert(shop: Shop, row: int, title: str, model: Any, table: str = "shop.items") -> None:
    shelf = bool(shop.execute("SELECT 1 FROM pg_partitioned_table"))
    columns, values = ("id, title, emb, shelf", "%s, %s, %s, 'b'") if shelf else ("id, title, emb", "%s, %s, %s")
    shop.execute(f"INSERT INTO {table} ({columns}) VALUES ({values})", [row, title, written(model, title)])


def brought(it: PostgresAttachment, stage: str) -> None:
    """Take the steps of an upgrade up to one."""
    if stage == "started":
        return
    it.backfill(source(it), budget=2, batch=2)
    if stage == "filling":
        return
    it.backfill(source(it))
    if stage == "filled":
        return
    indexed(it)
    if stage == "indexed":
        return
    it.swap(writes="new")
    if stage == "turned back":
        it.rollback(source(it, "old"), writes="old")


@pytest.mark.parametrize(("layout", "stage"), CASES)
def test_an_upgrade_goes_on_after_a_restore(
    layout: str, stage: str, make_shop: Callable[..., Shop], copies: Copies
) -> None:
    made, how = LAYOUTS[layout]
    shop = filled_shop(make_shop(), made)
    schema = copies.restore(shop).dump()
    with shop.start(**how) as it:
        brought(it, stage)
        state = it.state
        serving, writes = state.fingerprint(state.serving), state.writes
        other = copies.restore(shop)
    asked = "SELECT limpet_attached.model_of('shop.items', 'emb')"
    assert other.execute(asked) == [(serving,)]
    lacking = "new" if writes == "old" else "old"
    insert(other, ROWS, "a", writes)  # the application goes on at once
    other.execute("UPDATE shop.items SET title = 'b', emb = %s WHERE id = 0", [written(writes, "b")])
    with open_attachment(other.url) as it:
        [note] = it.notes
        assert "restored from a dump" in note and "shop.items" in note
        assert it.state == state and other.execute(asked) == [(serving,)]
        assert it.status().lacking[lacking] >= 2
        assert not [one for one in it.verify().problems if "replaced rows" not in one]
        assert it.journal()[-1]["kind"] == "restored"
    with open_attachment(other.url) as it:
        assert it.notes == ()
        aside = not it.state.swappable
        it.backfill(source(it))
        if not aside:
            if it.state.phase == "started":
                indexed(it)
                it.swap(source(it), writes="new")
            assert set(other.sides().values()) == {"new"} and it.status().lacking["new"] == 0
            it.rollback(source(it, "old"), writes="old")
            assert other.execute(asked) == [("declared:old",)]
        assert set(other.sides().values()) == {"old"} and len(other.sides()) == ROWS + 1
        it.cancel()
    assert other.dump() == schema
    titles = dict(other.execute("SELECT id, title FROM shop.items"))
    assert titles == {0: "b", ROWS: "a"} | {row: f"item {row}" for row in range(1, ROWS)}


def test_pgvector_in_a_schema_of_its_own(shop: Shop, copies: Copies) -> None:
    shop.fill(3)
    shop.execute("CREATE SCHEMA extensions; ALTER EXTENSION vector SET SCHEMA extensions")
    try:
        with shop.start() as it:
            brought(it, "swapped")
            other = copies.restore(shop)
        with open_attachment(other.url) as it:
            other.execute("UPDATE shop.items SET title = 'a', emb = %s WHERE id = 1", [written("new", "a")])
            assert it.status().lacking == {"old": 1, "new": 0}
            it.rollback(source(it, "old"), writes="old")
            it.cancel()
    finally:
        shop.execute("ALTER EXTENSION vector SET SCHEMA public; DROP SCHEMA extensions")


def test_a_restored_table_that_was_changed_is_told_at_once(shop: Shop, copies: Copies) -> None:
    shop.fill(3)
    with shop.start() as it:
        brought(it, "filled")
        other = copies.restore(shop)
    other.execute("ALTER TABLE shop.items RENAME title TO name")
    with open_attachment(other.url) as it:
        assert len(it.notes) == 2 and "title is gone" in it.notes[1]
        with pytest.raises(GalleryError, match="title is gone"):
            it.index()
        it.cancel(force=True)


def test_roles_write_after_a_restore_as_before(people: People, copies: Copies) -> None:
    shop = people.shop
    people.own()
    with shop.start():
        other = copies.restore(shop)
    people = people.at(other)
    insert_as(people, people.inserts, "2", "item 2", "new", "SET limpet.writes_with = 'declared:new'")
    assert reached(people, people.stranger) == {"limpet_attached.model_of(regclass,text)"}
    with open_attachment(other.url) as it:
        insert_as(people, people.inserts, "3", "item 3", "new", "SET limpet.writes_with = 'declared:new'")
        assert it.status().lacking == {"old": 2, "new": 0} and set(other.sides().values()) == {None}


def test_a_restore_without_owners_and_rights_opens_nothing(people: People, copies: Copies) -> None:
    shop = people.shop
    people.own()
    with shop.start():
        other = copies.restore(shop, how=("--no-owner", "--no-privileges"))
    people = people.at(other)
    assert reached(people, people.stranger) == set()
    with open_attachment(other.url):
        assert reached(people, people.stranger) == {"limpet_attached.model_of(regclass,text)"}


def test_two_attachments_of_a_database(shop: Shop, copies: Copies) -> None:
    shop.fill(3)
    shop.execute("CREATE TABLE shop.words (id int PRIMARY KEY, title text, gone int, emb vector(8)); "
                 "INSERT INTO shop.words SELECT id, title, 1, emb FROM shop.items; "
                 "ALTER TABLE shop.words DROP COLUMN gone")  # fmt: skip
    schema = shop.dump()
    with shop.start() as one, shop.start(shop.at("shop.words", "text=title")) as two:
        brought(one, "swapped")
        brought(two, "filled")
        other = copies.restore(shop)
    for table, phase, serving in (("items", "swapped", "new"), ("words", "started", "old")):
        assert other.execute(f"SELECT limpet_attached.model_of('shop.{table}', 'emb')") == [(f"declared:{serving}",)]
        with open_attachment(other.at(f"shop.{table}")) as it:
            assert it.state.phase == phase
            if phase == "swapped":
                it.rollback(writes="old")
            it.cancel()
    assert other.dump() == schema
    kinds = [[event["kind"] for event in upgrade_journal(other.at(f"shop.{table}"))] for table in ("items", "words")]
    assert all(kind[0] == "start" and kind[-1] == "cancel" for kind in kinds) and "swap" in kinds[0]


ORDERS = """
CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer text, what text, emb vector(8), paid boolean, emb_limpet_new
    text, emb_limpet_mark text);
INSERT INTO shop.orders VALUES (1, 'Ann', 'lamp', NULL, true, 'Main St', '4111');
"""


@pytest.mark.parametrize("how", [{}, {"aside": True}])
def test_a_number_of_another_table_means_nothing(how: dict[str, Any], shop: Shop, copies: Copies) -> None:
    """The table is gone when the dump is made, which leaves its number, and that is another table's afterwards."""
    shop.fill(3)
    shop.execute(ORDERS)
    with shop.start(**how) as it:
        brought(it, "filled")
        shop.execute("DROP TABLE shop.items")
        other = copies.restore(shop)
    other.execute("UPDATE limpet_attached.attachments SET relation = 'shop.orders'::regclass")
    before, rows = other.dump(), other.contents("shop.orders")
    with open_attachment(other.url) as it:
        for call in (it.status, it.index, lambda: it.backfill(source(it)), it.cancel, lambda: it.declare_writes("new")):
            with pytest.raises(GalleryError, match="restored from a dump, and not the table"):
                call()
        it.cancel(force=True)
    assert other.contents("shop.orders") == rows
    assert [line for line in before.splitlines() if "orders" in line] == [
        line for line in other.dump().splitlines() if "orders" in line
    ]


def test_the_schema_alone_is_of_no_table(shop: Shop, copies: Copies) -> None:
    shop.fill(3)
    with shop.start() as it:
        brought(it, "swapped")
    nothing = copies.restore(shop, "--schema=limpet_attached", fails=True)
    assert nothing.execute("SELECT to_regnamespace('limpet_attached')") == [(None,)]
    other = copies.empty(shop)
    other.execute(f"CREATE EXTENSION vector; {GOODS}")
    other.fill(5)
    schema, rows = other.dump(), other.contents()
    copies.restore(shop, "--schema=limpet_attached", into=other)
    with open_attachment(other.url) as it:
        for call in (it.status, it.rollback, it.finish):
            with pytest.raises(GalleryError, match="and not the table"):
                call()
        with pytest.raises(GalleryError, match="and not the table"):
            other.start()
        it.cancel(force=True)
    assert other.contents() == rows and other.dump() == schema
    other.start().close()


@pytest.mark.parametrize("phase", ["filled", "swapped"])
def test_a_table_alone_is_told_with_what_removes_the_rest(phase: str, shop: Shop, copies: Copies) -> None:
    shop.fill(3)
    with shop.start() as it:
        brought(it, "indexed")
        if phase == "swapped":
            it.swap(writes="new")
    other = copies.empty(shop)
    other.execute("CREATE EXTENSION vector; CREATE SCHEMA shop")
    dump = str(copies.folder / "one.dump")
    _run("pg_dump", "-Fc", "-f", dump, "--table=shop.items", shop.database)
    _run("pg_restore", "-d", other.database, dump, fails=True)  # its triggers, whose functions are not there
    serving = other.sides()
    for opened in (lambda: open_attachment(other.url), other.start):
        with pytest.raises(GalleryError, match="columns of an attachment that the ledger does not know") as refused:
            opened()
    statement = refused.value.given.partition("leaves the vectors that serve: ")[2].removesuffix(".")
    other.execute(statement)
    assert other.sides() == serving and "limpet" not in other.dump().replace("items_emb_limpet_new", "")
    other.start().close()


def test_a_copy_of_the_table_is_not_taken_for_it(shop: Shop, copies: Copies) -> None:
    shop.fill(3)
    with shop.start() as it:
        brought(it, "filled")
        shop.execute("CREATE TABLE shop.copy (LIKE shop.items INCLUDING ALL)")
        shop.execute("ALTER TABLE shop.items RENAME TO wares")
        other = copies.restore(shop)
    with open_attachment(other.at("shop.wares")) as it:
        assert it.status().lacking == {"old": 0, "new": 0} and it.status().place == "shop.wares.emb"
        it.cancel()
    assert other.execute("SELECT count(*) FROM pg_attribute WHERE attrelid = 'shop.copy'::regclass AND attname LIKE "
                         "'%limpet%' AND NOT attisdropped") == [(2,)]  # fmt: skip


def without_triggers(it: PostgresAttachment, people: People) -> None:
    """Remove our triggers, so that a copy of the table is known by comments alone."""
    people.shop.execute(f"DROP FUNCTION limpet_attached.on_write_{it.number} CASCADE")
    people.shop.execute(f"DROP FUNCTION IF EXISTS limpet_attached.on_move_{it.number} CASCADE")


def plant(people: People) -> None:
    """Let a stranger make a table that says of itself what the attached one says."""
    people.shop.execute(f"CREATE SCHEMA planted AUTHORIZATION {people.stranger}; "
                        f"GRANT USAGE ON SCHEMA shop TO {people.stranger}; "
                        f"GRANT SELECT ON shop.items TO {people.stranger}")  # fmt: skip
    people.send(people.stranger, "CREATE TABLE planted.items (LIKE shop.items INCLUDING ALL)")


@pytest.mark.parametrize("left", ["the planted table alone", "both tables"])
@pytest.mark.parametrize("aside_of", ["two columns", "one column"])
def test_a_planted_comment_is_not_believed(left: str, aside_of: str, people: People, copies: Copies) -> None:
    shop = people.shop
    people.own()
    with shop.start(**LAYOUTS[aside_of][1]) as it:
        without_triggers(it, people)
        plant(people)
        if left != "both tables":
            shop.execute("DROP TABLE shop.items")
        other = copies.restore(shop)
    planted = "SELECT attrelid::regclass::text, attname, col_description(attrelid, attnum) FROM pg_attribute WHERE " \
              "attrelid = 'planted.items'::regclass AND attnum > 0 UNION ALL SELECT tgname, '', '' FROM pg_trigger " \
              "WHERE tgrelid = 'planted.items'::regclass ORDER BY 1, 2"  # fmt: skip
    before = other.execute(planted)
    shop.execute("DROP SCHEMA planted CASCADE")
    with open_attachment(other.database) as it:
        if left == "both tables":
            assert it.status().place == "shop.items.emb"
            it.declare_writes("old")  # makes the triggers again
            assert it.verify().problems == ()
            it.cancel()
        else:
            with pytest.raises(GalleryError, match="and not the table") as refused:
                it.status()
            assert people.owner in refused.value.expected
            it.cancel(force=True)
    assert other.execute(planted) == before


def test_a_restored_table_without_triggers_may_belong_to_who_restored_it(people: People, copies: Copies) -> None:
    people.own()
    with people.shop.start() as it:
        without_triggers(it, people)
        other = copies.restore(people.shop, how=("--no-owner",))
    with open_attachment(other.url) as it:
        assert it.notes and it.status().items == 0


def test_a_later_owner_of_the_table_is_written_down(people: People, copies: Copies) -> None:
    with people.shop.start() as it:
        people.own()
        it.declare_writes("old")
        without_triggers(it, people)
        other = copies.restore(people.shop)
    with open_attachment(other.url) as it:
        assert it.notes and it.status().items == 0


def test_the_mark_of_a_table_is_demanded(shop: Shop) -> None:
    shop.fill(3)
    with shop.start() as it:
        shop.execute("COMMENT ON COLUMN shop.items.emb_limpet_mark IS NULL")
        with pytest.raises(GalleryError, match="by which the table is known, is gone") as refused:
            it.cancel()
        shop.execute(refused.value.expected)
        it.cancel()


@pytest.mark.parametrize("layout", ["two columns", "one column"])
def test_a_dump_beside_an_application_that_writes(layout: str, shop: Shop, copies: Copies) -> None:
    """A dump is of one moment, whatever is written, filled and turned over beside it."""
    shop.fill(40)
    applications = [Application(shop, seed) for seed in range(2)]
    with shop.start(**LAYOUTS[layout][1]) as it:
        for one in applications:
            one.start()
        fillers = Fillers(shop.url)
        fillers.start()
        it.backfill(source(it))
        indexed(it)
        others = []
        for turn in (it.swap, it.rollback, it.swap):
            turn(source(it, "old" if turn == it.rollback else "new"))
            for one in applications:
                one.went_on()
            others.append(copies.restore(shop))
        for thread in (fillers, *applications):
            thread.ended.set()
            thread.join()
        assert fillers.errors == [] and [one.errors for one in applications] == [[], []]
    for other in others:
        titles = dict(other.execute("SELECT id, title FROM shop.items"))
        with open_attachment(other.url) as it:
            for side in ("new", "old"):
                it.backfill(source(it, side), of=side)
                turn = it.swap if side == "new" else it.rollback
                if it.state.shared or it.state.serving != side:
                    turn(source(it, side))
                check(other, [], side)
            it.cancel()
        check(other, [], "old")
        assert dict(other.execute("SELECT id, title FROM shop.items")) == titles and len(titles) >= 40
