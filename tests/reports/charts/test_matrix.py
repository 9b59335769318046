from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.errors import DataError
from limpet.evaluation.compatibility import average_compatibility
from limpet.reports.charts.canvas import HEAT, HEAT_INK, ON_HEAT, Chart
from limpet.reports.charts.matrix import MARK, heat_key, heat_map, heat_range, marked_by_criterion
from limpet.reports.formats import score, signed
from limpet.reports.svg import width_of
from limpet_bench.reports.charts.recall_maps import recall_map, recall_range
from limpet_bench.sessions.plans import disjoint
from limpet_bench.sessions.results import SessionsResults

from ..reading import assert_page_ready, lines, points, words

NAN = math.nan
MATRIX = [[0.2, NAN, NAN], [0.3, 0.4, NAN], [0.1, 0.4, 0.6]]
NAMES = ("first", "second", "third")


def drawn(**options: Any) -> Chart:
    chosen: dict[str, Any] = {"what": "mAP", "marked": marked_by_criterion(MATRIX), **options}
    return heat_map("bct", MATRIX, NAMES, (0.1, 0.6), **chosen)


def boxes(chart: Chart, label: str = "cell") -> list[Any]:
    return [patch for patch in chart.axes.patches if patch.get_label() == label]


def opacities(chart: Chart) -> list[float]:
    return [box.get_facecolor()[3] for box in boxes(chart)]


def texts(chart: Chart, label: str) -> list[Any]:
    return [text for text in chart.axes.texts if text.get_label() == label]


def test_every_measured_pair_is_a_cell_with_its_number() -> None:
    chart = drawn()
    assert len(boxes(chart)) == 6
    assert words(chart, "number") == [score(value) for value in (0.2, 0.3, 0.4, 0.1, 0.4, 0.6)]
    assert words(chart, "row") == words(chart, "column") == list(NAMES) and "bct" in words(chart)


def test_rows_are_queries_and_columns_galleries() -> None:
    places = [box.get_xy() for box in boxes(drawn())]
    assert places[1][0] < places[2][0] and places[1][1] == places[2][1]
    assert places[0][0] == places[1][0] == places[3][0]
    assert places[0][1] < places[1][1] < places[3][1]  # pixels from the top


def test_colour_follows_the_limits_and_not_the_matrix() -> None:
    def within(limits: tuple[float, float]) -> list[float]:
        return opacities(heat_map("bct", MATRIX, NAMES, limits, what="mAP"))

    expected = [0.1 + 0.9 * (value - 0.1) / 0.5 for value in (0.2, 0.3, 0.4, 0.1, 0.4, 0.6)]
    assert within((0.1, 0.6)) == pytest.approx(expected, abs=1e-3)
    assert within((0.1, 1.1))[-1] == pytest.approx(0.1 + 0.9 * 0.5, abs=1e-3)
    assert within((0.3, 0.4)) == [0.1, 0.1, 1.0, 0.1, 1.0, 1.0]
    assert within((0.4, 0.4)) == [0.1] * 3 + [0.1] * 2 + [0.1 + 0.9 * 0.2 / 1.0]


def test_letters_change_colour_on_strong_cells() -> None:
    colours = [text.get_color() == ON_HEAT for text in texts(drawn(), "number")]
    assert colours == [False, False, True, False, True, True]


def test_marks_stand_in_the_compatible_cells_only() -> None:
    chart = drawn()
    (mark,), cell = texts(chart, "mark"), boxes(chart)[1]
    assert cell.get_x() < mark.xy[0] < cell.get_x() + cell.get_width()
    assert cell.get_y() < mark.xy[1] < cell.get_y() + cell.get_height() / 2
    assert not texts(drawn(marked=None), "mark")


def test_the_diagonal_is_outlined() -> None:
    chart = drawn()
    cells = boxes(chart)
    assert [box.get_xy() for box in boxes(chart, "own")] == [cells[place].get_xy() for place in (0, 2, 5)]


