from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.errors import DataError
from limpet.evaluation.compatibility import average_compatibility
from limpet.reports.formats import score, signed
from limpet.reports.plots.heat import MARK, WRONG, heat_key, heat_map, heat_range, marked_by_criterion
from limpet.reports.plots.style import ON_HEAT

from ..specs import assert_page_ready, rows, told, words

NAN = math.nan
MATRIX = [[0.2, NAN, NAN], [0.3, 0.4, NAN], [0.1, 0.4, 0.6]]
NAMES = ("first", "second", "third")


def drawn(**options: Any) -> alt.LayerChart:
    chosen: dict[str, Any] = {"what": "mAP", "marked": marked_by_criterion(MATRIX), **options}
    return heat_map("bct", MATRIX, NAMES, (0.1, 0.6), **chosen)


def places(chart: alt.LayerChart, name: str = "cells") -> list[tuple[int, int]]:
    """Return row and column of every cell of a layer."""
    return [(int(row["y"]), int(row["x"])) for row in rows(chart, name)]


def opacities(chart: alt.LayerChart, name: str = "cells") -> list[float]:
    return [row["opacity"] for row in rows(chart, name)]


def test_every_measured_pair_is_a_cell_with_its_number() -> None:
    chart = drawn()
    assert places(chart) == places(chart, "numbers") == [(i, j) for i in range(3) for j in range(i + 1)]
    assert words(chart, "numbers") == [score(value) for value in (0.2, 0.3, 0.4, 0.1, 0.4, 0.6)]
    assert words(chart, "row names") == words(chart, "column names") == list(NAMES) and words(chart, "title") == ["bct"]


def test_colour_follows_the_limits_and_not_the_matrix() -> None:
    def within(limits: tuple[float, float]) -> list[float]:
        return opacities(heat_map("bct", MATRIX, NAMES, limits, what="mAP"))

    expected = [0.1 + 0.9 * (value - 0.1) / 0.5 for value in (0.2, 0.3, 0.4, 0.1, 0.4, 0.6)]
    assert within((0.1, 0.6)) == pytest.approx(expected, abs=1e-3)
    assert within((0.1, 1.1))[-1] == pytest.approx(0.1 + 0.9 * 0.5, abs=1e-3)
    assert within((0.3, 0.4)) == [0.1, 0.1, 1.0, 0.1, 1.0, 1.0]
    assert within((0.4, 0.4)) == [0.1] * 3 + [0.1] * 2 + [0.1 + 0.9 * 0.2 / 1.0]


def test_letters_change_colour_on_strong_cells() -> None:
    colours = [row["colour"] == ON_HEAT for row in rows(drawn(), "numbers")]
    assert colours == [False, False, True, False, True, True]


def test_marks_stand_in_the_compatible_cells_only() -> None:
    assert places(drawn(), "marks") == [(1, 0)] and words(drawn(), "marks") == [MARK]
    assert not rows(drawn(marked=None), "marks")
    wrong = drawn(mark=WRONG)
    assert places(wrong, "wrong") == places(wrong, "wrong marks") == [(1, 0)]
    tight = drawn(mark=WRONG, width=120)
    assert places(tight, "wrong") == [(1, 0)] and not rows(tight, "wrong marks")  # the number needs the room


def test_the_diagonal_is_outlined_where_rows_and_columns_are_the_same() -> None:
    assert places(drawn(), "own") == [(0, 0), (1, 1), (2, 2)]
    assert not rows(drawn(columns=("a", "b", "c")), "own")


def test_what_is_not_measured_is_a_dash_below_the_diagonal_and_nothing_on_it() -> None:
    matrix = [[NAN] * 3, [0.5, NAN, NAN], [NAN, math.inf, NAN]]
    chart = heat_map("bct", matrix, NAMES, (0.0, 1.0), what="P_comp", form=signed)
    assert places(chart) == [(1, 0)] and not rows(chart, "own")
    assert words(chart, "numbers") == ["+0.500"] and places(chart, "none") == [(2, 0), (2, 1)]


def test_the_text_alternative_holds_all_numbers() -> None:
    assert told(drawn()) == (
        "Queries of first: 0.200 on first; Queries of second: 0.300 (marked) on first, 0.400 on second; "
        "Queries of third: 0.100 on first, 0.400 on second, 0.600 on third."
    )
    assert told(heat_map("x", [[NAN]], ("1",), (0.0, 1.0), what="mAP")) == "Queries of 1: nothing measured."


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("width", [264, 350])
def test_maps_are_ready_for_a_page(count: int, width: float) -> None:
    matrix = np.tril(np.full((count, count), 0.5))
    assert_page_ready(heat_map("x", matrix, [str(i) for i in range(count)], (0.0, 1.0), what="mAP", width=width))


@pytest.mark.parametrize("width", [350, 640])
def test_the_key_shows_the_ends_and_explains_marks(width: float) -> None:
    chart = heat_key((0.1843, 0.62), "mAP", mark_means="compatible", width=width)
    assert_page_ready(chart)
    assert {"mAP", "0.184", "0.62", f"{MARK}  compatible"} <= set(words(chart))
    found = opacities(chart, "scale")
    assert found == sorted(found) and (found[0], found[-1]) == (0.1, 1.0)
    assert any("outlined" in line for line in words(chart))
    assert not any("outlined" in line or MARK in line for line in words(heat_key((0.0, 1.0), "P", own=False)))


def test_matrices_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError):
        heat_map("x", [[0.1, 0.2]], ("1",), (0.0, 1.0), what="mAP")
    with pytest.raises(DataError):
        heat_map("x", [[0.1]], ("1", "2"), (0.0, 1.0), what="mAP")


def test_the_range_of_nothing_finite_is_none() -> None:
    assert heat_range([]) is None and heat_range([[[NAN]]]) is None


@given(st.lists(st.floats(0, 1), min_size=16, max_size=16))
def test_marks_agree_with_average_compatibility(values: list[float]) -> None:
    matrix = np.array(values).reshape(4, 4)
    marked = marked_by_criterion(matrix)
    assert marked.sum() / 6 == pytest.approx(average_compatibility(matrix).ac)
    assert not np.triu(marked).any()


def test_a_tie_is_not_marked() -> None:
    assert not marked_by_criterion([[0.5, NAN], [0.5, 0.8]]).any()
