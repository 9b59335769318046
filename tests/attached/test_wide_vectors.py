"""New vectors of more numbers than an index of pgvector takes: which indexes there are instead, and what is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest
from pgvector.psycopg import register_vector

from crash.shop import OLD, Shop
from limpet.attached.postgres.attachment import PostgresAttachment
from limpet.attached.postgres.start import plan
from limpet.errors import ConfigError, GalleryError
from limpet.geometry import Hypersphere
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import CallableVectors

ROWS, WIDE = 40, 5000
INDEXES = {"bits": "bit_hamming_ops", "first:64": "vector_cosine_ops", "none": ""}


def model(dim: int) -> UpgradeModel:
    return UpgradeModel("declared:new", dim, "new")


def made(dim: int) -> np.ndarray:
    vectors = np.random.default_rng(dim).normal(size=(ROWS, dim)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def source(it: PostgresAttachment, dim: int) -> CallableVectors:
    vectors = made(dim)
    return CallableVectors(lambda texts: vectors[[int(text.split()[1]) for text in texts]], "declared:new",
                           Hypersphere(dim), it.texts)  # fmt: skip


def answered(shop: Shop, query: str) -> list[tuple[Any, ...]]:
    """Return what a server answers that uses an index wherever one can be used."""
    with psycopg.connect(shop.database) as client:
        client.execute("SET LOCAL enable_seqscan = off")
        client.execute("SET LOCAL enable_sort = off")
        client.execute("SET LOCAL hnsw.ef_search = 200")
        return client.execute(query.encode()).fetchall()


def planned(shop: Shop, query: str) -> str:
    return "\n".join(line for (line,) in answered(shop, f"EXPLAIN {query}"))


@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize("index", INDEXES)
def test_wide_vectors_are_indexed_as_was_chosen(index: str, aside: bool, shop: Shop) -> None:
    shop.fill(ROWS)
    schema = shop.dump()
    with shop.start(new=model(WIDE), index=index, aside=aside) as it:
        it.backfill(source(it, WIDE))
        it.index()
        definitions = [said for (said,) in shop.execute(
            "SELECT indexdef FROM pg_indexes WHERE indexname = 'items_emb_limpet_new'")]  # fmt: skip
        assert len(definitions) == (index != "none")
        assert all(INDEXES[index] in one and "m='8'" in one for one in definitions)
        if not aside:
            it.swap(writes="new")
            assert shop.execute("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = 'emb' "
                                "AND attrelid = 'shop.items'::regclass") == [(f"vector({WIDE})",)]  # fmt: skip
        searches = [query for purpose, query in it.status().application.queries.items() if "by the index" in purpose]
        assert len(searches) == (index != "none")
        for search in searches:
            asked = "'" + str(made(WIDE)[7].tolist()) + "'"
            query = search.replace("…", "near.id", 1).replace("$1", asked)
            assert "items_emb_limpet_new" in planned(shop, query)
            assert answered(shop, query)[0] == (7,)
        if aside:
            it.cancel()
        else:
            it.finish()
    if not aside:
        changed = shop.dump()
        assert ("CREATE INDEX items_emb ON" in changed) == (index != "none") and "limpet" not in changed
    else:
        assert shop.dump() == schema


def test_an_index_that_cannot_be_built_is_refused_with_those_that_can(shop: Shop) -> None:
    shop.fill(2)
    with pytest.raises(GalleryError, match=r"--index bits .*--index first:N .*--index none"):
        shop.start(new=model(WIDE))
    with pytest.raises(GalleryError, match="at most 16,000, as many as pgvector stores"):
        shop.start(new=model(16_001), index="bits")
    for index in ("first:0", "first:3000", "first:x", "signs"):
        with pytest.raises(ConfigError, match="whole, bits, none, or first:N with N from 1 to 2,000"):
            shop.start(new=model(WIDE), index=index)


def test_what_the_application_reads_after_a_swap_is_said_before(shop: Shop) -> None:
    """A query of the old type uses the index, as the note says, and vectors come in the type that it names."""
    shop.fill(ROWS)
    [note] = [one for one in plan(shop.url, old=OLD, new=model(3072)).notes if "has the type" in one]
    assert "HalfVector" in note and "instead of vector(8)" in note
    assert not [one for one in plan(shop.url, old=OLD, new=model(3072), index="bits").notes if "has the type" in one]
    with shop.start(new=model(3072)) as it:
        it.backfill(source(it, 3072))
        it.index()
        it.swap(writes="new")
    asked = "'" + str(made(3072)[7].tolist()) + "'"
    search = f"SELECT id FROM shop.items ORDER BY emb <=> {asked}::vector LIMIT 1"
    assert "items_emb_limpet_new" in planned(shop, search) and answered(shop, search) == [(7,)]
    shop.execute(f"UPDATE shop.items SET emb = {asked}::vector WHERE id = 1")
    with psycopg.connect(shop.database) as client:
        register_vector(client)
        [(emb,)] = client.execute("SELECT emb FROM shop.items WHERE id = 1").fetchall()
    assert type(emb).__name__ == "HalfVector" and abs(emb.to_numpy() - made(3072)[7]).max() < 1e-3


def test_an_index_of_bits_needs_no_choice(make_shop: Any) -> None:
    from crash.shop import GOODS

    shop = make_shop(GOODS.replace("(emb vector_cosine_ops)", "((binary_quantize(emb)::bit(8)) bit_hamming_ops)"))
    shop.fill(ROWS)
    with shop.start(new=model(WIDE)) as it:
        it.backfill(source(it, WIDE))
        it.index()
        assert all(one.built for one in it.status().indexes)
        it.swap(writes="new")