def test_what_is_not_measured_is_a_dash_below_the_diagonal_and_nothing_on_it() -> None:
    matrix = [[NAN] * 3, [0.5, NAN, NAN], [NAN, math.inf, NAN]]
    chart = heat_map("bct", matrix, NAMES, (0.0, 1.0), what="P_comp", form=signed)
    assert len(boxes(chart)) == 1 and not boxes(chart, "own")
    assert words(chart, "number") == ["+0.500"]
    dashes = [points(line)[0][1] for line in lines(chart, "none")]
    assert len(dashes) == 2 and dashes[0] == dashes[1]


def test_the_text_alternative_holds_all_numbers() -> None:
    chart = drawn()
    assert chart.title == "mAP of bct" and chart.told == (
        "Queries of first: 0.200 on first; Queries of second: 0.300 (marked) on first, 0.400 on second; "
        "Queries of third: 0.100 on first, 0.400 on second, 0.600 on third."
    )
    assert heat_map("x", [[NAN]], ("1",), (0.0, 1.0), what="mAP").told == "Queries of 1: nothing measured."


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("width", [264, 350])
def test_everything_lies_within_the_drawing(count: int, width: float) -> None:
    matrix = np.tril(np.full((count, count), 0.5))
    chart = heat_map("x", matrix, [str(i) for i in range(count)], (0.0, 1.0), what="mAP", width=width)
    assert_page_ready(chart)
    assert chart.width == width
    bottom = max(box.get_y() + box.get_height() for box in boxes(chart))
    assert all(box.get_x() >= 0 and box.get_x() + box.get_width() <= width for box in boxes(chart))
    assert bottom < max(text.xy[1] for text in chart.axes.texts) < chart.height < bottom + 30


@pytest.mark.parametrize("width", [350, 640])
def test_the_key_shows_the_ends_and_explains_marks(width: float) -> None:
    chart = heat_key((0.1843, 0.62), "mAP", mark_means="compatible", width=width)
    assert_page_ready(chart)
    assert {"mAP", "0.184", "0.62", f"{MARK}  compatible"} <= set(words(chart))
    found = opacities(chart)
    assert found == sorted(found) and (found[0], found[-1]) == (0.1, 1.0)
    assert chart.svg().count('shape-rendering="crispEdges"') == len(found)
    assert any("outlined" in line for line in words(chart))
    assert not any("outlined" in line or MARK in line for line in words(heat_key((0.0, 1.0), "P", own=False)))
    assert not any(MARK in line for line in words(heat_key((0.0, 1.0), "P")))


def test_the_range_spans_all_matrices() -> None:
    assert heat_range([MATRIX, [[0.9, NAN], [-0.1, 0.5]]]) == (-0.1, 0.9)
    assert heat_range([[[NAN]]]) is None
    assert heat_range([]) is None


@given(st.lists(st.floats(0, 1), min_size=16, max_size=16))
def test_marks_agree_with_average_compatibility(values: list[float]) -> None:
    matrix = np.array(values).reshape(4, 4)
    marked = marked_by_criterion(matrix)
    assert marked.sum() / 6 == pytest.approx(average_compatibility(matrix).ac)
    assert not np.triu(marked).any()


def test_a_tie_is_not_marked() -> None:
    assert not marked_by_criterion([[0.5, NAN], [0.5, 0.8]]).any()


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(DataError, match=r"shape \(2, 3\)"):
        heat_map("x", np.zeros((2, 3)), ("1", "2"), (0.0, 1.0), what="mAP")
    with pytest.raises(DataError, match="1 names"):
        heat_map("x", np.zeros((2, 2)), ("1",), (0.0, 1.0), what="mAP")
    with pytest.raises(DataError, match="marks of shape"):
        heat_map("x", np.zeros((2, 2)), ("1", "2"), (0.0, 1.0), what="mAP", marked=np.zeros((3, 3)))


