"""What becomes of every kind of write, by which model serves and with which model it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg
import pytest

from crash.server import Server
from crash.shop import GOODS, Shop, indexed, lasting_shop, made_by, source, vector, written
from limpet.attached.postgres.attachment import PostgresAttachment
from limpet.engines.sides import ModelSide
from limpet.errors import UpgradeStateError
from limpet.geometry import Hypersphere
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import CallableVectors

OTHER: dict[ModelSide, ModelSide] = {"old": "new", "new": "old"}


class Desk:
    """One connection of an application to an attached table of three rows, 0 to 2, that have both vectors."""

    def __init__(self, shop: Shop, it: PostgresAttachment, serving: ModelSide, writes: ModelSide) -> None:
        self.shop, self.it, self.serving, self.writes = shop, it, serving, writes
        self.shared = it.state.shared
        self.hidden = "emb_limpet_kept" if self.shared else f"emb_limpet_{OTHER[serving]}"

    def send(self, statement: str, *values: Any) -> None:
        self.shop.execute(statement, values)

    def row(self, number: int) -> dict[str, str | None]:
        """Return the text that each model's vector of a row is of: None for no vector, "?" for another model's."""
        what = "coalesce(emb_limpet_model, 'old')" if self.shared else "''"
        [(emb, other, model)] = self.shop.execute(
            f"SELECT emb::text, {self.hidden}::text, {what} FROM shop.items WHERE id = {number}"
        )
        if self.shared:
            side: ModelSide = "old" if model.startswith("old") else "new"
            assert emb is None or made_by(emb) == side
            fresh = emb if model == side else None
            return {side: self.text(side, fresh), OTHER[side]: self.text(OTHER[side], other)}
        return {self.serving: self.text(self.serving, emb), OTHER[self.serving]: self.text(OTHER[self.serving], other)}

    def served(self, number: int) -> str | None:
        """Return the vector that the application reads."""
        [(emb,)] = self.shop.execute(f"SELECT emb::text FROM shop.items WHERE id = {number}")
        return None if emb is None else str(emb)

    def text(self, side: ModelSide, values: str | None) -> str | None:
        if values is None:
            return None
        known = ["item 0", "item 1", "item 2", "a", "b"]
        if made_by(values) != side:
            return "?"
        found = [float(part) for part in values.strip("[]").split(",")]
        return next(text for text in known if abs(vector(side, text) - found).max() < 1e-5)

    def lacking(self, side: ModelSide) -> int:
        return self.it.status().lacking[side]

    def vector(self, text: str) -> str:
        return written(self.writes, text)


@pytest.fixture(scope="module", params=[("old", "old"), ("old", "new"), ("new", "new"), ("new", "old")],
                ids=["old serves", "old serves, new written", "new serves", "new serves, old written"])  # fmt: skip
def sides(request: pytest.FixtureRequest) -> tuple[ModelSide, ModelSide]:
    """Which model serves, and which one the application writes with."""
    found: tuple[ModelSide, ModelSide] = request.param
    return found


@contextmanager
def attached(shop: Shop, sides: tuple[ModelSide, ModelSide], how: dict[str, Any]) -> Iterator[Desk]:
    serving, writes = sides
    shop.fill(3)
    with shop.start(**how) as it:
        it.backfill(source(it))
        indexed(it)
        if serving == "new":
            it.swap()
        it.declare_writes(writes)
        yield Desk(shop, it, serving, writes)


@pytest.fixture
def own_desk(shop: Shop, sides: tuple[ModelSide, ModelSide], how: dict[str, Any]) -> Iterator[Desk]:
    with attached(shop, sides, how) as made:
        yield made


@pytest.fixture(scope="module")
def open_shop(postgres_server: Server) -> Iterator[Shop]:
    with lasting_shop(postgres_server) as shop:
        yield shop


@pytest.fixture(scope="module")
def open_desk(open_shop: Shop, sides: tuple[ModelSide, ModelSide], how: dict[str, Any]) -> Iterator[Desk]:
    with attached(open_shop.renew(), sides, how) as made:
        made.send("CREATE TABLE shop.kept AS TABLE shop.items")
        yield made


@pytest.fixture
def desk(open_desk: Desk) -> Desk:
    """A desk whose rows are put back as they were, for tests that write nothing else."""
    open_desk.send("SET limpet.filling = 'on'; DELETE FROM shop.items; INSERT INTO shop.items SELECT * FROM shop.kept")
    return open_desk


def expected(desk: Desk, text: str, *, beside: str | None = None) -> dict[str, str | None]:
    """The vector that was written stands with its model; the other model's is to be filled, unless it is said."""
    return {desk.writes: text, OTHER[desk.writes]: beside}


