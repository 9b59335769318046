"""Scores of two spaces on one scale, by a cohort of items that have vectors in both."""

from __future__ import annotations

import numpy as np
import pytest

from limpet.errors import DataError
from limpet.evaluation.ranking.cohort import Cohort, is_cohort, pack_cohort, unpack_cohort

ITEMS, OWN, OTHER = 150, 7, 4
NEAREST = 6  # 4 % of them


def drawn(seed: int, rows: int, numbers: int) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=(rows, numbers)).astype(np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def made(*, scale: float = 1.0, turn: bool = False) -> Cohort:
    own = drawn(0, ITEMS, OWN)
    other = (own if turn else own[:, :OTHER]) * np.float32(scale)
    return Cohort.of(own, other, own, other)


def nearest_mean(query: np.ndarray, vectors: np.ndarray, leave_out: int = -1) -> tuple[float, list[float]]:
    """The slow loop: the mean of the best scores, and how far each of these is from it."""
    scores = sorted(float(np.dot(query.astype(float), row.astype(float)))
                    for place, row in enumerate(vectors) if place != leave_out)[-NEAREST:]  # fmt: skip
    mean = sum(scores) / NEAREST
    return mean, [score - mean for score in scores]


def test_it_does_what_the_formula_says() -> None:
    cohort = made()
    spread = [
        np.std([off for row, query in enumerate(side) for off in nearest_mean(query, side, row)[1]])
        for side in (cohort.own, cohort.other)
    ]
    assert cohort.factor == pytest.approx(spread[0] / spread[1], rel=1e-5)
    queries = drawn(1, 5, OWN), drawn(2, 5, OTHER)
    scores = np.linspace(-1, 1, 5)
    for line, own, other in zip(cohort.lines(*queries), *queries, strict=True):
        means = nearest_mean(own, cohort.own)[0], nearest_mean(other, cohort.other)[0]
        expected = [means[0] + cohort.factor * (score - means[1]) for score in scores]
        np.testing.assert_allclose(line.apply(scores).values, expected, atol=1e-6)
        assert not line.apply(scores).outside.any()


def test_two_equal_spaces_of_any_unit_need_no_change_but_the_unit() -> None:
    cohort, queries = made(scale=40.0, turn=True), drawn(1, 3, OWN)
    for line, query in zip(cohort.lines(queries, 40 * queries), queries, strict=True):
        scores = 1600 * (cohort.own @ query)
        np.testing.assert_allclose(line.apply(scores).values, scores / 1600, atol=1e-5)


def test_it_packs_and_unpacks_to_the_bit() -> None:
    cohort = made()
    content = pack_cohort(cohort)
    again = unpack_cohort(content, "here")
    assert (
        is_cohort(content)
        and pack_cohort(again) == content
        and (again.factor, again.nearest) == (cohort.factor, NEAREST)
    )
    np.testing.assert_array_equal(again.other, cohort.other)
    assert not is_cohort(b'{"format_version": 1}')


@pytest.mark.parametrize("content", [b"", b"cohort", b"\0" * 64, pack_cohort(made())[:-1]])
def test_what_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match="Cannot read the cohort 'here'"):
        unpack_cohort(content, "here")


@pytest.mark.parametrize(
    ("own", "other", "factor"),
    [
        (drawn(0, 9, 3), drawn(0, 8, 3), 1.0),
        (drawn(0, 5, 3), drawn(0, 5, 3), 1.0),
        (drawn(0, 9, 3).astype(np.float64), drawn(0, 9, 3), 1.0),
        (drawn(0, 9, 3)[0], drawn(0, 9, 3), 1.0),
        (np.full((9, 3), np.inf, np.float32), drawn(0, 9, 3), 1.0),
        (drawn(0, 9, 3), drawn(0, 9, 3), 0.0),
        (drawn(0, 9, 3), drawn(0, 9, 3), float("nan")),
    ],
)
def test_what_cannot_be_a_cohort_is_refused(own: np.ndarray, other: np.ndarray, factor: float) -> None:
    with pytest.raises(DataError, match="cohort"):
        Cohort(own, other, factor, 5)


@pytest.mark.parametrize("nearest", [0, -1, 9])
def test_a_cohort_has_more_items_than_are_nearest(nearest: int) -> None:
    with pytest.raises(DataError, match=f"{nearest} nearest"):
        Cohort(drawn(0, 9, 3), drawn(0, 9, 3), 1.0, nearest)


def test_spaces_that_have_nothing_to_do_with_each_other_are_refused() -> None:
    own = drawn(0, ITEMS, OWN)
    with pytest.raises(DataError, match="do not rise"):
        Cohort.of(own, own, own, -own)
    with pytest.raises(DataError, match="do not rise"):
        Cohort.of(own, np.ones_like(own), own, own * 0)


def test_scores_without_bound_are_refused() -> None:
    vast = np.full((9, 3), 3e38, np.float32)
    with pytest.raises(DataError, match="without bound"), np.errstate(all="ignore"):
        Cohort(vast, vast, 1.0, 5).lines(10 * drawn(1, 2, 3), drawn(1, 2, 3))


def test_queries_of_other_widths_are_refused() -> None:
    with pytest.raises(DataError, match="Queries of 3 numbers"):
        made().lines(drawn(1, 2, 3), drawn(1, 2, OTHER))
