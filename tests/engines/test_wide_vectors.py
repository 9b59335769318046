"""Approximate indexes of PostgreSQL over vectors of many numbers: what they hold, find, and are built of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from crash.server import Server
from limpet.embeddings import EmbeddingSet
from limpet.engines.filters import Condition
from limpet.engines.postgres.graphs import built, form_of
from limpet.engines.postgres.search import SETTINGS, Selection
from limpet.engines.postgres.store import PgvectorStore
from limpet.engines.store import Graph
from limpet.errors import ConfigError, GalleryError
from limpet.galleries import Gallery
from limpet.galleries.backup import restore
from limpet.geometry import Euclidean, Hypersphere, InnerProduct, Lorentz, Space

ROWS = 800


def embeddings(width: int, rows: int = ROWS, *, first: int = 0) -> EmbeddingSet:
    """Points that lie near a space of 400 dimensions, more than those of most models."""
    rng = np.random.default_rng(width)
    plane = rng.normal(size=(400, width))
    points = rng.normal(size=(first + rows, 400))[first:] @ plane + 0.5 * rng.normal(size=(rows, width))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    ids = [f"i{first + number:05d}" for number in range(rows)]
    return EmbeddingSet(points.astype(np.float32), ids, "declared:a", Hypersphere(width))  # type: ignore[arg-type]


# How graphs are built; before the searches below, whose snapshots an index would wait for


def test_settings_are_kept_for_later_generations_and_in_backups(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, points = Graph(8, 40, 250), embeddings(32, 40)
    with Gallery.create(postgres_url, fingerprint="declared:a", space=Hypersphere(32), graph=graph) as gallery:
        store = gallery.store
        assert isinstance(store, PgvectorStore) and store.graph == graph
        gallery.add(points)
        gallery.index()
        found = built(store.database, "g1")
        assert found is not None and (found.m, found.ef_construction) == (8, 40)
        gallery.start("declared:b", Hypersphere(32))
        gallery.index("g2")
        assert built(store.database, "g2") == found
        gallery.backup(tmp_path / "backup")
        gallery.index("g2", graph=Graph(12, 48))
        again = built(store.database, "g2")
        assert again is not None and again.m == 12 and built(store.database, "g1") == found
    restore(tmp_path / "backup", f"{postgres_url}r")
    with Gallery.open(f"{postgres_url}r") as gallery:
        assert isinstance(gallery.store, PgvectorStore) and gallery.store.graph == graph
        assert built(gallery.store.database, "g1") == found == built(gallery.store.database, "g2")


def test_a_wide_index_comes_back_with_a_backup(postgres_url: str, tmp_path: Path) -> None:
    for width in (2500, 4500):
        folder, url = tmp_path / str(width), f"{postgres_url}{width}"
        with Gallery.create(url, fingerprint="declared:a", space=Hypersphere(width)) as gallery:
            gallery.add(embeddings(width, 30))
            gallery.index()
            gallery.backup(folder)
        restore(folder, f"{url}r")
        with Gallery.open(f"{url}r") as gallery:
            assert gallery.status().generations[0].indexed == 30


class Embedder:
    """A model of a width."""

    def __init__(self, space: Space) -> None:
        self.fingerprint, self.space = "declared:b", space

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        rows = np.random.default_rng(0).normal(size=(len(ids), self.space.dim)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return EmbeddingSet(rows, list(ids), self.fingerprint, self.space)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spaces", "indexed"),
    [((Hypersphere(8), Hypersphere(2500)), 40), ((InnerProduct(8), InnerProduct(2500)), 0)],
    ids=["directions", "lengths"],
)
def test_a_backfill_indexes_the_next_generation_where_an_index_leads_to_what_is_near(
    postgres_url: str, spaces: tuple[Space, Space], indexed: int
) -> None:
    before, after = spaces
    with Gallery.create(postgres_url, fingerprint="declared:a", space=before) as gallery:
        items = Embedder(before).embed([f"i{row}" for row in range(40)])
        gallery.add(EmbeddingSet(items.vectors, items.ids, "declared:a", before))
        gallery.index()
        gallery.start("declared:b", after)
        assert gallery.backfill(Embedder(after)).lacking == 0
        assert [one.indexed for one in gallery.status().generations] == [40, indexed]


# What they find


@pytest.fixture(scope="module", params=[2500, 5000], ids=["halves", "signs"])
def wide(request: pytest.FixtureRequest, postgres_server: Server) -> Iterator[Gallery]:
    url, width = f"{postgres_server.url()}&schema=wide{request.param}", request.param
    with Gallery.create(url, fingerprint="declared:a", space=Hypersphere(width), columns={"n": "integer"}) as gallery:
        gallery.add(embeddings(width), metadata={"n": range(ROWS)})
        gallery.index()
        yield gallery


def queries(gallery: Gallery) -> EmbeddingSet:
    return embeddings(gallery.state.by_name["g1"].geometry.dim, 15, first=ROWS)


def recall(gallery: Gallery, k: int = 10, where: Condition | None = None) -> float:
    found, right = (gallery.search(queries(gallery), k, where=where, exact=exact).hits for exact in (False, True))
    same = [{hit.id for hit in one} & {hit.id for hit in other} for one, other in zip(found, right, strict=True)]
    return float(np.mean([len(ids) / k for ids in same]))


def test_an_index_of_less_than_the_vectors_finds_nearly_what_all_vectors_find(wide: Gallery) -> None:
    assert wide.status().generations[0].indexed == ROWS
    assert recall(wide) > 0.95
    assert recall(wide, where=Condition("n", ">=", 270)) > 0.95


def test_scores_are_those_of_the_whole_vectors(wide: Gallery) -> None:
    asked = queries(wide)
    found, right = (wide.search(asked, 10, exact=exact).hits for exact in (False, True))
    scores = [{hit.id: hit.score for hit in of_query} for of_query in right]
    for of_query, known in zip(found, scores, strict=True):
        assert all(hit.score == pytest.approx(known[hit.id], abs=1e-6) for hit in of_query if hit.id in known)
        assert [hit.score for hit in of_query] == sorted((hit.score for hit in of_query), reverse=True)


def test_the_index_is_followed(wide: Gallery) -> None:
    store = wide.store
    assert isinstance(store, PgvectorStore)
    asked = queries(wide).vectors[0]
    form, selection = form_of(len(asked), directions=True), Selection("items.mask & %(mask)s = 0", {"mask": 2})
    with store.database.streaming() as connection:
        connection.execute(SETTINGS, selection.settings(10, form, Graph()))
        statement = b"EXPLAIN " + selection.statement("rows_g1", 10, form)
        plan = "\n".join(line for (line,) in connection.execute(statement, {**selection.values, "query": asked}))
        [settings] = connection.execute(
            "SELECT current_setting('hnsw.iterative_scan'), current_setting('hnsw.ef_search')"
        )
    assert "Index Scan using rows_g1_hnsw" in plan and "Sort Key" in plan
    assert settings == ("strict_order", str(max(100, 10 * (form.candidates if form else 0))))


@pytest.mark.parametrize(
    ("width", "of_directions", "of_others"),
    [
        (1, "vector_ip_ops", "vector_ip_ops"), (2000, "vector_ip_ops", "vector_ip_ops"),
        (2001, "halfvec_ip_ops", None), (4000, "halfvec_ip_ops", None),
        (4001, "bit_hamming_ops", None), (16_000, "bit_hamming_ops", None), (16_001, None, None),
    ],
)  # fmt: skip
def test_what_an_index_holds_depends_on_width_and_space(
    width: int, of_directions: str | None, of_others: str | None
) -> None:
    forms = [form_of(width, directions=directions) for directions in (True, False)]
    assert [form and form.operators for form in forms] == [of_directions, of_others]


@pytest.mark.parametrize(
    ("space", "words"),
    [(Euclidean(8), "leads to what is near"), (InnerProduct(2500), "length counts"), (Lorentz(2500), "length counts")],
    ids=str,
)
def test_spaces_without_an_index_say_so_and_are_searched_exactly(postgres_url: str, space: Space, words: str) -> None:
    points = np.random.default_rng(0).normal(size=(20, space.dim)).astype(np.float32) / np.float32(100)
    items = EmbeddingSet(points, [f"i{row}" for row in range(20)], "declared:a", space)  # type: ignore[arg-type]
    with Gallery.create(postgres_url, fingerprint="declared:a", space=space) as gallery:
        gallery.add(items)
        with pytest.raises(GalleryError, match=words):
            gallery.index()
        assert len(gallery.search(items, 3, exact=False).hits) == 20


@pytest.mark.parametrize(
    "numbers", [(1, 64, 100), (101, 400, 100), (16, 31, 100), (16, 1001, 100), (16, 64, 0), (16, 64, 1001)]
)
def test_numbers_that_no_graph_has_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match=r"[Gg]raph"):
        Graph(*numbers)


@pytest.mark.parametrize("url", ["memory://", "gallery"])
def test_stores_without_graphs_refuse_their_settings_before_anything_is_made(url: str, tmp_path: Path) -> None:
    place = url if url == "memory://" else str(tmp_path / url)
    with pytest.raises(ConfigError, match="a gallery in PostgreSQL"):
        Gallery.create(place, fingerprint="declared:a", space=Hypersphere(4), graph=Graph())
    assert not list(tmp_path.iterdir())
    with Gallery.create(place, fingerprint="declared:a", space=Hypersphere(4)) as gallery:
        gallery.add(embeddings(4, 5))
        with pytest.raises(ConfigError, match="a gallery in PostgreSQL"):
            gallery.index(graph=Graph())
