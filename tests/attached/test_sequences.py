"""Every pair of an application's statements on a row, with fills and turns between, against a small oracle.

The oracle knows of a row its text, whether the application wants a vector of it, and of which models a vector must be
current, and may be. Whatever counts as current is of the row's text, by the model that it is said to be of; what the
application wrote last is there; what it took away stays away; and once both models are filled, both vectors are there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
import pytest

from crash.evidence import evaluation
from crash.shop import GOODS, Shop, indexed, made_by, source, vector, written
from limpet.attached.postgres.attachment import PostgresAttachment
from limpet.attached.postgres.layout import held
from limpet.engines.sides import OTHER, ModelSide

PARTS = GOODS.replace("emb vector(8))", "emb vector(8)) PARTITION BY RANGE (id)").replace(
    "CREATE INDEX", "CREATE TABLE shop.low PARTITION OF shop.items FOR VALUES FROM (0) TO (10000); "
    "CREATE TABLE shop.high PARTITION OF shop.items FOR VALUES FROM (10000) TO (20000); CREATE INDEX")  # fmt: skip
MOVED = 10_000
"""By how much a row gets another key."""


@dataclass
class Row:
    """What an application knows of one of its rows.

    Args:
        key: Its key.
        text: Its text.
        wanted: Whether it is to have a vector.
        must: Models whose vector is of the text for certain, since the application just wrote it.
        may: Models whose vector may be of the text.
    """

    key: int
    text: str
    wanted: bool = True
    must: set[ModelSide] = field(default_factory=set)
    may: set[ModelSide] = field(default_factory=lambda: {"old", "new"})

    def rewritten(self) -> None:
        """Get another text."""
        self.text += "'"
        self.must, self.may = set(), set()

    def vector(self, side: ModelSide) -> str:
        """Get a vector of its text, and return it as an application sends it."""
        self.wanted, self.must = True, {side}
        self.may = self.may | {side}
        return written(side, self.text)


Statement = tuple[str, list[Any]]


def text_alone(row: Row, side: ModelSide) -> list[Statement]:
    row.rewritten()
    return [("UPDATE shop.items SET title = %s WHERE id = %s", [row.text, row.key])]


def vector_alone(row: Row, side: ModelSide) -> list[Statement]:
    return [("UPDATE shop.items SET emb = %s WHERE id = %s", [row.vector(side), row.key])]


def both(row: Row, side: ModelSide) -> list[Statement]:
    row.rewritten()
    return [("UPDATE shop.items SET title = %s, emb = %s WHERE id = %s", [row.text, row.vector(side), row.key])]


def no_vector(row: Row, side: ModelSide) -> list[Statement]:
    row.wanted, row.must, row.may = False, set(), set()
    return [("UPDATE shop.items SET emb = NULL WHERE id = %s", [row.key])]


def text_and_no_vector(row: Row, side: ModelSide) -> list[Statement]:
    row.rewritten()
    row.wanted = False
    return [("UPDATE shop.items SET title = %s, emb = NULL WHERE id = %s", [row.text, row.key])]


def another_key(row: Row, side: ModelSide) -> list[Statement]:
    before = row.key
    row.key += MOVED if row.key < MOVED else -MOVED
    return [("UPDATE shop.items SET id = %s WHERE id = %s", [row.key, before])]


def another_row(row: Row, side: ModelSide) -> list[Statement]:
    row.rewritten()
    return [
        ("DELETE FROM shop.items WHERE id = %s", [row.key]),
        ("INSERT INTO shop.items (id, title, emb) VALUES (%s, %s, %s)", [row.key, row.text, row.vector(side)]),
    ]


def upsert(row: Row, side: ModelSide) -> list[Statement]:
    row.rewritten()
    return [("INSERT INTO shop.items (id, title, emb) VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET "
             "title = excluded.title, emb = excluded.emb", [row.key, row.text, row.vector(side)])]  # fmt: skip


def price(row: Row, side: ModelSide) -> list[Statement]:
    return [("UPDATE shop.items SET price = 7 WHERE id = %s", [row.key])]


WITH_A_VECTOR = (vector_alone, both, another_row, upsert)
KINDS: list[tuple[Callable[[Row, ModelSide], list[Statement]], ModelSide | None]] = [
    *((kind, side) for kind in WITH_A_VECTOR for side in ("old", "new")),  # type: ignore[misc]
    *((kind, None) for kind in (text_alone, no_vector, text_and_no_vector, another_key, price)),
]
"""What an application does, and of which model the vector is that it writes."""


def send(shop: Shop, rows: list[Row], kinds: list[int], *, aside: bool) -> None:
    """Let the application do to every row what is said of it."""
    with psycopg.connect(shop.database) as connection:
        for row, number in zip(rows, kinds, strict=True):
            kind, side = KINDS[number]
            model = f"declared:{side}" if side else ""
            connection.execute("SELECT set_config('limpet.writes_with', %s, true)", [model])
            for statement, values in kind(row, side or "old"):
                connection.execute(statement.encode(), values)
            if aside:  # it keeps old vectors itself, and every change makes the new one due
                row.must = set()
                row.may -= set() if kind in (price, vector_alone) else {"new"}  # which may be the vector that was there


def look(it: PostgresAttachment, rows: list[Row], words: list[str]) -> None:
    """Compare the table with what is known of its rows."""
    with it._database.transaction():
        _, layout = held(it._database, it.number)
        own = f"t.{layout.home}" if it.state.shared or not it.state.swappable else layout.vector(it.state.serving)
        found = {
            int(key): (text, wanted, emb, {"old": old, "new": new})
            for key, text, wanted, emb, old, new in it._database.rows(
                f"SELECT t.id, t.title, {layout.wanted}, {own}::text, {layout.current('old')}::text, "
                f"{layout.current('new')}::text FROM {layout.rows}"
            )
        }
    for row, word in zip(rows, words, strict=True):
        text, wanted, emb, vectors = found[row.key]
        assert (text, wanted) == (row.text, row.wanted), word
        if not row.wanted:
            assert emb is None and vectors == {"old": None, "new": None}, word
            continue
        current: set[ModelSide] = set()
        for side, values in vectors.items():
            if values is not None and (side == "new" or it.state.swappable):
                assert made_by(values) == side, word
                numbers = [float(part) for part in values.strip("[]").split(",")]
                assert np.abs(vector(side, row.text) - numbers).max() < 1e-5, f"{word}: {side} of another text"
                current.add(side)
        assert row.must <= current <= row.may, f"{word}: {current} are current, {row.must} must be, {row.may} may be"
        if not it.state.shared and it.state.swappable and emb is not None:
            assert made_by(emb) == it.state.serving, word  # nothing is mixed


def fill(it: PostgresAttachment, rows: list[Row], sides: tuple[ModelSide, ...]) -> None:
    for side in sides:
        it.backfill(source(it, side), of=side)
        for row in rows:
            if row.wanted:
                row.must, row.may = row.must | {side}, row.may | {side}


def turn(it: PostgresAttachment, rows: list[Row]) -> None:
    to: ModelSide = OTHER[it.state.serving]
    (it.swap if to == "new" else it.rollback)(source(it, to))
    for row in rows:
        if row.wanted:
            row.may = row.may | {to}
            row.must = row.must | ({to} if not it.state.shared else set())


BETWEEN: dict[str, Callable[[PostgresAttachment, list[Row]], None]] = {
    "nothing": lambda it, rows: None,
    "new ones": lambda it, rows: fill(it, rows, ("new",)),
    "old ones": lambda it, rows: fill(it, rows, ("old",)),
    "a turn": turn,
}


CASES = [
    (layout, serving, between)
    for layout in ("two columns", "partitions", "one column")
    for serving in ("old", "new")
    for between in BETWEEN
] + [("aside", "old", "nothing"), ("aside", "old", "new ones")]
QUICK = {("two columns", "old", "a turn"), ("one column", "new", "a turn")}


@pytest.mark.parametrize(
    ("layout", "serving", "between"),
    [pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow, id=", ".join(case)) for case in CASES],
)
def test_statements_of_an_application(
    layout: str, serving: ModelSide, between: str, make_shop: Callable[..., Shop]
) -> None:
    aside = layout == "aside"
    shop = make_shop(PARTS if layout == "partitions" else GOODS)
    pairs = list(itertools.product(range(len(KINDS)), repeat=2))
    shop.fill(len(pairs))
    rows = [Row(key, f"item {key}") for key in range(len(pairs))]
    words = [" then ".join(f"{KINDS[one][0].__name__} {KINDS[one][1] or ''}" for one in pair) for pair in pairs]
    with shop.start(**({"mixing": evaluation()} if layout == "one column" else {}), aside=aside) as it:
        it.backfill(source(it))
        indexed(it)
        if serving == "new":
            it.swap()
        for place in (0, 1):
            send(shop, rows, [pair[place] for pair in pairs], aside=aside)
            look(it, rows, words)
            if place == 0:
                BETWEEN[between](it, rows)
                look(it, rows, words)
        fill(it, rows, ("new",) if aside else ("new", "old"))
        look(it, rows, words)
        assert it.status().lacking == {"old": 0, "new": 0} and it.verify().problems == ()
        if not aside:
            turn(it, rows)
            look(it, rows, words)
