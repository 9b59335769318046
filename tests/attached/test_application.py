"""An application whose SQL never changes reads and writes its table through a whole upgrade, back, and again."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from crash.shop import Shop, indexed, made_by, source, vector, written
from limpet.attached.postgres.attachment import PostgresAttachment, open_attachment
from limpet.engines.sides import ModelSide

SEARCH = "SELECT id, title, emb FROM shop.items ORDER BY emb <=> (SELECT emb FROM shop.items WHERE id = %s) LIMIT 5"
INSERT = "INSERT INTO shop.items (id, title, price, emb) VALUES (%s, %s, %s, %s)"
UPSERT = INSERT + " ON CONFLICT (id) DO UPDATE SET title = excluded.title, emb = excluded.emb"
RENAME = "UPDATE shop.items SET title = %s, emb = %s WHERE id = %s"
PRICE = "UPDATE shop.items SET price = price + 1 WHERE id = %s"
DELETE = "DELETE FROM shop.items WHERE id = %s"


class Application(threading.Thread):
    """One client of a shop: it embeds what it writes with one model, as it always did, and remembers what it wrote."""

    def __init__(self, shop: Shop, seed: int, writes: ModelSide = "old", prepare: int | None = 1) -> None:
        super().__init__(daemon=True)
        self.shop, self.draw, self.writes, self.prepare = shop, random.Random(seed), writes, prepare
        self.first = 10_000 * (seed + 1)  # ids that it inserts
        self.own: dict[int, str | None] = {}  # titles of its own rows; None for one that it deleted
        self.errors: list[BaseException] = []
        self.mixed: list[object] = []
        self.done = 0
        self.ended = threading.Event()

    def run(self) -> None:
        with psycopg.connect(self.shop.database, autocommit=True, prepare_threshold=self.prepare) as connection:
            while not self.ended.wait(0.002):
                try:
                    self._act(connection)
                except BaseException as error:
                    self.errors.append(error)
                self.done += 1

    def _act(self, connection: psycopg.Connection[Any]) -> None:
        kind = self.draw.choice(["search"] * 4 + ["insert", "upsert", "rename", "price", "delete"])
        alive = [row for row, title in self.own.items() if title is not None]
        title, row = f"thing {self.first} {self.done}", self.draw.choice(alive) if alive else None
        if kind == "search":
            found = connection.execute(SEARCH, [self.draw.randrange(40)]).fetchall()
            sides = {made_by(emb) for _, _, emb in found if emb is not None}
            if len(sides) > 1:
                self.mixed.append(found)
        elif kind == "insert" or row is None:
            row = self.first + len(self.own)
            connection.execute(INSERT, [row, title, 1, written(self.writes, title)])
            self.own[row] = title
        elif kind == "upsert":
            connection.execute(UPSERT, [row, title, 1, written(self.writes, title)])
            self.own[row] = title
        elif kind == "rename":
            connection.execute(RENAME, [title, written(self.writes, title), row])
            self.own[row] = title
        elif kind == "price":
            connection.execute(PRICE, [row])
        else:
            connection.execute(DELETE, [row])
            self.own[row] = None

    def went_on(self, actions: int = 30) -> None:
        """Wait until it has done so much more."""
        until = self.done + actions
        while self.done < until and self.is_alive():
            self.ended.wait(0.002)


class Fillers(threading.Thread):
    """Somebody who lets a backfill run again and again, of both models."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.ended = url, threading.Event()
        self.errors: list[BaseException] = []

    def run(self) -> None:
        try:
            with open_attachment(self.url) as it:
                while not self.ended.is_set():
                    for side in ("new", "old"):
                        it.backfill(source(it, side), of=side, batch=16)
        except BaseException as error:
            self.errors.append(error)


def check(shop: Shop, applications: list[Application], serving: ModelSide) -> None:
    """Every row is as it was written last, with a vector of its text by the model that serves."""
    found = {row: (title, emb) for row, title, emb in shop.execute("SELECT id, title, emb::text FROM shop.items")}
    for one in applications:
        for row, title in one.own.items():
            assert (row in found) == (title is not None)
            assert title is None or found[row][0] == title
    for title, emb in found.values():
        assert emb is not None and made_by(emb) == serving
        assert abs(vector(serving, title) - [float(part) for part in emb.strip("[]").split(",")]).max() < 1e-5


@pytest.mark.parametrize("writes", ["old", pytest.param("new", marks=pytest.mark.slow)])
def test_an_application_goes_on_throughout(writes: ModelSide, shop: Shop, how: dict[str, Any]) -> None:
    shop.fill(40)
    schema = shop.dump()
    applications = [Application(shop, seed) for seed in range(2)]
    for one in applications:
        one.start()

    def step(call: Callable[[], object]) -> None:
        call()
        for one in applications:
            one.went_on()

    it: PostgresAttachment = shop.start(**how)
    fillers = Fillers(shop.url)
    with it:
        step(lambda: it.backfill(source(it), batch=8))
        step(lambda: indexed(it))
        fillers.start()
        step(lambda: it.swap(source(it)))
        if writes == "new":  # the application learns of the new model in the middle
            others = [Application(shop, seed, "new") for seed in (7, 8)]
            for one in applications:
                one.ended.set()
                one.join()
            it.declare_writes("new")
            applications += others
            for one in others:
                one.start()
        step(lambda: None)
        step(lambda: it.rollback(source(it, "old")))
        step(lambda: it.swap(source(it)))
        step(lambda: it.rollback(source(it, "old")))
        fillers.ended.set()
        fillers.join()
        for one in applications:
            one.ended.set()
            one.join()
        it.backfill(source(it, "old"), of="old")
        assert fillers.errors == [] and [one.errors for one in applications] == [[]] * len(applications)
        if it.state.shared:  # vectors of both models are found, each by the name of its own
            it.rollback()
            assert shop.marks() == shop.sides()
        else:
            assert [one.mixed for one in applications] == [[]] * len(applications)
        check(shop, applications, "old")
        it.declare_writes("old")
        it.cancel()
    check(shop, applications, "old")
    assert shop.dump() == schema
