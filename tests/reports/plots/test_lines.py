from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.evaluation.thresholds import Thresholds
from limpet.evaluation.uncertainty import Group, Histogram
from limpet.linking.results import AdaptResults
from limpet.reports.plots.histogram import uncertainty_plot
from limpet.reports.plots.lines import curve_plot, learning_curve, threshold_plot
from limpet.reports.plots.rendering import svg
from limpet.reports.plots.swatches import curve_swatch, group_swatch, order_swatch
from limpet.reports.readings import curve_range, uncertainties, uncertainty_range
from limpet.reports.thresholds import round_thresholds

from ..changes import changed
from ..specs import SVG, assert_page_ready, axis, layers, points, rows, told, words

WIDTHS = (350.0, 640.0)


# --- an upgrade ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_curves_begin_at_cross_and_end_at_self_new(results: EvaluationResults, width: float) -> None:
    record = results.evaluations["p2s"]
    limits = curve_range({"p2s": record})
    assert limits is not None
    chart = curve_plot("p2s", record, limits, width=width)
    assert chart is not None
    assert_page_ready(chart)
    for order in ("random", "margin", "margin_reversed"):
        curve = points(chart, order)
        assert curve == list(zip(record.upgrade_curve.shares, record.upgrade_curve.values[order], strict=True))
        assert curve[0][1] == record.cross["map"] and curve[-1][1] == record.self_new["map"]
        assert f"{record.upgrade_curve.area[order]:.3f}" in told(chart)
    for name, found in (("old", record.self_old["map"]), ("all re-embedded", record.self_new["map"])):
        said = f"{name} {found:.3f}"
        assert said in words(chart) and {row["y"] for row in rows(chart, f"level {said}")} == {found}
    looks = {
        tuple(layers(chart)[order]["mark"].get("strokeDash", ())) for order in ("random", "margin", "margin_reversed")
    }
    assert len(looks) == 3 and axis(chart)["values"] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert "50\N{NO-BREAK SPACE}%" in {item.text for item in ElementTree.fromstring(svg(chart)).iter(f"{SVG}text")}


def test_without_a_curve_none_is_drawn(evaluated: Callable[..., Evaluation]) -> None:
    record = evaluated("p2s", curve=False)
    assert curve_range({"p2s": record}) is None
    assert curve_plot("p2s", record, (0.0, 1.0)) is None


def test_orders_differ_in_legends() -> None:
    assert len({order_swatch(number) for number in range(5)} | {curve_swatch(number) for number in range(3)}) == 8
    assert len({group_swatch(group) for group in ("seen", "unseen")}) == 2


# --- one adapter -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_charts_of_adapters_are_ready_for_a_page(
    make_adapt: Callable[..., AdaptResults], labelled: bool, width: float
) -> None:
    results = make_adapt(labelled=labelled)
    assert_page_ready(learning_curve(results, results.learning_curve, width=width))
    assert_page_ready(threshold_plot(results.thresholds, width=width))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_curve_goes_through_its_points_on_a_logarithmic_axis(adapted: AdaptResults, width: float) -> None:
    curve = adapted.learning_curve
    chart = learning_curve(adapted, curve, width=width)
    expected = [(point.pairs, point.cross.mean) for point in curve.points]
    assert points(chart, "track") == points(chart, "points") == expected
    around = [(row["x"], row["y"], row["y2"]) for row in rows(chart, "interval")]
    assert around == [(point.pairs, *point.cross.interval) for point in curve.points]
    for name, score in (("old model", adapted.systems.self_old), ("re-embedded", adapted.systems.self_new)):
        assert {row["y"] for row in rows(chart, f"level {name} {score.mean:.3f}")} == {score.mean}
    assert layers(chart)["track"]["encoding"]["x"]["scale"]["type"] == "log"
    low, high = axis(chart)["domain"]
    assert low < expected[0][0] and expected[-1][0] < high


def test_the_curve_marks_where_it_is_enough(adapted: AdaptResults) -> None:
    chart = learning_curve(adapted, adapted.learning_curve)
    (found,) = [point for point in adapted.learning_curve.points if point.pairs == adapted.learning_curve.enough]
    assert points(chart, "ring") == [(found.pairs, found.cross.mean)]
    assert {row["x"] for row in rows(chart, "enough")} == {found.pairs}
    assert "enough: 1,024 pairs" in words(chart)
    never = changed(adapted, lambda values: values["learning_curve"].update(enough=None))
    chart = learning_curve(never, never.learning_curve)
    assert not rows(chart, "ring") and not any("enough" in said for said in words(chart))


