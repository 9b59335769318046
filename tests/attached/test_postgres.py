"""An upgrade in a table of PostgreSQL: every step and its way back."""

from __future__ import annotations

import pytest

from attached.shop import Shop, source
from holdfast.errors import UpgradeStateError


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
