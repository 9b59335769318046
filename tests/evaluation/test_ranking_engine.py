from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from holdfast.errors import ConfigError, DataError, SpaceMismatchError
from holdfast.evaluation import ranking, scores
from holdfast.evaluation.ranking import Ranked, nearest_rows, rank, tied_ranks
from holdfast.evaluation.row_lists import RowLists


def slow_ranks(
    row: NDArray[np.float32], relevant: Sequence[int], ignored: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """The definition: sort all items by descending score, ties by row, and look up the relevant ones."""
    order = [i for i in sorted(range(len(row)), key=lambda i: (-row[i], i)) if i not in set(ignored)]
    return sorted(order.index(i) for i in relevant if i not in set(ignored)), order


def whole_numbers(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    """Vectors whose inner products are exact, so that many of them tie."""
    return rng.integers(-2, 3, size=(rows, columns)).astype(np.float32)


@pytest.mark.parametrize("relevant_per_query", [1, ranking.FEW_RELEVANT, ranking.FEW_RELEVANT + 1, 40])
@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("block", [None, 1, 5])
def test_ranks_are_those_of_a_stable_sort(relevant_per_query: int, columns: int, block: int | None) -> None:
    rng = np.random.default_rng(relevant_per_query + columns)
    query, gallery = whole_numbers(rng, 12, columns), whole_numbers(rng, 60, columns)
    relevant = [rng.choice(60, relevant_per_query, replace=False) for _ in query]
    ignore = [rng.choice(60, rng.integers(0, 8), replace=False) for _ in query]
    ranked = rank(query, gallery, RowLists.of(relevant), RowLists.of(ignore), block=block)
    for i, row in enumerate(query @ gallery.T):
        expected, order = slow_ranks(row, relevant[i].tolist(), ignore[i].tolist())
        assert ranked.ranks[ranked.offsets[i] : ranked.offsets[i + 1]].tolist() == expected
        assert ranked.gallery_sizes[i] == len(order)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 4))
def test_ranks_of_any_small_gallery(seed: int, size: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    query, gallery = whole_numbers(rng, 3, columns), whole_numbers(rng, size, columns)
    relevant = [np.flatnonzero(rng.random(size) < 0.5) for _ in query]
    ranked = rank(query, gallery, RowLists.of(relevant))
    for i, row in enumerate(query @ gallery.T):
        assert ranked.ranks[ranked.offsets[i] : ranked.offsets[i + 1]].tolist() == slow_ranks(row, relevant[i])[0]


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
        positions = np.empty(size, np.int64)
        positions[np.argsort(-row, kind="stable")] = np.arange(size)
        assert ranked.ranks[ranked.offsets[i] : ranked.offsets[i + 1]].tolist() == sorted(positions[relevant].tolist())


def test_many_ties_give_the_same_ranks_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    row = np.random.default_rng(1).integers(0, 4, size=500).astype(np.float32)
    items = np.arange(0, 500, 3)
    compared = tied_ranks(row, items)
    monkeypatch.setattr(ranking, "FEW_TIED", 10)
    assert tied_ranks(row, items).tolist() == compared.tolist()
    assert sorted(compared.tolist()) == slow_ranks(row, items.tolist())[0]


def test_comparing_with_threads_gives_the_same_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    query, gallery = (rng.normal(size=(rows, 6)).astype(np.float32) for rows in (9, 70))
    relevant = RowLists.of([rng.choice(70, 3, replace=False) for _ in query])
    alone = rank(query, gallery, relevant).ranks
    monkeypatch.setattr(ranking, "LARGE_GALLERY", 1)
    assert rank(query, gallery, relevant).ranks.tolist() == alone.tolist()


def test_permuting_the_gallery_keeps_ranks_of_distinct_scores() -> None:
    rng = np.random.default_rng(3)
    query, gallery = rng.normal(size=(5, 8)).astype(np.float32), rng.normal(size=(50, 8)).astype(np.float32)
    labels, wanted = rng.integers(0, 4, 50), rng.integers(0, 4, 5)
    order = rng.permutation(50)
    before = rank(query, gallery, RowLists.by_label(wanted, labels))
    after = rank(query, gallery[order], RowLists.by_label(wanted, labels[order]))
    assert before.ranks.tolist() == after.ranks.tolist()


def test_repeated_rows_compare_numbers_not_bytes() -> None:
    rows = np.array([[1, 2], [0.0, 3], [1, 2], [-0.0, 3], [2, 1], [1, 2]], np.float32)
    repeats, firsts = scores.repeated_rows(rows)
    assert repeats.tolist() == [2, 3, 5]
    assert firsts.tolist() == [0, 1, 0]


def test_rows_that_hash_alike_are_still_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "_row_hashes", lambda vectors: np.zeros(len(vectors), np.uint64))
    repeats, firsts = scores.repeated_rows(np.array([[1], [2], [1], [3]], np.float32))
    assert (repeats.tolist(), firsts.tolist()) == ([2], [0])


@pytest.mark.parametrize("k", [1, 3, 17, 99])
def test_nearest_rows_are_the_head_of_the_ranking(k: int) -> None:
    rng = np.random.default_rng(k)
    query, gallery = whole_numbers(rng, 7, 3), whole_numbers(rng, 17, 3)
    ignore = [rng.choice(17, 2, replace=False) for _ in query]
    rows, values = nearest_rows(query, gallery, k, RowLists.of(ignore), block=2)
    assert rows.shape == values.shape == (7, min(k, 17))
    for i, row in enumerate(query @ gallery.T):
        order = slow_ranks(row, [], ignore[i].tolist())[1][:k]
        assert rows[i].tolist() == order + [-1] * (min(k, 17) - len(order))
        assert values[i, : len(order)].tolist() == row[order].tolist()


def test_memory_stays_within_the_block() -> None:
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(6000, 8)).astype(np.float32)
    labels = np.arange(6000) % 300
    tracemalloc.start()
    rank(vectors, vectors, RowLists.by_label(labels, labels), RowLists.single(np.arange(6000)), block=32)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    block = 4 * 32 * 6000
    assert peak < 2 * block + 8 * 2**20 < 4 * 6000 * 6000 / 10  # scores and their sorted copy, lists, ranks


@pytest.mark.parametrize(
    ("ranks", "offsets", "sizes", "message"),
    [
        ([0, 2], [0, 1], [5], "offsets"),
        ([0, 2], [0, 2], [5, 5], "offsets"),
        ([0, 2], [0, 2, 1, 2], [5, 5, 5], "offsets"),
        ([0, 5], [0, 2], [5], "outside"),
        ([-1, 2], [0, 2], [5], "outside"),
        ([2, 0], [0, 2], [5], "ascend"),
        ([2, 2], [0, 2], [5], "ascend"),
    ],
)
def test_impossible_rankings_are_refused(ranks: list[int], offsets: list[int], sizes: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Ranked(np.array(ranks), np.array(offsets), np.array(sizes))


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
    with pytest.raises(ConfigError, match="block of 0"):
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