def test_a_new_row(own_desk: Desk) -> None:
    own_desk.send("INSERT INTO shop.items (id, title, emb) VALUES (5, 'a', %s)", own_desk.vector("a"))
    assert own_desk.row(5) == expected(own_desk, "a")
    side = OTHER[own_desk.writes]
    assert own_desk.lacking(side) == 1
    own_desk.it.backfill(source(own_desk.it, side), of=side)
    assert own_desk.row(5) == {"old": "a", "new": "a"}


def test_a_new_row_and_no_vector_yet(desk: Desk) -> None:
    desk.send("INSERT INTO shop.items (id, title) VALUES (5, 'a')")
    assert desk.row(5) == {"old": None, "new": None}
    assert (desk.lacking("old"), desk.lacking("new"), desk.it.status().application.empty) == (0, 0, 1)
    desk.send("UPDATE shop.items SET emb = %s WHERE id = 5", desk.vector("a"))
    assert desk.row(5) == expected(desk, "a") and desk.lacking(OTHER[desk.writes]) == 1


def test_another_text_and_its_vector(desk: Desk) -> None:
    desk.send("UPDATE shop.items SET title = 'a', emb = %s WHERE id = 1", desk.vector("a"))
    assert desk.row(1) == expected(desk, "a")


def test_another_text_and_its_vector_later(desk: Desk) -> None:
    serves: ModelSide = (
        "new" if desk.shared else desk.serving
    )  # with one column its vector is of the new model, once all are filled
    before = desk.text(serves, desk.served(1))
    desk.send("UPDATE shop.items SET title = 'a' WHERE id = 1")
    assert desk.text(serves, desk.served(1)) == before == "item 1"  # it is found until there is another one
    assert desk.lacking("old") == desk.lacking("new") == 1
    desk.send("UPDATE shop.items SET emb = %s WHERE id = 1", desk.vector("a"))
    assert desk.row(1)[desk.writes] == "a" and desk.lacking(desk.writes) == 0
    assert desk.lacking(OTHER[desk.writes]) == 1  # what serves of the earlier text does not count


def test_a_vector_of_the_same_text(desk: Desk) -> None:
    desk.send("UPDATE shop.items SET emb = %s WHERE id = 1", desk.vector("a"))
    kept = None if (desk.shared or desk.serving == "old") and desk.writes == "old" else "item 1"
    assert desk.row(1) == expected(desk, "a", beside=kept)


def test_an_upsert(desk: Desk) -> None:
    upsert = "INSERT INTO shop.items (id, title, emb) VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET " \
             "title = excluded.title, emb = excluded.emb"  # fmt: skip
    desk.send(upsert, 1, "a", desk.vector("a"))
    desk.send(upsert, 6, "b", desk.vector("b"))
    assert (desk.row(1), desk.row(6)) == (expected(desk, "a"), expected(desk, "b"))


def test_a_row_without_names_of_columns(desk: Desk) -> None:
    desk.send("INSERT INTO shop.items VALUES (5, 'a', 1, %s)", desk.vector("a"))
    assert desk.row(5) == expected(desk, "a")


def test_an_upsert_without_names_of_columns(desk: Desk) -> None:
    upsert = "INSERT INTO shop.items VALUES (%s, %s, 1, %s) ON CONFLICT (id) DO UPDATE SET title = excluded.title, " \
             "emb = excluded.emb"  # fmt: skip
    desk.send(upsert, 1, "a", desk.vector("a"))
    desk.send(upsert, 6, "b", desk.vector("b"))
    assert (desk.row(1), desk.row(6)) == (expected(desk, "a"), expected(desk, "b"))


def test_many_rows_by_copy(desk: Desk) -> None:
    with (
        psycopg.connect(desk.shop.database) as connection,
        connection.cursor() as cursor,
        cursor.copy("COPY shop.items (id, title, emb) FROM STDIN") as copy,
    ):
        copy.write_row([5, "a", desk.vector("a")])
        copy.write_row([6, "b", desk.vector("b")])
    assert (desk.row(5), desk.row(6)) == (expected(desk, "a"), expected(desk, "b"))


def test_a_row_that_loses_its_vector(own_desk: Desk) -> None:
    own_desk.send("UPDATE shop.items SET emb = NULL WHERE id = 1")
    assert own_desk.row(1) == {"old": None, "new": None} and own_desk.it.status().application.empty == 1
    own_desk.it.backfill(source(own_desk.it, "new"))
    own_desk.it.backfill(source(own_desk.it, "old"), of="old")
    assert own_desk.row(1) == {"old": None, "new": None}


def test_what_does_not_concern_vectors_changes_none(desk: Desk) -> None:
    desk.send("UPDATE shop.items SET price = 7 WHERE id = 1")
    desk.send("UPDATE shop.items SET title = title, emb = emb WHERE id = 1")
    desk.send(f"UPDATE shop.items SET {desk.hidden} = %s, emb_limpet_mark = NULL WHERE id = 2", desk.vector("a"))
    assert (desk.row(1), desk.row(2)) == ({"old": "item 1", "new": "item 1"}, {"old": "item 2", "new": "item 2"})


