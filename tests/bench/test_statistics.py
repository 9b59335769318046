from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.special import betainc
from scipy.stats import friedmanchisquare

from limpet.errors import ConfigError, DataError
from limpet_bench.leaderboard import Run, SeedMean
from limpet_bench.statistics import (
    cell_ranks,
    critical_difference,
    friedman,
    indistinct_groups,
    mean_over_seeds,
    pareto_front,
    ranks_by_data_set,
    seed_means,
)

# Areas under ROC curves of C4.5, with m, with cf and with both tuned, on 14 data sets (Demšar 2006).
DEMSAR = """
.763 .768 .771 .798
.599 .591 .590 .569
.954 .971 .968 .967
.628 .661 .654 .657
.882 .888 .886 .898
.936 .931 .916 .931
.661 .668 .609 .685
.583 .583 .563 .625
.775 .838 .866 .875
1.000 1.000 1.000 1.000
.940 .962 .965 .962
.619 .666 .614 .669
.972 .981 .9751 .975
.957 .978 .946 .970
"""  # .9751 and .975 are both printed as .975, with ranks 2 and 3

TABLES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6), elements=st.integers(0, 4))


@pytest.fixture(scope="module")
def demsar() -> np.ndarray:
    return np.array([line.split() for line in DEMSAR.split("\n") if line], np.float64)


def row(label: str, seed: int, cross: float | None, **values: object) -> Run:
    scores = None if cross is None else {"cross": cross}
    failure = "it broke" if cross is None else None
    head = {"data": "d", "scenario": "s", "label": label, "method": label, "seed": seed, "metric": "map"}
    return Run.model_validate({**head, "scores": scores, "failure": failure, **values})


def test_the_example_of_the_paper(demsar: np.ndarray) -> None:
    ranks = cell_ranks(demsar)
    np.testing.assert_allclose(ranks.mean(axis=0), [3.143, 2.000, 2.893, 1.964], atol=5e-4)
    found = friedman(ranks)
    assert found.chi_square == pytest.approx(9.28, abs=0.005)
    assert found.f == pytest.approx(3.69, abs=0.005)
    # the paper: F with 3 and 39 degrees of freedom, whose critical value is 2.85; its tail as an incomplete beta
    assert found.f_p_value == pytest.approx(betainc(39 / 2, 3 / 2, 39 / (39 + 3 * found.f)), rel=1e-6)
    assert betainc(39 / 2, 3 / 2, 39 / (39 + 3 * 2.85)) == pytest.approx(0.05, abs=5e-4)
    assert (found.cells, found.labels) == (14, 4)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert critical_difference(4, 14, level=0.10) == pytest.approx(1.12, abs=0.005)
    # at 0.10 the paper finds C4.5 worse than with m, and than with both, and nothing else
    assert indistinct_groups(ranks.mean(axis=0), 1.12) == [[3, 1, 2], [2, 0]]


@pytest.mark.parametrize(
    ("labels", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (8, 3.031), (10, 3.164)]
)
def test_critical_values_of_the_paper(labels: int, q: float) -> None:
    assert critical_difference(labels, 7) == pytest.approx(q * math.sqrt(labels * (labels + 1) / 42), abs=2e-3)


def test_the_chance_that_few_cells_agree_is_exact() -> None:
    # three labels in three cells, all alike: the first orders freely, the others follow with chance 1/6 each
    found = friedman([[1, 2, 3]] * 3, resamples=200_000)
    assert found.chi_square == pytest.approx(6)
    assert found.f == math.inf and found.f_p_value == 0
    assert found.p_value == pytest.approx(1 / 36, rel=0.03)


def test_shuffles_agree_with_every_order_there_is() -> None:
    ranks = cell_ranks([[0.9, 0.5, 0.1], [0.8, 0.85, 0.2], [0.7, 0.6, 0.6]])
    statistic = friedman(ranks, resamples=1).chi_square
    orders = [[[row[place] for place in order] for order in itertools.permutations(range(3))] for row in ranks]
    as_large = [
        12 * 3 / (3 * 4) * (sum(np.mean(column) ** 2 for column in zip(*cells, strict=True)) - 3 * 16 / 4)
        >= statistic - 1e-9
        for cells in itertools.product(*orders)
    ]
    assert friedman(ranks, resamples=100_000).p_value == pytest.approx(np.mean(as_large), rel=0.02)
    assert friedman(ranks, seed=3) == friedman(ranks, seed=3)


def test_friedman_agrees_with_scipy_where_nothing_ties() -> None:
    values = np.random.default_rng(2).normal(size=(30, 5)) + 0.3 * np.arange(5)
    found, other = friedman(cell_ranks(values)), friedmanchisquare(*values.T)
    assert found.chi_square == pytest.approx(other.statistic)
    assert found.p_value == pytest.approx(other.pvalue, abs=0.01)
    assert found.f_p_value == pytest.approx(other.pvalue, abs=0.01)


