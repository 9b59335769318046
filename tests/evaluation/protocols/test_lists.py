from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.evaluation.protocols import Lists
from limpet.evaluation.ranking.row_lists import RowLists

ROWS = st.lists(st.lists(st.integers(0, 9), unique=True, max_size=6), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_answering_rows_are_relevant_and_not_ignored(relevant: list[list[int]], random: object) -> None:
    ignore = [random.sample(range(12), random.randrange(6)) for _ in relevant]  # type: ignore[attr-defined]
    found = Lists(RowLists.of(relevant), RowLists.of(ignore)).answering()
    assert found.tolist() == [len(set(own) - set(left)) for own, left in zip(relevant, ignore, strict=True)]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_answering_rows_of_shared_lists(seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, gallery = rng.integers(0, 3, 5), rng.integers(0, 3, rng.integers(1, 9))
    shared = Lists(RowLists.by_label(query, gallery), RowLists.single(rng.integers(-1, len(gallery), 5)))
    apart = Lists(*(RowLists.of([lists[row] for row in range(5)]) for lists in shared))
    expected = [len(set(apart.relevant[row]) - set(apart.ignore[row])) for row in range(5)]
    assert shared.answering().tolist() == apart.answering().tolist() == expected
