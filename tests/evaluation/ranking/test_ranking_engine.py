from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.evaluation.ranking import compiled_counting, counting, part, scores, tiles
from limpet.evaluation.ranking.engine import Ranked, nearest_rows, rank
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.geometry import Hypersphere, Lorentz, Space


def slow_ranks(
    row: NDArray[np.float32], relevant: Sequence[int], ignored: Sequence[int] = ()
) -> tuple[list[tuple[int, int]], list[int]]:
    """The definition: how many items score more than each relevant one, and how many the same; and a sorted gallery."""
    order = [i for i in sorted(range(len(row)), key=lambda i: (-row[i], i)) if i not in set(ignored)]
    scores = row[order]
    wanted = [row[i] for i in relevant if i not in set(ignored)]
    return sorted((int((scores > own).sum()), int((scores == own).sum())) for own in wanted), order


def counted(ranked: Ranked, query: int) -> list[tuple[int, int]]:
    """What the engine found of one query, likewise."""
    own = slice(ranked.offsets[query], ranked.offsets[query + 1])
    return list(zip(ranked.ranks[own].tolist(), ranked.tied[own].tolist(), strict=True))


def whole_numbers(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    """Vectors whose inner products are exact, so that many of them tie."""
    return rng.integers(-2, 3, size=(rows, columns)).astype(np.float32)


COMPILED = "compiled"
WAYS = [None, *counting.WAYS, COMPILED]
DEVICES = [None, "cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=[16_384, 60, 7])
def tile_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Tiles that hold the whole gallery, just all of it, or a part that leaves a rest."""
    monkeypatch.setattr(tiles, "TILE_ROWS", request.param)
    return int(request.param)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Each way of counting alone, in parts smaller than a block of queries, and with so few bins that they are full."""
    count_by(request.param, monkeypatch)
    monkeypatch.setattr(counting, "PART_ROWS", 3)
    monkeypatch.setattr(counting, "BINS", 8)
    monkeypatch.setattr(compiled_counting, "LEAST_BINS", 8)
    monkeypatch.setattr(compiled_counting, "MOST_BINS", 16)
    return None if request.param is None else str(request.param)


def count_by(way: str | None, patch: pytest.MonkeyPatch) -> None:
    """Let the engine count in one way only."""
    patch.setattr(part, "compiles", lambda *_: way == COMPILED)
    patch.setattr(part, "Counter", partial(counting.Counter, way=way))


@pytest.mark.parametrize("relevant_per_query", [1, 9, 40])
@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("block", [None, 5])
def test_ranks_and_ties_are_those_of_the_definition(
    relevant_per_query: int, columns: int, block: int | None, way: str | None, tile_rows: int
) -> None:
    rng = np.random.default_rng(relevant_per_query + columns)
    query, gallery = whole_numbers(rng, 12, columns), whole_numbers(rng, 60, columns)
    relevant = [rng.choice(60, relevant_per_query, replace=False) for _ in query]
    ignore = [rng.choice(60, rng.integers(0, 8), replace=False) for _ in query]
    ranked = rank(query, gallery, RowLists.of(relevant), RowLists.of(ignore), block=block)
    for i, row in enumerate(query @ gallery.T):
        expected, order = slow_ranks(row, relevant[i].tolist(), ignore[i].tolist())
        assert counted(ranked, i) == expected
        assert ranked.gallery_sizes[i] == len(order)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 4), st.sampled_from(WAYS))
def test_ranks_of_any_small_gallery(seed: int, size: int, columns: int, way: str | None) -> None:
    rng = np.random.default_rng(seed)
    query, gallery = whole_numbers(rng, 3, columns), whole_numbers(rng, size, columns)
    relevant = [np.flatnonzero(rng.random(size) < 0.5) for _ in query]
    with pytest.MonkeyPatch.context() as patch:
        count_by(way, patch)
        patch.setattr(tiles, "TILE_ROWS", int(rng.integers(1, size + 1)))
        ranked = rank(query, gallery, RowLists.of(relevant))
    for i, row in enumerate(query @ gallery.T):
        assert counted(ranked, i) == slow_ranks(row, relevant[i])[0]