def test_cells_of_one_data_set_are_one_piece_of_evidence() -> None:
    ranks = [[1, 2, 3]] * 6
    assert friedman(ranks).p_value < 0.001  # six independent data sets that agree
    pooled = ranks_by_data_set(ranks, ["omniglot"] * 3 + ["glyphs"] * 3)  # three scenarios of each
    assert pooled.tolist() == [[1, 2, 3], [1, 2, 3]]
    assert friedman(pooled).p_value == pytest.approx(1 / 6, rel=0.05)
    mixed = ranks_by_data_set([[1, 3, 2], [2, 3, 1], [1, 2, 3]], ["a", "a", "b"])  # of "a": 1.5, 3 and 1.5
    assert mixed.tolist() == [[1.5, 3, 1.5], [1, 2, 3]]


def test_labels_that_always_tie_do_not_differ() -> None:
    found = friedman(cell_ranks(np.ones((4, 3))))
    assert (found.chi_square, found.f, found.p_value) == (0, 0, 1)


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (3,)])
def test_one_cell_or_one_label_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="at least 2 labels in at least 2 cells"):
        friedman(np.ones(shape))


@given(TABLES, st.booleans())
def test_ranks_are_those_of_a_slow_loop(values: np.ndarray, higher: bool) -> None:
    values = np.where(values == 0, np.nan, values)
    ranks = cell_ranks(values, higher_is_better=higher)
    for found, cell in zip(ranks, values, strict=True):
        worth = [-math.inf if math.isnan(value) else value if higher else -value for value in cell]
        for rank, own in zip(found, worth, strict=True):
            better, equal = sum(other > own for other in worth), sum(other == own for other in worth)
            assert rank == better + (equal + 1) / 2
    assert (ranks.sum(axis=1) == values.shape[1] * (values.shape[1] + 1) / 2).all()


def test_ranks_of_infinite_values_are_refused() -> None:
    with pytest.raises(DataError, match="finite or NaN"):
        cell_ranks([[np.inf, 1.0]])
    with pytest.raises(DataError, match="cells, labels"):
        cell_ranks([1.0, 2.0])


@given(TABLES)
def test_the_front_is_that_of_a_slow_loop(points: np.ndarray) -> None:
    points = np.where(points == 4, np.nan, points)

    def beaten(own: np.ndarray) -> bool:
        return any((other >= own).all() and (other > own).any() for other in points)

    expected = [not math.isnan(sum(own)) and not beaten(own) for own in points]
    assert pareto_front(points).tolist() == expected


def test_equal_points_share_the_front_and_nan_has_no_part() -> None:
    front = pareto_front([[1, 1], [1, 1], [1, 0.5], [2, np.nan], [0, 3]])
    assert front.tolist() == [True, True, False, False, True]
    assert pareto_front(np.empty((0, 2))).tolist() == []


@given(st.lists(st.integers(2, 20), min_size=2, max_size=8), st.integers(1, 12))
def test_groups_are_all_that_is_not_told_apart(doubled: list[int], reach: int) -> None:
    ranks, difference = np.array(doubled) / 2, reach / 2
    groups = [set(group) for group in indistinct_groups(ranks, difference)]
    for i, j in itertools.combinations(range(len(ranks)), 2):
        joined = any({i, j} <= group for group in groups)
        assert joined == (abs(ranks[i] - ranks[j]) < difference)
    assert not any(a < b for a in groups for b in groups)


def test_mean_and_deviation_by_hand() -> None:
    rows = [row("bct", seed, cross) for seed, cross in enumerate((0.25, 0.5, 0.75))] + [row("p2s", 0, 0.5)]
    rows += [row("l2", 0, None), row("l2", 1, 0.5)]
    found = seed_means(rows, "cross")
    assert found[("d", "s", "bct")] == SeedMean(mean=0.5, deviation=0.25, seeds=3)
    assert found[("d", "s", "p2s")] == SeedMean(mean=0.5, deviation=None, seeds=1)
    assert found[("d", "s", "l2")] == SeedMean(mean=0.5, deviation=None, seeds=1)
    assert seed_means(rows, "p_up")[("d", "s", "bct")] is None
    with pytest.raises(DataError, match="Two runs of d, s, p2s with seed 0"):
        seed_means([*rows, row("p2s", 0, 0.1)], "cross")


def test_a_failed_run_has_no_numbers() -> None:
    assert row("a", 0, 0.5, p_up=0.25).number("p_up") == 0.25
    assert math.isnan(row("a", 0, 0.5, failure="too late", p_up=0.25).number("p_up"))
    assert mean_over_seeds([]) is None
