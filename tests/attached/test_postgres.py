"""An upgrade in a table of PostgreSQL: every step and its way back."""

from __future__ import annotations

import threading

import pytest

from attached.shop import Shop, source
from crash.server import Server
from holdfast.errors import StoreError, UpgradeStateError


def test_all_the_way_and_back(shop: Shop) -> None:
    shop.fill(20)
    shop.execute("INSERT INTO shop.items VALUES (100, 'not embedded yet', NULL, NULL)")
    schema, rows = shop.dump(), shop.contents()
    with shop.attach() as it:
        assert (it.state.phase, it.status().lacking, it.status().empty) == ("attached", {"old": 0, "new": 20}, 1)
        with pytest.raises(UpgradeStateError, match="Cannot swap: the attachment is attached"):
            it.swap()
        done = it.backfill(source(it), batch=7)
        assert (done.written, done.lacking, done.missing) == (20, 0, 0)
        assert it.state.phase == "filled" and set(shop.sides().values()) == {"old", None}
        it.index()
        assert [one.built for one in it.status().indexes] == [True] * 3
        it.swap()
        assert set(shop.sides().values()) == {"new", None}
        assert shop.execute("SELECT holdfast_attached.model_of('shop.items', 'emb')") == [("declared:new",)]
        it.rollback()
        assert set(shop.sides().values()) == {"old", None}
        it.swap()
        it.rollback()
        it.detach()
    assert shop.dump() == schema and shop.contents() == rows


def test_two_columns_of_one_table(shop: Shop) -> None:
    shop.execute("ALTER TABLE shop.items ADD COLUMN two vector(8)")
    shop.fill(4)
    shop.execute("UPDATE shop.items SET two = emb")
    schema, rows = shop.dump(), shop.contents()
    places = [shop.at("shop.items", "text=title", f"vector={name}") for name in ("emb", "two")]
    with shop.attach(places[0]) as one, shop.attach(places[1]) as two:
        for it in (one, two):
            it.backfill(source(it))
            it.index()
            it.swap()
            it.rollback()
        one.detach()
        assert (two.state.phase, [index.built for index in two.status().indexes]) == ("rolled back", [True] * 2)
        two.swap()
        two.rollback()
        two.detach()
    assert shop.dump() == schema and shop.contents() == rows


@pytest.mark.slow
def test_a_server_that_dies_in_the_middle(mortal_server: Server) -> None:
    shop = Shop(mortal_server, "mortal")
    shop.fill(60)
    asked: list[int] = []

    def die() -> None:
        asked.append(1)
        if len(asked) == 3:
            mortal_server.kill()
            threading.Timer(0.2, mortal_server.start).start()

    with shop.attach() as it:
        done = it.backfill(source(it, told=die), batch=5)
        assert (done.lacking, it.status().lacking["new"], it.state.phase) == (0, 0, "filled")
        it.index()
        mortal_server.kill()
        mortal_server.start()
        with pytest.raises(StoreError, match="fails"):
            it.swap()  # the connection is lost, and nothing else
        it.swap()
    assert set(shop.sides().values()) == {"new"}