@pytest.mark.parametrize("share", [0.001, 0.02, 0.4])
@pytest.mark.parametrize("kind", ["random", "half", "repeated", "near"])
def test_compiled_ranks_bit_for_bit_as_numpy(share: float, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few relevant items that are filtered, and many whose bins are counted, over several chunks and tiles."""
    rng = np.random.default_rng(int(1000 * share))
    gallery, query = (rng.normal(size=(rows, 24)).astype(np.float32) for rows in (5_000, 40))
    if kind == "half":
        gallery, query = gallery.astype(np.float16).astype(np.float32), query.astype(np.float16).astype(np.float32)
    elif kind == "repeated":
        gallery = gallery[rng.integers(0, 900, 5_000)]
    elif kind == "near":
        gallery = gallery[:1] + np.float32(3e-7) * gallery
    relevant = RowLists.of([np.flatnonzero(rng.random(5_000) < share * rng.random()) for _ in query])
    ignore = RowLists.of([rng.choice(5_000, 5, replace=False) for _ in query])
    monkeypatch.setattr(tiles, "TILE_ROWS", 2_500)
    found = []
    for way in (None, COMPILED):
        count_by(way, monkeypatch)
        found.append(rank(query, gallery, relevant, ignore))
    np.testing.assert_array_equal(found[0].ranks, found[1].ranks)
    np.testing.assert_array_equal(found[0].tied, found[1].tied)


def test_what_is_large_is_counted_by_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    relevant = np.full(512, 2_500)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert not counting.compiles(2_000, relevant)
    assert counting.compiles(50_000, relevant)
    assert not counting.compiles(10**9, np.array([5, counting.MOST_COMPILED + 1]))
    monkeypatch.setattr(counting, "find_spec", lambda name: None)
    assert not counting.compiles(50_000, relevant)


def test_queries_of_one_class_are_scored_as_single_pairs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the scores is so close to the middle of two numbers of float32 that two sums round apart."""
    rng = np.random.default_rng(7)
    gallery, query = rng.normal(size=(400, 64)).astype(np.float32), np.ones((60, 64), np.float32)
    gallery[::4] = np.append([1, 2**-24], np.full(62, 2**-54))
    query[::2] = rng.normal(size=(30, 64))
    labels, wanted = rng.integers(0, 3, 400), rng.integers(0, 4, 60)
    lists, ignore = RowLists.by_label(wanted, labels), RowLists.of([rng.choice(400, 3, replace=False) for _ in query])
    found = []
    for fewest in (1, 10**9):
        monkeypatch.setattr(tiles, "_SHARED_PAIRS", fewest)
        search = tiles.Search.of(query, gallery)
        found.append(search.pairs(search.queries_at((0, 60)), lists, ignore))
    assert len(found[0].hidden.shared) == 3 and not found[1].hidden.shared
    np.testing.assert_array_equal(found[0].owner, found[1].owner)
    np.testing.assert_array_equal(found[0].scores, found[1].scores)
    np.testing.assert_array_equal(found[0].offsets, found[1].offsets)
    every = [{*zip(*map(np.ndarray.tolist, one.hidden.pairs()), strict=True)} for one in found]
    assert every[0] == every[1]


@pytest.mark.parametrize("shift", [0.0, -1e6, 1e-30])
def test_ranks_of_scores_far_from_one(shift: float, way: str | None) -> None:
    """Bins are only a rough order: scores that are nearly alike, all below zero, or tiny are still told apart."""
    rng = np.random.default_rng(5)
    gallery = (rng.normal(size=(300, 1)) + shift).astype(np.float32) * np.float32(1e-20 if shift == 1e-30 else 1)
    relevant = [rng.choice(300, 20, replace=False), np.arange(3)]
    ranked = rank(np.ones((2, 1), np.float32), gallery, RowLists.of(relevant))
    for i, items in enumerate(relevant):
        assert counted(ranked, i) == slow_ranks(gallery[:, 0], items)[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("columns", [1, 4])
def test_ranks_with_torch_are_the_same(device: str | None, columns: int, tile_rows: int) -> None:
    rng = np.random.default_rng(columns)
    query, gallery = whole_numbers(rng, 12, columns), whole_numbers(rng, 60, columns)
    relevant = [rng.choice(60, rng.integers(0, 40), replace=False) for _ in query]
    ignore = [rng.choice(60, rng.integers(0, 8), replace=False) for _ in query]
    ranked = rank(query, gallery, RowLists.of(relevant), RowLists.of(ignore), block=5, device=device)
    for i, row in enumerate(query @ gallery.T):
        expected, _ = slow_ranks(row, relevant[i].tolist(), ignore[i].tolist())
        assert counted(ranked, i) == expected


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from([Hypersphere, Lorentz]), st.booleans())
def test_torch_ranks_bit_for_bit_as_numpy(seed: int, size: int, kind: type[Space], halved: bool) -> None:
    """Random points, some of them twice, as they are or rounded to float16: the same ranks, and the same refusals."""
    rng = np.random.default_rng(seed)
    space = kind(int(rng.integers(1, 150)))  # type: ignore[call-arg]
    rows = rng.normal(size=(size, space.dim)) / np.sqrt(space.dim)
    rows = rows[rng.integers(0, size, size)].astype(np.float16 if halved else np.float32).astype(np.float32)
    query = space.index_form(rows[rng.integers(0, size, 5)] + np.float32(1e-7), "query")
    gallery = space.index_form(rows, "gallery")
    relevant = RowLists.of([np.flatnonzero(rng.random(size) < 0.4) for _ in query])
    by_numpy, by_torch = (rank(query, gallery, relevant, device=device) for device in (None, "cpu"))
    np.testing.assert_array_equal(by_numpy.ranks, by_torch.ranks)
    np.testing.assert_array_equal(by_numpy.tied, by_torch.tied)
    gallery[0, 0] = np.nan
    for device in (None, "cpu"):
        with pytest.raises(DataError, match="not finite"):
            rank(query, gallery, relevant, device=device)


def test_a_device_that_is_not_there() -> None:
    lists = RowLists.of([[0]])
    for name in ("cuda:77", "toaster"):
        with pytest.raises(ConfigError, match=name):
            rank(np.ones((1, 2), np.float32), np.ones((3, 2), np.float32), lists, device=name)


def test_the_cheapest_way_is_taken() -> None:
    """One relevant item: compared. Many, below most of the gallery: binned; above nearly all, or of few: picked out."""
    rng = np.random.default_rng(6)
    gallery = np.sort(rng.normal(size=(20_000, 1)).astype(np.float32), axis=0)
    query, taken = np.ones((16, 1), np.float32), []

    def spy(name: str, counted: Any) -> Any:
        return lambda *given: (taken.append(name), counted(*given))

    with pytest.MonkeyPatch.context() as patch:
        count_by(None, patch)
        patch.setattr(counting, "WAYS", {name: spy(name, way) for name, way in counting.WAYS.items()})
        patch.setattr(tiles, "TILE_ROWS", 20_000)
        for items in ([19_000], range(0, 20_000, 400), range(19_900, 19_950)):
            rank(query, gallery, RowLists.of([items] * 16))
        rank(query, gallery[:100], RowLists.of([range(1, 100, 2)] * 16))
    assert taken == ["compare", "histogram", "filter", "filter"]


@pytest.mark.parametrize(("queries", "columns", "size"), [(1, 3, 33), (3, 129, 1001), (17, 64, 1001), (64, 300, 500)])
def test_equal_gallery_rows_tie_to_the_last_bit(queries: int, columns: int, size: int) -> None:
    # A plain product gives copies in other places of the gallery other last bits, and so changes the order of equals.
    rng = np.random.default_rng(0)
    distinct, query = (rng.normal(size=(rows, columns)).astype(np.float32) for rows in (9, queries))
    origin = rng.integers(9, size=size)
    gallery, relevant = distinct[origin], np.arange(0, size, 2)
    ranked = rank(query, gallery, RowLists.of([relevant] * queries))
    ((_, found),) = scores.score_blocks(query, gallery)
    for i, row in enumerate(found):
        assert all(len(set(row[origin == name].tolist())) == 1 for name in range(9))
        assert counted(ranked, i) == slow_ranks(row, relevant.tolist())[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["random", "signs", "constant", "repeated"])
def test_the_order_of_the_gallery_changes_nothing(kind: str, device: str | None, tile_rows: int) -> None:
    """Ties are found wherever items stand: across tiles, in whatever shape a product was computed."""
    rng = np.random.default_rng(3)
    query, gallery = (rng.normal(size=(rows, 33)).astype(np.float32) for rows in (5, 60))
    if kind == "signs":
        query, gallery = np.sign(query) / np.float32(33**0.5), np.sign(gallery) / np.float32(33**0.5)
    elif kind != "random":
        gallery = gallery[np.zeros(60, np.int64) if kind == "constant" else rng.integers(0, 7, 60)]
    labels, wanted = rng.integers(0, 4, 60), rng.integers(0, 4, 5)
    before = rank(query, gallery, RowLists.by_label(wanted, labels), device=device)
    assert (before.tied > 1).any() == (kind != "random")
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(60)
        after = rank(query, gallery[order], RowLists.by_label(wanted, labels[order]), device=device)
        for one, other in ((before.ranks, after.ranks), (before.tied, after.tied)):
            np.testing.assert_array_equal(one, other)


def test_repeated_rows_compare_numbers_not_bytes() -> None:
    rows = np.array([[1, 2], [0.0, 3], [1, 2], [-0.0, 3], [2, 1], [1, 2]], np.float32)
    repeats, firsts = scores.repeated_rows(rows)
    assert repeats.tolist() == [2, 3, 5]
    assert firsts.tolist() == [0, 1, 0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dim", [3, 64, 500])
def test_scores_too_near_for_a_product_are_told_apart(
    dim: int, device: str | None, way: str | None, tile_rows: int
) -> None:
    """Products of float32 put such items in another order; the ranking is that of exact scores, however it is cut."""
    rng = np.random.default_rng(dim)
    base = rng.normal(size=dim) / np.sqrt(dim)
    gallery = (base + rng.normal(size=(80, dim)) * 3e-7 / np.sqrt(dim)).astype(np.float32)
    gallery[40:60] = gallery[:20]
    query = (base + rng.normal(size=(9, dim)) / np.sqrt(dim)).astype(np.float32)
    exact = (query.astype(np.float64) @ gallery.T.astype(np.float64)).astype(np.float32)
    relevant = [rng.choice(80, 25, replace=False) for _ in query]
    ranked = rank(query, gallery, RowLists.of(relevant), block=4, device=device)
    rows, values = nearest_rows(query, gallery, 7)
    for i, row in enumerate(exact):
        expected, order = slow_ranks(row, relevant[i].tolist())
        assert counted(ranked, i) == expected
        assert rows[i].tolist() == order[:7] and values[i].tolist() == row[order[:7]].tolist()


@pytest.mark.parametrize("tile_rows", [16_384, 5, 1], indirect=True)
@pytest.mark.parametrize("k", [1, 3, 17, 99])
def test_nearest_rows_are_the_head_of_the_ranking(k: int, tile_rows: int) -> None:
    rng = np.random.default_rng(k)
    query, gallery = whole_numbers(rng, 7, 3), whole_numbers(rng, 17, 3)
    ignore = [rng.choice(17, 2, replace=False) for _ in query]
    rows, values = nearest_rows(query, gallery, k, RowLists.of(ignore), block=2)
    assert rows.shape == values.shape == (7, min(k, 17))
    for i, row in enumerate(query @ gallery.T):
        order = slow_ranks(row, [], ignore[i].tolist())[1][:k]
        assert rows[i].tolist() == order + [-1] * (min(k, 17) - len(order))
        assert values[i, : len(order)].tolist() == row[order].tolist()


def test_memory_stays_bounded() -> None:
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(8_000, 8)).astype(np.float32)
    labels = np.arange(8_000) % 400
    tracemalloc.start()
    rank(vectors, vectors, RowLists.by_label(labels, labels), RowLists.single(np.arange(8_000)), block=32)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 * 2**20 < 4 * 8_000 * 8_000 / 10


@pytest.mark.parametrize(
    ("ranks", "offsets", "sizes", "message"),
    [
        ([0, 2], [0, 1], [5], "offsets"),
        ([0, 2], [0, 2], [5, 5], "offsets"),
        ([0, 2], [0, 2, 1, 2], [5, 5, 5], "offsets"),
        ([0, 5], [0, 2], [5], "outside"),
        ([-1, 2], [0, 2], [5], "outside"),
        ([2, 0], [0, 2], [5], "ascend"),
        ([2, 2], [0, 2], [5], "not tied"),
    ],
)
def test_impossible_rankings_are_refused(ranks: list[int], offsets: list[int], sizes: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Ranked(np.array(ranks), np.array(offsets), np.array(sizes))


@pytest.mark.parametrize(
    ("ranks", "tied", "message"),
    [
        ([0, 2], [1], "1 counts of tied"),
        ([0, 2], [1, 0], "2 counts of tied"),
        ([0, 4], [1, 2], "outside"),
        ([0, 1], [2, 1], "not tied"),
        ([0, 0], [2, 3], "not tied"),
        ([0, 0, 0], [2, 2, 2], "not tied"),
    ],
)
def test_impossible_ties_are_refused(ranks: list[int], tied: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Ranked.of([ranks], [5], [tied])


def test_joined_rankings_keep_their_queries() -> None:
    parts = [Ranked.of([[0, 2], []], [4, 4]), Ranked.of([[1]], [3])]
    whole = Ranked.joined(parts)
    assert whole.ranks.tolist() == [0, 2, 1]
    assert whole.relevant.tolist() == [2, 0, 1]
    assert whole.gallery_sizes.tolist() == [4, 4, 3]


def test_unusable_vectors_are_refused() -> None:
    good, none = np.ones((2, 3), np.float32), np.ones((0, 3), np.float32)
    lists = RowLists.of([[0], [1]])
    with pytest.raises(DataError, match="queries hold no item"):
        rank(none, good, RowLists.of([]))
    with pytest.raises(DataError, match="gallery hold no item"):
        rank(good, none, lists)
    with pytest.raises(SpaceMismatchError, match="3 columns, the gallery has 2"):
        rank(good, good[:, :2], lists)
    for bad in (1e30, np.inf, np.nan):
        with pytest.raises(DataError, match="overflow"):
            rank(good * np.float32(bad), good * np.float32(1e30), lists)
    with pytest.raises(ConfigError, match="block=0"):
        rank(good, good, lists, block=0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0]], "1 lists for 2 queries"),
        ([[0], [3]], "rows 3 to 3"),
        ([[-1], [0]], "rows -1 to -1"),
        ([[1, 1], [0]], "twice"),
    ],
)
def test_wrong_lists_are_refused(rows: list[list[int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        RowLists.of(rows).check("relevant", 2, 3)


def test_lists_of_other_things_than_rows_are_refused() -> None:
    with pytest.raises(DataError, match="float64"):
        RowLists.of([[0.5]])  # type: ignore[list-item]
    assert RowLists.of([[0, 1], [2]]).union(RowLists.of([[1, 3], []])).flat()[1].tolist() == [0, 1, 3, 2]
