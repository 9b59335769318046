from __future__ import annotations

import numpy as np
import pytest

from limpet.reports.plots.heat import MARK
from limpet.reports.plots.rendering import svg
from limpet_bench.figure_values import (
    BarPanel,
    GenerationMatrix,
    Line,
    LinePanel,
    Matrices,
    Point,
    Series,
    Spread,
)
from limpet_bench.reports.charts.panels import (
    bars_panel,
    lines_panel,
    look,
    matrix_panel,
    matrix_range,
    means_of,
    reach,
    written,
)

from ....reports.specs import assert_page_ready, axis, layers, points, rows, told, words


def spread(low: float, high: float | None = None) -> Spread:
    found = Spread.of([low] if high is None else [low, high])
    assert found is not None
    return found


def line(label: str, *values: Spread | None, measure: str = "cross") -> Line:
    return Line(label=label, measure=measure, points=[Point(at=10.0**n, value=one) for n, one in enumerate(values)])


LINES = LinePanel(place="here", lines=[line("a", spread(0.2, 0.4), None, spread(0.8)), line("b", spread(0.1))])


@pytest.mark.parametrize("width", [350, 640])
def test_lines_pass_through_the_means_and_leave_out_what_is_not_defined(width: float) -> None:
    chart = lines_panel(LINES, "A figure", "weight", "mAP", width=width)
    assert points(chart, "line 0") == [(1.0, pytest.approx(0.3)), (100.0, pytest.approx(0.8))]
    assert len(points(chart, "marks 0")) == 2 and points(chart, "marks 1") == [(1.0, pytest.approx(0.1))]
    assert chart.to_dict()["usermeta"]["title"] == "A figure here" and "a: 1: 0.300 [0.200, 0.400]; 10:" not in told(
        chart
    )
    assert "a: 1: 0.300 [0.200, 0.400], 10: –, 100: 0.800" in told(chart)
    assert words(chart, "legend") == ["a", "b"]
    assert_page_ready(chart)


def test_a_band_spans_the_seeds_and_is_left_out_of_one_seed() -> None:
    chart = lines_panel(LINES, "", "", "")
    band = rows(chart, "range 0")
    assert [(row["y"], row["y2"]) for row in band] == [(0.2, 0.4), (0.8, 0.8)] and not rows(chart, "range 1")


def test_a_logarithmic_setting_is_drawn_by_its_exponent() -> None:
    chart = lines_panel(LINES, "", "weight", "", log=True)
    assert layers(chart)["line 0"]["encoding"]["x"]["scale"]["type"] == "log"
    assert [x for x, _ in points(chart, "line 0")] == [1.0, 100.0] and axis(chart)["values"] == [1, 10, 100]
    assert ">100</text>" in svg(chart)


def test_lines_of_nothing_still_draw_axes() -> None:
    empty = LinePanel(place="", lines=[line("a", None)])
    assert points(lines_panel(empty, "", "", ""), "line 0") == []


def test_many_points_have_no_marks_and_few_ticks() -> None:
    many = Line(label="a", measure="cross", points=[Point(at=float(n), value=spread(n / 40)) for n in range(40)])
    chart = lines_panel(LinePanel(place="", lines=[many]), "", "", "")
    assert points(chart, "marks 0") == [] and len(points(chart, "line 0")) == 40
    assert 2 <= len(axis(chart)["values"]) < 12


@pytest.mark.parametrize("width", [350, 640])
def test_bars_reach_their_means_and_whiskers_the_seeds(width: float) -> None:
    series = [
        Series(label="a", measure="p_comp", values=[spread(0.2, 0.4), None]),
        Series(label="b", measure="p_comp", values=[spread(-0.1), spread(0.5)]),
    ]
    chart = bars_panel(BarPanel(place="", groups=["x", "y"], series=series), "Bars", "P_comp", width=width)
    assert [row["x2"] for name in ("bars 0", "bars 1") for row in rows(chart, name)] == [pytest.approx(0.3), -0.1, 0.5]
    whisker = rows(chart, "whiskers")[0]
    assert (whisker["x"], whisker["x2"]) == (0.2, 0.4)
    assert words(chart, "numbers") == ["+0.300", "–", "−0.100", "+0.500"] and words(chart, "groups") == ["x", "y"]
    assert "x: a +0.300 [+0.200, +0.400], b −0.100; y: a –, b +0.500." in told(chart)
    assert_page_ready(chart)


def test_bars_of_one_thing_need_no_legend() -> None:
    panel = BarPanel(place="here", groups=["x"], series=[Series(label="a", measure="cross", values=[spread(0.5)])])
    assert words(bars_panel(panel, "", ""), "legend") == []


MATRIX = GenerationMatrix(place="", label="p2s", values=[[spread(0.5), None], [spread(0.6), spread(0.8)]])


def test_a_matrix_marks_what_is_compatible_of_cross_tests_alone() -> None:
    limits = matrix_range(Matrices(title="", measure="cross", metric="map", generations=2, panels=[MATRIX]))
    assert limits == (0.5, 0.8)
    values = means_of(MATRIX)
    assert np.isnan(values[0, 1]) and values[1].tolist() == [0.6, 0.8]
    cross, gain = (matrix_panel(MATRIX, "Chain", measure, limits) for measure in ("cross", "p_comp"))
    assert MARK in words(cross) and MARK not in words(gain)
    assert "0.600" in words(cross) and "+0.600" in words(gain)
    assert "Queries of 2: 0.600 (marked) on 1, 0.800 on 2." in told(cross)
    assert_page_ready(cross)


def test_a_matrix_of_nothing_has_a_scale() -> None:
    nothing = GenerationMatrix(place="", label="", values=[[None, None], [None, None]])
    assert matrix_range(Matrices(title="", measure="cross", metric="map", generations=2, panels=[nothing])) == (0, 1)


def test_42_things_look_different_and_numbers_are_written_with_their_range() -> None:
    assert len({look(number) for number in range(42)}) == 42
    assert reach([None, spread(0.1, 0.3), spread(0.2)]) == (0.1, 0.3) and reach([None]) is None
    assert written("cross", None) == "–" and written("cross", spread(0.5)) == "0.500"
    assert written("p_up", spread(-0.1, 0.1)) == "0.000 [−0.100, +0.100]"
