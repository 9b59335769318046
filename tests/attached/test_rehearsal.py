"""Rehearsals of a table: where both models share its column, and where several columns identify a row."""

from __future__ import annotations

import pytest

from crash.evidence import evaluation
from crash.shop import DIM, Shop, source, written
from limpet.attached.base import OwnedIndex
from limpet.attached.opening import previewed
from limpet.engines.address import Sample
from limpet.engines.reading import embeddings_of
from limpet.engines.sources import open_source


@pytest.mark.parametrize("filled", [0, 15, 30])
def test_rehearse_with_both_models_in_one_column(shop: Shop, filled: int) -> None:
    shop.fill(30)
    with shop.start(mixing=evaluation()) as it:
        if filled:
            it.swap()
            it.backfill(source(it), budget=filled)
        found = it.rehearse(source(it), sample=30, class_column="title")
        assert (found.linked, found.swaps_first, found.sampled, found.missing) == ("forced", True, 30, 0)
        assert found.before == found.after_rollback and found.rollback_equal
        assert it.remaining(at_once=True) == (("backfill",) if filled else ("swap", "backfill"))


@pytest.mark.parametrize("started", [False, True])
def test_rehearse_with_keys_of_several_columns(shop: Shop, started: bool) -> None:
    shop.execute(f"CREATE TABLE shop.parts (shop int, id text, title text, emb vector({DIM}), PRIMARY KEY (shop, id))")
    for row in range(30):
        values = [row % 2, f'"{row // 2}\\ é', f"item {row}", written("old", f"item {row}")]
        shop.execute("INSERT INTO shop.parts VALUES (%s, %s, %s, %s)", values)
    url = shop.at("shop.parts", "text=title")
    if started:
        shop.start(url).close()
    with previewed(url, sample=Sample(24)) as index:
        assert isinstance(index, OwnedIndex)
        ids = list(embeddings_of(open_source(index.rows), fingerprint="declared:old").ids)
        if started:
            assert sorted(ids) == sorted(index.some(30))
        assert len(ids) == 30 and sorted(index.texts.read(ids)[0]) == sorted(ids)
        found = index.rehearse(source(index), sample=24, class_column="title")
        assert (found.items, found.sampled, found.missing, found.attached) == (30, 24, 0, True)