def test_a_session_says_what_it_writes(desk: Desk) -> None:
    sides: list[tuple[ModelSide, str]] = [("old", "a"), ("new", "b")]
    for side, text in sides:
        with psycopg.connect(desk.shop.database) as connection:
            connection.execute(f"SET LOCAL limpet.writes_with = 'declared:{side}'")
            connection.execute("UPDATE shop.items SET title = %s, emb = %s WHERE id = 1", [text, written(side, text)])
        assert desk.row(1) == {side: text, OTHER[side]: None}
    with psycopg.connect(desk.shop.database) as connection, pytest.raises(psycopg.Error, match="declared:third"):
        connection.execute("SET LOCAL limpet.writes_with = 'declared:third'")
        connection.execute("UPDATE shop.items SET emb = %s WHERE id = 1", [written("old", "b")])


def test_a_turn_after_writes_mixes_nothing(own_desk: Desk) -> None:
    own_desk.send("INSERT INTO shop.items (id, title, emb) VALUES (5, 'a', %s)", own_desk.vector("a"))
    own_desk.send("UPDATE shop.items SET title = 'b', emb = %s WHERE id = 1", own_desk.vector("b"))
    other = OTHER[own_desk.serving]
    turn = own_desk.it.swap if other == "new" else own_desk.it.rollback
    turn(source(own_desk.it, other))
    assert set(own_desk.shop.sides().values()) == {other}


@pytest.mark.parametrize("kind", ["update", "delete and insert", "no vector"])
def test_what_is_written_while_vectors_are_made_wins(kind: str, shop: Shop, how: dict[str, Any]) -> None:
    statements = {
        "update": [("UPDATE shop.items SET title = 'a', emb = %s WHERE id = 1", [written("old", "a")])],
        "delete and insert": [
            ("DELETE FROM shop.items WHERE id = 1", []),
            ("INSERT INTO shop.items (id, title, emb) VALUES (1, 'a', %s)", [written("old", "a")]),
        ],
        "no vector": [("UPDATE shop.items SET emb = NULL WHERE id = 1", [])],
    }
    shop.fill(3)
    asked: list[int] = []

    def write() -> None:  # after the texts were read
        asked.append(1)
        if len(asked) == 1:
            for statement, values in statements[kind]:
                shop.execute(statement, values)

    with shop.start(**how) as it:
        done = it.backfill(source(it, told=write), batch=2)
        row = Desk(shop, it, "old", "old").row(1)
        assert row == ({"old": None, "new": None} if kind == "no vector" else {"old": "a", "new": "a"})
        assert done.embedded > done.written and done.lacking == 0


def test_vectors_that_must_be_there(make_shop: Callable[..., Shop], how: dict[str, Any]) -> None:
    shop = make_shop(GOODS.replace("emb vector(8)", "emb vector(8) NOT NULL"))
    shop.fill(3)
    schema, rows = shop.dump(), shop.contents()
    with shop.start(**how) as it:
        it.backfill(source(it))
        indexed(it)
        it.swap()
        shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (5, 'a', %s)", [written("old", "a")])
        for statement in ("INSERT INTO shop.items (id) VALUES (6)", "UPDATE shop.items SET emb = NULL WHERE id = 1"):
            with pytest.raises(psycopg.errors.NotNullViolation, match="emb"):
                shop.execute(statement)
        shop.execute("DELETE FROM shop.items WHERE id = 5")
        it.rollback()
        it.cancel()
    assert (shop.dump(), shop.contents()) == (schema, rows)
    with pytest.raises(psycopg.errors.NotNullViolation):
        shop.execute("INSERT INTO shop.items (id) VALUES (6)")


def test_vectors_of_another_dimension(make_shop: Callable[..., Shop]) -> None:
    shop = make_shop()
    shop.fill(3)
    with shop.start(new=UpgradeModel("declared:wide", 12)) as it:
        wide = CallableVectors(lambda texts: _wide(len(texts)), "declared:wide", Hypersphere(12), it.texts)
        assert it.backfill(wide).written == 3
        it.index()
        with pytest.raises(UpgradeStateError, match="8 numbers and the new one of 12"):
            it.swap()
        with pytest.raises(UpgradeStateError, match="takes vectors of declared:old only"):
            it.declare_writes("new")
        it.swap(writes="new")
        assert shop.execute("SELECT DISTINCT vector_dims(emb) FROM shop.items") == [(12,)]
        with pytest.raises(psycopg.Error, match="expected 12 dimensions, not 8"):
            shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (5, 'a', %s)", [written("old", "a")])
        it.rollback(writes="old")
        shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (5, 'a', %s)", [written("old", "a")])
        it.cancel()
    assert len(shop.sides()) == 4


def _wide(rows: int) -> Any:
    return np.tile(np.eye(12, dtype=np.float32)[0], (rows, 1))
