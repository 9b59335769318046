"""How far products of float32 may be from scores, and rankings that only a safe bound gets right."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.errors import DataError
from limpet.evaluation.ranking import counting, part, tiles
from limpet.evaluation.ranking.engine import nearest_rows, rank
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.ranking.tiles import Search, largest_error

Vectors = NDArray[np.float32]


def lopsided(rng: np.random.Generator, rows: int, dim: int, signs: NDArray[np.float64]) -> Vectors:
    """Vectors of a few large numbers and many equal small ones: every rounding of a sum goes the same way."""
    vectors = rng.uniform(1, 2, size=(rows, 1)) * signs
    vectors[:, : max(1, dim // 64)] *= 6
    return vectors.astype(np.float32)


def codes(rng: np.random.Generator, rows: int, dim: int, signs: NDArray[np.float64]) -> Vectors:
    """Binary codes near to one code, scaled."""
    flipped = np.where(rng.random((rows, dim)) < 0.05, -1, 1)
    return (rng.uniform(1, 2, size=(rows, 1)) * signs * flipped).astype(np.float32)


def gaussian(rng: np.random.Generator, rows: int, dim: int, signs: NDArray[np.float64]) -> Vectors:
    return rng.normal(size=(rows, dim)).astype(np.float32)


def exact_scores(query: Vectors, gallery: Vectors) -> Vectors:
    """Products in double precision, rounded."""
    return (query.astype(np.float64) @ gallery.T.astype(np.float64)).astype(np.float32)


@pytest.mark.parametrize("kind", [lopsided, codes, gaussian])
@pytest.mark.parametrize("dim", [1, 7, 64, 128, 129, 384, 768, 2048, 4096])
def test_no_product_is_farther_from_its_score_than_the_bound(kind: object, dim: int) -> None:
    rng = np.random.default_rng(dim)
    signs = rng.choice([-1.0, 1.0], size=dim)
    query, gallery = (kind(rng, rows, dim, signs) for rows in (40, 150))  # type: ignore[operator]
    search = Search.of(query, gallery)
    block = search.queries_at((0, 40))
    pairs = search.pairs(block, RowLists.of([[]] * 40), RowLists.of([[]] * 40))
    scores = exact_scores(query, gallery).astype(np.float64)
    for start, _, products in search.tiles(block, pairs):
        off = np.abs(products - scores[:, start : start + products.shape[1]])
        assert (off <= block.error[:, None]).all(), (off / block.error[:, None]).max()


def test_the_bound_by_hand() -> None:
    """128 numbers and one sum: 129 roundings of 2^-24 each, and a hundredth; of 129 numbers 128 + 2."""
    one = np.ones(1)
    np.testing.assert_allclose(largest_error(128, one), 1.01 * 129 * 2.0**-24)
    np.testing.assert_allclose(largest_error(129, one), 1.01 * 130 * 2.0**-24)
    assert largest_error(4096, one)[0] < 1.01 * 161 * 2.0**-24


WAYS = [None, *counting.WAYS]


def slow_ranks(row: Vectors, relevant: list[int]) -> list[int]:
    return sorted(int((row > row[item]).sum()) for item in relevant)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dim", [256, 384, 768])
def test_items_whose_products_err_most_are_ranked_by_their_scores(
    dim: int, way: str | None, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each relevant item is a shade better or worse than an item whose product is far off."""
    monkeypatch.setattr(part, "Counter", partial(counting.Counter, way=way))
    rng = np.random.default_rng(dim)
    query = lopsided(rng, 12, dim, np.ones(dim))
    pool = lopsided(rng, 1000, dim, np.ones(dim))
    off = np.abs(query @ pool.T - exact_scores(query, pool)).max(axis=0)
    others = pool[np.argsort(-off)[:40]]
    shade = np.where(rng.random(40) < 0.5, 1, -1) * rng.uniform(2e-7, 2e-6, 40)
    relevant = (others * (1 + shade[:, None])).astype(np.float32)
    gallery = np.concatenate([others, relevant, pool])  # small products take another way through the library
    wanted = list(range(40, 80))
    ranked = rank(query, gallery, RowLists.of([wanted] * 12), device=device)
    for row, scores in enumerate(exact_scores(query, gallery)):
        assert ranked.ranks[ranked.offsets[row] : ranked.offsets[row + 1]].tolist() == slow_ranks(scores, wanted)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", [1e-23, 1e-19, 1e-3, 1e18])
def test_ranks_of_vectors_of_any_length(
    length: float, way: str | None, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 1e-23 scores are a few times the smallest number of float32, and at 1e18 near the largest."""
    monkeypatch.setattr(part, "Counter", partial(counting.Counter, way=way))
    rng = np.random.default_rng(3)
    query, gallery = ((rng.normal(size=(rows, 5)) * length).astype(np.float32) for rows in (4, 90))
    wanted = list(range(0, 90, 4))
    ranked = rank(query, gallery, RowLists.of([wanted] * 4), device=device)
    rows, values = nearest_rows(query, gallery, 5)
    for row, scores in enumerate(exact_scores(query, gallery)):
        assert ranked.ranks[ranked.offsets[row] : ranked.offsets[row + 1]].tolist() == slow_ranks(scores, wanted)
        order = sorted(range(90), key=lambda item: (-scores[item], item))[:5]
        assert rows[row].tolist() == order
        assert values[row].tolist() == scores[order].tolist()


def test_scores_whose_differences_leave_float32_are_refused() -> None:
    one, far = np.ones((1, 1), np.float32), np.array([[2e38], [-2e38], [0]], np.float32)
    with pytest.raises(DataError, match="overflow"):
        rank(one, far, RowLists.of([[0, 1]]))
    assert rank(one, far / 4, RowLists.of([[0, 1]])).ranks.tolist() == [0, 2]


def test_many_queries_of_many_columns() -> None:
    rng = np.random.default_rng(1)
    query, gallery = gaussian(rng, 300, 260, np.ones(260)), gaussian(rng, 50, 260, np.ones(260))
    ranked = rank(query, gallery, RowLists.of([[3, 17]] * 300), block=300)
    for row, scores in enumerate(exact_scores(query, gallery)):
        assert ranked.ranks[2 * row : 2 * row + 2].tolist() == slow_ranks(scores, [3, 17])


def test_the_gallery_is_summed_alike_in_any_number_of_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    query, gallery = codes(rng, 9, 300, np.ones(300)), codes(rng, 70, 300, np.ones(300))
    wanted = RowLists.of([range(0, 70, 3)] * 9)
    whole = rank(query, gallery, wanted)
    monkeypatch.setattr(tiles, "TILE_ROWS", 11)
    assert rank(query, gallery, wanted, block=2).ranks.tolist() == whole.ranks.tolist()
