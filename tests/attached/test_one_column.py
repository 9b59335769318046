"""Vectors of both models in the application's own column: every step, its way back, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from attached.test_tables import PARTS, used_index
from crash.evidence import evaluation
from crash.shop import GOODS, OLD, Shop, made_by, source, written
from limpet.attached.postgres.attachment import PostgresAttachment
from limpet.attached.postgres.start import plan
from limpet.errors import GalleryError, UpgradeStateError
from limpet.upgrade.model import UpgradeModel

SHARED: dict[str, Any] = {"mixing": evaluation()}


def attached(shop: Shop, rows: int = 20) -> PostgresAttachment:
    shop.fill(rows)
    return shop.start(**SHARED)


def test_all_the_way_and_back(shop: Shop) -> None:
    shop.execute("INSERT INTO shop.items VALUES (100, 'not embedded yet', NULL, NULL)")
    shop.fill(20)
    schema, rows = shop.dump(), shop.contents()
    with shop.start(**SHARED) as it:
        assert (it.status().application.holding, it.status().lacking) == ({"old": 20, "new": 0}, {"old": 0, "new": 20})
        it.swap()  # before any row is filled: queries of the new model find old vectors
        assert shop.execute("SELECT limpet_attached.model_of('shop.items', 'emb')") == [("declared:new",)]
        assert it.backfill(source(it), batch=3, budget=9).written == 9
        assert it.status().application.holding == {"old": 11, "new": 9} and shop.marks() == {
            row: side for row, side in shop.sides().items() if side
        }
        assert "items_emb" in used_index(shop) and it.status().indexes == ()
        assert it.backfill(source(it)).lacking == 0 and it.state.phase == "swapped"
        assert set(shop.sides().values()) == {"new", None}
        with pytest.raises(UpgradeStateError, match="Cannot cancel"):
            it.cancel()
        it.rollback()
        assert set(shop.sides().values()) == {"old", None} and it.status().lacking == {"old": 0, "new": 0}
        it.swap()
        assert set(shop.sides().values()) == {"new", None}
        it.rollback()
        it.cancel()
    assert shop.dump() == schema and shop.contents() == rows


def test_the_new_vectors_stay(shop: Shop) -> None:
    shop.fill(5)
    schema = shop.dump()
    with shop.start(**SHARED) as it:
        it.backfill(source(it))
        with pytest.raises(UpgradeStateError, match="the index that is there serves"):
            it.index()
        it.swap(writes="new")
        shop.execute("UPDATE shop.items SET title = 'a' WHERE id = 1")  # the application writes its vector later
        shop.execute("SET limpet.writes_with = 'declared:old'; UPDATE shop.items SET emb = %s WHERE id = 2".replace(
            "%s", f"'{written('old', 'b')}'"))  # fmt: skip
        with pytest.raises(UpgradeStateError, match=r"1 rows have no up-to-date vector of the new model.*'2'"):
            it.finish()
        it.backfill(source(it))
        it.finish()
    assert set(shop.sides().values()) == {"new"} and shop.dump() == schema


def test_a_rollback_after_edits(shop: Shop) -> None:
    with attached(shop, 4) as it:
        it.backfill(source(it))
        it.swap(writes="new")
        shop.execute("UPDATE shop.items SET title = 'a', emb = %s WHERE id = 1", [written("new", "a")])
        shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (77, 'b', %s)", [written("new", "b")])
        it.rollback(writes="old")
        assert shop.sides() == {0: "old", 1: "new", 2: "old", 3: "old", 77: "new"} == shop.marks()
        assert (it.status().lacking["old"], it.status().application.holding) == (2, {"old": 3, "new": 2})
        with pytest.raises(UpgradeStateError, match=r"2 rows have no up-to-date vector of the old model"):
            it.cancel()
        it.rollback(source(it, "old"))  # again, with what makes those that nobody kept
        assert set(shop.sides().values()) == {"old"} == set(shop.marks().values())
        it.cancel()


def test_rows_that_stay_without_a_vector(shop: Shop) -> None:
    with attached(shop, 3) as it:
        it.backfill(source(it))
        it.swap(writes="new")
        shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (77, 'b', %s)", [written("new", "b")])
        it.rollback(writes="old")
        it.cancel(allow_missing=1)
    assert shop.sides() == {0: "old", 1: "old", 2: "old", 77: None}  # no vector whose model nobody could tell


def test_a_rollback_that_is_interrupted_goes_on(shop: Shop) -> None:
    with attached(shop, 6) as it:
        it.backfill(source(it))
        with psycopg.connect(shop.database) as client:
            client.execute("UPDATE shop.items SET price = 7 WHERE id = 3")  # and its transaction stays open
            it.rollback()
            assert shop.sides()[3] == "new" and it.status().application.holding == {"old": 5, "new": 1}
        it.rollback()
        assert set(shop.sides().values()) == {"old"}
        assert it.backfill(source(it)).written == 0  # all are kept
        it.swap()
        assert set(shop.sides().values()) == {"new"}


def test_a_vector_that_was_read_before_it_changed_places_is_known_again(shop: Shop) -> None:
    with attached(shop, 3) as it:
        it.backfill(source(it))
        it.swap(writes="new")
        shop.execute("UPDATE shop.items SET price = 9, emb = %s WHERE id = 1", [written("old", "item 1")])
        assert shop.marks()[1] == "old" == shop.sides()[1] and it.status().lacking == {"old": 0, "new": 0}


def test_a_text_without_its_vector_is_due_in_both_models(shop: Shop) -> None:
    with attached(shop, 3) as it:
        it.backfill(source(it))
        shop.execute("UPDATE shop.items SET title = 'a' WHERE id = 1")
        shop.execute("UPDATE shop.items SET title = 'b' WHERE id = 1")
        assert shop.marks()[1] == "new before" and shop.sides()[1] == "new"  # it is found until there is another one
        assert it.status().lacking == {"old": 1, "new": 1}
        it.backfill(source(it, "old"), of="old")
        assert shop.marks()[1] == "old"
        it.backfill(source(it))
        assert shop.marks()[1] == "new"
        it.rollback()
        [(found,)] = shop.execute("SELECT emb::text FROM shop.items WHERE id = 1")
        assert found == shop.execute("SELECT %s::vector::text", [written("old", "b")])[0][0]


def test_partitions_and_a_key_of_two_columns(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(PARTS)
    for row, shelf in enumerate("abBabB"):
        shop.execute("INSERT INTO shop.items (id, title, emb, shelf) VALUES (%s, %s, %s, %s)",
                     [row, f"item {row}", written("old", f"item {row}"), shelf])  # fmt: skip
    schema, rows = shop.dump(), shop.contents()
    with shop.start(**SHARED) as it:
        it.backfill(source(it), batch=4)
        shop.execute("UPDATE shop.items SET shelf = 'a' WHERE id = 1")  # a row moves: it is not written anew
        assert shop.marks()[1] == "new" and it.status().lacking == {"old": 0, "new": 0}
        shop.execute("UPDATE shop.items SET shelf = 'b' WHERE id = 1")
        it.rollback()
        it.cancel()
    assert shop.dump() == schema and shop.contents() == rows


@pytest.mark.parametrize(
    ("made", "statement"),
    [
        ("halfvec(8)", ""),
        ("vector(8)", "CREATE VIEW shop.other AS SELECT id, emb FROM shop.items"),
        ("vector(8)", "ALTER TABLE shop.items ADD CONSTRAINT known CHECK (emb IS NOT NULL)"),
        ("vector(8)", "CREATE FUNCTION shop.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$f$$; END';"
         "CREATE TRIGGER t BEFORE UPDATE OF emb ON shop.items FOR EACH ROW EXECUTE FUNCTION shop.f()"),
    ],
)  # fmt: skip
def test_what_is_bound_to_the_column_stays_bound(made: str, statement: str, make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(GOODS.split("CREATE INDEX")[0].replace("vector(8)", made))
    shop.fill(6)
    shop.execute(statement or "SELECT")
    schema, rows = shop.dump(), shop.contents()
    with shop.start(**SHARED) as it:
        it.backfill(source(it))
        assert set(shop.sides().values()) == {"new"}
        it.rollback()
        it.cancel()
    assert shop.dump() == schema and shop.contents() == rows


def test_a_model_that_is_not_compatible_is_refused(shop: Shop) -> None:
    shop.fill(2)
    schema = shop.dump()
    found = evaluation(compatible=False)
    assert found.mixing is not None and not found.mixing.passed
    with pytest.raises(
        GalleryError, match=r"(?s)may not be mixed: new queries on the old gallery differ.*Nothing was ch"
    ):
        shop.start(mixing=found)
    assert shop.dump() == schema


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mixing": evaluation(mixing=False)}, "does not say what becomes of search"),
        ({"new": UpgradeModel("declared:third", 8)}, "new model declared:new, and the upgrade of declared:third"),
        ({"old": UpgradeModel("declared:first", 8)}, "old model declared:old, and the upgrade of declared:first"),
        ({"new": UpgradeModel("declared:new", 12)}, "Vectors of 12 numbers in a column of 8"),
        ({"mixing": evaluation(dim=12)}, "vectors of 12 numbers, and the column holds such of 8"),
        ({"mixing": evaluation(euclidean=True)}, "on the euclidean, and an index of the column on the hypersphere"),
    ],
)
def test_a_report_of_something_else_is_refused(options: dict[str, Any], said: str, shop: Shop) -> None:
    shop.fill(2)
    schema = shop.dump()
    with pytest.raises(GalleryError, match=said):
        shop.start(**{**SHARED, **options})
    assert shop.dump() == schema


def test_an_attachment_of_another_kind_is_not_taken_for_it(shop: Shop) -> None:
    with attached(shop), pytest.raises(UpgradeStateError, match="declared:new, in one column, started"):
        shop.start()


def test_what_is_wrong_is_seen(shop: Shop) -> None:
    with attached(shop, 3) as it:
        it.backfill(source(it))
        assert it.verify().problems == ()
        shop.execute(f"DROP TRIGGER zz_limpet_{it.number}_row ON shop.items")
        [problem] = it.verify().problems
        assert "1 of our triggers are gone" in problem
        it.declare_writes("old")
        assert it.verify().problems == ()
        shop.execute("ALTER TABLE shop.items DROP COLUMN title CASCADE")
        with pytest.raises(GalleryError, match="title is gone"):
            it.rollback()
        it.cancel(force=True)
    assert {made_by(emb) for (emb,) in shop.execute("SELECT emb::text FROM shop.items")} == {"old"}
    assert "limpet" not in shop.dump()


def test_many_replaced_rows_are_to_be_vacuumed(shop: Shop) -> None:
    shop.execute("ALTER TABLE shop.items SET (autovacuum_enabled = off)")
    with attached(shop, 1200) as it:
        assert it.verify().problems == ()
        shop.execute("UPDATE shop.items SET price = 2")
        shop.end_sessions()  # the server counts them then
        until = time.monotonic() + 120
        while not it.verify().problems and time.monotonic() < until:
            time.sleep(0.05)
        [problem] = it.verify().problems
        assert problem.startswith("1,200 replaced rows") and 'VACUUM "shop"."items"' in problem


def test_a_plan_changes_nothing(shop: Shop) -> None:
    shop.fill(2)
    schema = shop.dump()
    found = plan(shop.url, old=OLD, new=UpgradeModel("declared:new", 8), **SHARED)
    assert shop.dump() == schema and not found.lacking and not found.refusals
    assert list(found.steps) == ["start", "rollback", "cancel"]
    assert not any("CREATE ON SCHEMA" in right.statement for right in found.rights)
    for statements in found.steps.values():
        for statement in statements:
            shop.execute(statement)
    shop.execute("DROP SCHEMA limpet_attached CASCADE")
    assert shop.dump() == schema and len(shop.sides()) == 2
