"""Triggers of the application that write in the very statements with which rows are filled or vectors moved."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from attached.test_rights import LAYOUTS
from crash.shop import Shop, made_by, source, vector, written
from limpet.attached.postgres.attachment import PostgresAttachment
from limpet.attached.postgres.filling import TableFill
from limpet.attached.postgres.layout import held
from limpet.errors import LastingStoreError
from limpet.upgrade.filling import Filling

CHANGED = """
CREATE FUNCTION shop.change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN NEW; END $$;
CREATE TRIGGER change {} ON shop.items FOR EACH ROW EXECUTE FUNCTION shop.change();
"""
BESIDE = "IF NEW.id < 1000 THEN UPDATE shop.items SET title = 'beside ' || NEW.title WHERE id = NEW.id + 1000; END IF;"


def current_are_of_the_text(it: PostgresAttachment) -> dict[str, set[int]]:
    """Return the rows with an up-to-date vector of each model; each is of the text beside it."""
    found: dict[str, set[int]] = {}
    with it._database.transaction():
        _, layout = held(it._database, it.number)
        for side in ("old", "new"):
            rows = it._database.rows(f"SELECT t.id, t.title, {layout.current(side)}::text FROM {layout.rows} "
                                    f"WHERE {layout.current(side)} IS NOT NULL")  # type: ignore[arg-type] # fmt: skip
            for key, title, values in rows:
                assert made_by(values) == side
                numbers = [float(part) for part in values.strip("[]").split(",")]
                assert abs(vector(side, title) - numbers).max() < 1e-5, (side, key, title)  # type: ignore[arg-type]
            found[side] = {int(key) for key, _, _ in rows}
    return found


def insert(shop: Shop, row: int, title: str) -> None:
    """Insert a row with a vector of the model that does not serve."""
    with psycopg.connect(shop.database) as connection:
        connection.execute("SET LOCAL limpet.writes_with = 'declared:new'")
        connection.execute("INSERT INTO shop.items (id, title, emb) VALUES (%s, %s, %s)",
                           [row, title, written("new", title)])  # fmt: skip


def test_a_text_changed_by_the_statement_that_fills_it_is_filled_again(shop: Shop, how: dict[str, Any]) -> None:
    shop.fill(4)
    shop.execute("UPDATE shop.items SET title = title || '  '")
    shop.execute(CHANGED.format("NEW.title := trim(NEW.title);", "BEFORE UPDATE"))
    with shop.start(fire_triggers=True, **how) as it:
        it.backfill(source(it), batch=2)
        it.backfill(source(it, "old"), of="old")
        assert current_are_of_the_text(it) == {"old": {0, 1, 2, 3}, "new": {0, 1, 2, 3}}


@pytest.mark.parametrize("fires", [True, False])
def test_a_text_changed_by_every_statement_is_never_taken_for_filled(
    fires: bool, shop: Shop, how: dict[str, Any]
) -> None:
    shop.fill(4)
    shop.execute(CHANGED.format("NEW.title := NEW.title || '!';", "BEFORE UPDATE"))
    if not fires:
        shop.execute("ALTER TABLE shop.items ENABLE ALWAYS TRIGGER change")
    with shop.start(fire_triggers=fires, **how) as it:
        assert it.backfill(source(it)).lacking == 4
        assert current_are_of_the_text(it) == {"old": set(), "new": set()}


def test_rows_written_by_a_trigger_that_filling_fires_are_the_applications(shop: Shop, how: dict[str, Any]) -> None:
    shop.fill(2)
    shop.execute("INSERT INTO shop.items SELECT id + 1000, title, price, emb FROM shop.items")
    with shop.start(fire_triggers=True, **how) as it:
        it.backfill(source(it))
        added = f"INSERT INTO shop.items (id, title, emb) VALUES (NEW.id + 5000, 'c', '{written('old', 'c')}') " \
                "ON CONFLICT DO NOTHING;"  # fmt: skip
        shop.execute(CHANGED.format(BESIDE + added, "AFTER UPDATE"))
        shop.execute("ALTER TABLE shop.items DISABLE TRIGGER change; UPDATE shop.items SET title = 'a' WHERE id = 1; "
                     "ALTER TABLE shop.items ENABLE TRIGGER change")  # fmt: skip
        it.backfill(source(it))
        assert shop.execute("SELECT title FROM shop.items WHERE id = 1001") == [("beside a",)]
        assert 5001 in current_are_of_the_text(it)["old"] and it.status().application.unknown == 0
        it.backfill(source(it))
        assert current_are_of_the_text(it)["new"] >= {0, 1, 1000, 1001}


def test_rows_written_by_a_trigger_that_a_move_fires_are_the_applications(shop: Shop) -> None:
    shop.fill(2)
    shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (1500, 'b', %s)", [written("old", "b")])
    shop.execute(CHANGED.format(BESIDE, "AFTER UPDATE"))
    with shop.start() as it:
        it.backfill(source(it))
        insert(shop, 500, "five")
        assert shop.execute("SELECT title FROM shop.items WHERE id = 1500") == [("beside five",)]
        assert current_are_of_the_text(it) == {"old": {0, 1}, "new": {0, 1, 500}}
        assert it.status().lacking == {"old": 2, "new": 1}


def test_a_text_changed_while_a_vector_is_moved_is_filled_again(make_shop: Callable[..., Shop]) -> None:
    for when, said in (
        ("BEFORE UPDATE", "NEW.title := upper(NEW.title);"),
        ("AFTER INSERT", "UPDATE shop.items SET title = upper(title) WHERE id = NEW.id;"),
    ):
        shop = make_shop()
        shop.fill(2)
        with shop.start() as it:
            it.backfill(source(it))
            shop.execute(CHANGED.format(said, when))
            insert(shop, 500, "five")
            assert shop.execute("SELECT title FROM shop.items WHERE id = 500") == [("FIVE",)]
            assert current_are_of_the_text(it) == {"old": {0, 1}, "new": {0, 1}}
            shop.execute("DROP TRIGGER change ON shop.items")
            it.backfill(source(it))
            it.backfill(source(it, "old"), of="old")
            assert current_are_of_the_text(it) == {"old": {0, 1, 500}, "new": {0, 1, 500}}


@pytest.mark.parametrize("made", [
    "CREATE FUNCTION shop.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
    "CREATE TRIGGER keep BEFORE UPDATE ON shop.items FOR EACH ROW EXECUTE FUNCTION shop.keep()",
    "CREATE RULE keep AS ON UPDATE TO shop.items DO INSTEAD NOTHING",
])  # fmt: skip
def test_rows_that_nobody_may_change_hold_no_vector_of_the_other_model(made: str, shop: Shop) -> None:
    with shop.start():
        shop.execute(made)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be moved out of emb"):
            shop.execute("SET limpet.writes_with = 'declared:new'; INSERT INTO shop.items (id, title, emb) "
                         f"VALUES (1, 'item 1', '{written('new', 'item 1')}')")  # fmt: skip
        assert shop.sides() == {}


def test_new_row_whose_key_a_trigger_changes_holds_no_vector_of_the_other_model(shop: Shop) -> None:
    shop.execute(
        "CREATE FUNCTION shop.renumbered() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF NEW.id < 100 THEN "
        "UPDATE shop.items SET id = id + 100 WHERE id = NEW.id; END IF; RETURN NULL; END$$; "
        "CREATE TRIGGER renumbered AFTER INSERT ON shop.items FOR EACH ROW EXECUTE FUNCTION shop.renumbered()"
    )
    with shop.start() as it:
        shop.execute("SET limpet.writes_with = 'declared:new'; INSERT INTO shop.items (id, title, emb) "
                     f"VALUES (1, 'item 1', '{written('new', 'item 1')}')")  # fmt: skip
        assert shop.sides() == {101: None} and it.status().lacking == {"old": 1, "new": 0}
        it.backfill(source(it, "old"), of="old")
        assert shop.sides() == {101: "old"} and it.status().lacking == {"old": 0, "new": 0}


def test_rows_whose_transaction_fails_at_its_end_are_not_counted_as_written(shop: Shop) -> None:
    shop.fill(100)
    with shop.start(fire_triggers=True) as it:
        shop.execute("CREATE FUNCTION shop.late() RETURNS trigger LANGUAGE plpgsql AS "
                     "'BEGIN IF NEW.id = 40 THEN RAISE EXCEPTION $$late$$; END IF; RETURN NULL; END'; "
                     "CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON shop.items DEFERRABLE INITIALLY DEFERRED "
                     "FOR EACH ROW EXECUTE FUNCTION shop.late()")  # fmt: skip
        rows = TableFill(it._database, it.number, "new", None, {"batch": 16})
        with pytest.raises(LastingStoreError, match="late"):
            Filling(rows, source(it)).run()
        assert rows.written == 100 - it.status().lacking["new"] == 32


@pytest.mark.parametrize("layout", ["two columns", "one column", "aside"])
def test_rows_of_a_lost_connection_are_counted_by_what_is_there(layout: str, shop: Shop) -> None:
    shop.fill(100)
    aside = layout == "aside"
    with (
        shop.start(**LAYOUTS[layout][1], fire_triggers=not aside) as it,
        shop.open() as beside,
        ThreadPoolExecutor() as pool,
    ):
        filled = f"limpet_attached.vectors_{it.number}" if aside else "shop.items"
        shop.execute("CREATE FUNCTION shop.wait() RETURNS trigger LANGUAGE plpgsql AS "
                     "'BEGIN IF NEW.id = 40 THEN PERFORM pg_advisory_xact_lock(7); END IF; RETURN NULL; END'; "
                     f"CREATE TRIGGER wait AFTER INSERT OR UPDATE ON {filled} "
                     "FOR EACH ROW EXECUTE FUNCTION shop.wait()")  # fmt: skip
        filling = Filling(TableFill(it._database, it.number, "new", None, {"batch": 16}), source(it))
        with psycopg.connect(shop.database, autocommit=True) as holder:
            holder.execute("SELECT pg_advisory_lock(7)")
            running = pool.submit(filling.run)
            waits = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while not (pids := shop.execute(waits)) and not running.done():
                pass
            [lost] = [one for one in it._database._opened if not one.closed]
            assert beside.status().lacking["new"] == 68
            with socket.socket(fileno=os.dup(lost.fileno())) as network:
                network.shutdown(socket.SHUT_RDWR)
            shop.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s) AS pid", [[pid for (pid,) in pids]])
            while shop.execute(waits):
                pass
        assert running.result().written == 100 and it.status().lacking["new"] == 0
