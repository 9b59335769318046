"""Rows that were written without our triggers are found, counted, named, refused and filled again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from attached.test_application import check
from crash.evidence import evaluation
from crash.shop import GOODS, Shop, indexed, made_by, source, vector, written
from limpet.attached.postgres.attachment import PostgresAttachment
from limpet.engines.sides import ModelSide
from limpet.errors import DataError, UpgradeStateError

PARTS = """
CREATE SCHEMA shop;
CREATE TABLE shop.items (id bigint PRIMARY KEY, title text, price numeric, emb vector(8)) PARTITION BY RANGE (id);
CREATE TABLE shop.first PARTITION OF shop.items FOR VALUES FROM (0) TO (1000);
CREATE INDEX items_emb ON shop.items USING hnsw (emb vector_cosine_ops) WITH (m = 8, ef_construction = 32);
"""


LaidOut = tuple[PostgresAttachment, Shop]


SLOW = pytest.mark.slow
LAYOUTS = ["two columns", pytest.param("two columns of partitions", marks=SLOW),
           pytest.param("one column", marks=SLOW), "one column of partitions"]  # fmt: skip


@pytest.fixture(params=LAYOUTS)
def laid_out(request: pytest.FixtureRequest, make_shop: Callable[..., Shop]) -> Iterator[LaidOut]:
    """A table of five rows that have both vectors; the old ones serve, or are to be asked with."""
    shop = make_shop(PARTS if "partitions" in request.param else GOODS)
    shop.fill(5)
    with shop.start(**({"mixing": evaluation()} if "one column" in request.param else {})) as attachment:
        attachment.backfill(source(attachment))
        indexed(attachment)
        yield attachment, shop


WRITES: dict[str, tuple[str, list[Any], str]] = {
    "a text": ("UPDATE shop.items SET title = 'a' WHERE id = 1", [], "1"),
    "a vector": ("UPDATE shop.items SET emb = %s WHERE id = 1", [written("old", "z")], "1"),
    "text and vector": ("UPDATE shop.items SET title = 'a', emb = %s WHERE id = 1", [written("new", "a")], "1"),
    "a new row": ("INSERT INTO shop.items (id, title, emb) VALUES (9, 'b', %s)", [written("new", "b")], "9"),
    "another row of a key": ("DELETE FROM shop.items WHERE id = 1; INSERT INTO shop.items (id, title, emb) VALUES "
                             f"(1, 'c', '{written('old', 'c')}')", [], "1"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITES)
def test_rows_written_without_triggers_are_unknown_until_filled(kind: str, laid_out: LaidOut) -> None:
    it, shop = laid_out
    statement, values, row = WRITES[kind]
    shop.unseen(statement, *values)
    steps: list[tuple[str, Callable[[], None]]] = [("cancel", it.cancel)]
    if not it.state.shared:  # a pointer is turned whatever vectors the column holds
        steps.append(("swap", it.swap))
    for name, step in steps:
        with pytest.raises(UpgradeStateError, match=f"Cannot {name}: 1 rows have no up-to-date vector .*'{row}'"):
            step()
    [problem] = it.verify().problems
    assert problem.startswith("1 rows were written without our triggers") and f"'{row}'" in problem
    assert it.status().application.unknown == 1 and it.status().lacking == {"old": 1, "new": 1}
    for side in ("new", "old"):
        it.backfill(source(it, side), of=side)  # type: ignore[arg-type]
    assert it.verify().problems == ()
    assert it.status().application.unknown == 0
    assert it.status().lacking == {"old": 0, "new": 0}
    it.swap(writes="new")
    check(shop, [], "new")
    it.rollback(writes="old")
    check(shop, [], "old")
    it.cancel()


def test_a_vector_taken_away_without_triggers_stays_away(laid_out: LaidOut) -> None:
    it, shop = laid_out
    shop.unseen("UPDATE shop.items SET emb = NULL WHERE id = 1")
    it.verify()
    for side in ("new", "old"):
        it.backfill(source(it, side), of=side)  # type: ignore[arg-type]
    assert shop.sides()[1] is None and it.status().application.empty == 1 and it.verify().problems == ()


def test_rows_written_without_triggers_are_refused_where_new_vectors_serve(laid_out: LaidOut) -> None:
    it, shop = laid_out
    it.swap(writes="new")
    shop.unseen("UPDATE shop.items SET title = 'a' WHERE id IN (1, 2)")
    steps = {"finish": it.finish} | ({} if it.state.shared else {"rollback": it.rollback})
    for name, step in steps.items():
        with pytest.raises(UpgradeStateError, match=f"Cannot {name}: 2 rows"):
            step()
    it.finish(allow_missing=2)


def test_steps_are_refused_while_triggers_are_off(laid_out: LaidOut) -> None:
    it, shop = laid_out
    shop.execute("ALTER TABLE shop.items DISABLE TRIGGER USER")
    for step in (it.swap, it.cancel):
        with pytest.raises(UpgradeStateError, match=r"(?s)switched off.*upgrade writes --of NAME"):
            step()
    it.declare_writes("old")
    it.swap()


def copy_row(shop: Shop, row: int, changes: str) -> None:
    """Insert a copy of all columns of a row, ours too, after some changes."""
    shop.execute(f"CREATE TEMP TABLE one AS SELECT * FROM shop.items WHERE id = {row}; UPDATE one SET {changes}; "
                 "INSERT INTO shop.items SELECT * FROM one")  # fmt: skip


MARKED_COPIES = {
    "another text": "id = 9, title = 'a'",
    "another vector": f"id = 9, emb = '{written('old', 'z')}'",
    "without the second vector": "id = 9, {second} = NULL",
    "the mark of a row without a vector": "id = 9, emb_limpet_mark = '{{0}}'",
    "the mark of the start": "id = 9, title = 'a', emb_limpet_mark = '{{1}}'",
    "the mark of a row in between": "id = 9, emb_limpet_mark = '{{-1}}'",
}


@pytest.mark.parametrize("serving", ["old", "new"])
@pytest.mark.parametrize("kind", MARKED_COPIES)
def test_a_copied_mark_says_nothing_of_another_row(kind: str, serving: ModelSide, laid_out: LaidOut) -> None:
    it, shop = laid_out
    if serving == "new":
        it.swap(writes="new")
    second = "emb_limpet_kept" if it.state.shared else f"emb_limpet_{'new' if serving == 'old' else 'old'}"
    copy_row(shop, 1, MARKED_COPIES[kind].format(second=second))
    assert it.status().application.unknown == 1
    assert it.status().lacking == {"old": 1, "new": 1}
    assert it.status().items == 6
    for side in ("new", "old"):
        it.backfill(source(it, side), of=side)  # type: ignore[arg-type]
    assert it.verify().problems == ()
    assert it.status().application.unknown == 0
    assert it.status().lacking == {"old": 0, "new": 0}
    if not it.state.shared:
        check(shop, [], serving)


def test_a_copied_mark_of_the_start_says_nothing_of_another_row(how: dict[str, Any], shop: Shop) -> None:
    shop.fill(5)
    with shop.start(**how) as it:
        copy_row(shop, 1, "id = 9, title = 'a'")
        assert it.status().application.unknown == 1 and it.status().lacking == {"old": 1, "new": 6}
        shop.execute("UPDATE shop.items SET emb = NULL WHERE id = 2")
        copy_row(shop, 2, f"id = 10, emb = '{written('old', 'item 2')}'")
        copy_row(shop, 2, "id = 11")
        assert it.status().application.unknown == 2 and it.status().application.empty == 2


def test_a_copy_of_a_waiting_row_waits(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop()
    shop.fill(5)
    with shop.start() as it:
        it.backfill(source(it))
        indexed(it)
        it.swap(writes="old")
        shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (6, 'item 6', %s)", [written("old", "item 6")])
        copy_row(shop, 6, "id = 7")
        copy_row(shop, 6, "id = 8, title = 'item 8'")
        assert it.status().lacking == {"old": 1, "new": 3}
        assert it.status().application.unknown == it.status().application.empty == 0
        it.backfill(source(it))
        check(shop, [], "new")


def test_a_copy_of_text_and_vectors_keeps_its_mark(laid_out: LaidOut) -> None:
    it, shop = laid_out
    copy_row(shop, 1, "id = 9")
    assert it.status().application.unknown == 0
    assert it.status().lacking == {"old": 0, "new": 0}
    assert it.verify().problems == ()


@pytest.mark.parametrize("mixing", [False, True], ids=["two columns", "one column"])
@pytest.mark.parametrize("filled", [False, True])
def test_rows_keep_their_marks_in_another_partition(filled: bool, mixing: bool, make_shop: Callable[..., Shop]) -> None:
    shop = make_shop(f"{PARTS} CREATE TABLE shop.second PARTITION OF shop.items FOR VALUES FROM (1000) TO (2000);")
    shop.fill(5)
    with shop.start(**({"mixing": evaluation()} if mixing else {})) as it:
        if filled:
            it.backfill(source(it))
        shop.execute("UPDATE shop.items SET id = id + 1000 WHERE id = 1")
        shop.execute("UPDATE shop.items SET id = id + 1000, title = 'b' WHERE id = 2")
        shop.execute("UPDATE shop.items SET id = id + 1000, emb = NULL WHERE id = 3")
        text_alone = {"old": 1, "new": 1 if filled else 4}
        assert it.status().lacking == text_alone
        assert it.status().application.unknown == 0
        assert it.status().application.empty == 1
        shop.execute("UPDATE shop.items SET id = id - 1000 WHERE id > 1000")
        assert it.status().lacking == text_alone
        assert it.status().application.unknown == 0
        assert it.status().application.empty == 1
        assert it.verify().problems == ()


@pytest.mark.parametrize("writes", ["old", "new"])
@pytest.mark.parametrize("mixing", [False, True], ids=["two columns", "one column"])
def test_rows_of_a_partition_attached_later_are_unknown(
    writes: ModelSide, mixing: bool, make_shop: Callable[..., Shop]
) -> None:
    shop = make_shop(PARTS)
    shop.fill(5)
    with shop.start(**({"mixing": evaluation()} if mixing else {})) as it:
        it.backfill(source(it))
        indexed(it)
        it.swap(writes=writes)
        shop.execute("CREATE TABLE shop.second (LIKE shop.items INCLUDING DEFAULTS)")
        shop.execute("INSERT INTO shop.second (id, title, emb) SELECT 1000 + n, 'part ' || n, %s::vector "
                     "FROM generate_series(0, 3) AS n", [written(writes, "part 0")])  # fmt: skip
        shop.execute("ALTER TABLE shop.items ATTACH PARTITION shop.second FOR VALUES FROM (1000) TO (2000)")
        assert it.status().application.unknown == 4 and it.status().lacking == {"old": 4, "new": 4}
        assert "'1000', '1001', '1002' and 1 more" in it.verify().problems[0]
        shop.execute("UPDATE shop.items SET id = 1500 WHERE id = 1003")  # and to another partition
        shop.execute("UPDATE shop.items SET id = 500 WHERE id = 1002")
        shop.execute("UPDATE shop.items SET title = 'text alone' WHERE id = 1001")
        assert it.status().application.unknown == 4
        if writes == "new":
            with pytest.raises(UpgradeStateError, match="4 rows have no up-to-date vector of the new model"):
                it.finish()
        if not mixing:
            with pytest.raises(UpgradeStateError, match="4 rows have no up-to-date vector of the old model"):
                it.rollback(writes="old")
        it.rollback(source(it, "old"), writes="old")
        check(shop, [], "old")
        it.backfill(source(it))
        assert it.status().application.unknown == 0
        it.cancel()
    check(shop, [], "old")


def test_a_table_aside_forgets_vectors_of_rows_written_without_triggers(shop: Shop) -> None:
    shop.fill(5)
    with shop.start(aside=True) as it:
        it.backfill(source(it))
        it.index()
        shop.execute("SET session_replication_role = 'replica'; UPDATE shop.items SET title = 'a' WHERE id = 1; "
                     f"UPDATE shop.items SET emb = '{written('old', 'z')}' WHERE id = 2; "
                     f"INSERT INTO shop.items (id, title, emb) VALUES (9, 'b', '{written('old', 'b')}'); "
                     "DELETE FROM shop.items WHERE id = 3; "
                     f"DELETE FROM shop.items WHERE id = 4; INSERT INTO shop.items VALUES (4, 'c', 1, "
                     f"'{written('old', 'c')}')")  # fmt: skip
        [problem] = it.verify().problems
        assert problem.startswith("3 rows were written without our triggers") and "'1', '2', '4'" in problem
        assert it.status().lacking == {"old": 0, "new": 4}
        it.backfill(source(it))
        assert it.verify().problems == () and it.status().lacking == {"old": 0, "new": 0}
        found = shop.execute(f"SELECT id, vector::text, title FROM limpet_attached.vectors_{it.number} AS s "
                             "LEFT JOIN shop.items USING (id)")  # fmt: skip
        assert sorted(row for row, _, _ in found) == [0, 1, 2, 4, 9]
        for _, values, title in found:
            assert made_by(values) == "new"
            assert abs(vector("new", title) - [float(part) for part in values.strip("[]").split(",")]).max() < 1e-5


@pytest.mark.parametrize("mixing", [False, True], ids=["two columns", "one column"])
def test_a_writer_that_was_not_updated_is_found(mixing: bool, make_shop: Callable[..., Shop]) -> None:
    shop = make_shop()
    shop.fill(5)
    with shop.start(**({"mixing": evaluation()} if mixing else {})) as it:
        it.backfill(source(it))
        indexed(it)
        it.swap(writes="new")
        shop.execute("UPDATE shop.items SET title = 'a', emb = %s WHERE id = 1", [written("new", "a")])
        shop.execute("UPDATE shop.items SET title = 'b' WHERE id = 4")  # its vector comes later
        assert it.verify(source=source(it)).problems == ()
        shop.execute("UPDATE shop.items SET title = 'c', emb = %s WHERE id = 2", [written("old", "c")])
        shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (9, 'd', %s)", [written("old", "d")])
        assert it.verify().problems == ()  # nobody can tell without the model
        [problem] = it.verify(source=source(it)).problems
        assert problem.startswith("2 of 3 rows that the application wrote since") and "'2', '9'" in problem
        assert it.status().application.unknown == 2
        with pytest.raises(DataError, match="makes vectors of declared:old"):
            it.verify(source=source(it, "old"))
        it.backfill(source(it))
        assert it.verify(source=source(it)).problems == () and it.status().application.unknown == 0
        check(shop, [], "new")


@pytest.mark.parametrize("setting", ["timezone = 'Asia/Tokyo'", "datestyle = 'German'"])
def test_values_are_the_same_texts_whatever_a_writer_has_set(setting: str, how: dict[str, Any], shop: Shop) -> None:
    shop.execute("ALTER TABLE shop.items ADD sold timestamptz")
    with shop.start(shop.at("shop.items", "text=title,sold"), **how) as it:
        shop.execute(f"SET {setting}; INSERT INTO shop.items (id, title, sold, emb) VALUES (1, 'item 1', now(), "
                     f"'{written('old', 'item 1')}')")  # fmt: skip
        assert not it.verify().problems and it.status().application.unknown == 0