def test_numbers_of_pairs_are_left_out_where_they_do_not_fit(adapted: AdaptResults) -> None:
    def crowd(values: dict[str, Any]) -> None:
        curve = values["learning_curve"]
        curve["points"] = [curve["points"][0] | {"pairs": 10_000 + 10 * step} for step in range(60)]
        curve["enough"] = None

    crowded = changed(adapted, crowd)
    drawing = ElementTree.fromstring(svg(learning_curve(crowded, crowded.learning_curve, width=350)))
    shown = [item for item in drawing.iter(f"{SVG}text") if str(item.text).startswith("10,")]
    assert 2 <= len(shown) < 10


def test_a_curve_of_a_single_point_stands_in_the_middle(adapted: AdaptResults) -> None:
    first = adapted.to_dict()["learning_curve"]["points"][:1]
    single = changed(adapted, lambda values: values["learning_curve"].update(points=first, enough=None))
    chart = learning_curve(single, single.learning_curve)
    (low, high), ((x, _),) = axis(chart)["domain"], points(chart, "points")
    assert low * 2 < x < high / 2
    assert_page_ready(chart)


def test_thresholds_go_through_the_rows_of_their_table(adapted: AdaptResults) -> None:
    table = adapted.thresholds
    chart = threshold_plot(table)
    assert points(chart, "track") == [(row.old, row.new) for row in table.rows]
    assert points(chart, "thresholds") == [(row.old, row.new) for row in round_thresholds(table)]
    assert [(row["y"], row["y2"]) for row in rows(chart, "likely")] == [row.interval for row in table.rows]
    (left, right), (low, high) = axis(chart)["domain"], axis(chart, "y")["domain"]
    (equal,) = rows(chart, "equal")
    assert equal == {"x": max(left, low), "y": max(left, low), "x2": min(right, high), "y2": min(right, high)}


def test_scores_without_a_common_range_have_no_line_of_equal_ones() -> None:
    old = np.random.default_rng(0).normal(size=(30, 40))
    chart = threshold_plot(Thresholds.of(old, 50 + old, resamples=5))
    assert not rows(chart, "equal") and "equal scores" not in words(chart)


# --- uncertainty -----------------------------------------------------------------------------------------------------


def test_a_histogram_is_as_high_as_its_shares() -> None:
    groups = {
        "seen": Group(items=10, mean=0.32, counts=[1, 6, 3, 0]),
        "unseen": Group(items=20, mean=0.45, counts=[0, 4, 8, 8]),
    }
    found = Histogram(edges=[0.2, 0.3, 0.4, 0.5, 0.6], groups=groups)
    chart = uncertainty_plot("old", found, (0.2, 0.6))
    assert_page_ready(chart)
    expected = {"seen": [10, 60, 30, 0], "unseen": [0, 20, 40, 40]}
    for group, heights in expected.items():
        steps = points(chart, group)
        assert steps[0] == (0.2, 0.0) and steps[-1] == (0.6, 0.0)
        assert [y for _, y in steps[1:-1:2]] == [y for _, y in steps[2:-1:2]] == heights
        assert {row["x"] for row in rows(chart, f"mean {group}")} == {groups[group].mean}
    assert rows(chart, "area seen") and not rows(chart, "area unseen")
    assert {"seen 0.320", "not seen 0.450"} <= set(words(chart))
    assert "mean 0.320, 10 items, most often between 0.3 and 0.4" in told(chart)


def test_panels_share_one_scale(hyperbolic: Any, make_results: Callable[..., EvaluationResults]) -> None:
    found = uncertainties(make_results({"hbct": hyperbolic.evaluation}).evaluations)
    assert list(found) == ["old", "hbct"]
    limits = uncertainty_range(found)
    assert limits == (min(side.edges[0] for side in found.values()), max(side.edges[-1] for side in found.values()))
    assert len({tuple(axis(uncertainty_plot("m", side, limits))["domain"]) for side in found.values()}) == 1
