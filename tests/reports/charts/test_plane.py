from __future__ import annotations

import pytest

from limpet.evaluation.results import EvaluationResults
from limpet.reports.charts.plane import trade_off, trade_off_points

from ..changes import changed
from ..reading import assert_page_ready, lines, points, words


@pytest.mark.parametrize("width", [350, 640])
def test_trade_off_places_models_by_their_numbers(results: EvaluationResults, width: float) -> None:
    records = {name: results.evaluations[name] for name in ("p2s", "same")}
    chart = trade_off(records, width=width)
    assert chart is not None
    assert_page_ready(chart)
    marks = lines(chart, "model")
    expected = [tuple(getattr(one, key)["raw"]["map"] for key in ("p_comp", "p_up")) for one in records.values()]
    assert [points(mark)[0] for mark in marks] == expected == list(trade_off_points(records).values())
    assert len({mark.get_marker() for mark in marks}) == len({mark.get_color() for mark in marks}) == 2
    assert words(chart, "name") == ["p2s", "same"] and {"old", "independent", "no quality lost"} <= set(words(chart))


def test_trade_off_keeps_far_marks_with_their_number(results: EvaluationResults) -> None:
    record = changed(results.evaluations["p2s"], lambda values: values["p_comp"]["raw"].update(map=-7.25))
    chart = trade_off({"p2s": record})
    assert chart is not None and words(chart, "name") == ["p2s (P_comp −7.250)"]
    assert points(lines(chart, "model")[0])[0][0] == chart.axes.get_xlim()[0]


def test_names_that_are_shortened_alike_keep_their_marks(results: EvaluationResults) -> None:
    long = "n" * 60
    chart = trade_off({f"{long}{end}": results.evaluations["p2s"] for end in "ab"})
    assert chart is not None and len(lines(chart, "model")) == 2


def test_models_without_p_metrics_are_not_placed(results: EvaluationResults) -> None:
    record = changed(results.evaluations["p2s"], lambda values: values["p_up"]["raw"].update(map=None))
    assert trade_off({"p2s": record}) is None