def test_letters_keep_a_contrast_of_four_on_every_shade() -> None:
    light = {HEAT: "#003058", HEAT_INK: "#010101", ON_HEAT: "#ffffff", "paper": "#fdfcfa"}
    dark = {HEAT: "#74b5dc", HEAT_INK: "#ffffff", ON_HEAT: "#000000", "paper": "#14181c"}
    values = np.zeros((9, 9))
    values[np.tril_indices(9)] = np.linspace(0, 1, 45)
    chart = heat_map("x", values, tuple("123456789"), (0.0, 1.0), what="mAP")
    for opacity, number in zip(opacities(chart), texts(chart, "number"), strict=True):
        for scheme in (light, dark):
            shade = (1 - opacity) * channels(scheme["paper"]) + opacity * channels(scheme[HEAT])
            first, second = sorted((luminance(shade), luminance(channels(scheme[number.get_color()]))), reverse=True)
            assert (first + 0.05) / (second + 0.05) > 4


def channels(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def luminance(colour: np.ndarray) -> float:
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


# --- learners in sessions --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd(make_sessions: Callable[..., SimpleNamespace]) -> SimpleNamespace:
    """A learner through forty sessions."""
    plan = disjoint(np.repeat(np.arange(80), 10), sessions=40, validation=1)
    return make_sessions(plan, ["cvs with another name that is long"])


@pytest.mark.parametrize("width", [340.0, 640.0])
@pytest.mark.parametrize("name", ["nine_learners", "one_learner", "blurry_learners", "crowd"])
def test_maps_are_ready_for_a_page(name: str, width: float, request: pytest.FixtureRequest) -> None:
    results = request.getfixturevalue(name).results
    learner = next(iter(results.learners))
    assert_page_ready(recall_map(learner, results.learners[learner], recall_range(results), width=width))


def test_a_map_holds_every_group_that_was_asked(nine_learners: SimpleNamespace) -> None:
    learner = nine_learners.results.learners["lwf"]
    chart = recall_map("lwf", learner, (0.0, 1.0))
    values = [value for row in learner.recall_by_age for value in row if value is not None]
    assert len(values) == 15
    assert words(chart, "number") == [f"{value:.2f}" for value in values]
    assert opacities(chart) == pytest.approx([0.1 + 0.9 * value for value in values], abs=1e-3)
    assert len(boxes(chart, "own")) == 5
    lefts, tops = ({round(box.get_xy()[axis], 6) for box in boxes(chart)} for axis in (0, 1))
    where = [
        (sorted(tops).index(round(box.get_y(), 6)), sorted(lefts).index(round(box.get_x(), 6))) for box in boxes(chart)
    ]
    assert where == [(row, column) for row in range(5) for column in range(row + 1)]
    assert all(f"{value:.3f} of session" in chart.told for value in values)


def test_a_map_of_classes_known_from_the_start_is_a_whole_square(blurry_learners: SimpleNamespace) -> None:
    chart = recall_map("cvs", blurry_learners.results.learners["cvs"], (0.0, 1.0))
    assert len(words(chart, "number")) == 16 and len(boxes(chart, "own")) == 4


def test_a_group_that_was_never_asked_is_a_dash(nine_learners: SimpleNamespace) -> None:
    document = nine_learners.results.to_dict()
    for session in document["learners"]["lwf"]["sessions"]:
        session["recall_by_home"][1], session["queries_by_home"][1] = None, 0
    chart = recall_map("lwf", SessionsResults.parse(document).learners["lwf"], (0.0, 1.0))
    assert len(lines(chart, "none")) == 4 and len(words(chart, "number")) == 11
    assert "session 2" not in chart.told.replace("After session 2", "")


def test_numbers_that_do_not_fit_a_cell_are_left_out(crowd: SimpleNamespace) -> None:
    chart = recall_map("x", next(iter(crowd.results.learners.values())), (0.0, 1.0))
    assert not words(chart, "number") and len(boxes(chart)) == 40 * 41 / 2
    places = [text.xy[0] for text in texts(chart, "column")]
    assert 3 < len(places) < 40 and min(np.diff(places)) >= width_of("40", 12)
