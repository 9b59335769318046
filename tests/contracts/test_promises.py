"""What places of galleries declare that upgrades may count on is what they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crash.shards import sharded
from limpet.engines.store import Changes, Graph, NewGeneration, Rows, Upsert
from limpet.engines.stores import STORES
from limpet.errors import ConfigError
from limpet.testing.stores import StorePlace, commit

ROWS, WIDTH = 5_000, 8


@pytest.fixture
def place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StorePlace]:
    if kind == "sharded":  # one shard: with fewer rows each, there would be no index
        url = sharded(tmp_path / "gallery", ["lance"])
    elif STORES[kind].in_folder:
        url = f"{kind}:{tmp_path / 'gallery'}"
    else:
        url = request.getfixturevalue("s3_url" if kind == "s3" else "postgres_url")
    found = StorePlace(url)
    yield found
    found.close()


def written(value: float) -> Changes:
    """One item with one vector, whose score for a query of ones is its width times the value."""
    return Changes(upsert=Upsert(["a"], [{}], [Rows("g1", ["a"], np.full((1, WIDTH), value, np.float32))]))


@pytest.mark.parametrize("kind", STORES)
def test_a_search_goes_on_at_its_commit(kind: str, place: StorePlace) -> None:
    store = place.create()
    commit(store, Changes(create=[NewGeneration("g1", WIDTH, {})]))
    commit(store, written(1))
    began = store.pointer()
    other = place.open()
    commit(other, written(2))

    assert STORES[kind].promises.earlier
    hits = store.search(np.ones((1, WIDTH), np.float32), 1, generation="g1", at=began)
    assert hits.scores[0].tolist() == [WIDTH]
    assert other.search(np.ones((1, WIDTH), np.float32), 1, generation="g1", at=other.pointer()).scores[0] == 2 * WIDTH


@pytest.mark.parametrize("kind", STORES)
def test_an_approximate_index_is_of_the_kind_that_is_declared(kind: str, place: StorePlace) -> None:
    store, rng = place.create(), np.random.default_rng(0)
    commit(store, Changes(create=[NewGeneration("g1", WIDTH, {})]))
    ids = [f"{number:04}" for number in range(ROWS)]
    vectors = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    commit(store, Changes(upsert=Upsert(ids, [{}] * ROWS, [Rows("g1", ids, vectors)])))
    before = store.upkeep("g1").indexed
    store.build_index("g1", directions=True)
    declared = STORES[kind].promises.index
    assert (before, store.upkeep("g1").indexed) == (ROWS if declared == "none" else 0, ROWS)
    assert (store.graph is not None) == (declared == "graph")
    if declared == "graph":
        store.choose_graph(Graph(m=4, ef_construction=16))
    else:
        with pytest.raises(ConfigError):
            store.choose_graph(Graph())
