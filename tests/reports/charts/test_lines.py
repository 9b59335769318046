from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.evaluation.uncertainty import Group, Histogram
from limpet.linking.results import AdaptResults, ScoreMapRecord
from limpet.reports.adapt import thresholds
from limpet.reports.charts.canvas import Chart
from limpet.reports.charts.lines import (
    curve_plot,
    curve_range,
    group_swatch,
    learning_curve,
    order_swatch,
    score_map_plot,
    spread,
    uncertainties,
    uncertainty_plot,
    uncertainty_range,
)
from limpet.reports.svg import width_of
from limpet_bench.reports.charts.recall import learner_swatch, looks, recall_lines
from limpet_bench.sessions.plans import disjoint

from ..changes import changed
from ..reading import assert_page_ready, lines, points, ticks, values, words

WIDTHS = (350.0, 640.0)


def filled(chart: Chart, label: str) -> list[Any]:
    return [area for area in chart.axes.collections if area.get_label() == label]


def outline(area: Any) -> set[tuple[float, float]]:
    return {(round(x, 9), round(y, 9)) for x, y in area.get_paths()[0].vertices.tolist()}


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
        (curve,) = lines(chart, order)
        shares = record.upgrade_curve.shares
        assert points(curve) == list(zip(shares, record.upgrade_curve.values[order], strict=True))
        assert points(curve)[0][1] == record.cross["map"] and points(curve)[-1][1] == record.self_new["map"]
        assert f"{record.upgrade_curve.area[order]:.3f}" in chart.told
    for name, found in (("old", record.self_old["map"]), ("all re-embedded", record.self_new["map"])):
        words_of = f"{name} {found:.3f}"
        assert words_of in words(chart)
        assert points(lines(chart, f"level {words_of}")[0]) == [(0.0, found), (1.0, found)]
    assert ticks(chart) == [f"{share}\N{NO-BREAK SPACE}%" for share in (0, 25, 50, 75, 100)]
    assert len({line.get_linestyle() + str(line._dash_pattern) for line in chart.axes.lines[2:]}) == 3


def test_without_a_curve_none_is_drawn(evaluated: Callable[..., Evaluation]) -> None:
    record = evaluated("p2s", curve=False)
    assert curve_range({"p2s": record}) is None
    assert curve_plot("p2s", record, (0.0, 1.0)) is None


def test_orders_differ_in_legends() -> None:
    assert len({order_swatch(number) for number in range(5)}) == 5
    assert len({group_swatch(group) for group in ("seen", "unseen")}) == 2


# --- one adapter -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_charts_of_adapters_are_ready_for_a_page(
    make_adapt: Callable[..., AdaptResults], labelled: bool, width: float
) -> None:
    results = make_adapt(labelled=labelled)
    assert_page_ready(learning_curve(results, results.learning_curve, width=width))
    assert_page_ready(score_map_plot(results.score_map, width=width))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_curve_goes_through_its_points_on_a_logarithmic_axis(adapted: AdaptResults, width: float) -> None:
    curve = adapted.learning_curve
    chart = learning_curve(adapted, curve, width=width)
    expected = [(math.log10(point.pairs), point.cross.mean) for point in curve.points]
    (track,), (around,) = lines(chart, "track"), filled(chart, "around")
    assert points(track) == expected == [points(mark)[0] for mark in lines(chart, "point")]
    ends = {(math.log10(p.pairs), end) for p in curve.points for end in p.cross.interval}
    assert {(round(x, 9), round(y, 9)) for x, y in ends} <= outline(around)
    for name, score in (("old model", adapted.systems.self_old), ("re-embedded", adapted.systems.self_new)):
        (level,) = lines(chart, f"level {name} {score.mean:.3f}")
        assert {y for _, y in points(level)} == {score.mean}
    assert all(chart.start + 9 <= chart.at(x) <= chart.width - 23 for x, _ in expected)


def test_the_curve_marks_where_it_is_enough(adapted: AdaptResults) -> None:
    chart = learning_curve(adapted, adapted.learning_curve)
    (ring,), (line,) = lines(chart, "ring"), lines(chart, "enough")
    (found,) = [point for point in adapted.learning_curve.points if point.pairs == adapted.learning_curve.enough]
    assert points(ring) == [(math.log10(found.pairs), found.cross.mean)]
    assert {x for x, _ in points(line)} == {math.log10(found.pairs)}
    assert "enough: 1,024 pairs" in words(chart)
    never = changed(adapted, lambda values: values["learning_curve"].update(enough=None))
    chart = learning_curve(never, never.learning_curve)
    assert not lines(chart, "ring") and not any("enough" in told for told in words(chart))


def test_numbers_of_pairs_are_left_out_where_they_do_not_fit(adapted: AdaptResults) -> None:
    def crowd(values: dict[str, Any]) -> None:
        curve = values["learning_curve"]
        curve["points"] = [curve["points"][0] | {"pairs": 10_000 + 10 * step} for step in range(60)]
        curve["enough"] = None

    crowded = changed(adapted, crowd)
    chart = learning_curve(crowded, crowded.learning_curve, width=350)
    places = [chart.at(item.xy[0]) for item in chart.axes.texts if item.get_label() == "x tick" and item.get_text()]
    assert 2 <= len(places) < 10 and min(np.diff(places)) >= width_of("10,000", 12)
    assert ticks(chart)[-1] == "10,590"


def test_a_curve_of_a_single_point_stands_in_the_middle(adapted: AdaptResults) -> None:
    first = adapted.to_dict()["learning_curve"]["points"][:1]
    single = changed(adapted, lambda values: values["learning_curve"].update(points=first, enough=None))
    chart = learning_curve(single, single.learning_curve)
    (x,) = values(chart, "point")
    assert 250 < chart.at(x) < 420


def test_the_map_goes_through_its_knots_and_marks_thresholds(adapted: AdaptResults) -> None:
    score_map = adapted.score_map
    chart = score_map_plot(score_map)
    (track,), (same,) = lines(chart, "track"), lines(chart, "same")
    assert points(track) == [tuple(knot) for knot in score_map.knots]
    assert [points(mark)[0] for mark in lines(chart, "read off")] == thresholds(score_map)
    (left, right), (low, high) = chart.axes.get_xlim(), chart.axes.get_ylim()
    ends = max(left, low), min(right, high)  # what both axes have in common
    assert points(same) == [(ends[0], ends[0]), (ends[1], ends[1])]


def test_scores_without_a_common_range_have_no_line_of_equal_ones() -> None:
    chart = score_map_plot(ScoreMapRecord(error=0, text="", knots=[(0.1, 10.0), (0.9, 20.0)]))
    assert not lines(chart, "same") and "equal scores" not in words(chart)


# --- learners in sessions --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd(make_sessions: Callable[..., SimpleNamespace]) -> SimpleNamespace:
    """Twenty learners of long names through forty sessions."""
    plan = disjoint(np.repeat(np.arange(80), 10), sessions=40, validation=1)
    return make_sessions(plan, [f"cvs with another name that is long {place}" for place in range(20)])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["nine_learners", "one_learner", "blurry_learners", "crowd"])
def test_charts_of_learners_are_ready_for_a_page(name: str, width: float, request: pytest.FixtureRequest) -> None:
    assert_page_ready(recall_lines(request.getfixturevalue(name).results, width=width))


def test_lines_go_through_the_scores(nine_learners: SimpleNamespace) -> None:
    chart = recall_lines(nine_learners.results, width=640)
    drawn = looks(nine_learners.results)
    for name, learner in nine_learners.results.learners.items():
        expected = [(number, session.recall["1"]) for number, session in enumerate(learner.sessions, start=1)]
        (track,) = lines(chart, f"track {name}")
        assert points(track) == expected and track.get_color() == drawn[name].colour
        assert [points(mark)[0] for mark in lines(chart, name)] == (expected if drawn[name].shape is not None else [])


def test_learners_differ_without_colour_and_the_bounds_have_no_marks(
    nine_learners: SimpleNamespace, make_sessions: Callable[..., SimpleNamespace]
) -> None:
    found = looks(nine_learners.results)
    assert found["finetune"].shape is None and found["joint"].shape is None
    assert found["finetune"].dashes != found["joint"].dashes
    others = [look for name, look in found.items() if name not in ("finetune", "joint")]
    assert len(set(others)) == len({look.colour for look in others}) == 7
    assert len({learner_swatch(look) for look in found.values()}) == 9
    many = make_sessions(disjoint(np.repeat(np.arange(10), 10), sessions=2), [f"cvs {place}" for place in range(42)])
    assert len({(look.colour, look.shape) for look in looks(many.results).values()}) == 42
    chart = recall_lines(nine_learners.results)
    markers = [lines(chart, name)[0].get_marker() for name, look in found.items() if look.shape is not None]
    assert len(set(markers)) == 6


def test_the_band_lies_between_both_bounds_or_nowhere(
    nine_learners: SimpleNamespace, blurry_learners: SimpleNamespace
) -> None:
    chart = recall_lines(nine_learners.results)
    (band,) = filled(chart, "between")
    for bound in ("finetune", "joint"):
        assert {(x, round(y, 9)) for x, y in points(lines(chart, f"track {bound}")[0])} <= outline(band)
    assert not filled(recall_lines(blurry_learners.results), "between")


@pytest.mark.parametrize("width", WIDTHS)
def test_names_stand_in_the_order_of_the_ends_and_apart(nine_learners: SimpleNamespace, width: float) -> None:
    chart, learners = recall_lines(nine_learners.results, width=width), nine_learners.results.learners
    texts = [text for text in chart.axes.texts if text.get_label() == "line name"]
    names = {text.get_text(): chart.down(text.xy[1]) for text in texts}
    assert sorted(names, key=names.__getitem__) == sorted(
        learners, key=lambda name: -learners[name].sessions[-1].recall["1"]
    )
    assert min(after - before for before, after in pairwise(sorted(names.values()))) >= 15.99
    assert [text.get_text() for text in texts if text.get_weight() == "bold"] == ["cvs"]
    thick = {name for name in learners if lines(chart, f"track {name}")[0].get_linewidth() > 3}
    assert thick == {"cvs"}


def test_names_that_do_not_fit_are_left_to_the_legend(
    make_sessions: Callable[..., SimpleNamespace], crowd: SimpleNamespace
) -> None:
    assert len(words(recall_lines(crowd.results), "line name")) == 20
    plan = disjoint(np.repeat(np.arange(10), 10), sessions=2)
    chart = recall_lines(make_sessions(plan, [f"cvs {place}" for place in range(40)]).results)
    assert not words(chart, "line name")
    assert len([line for line in chart.axes.lines if str(line.get_label()).startswith("track ")]) == 40


def test_the_text_alternative_holds_all_scores(nine_learners: SimpleNamespace) -> None:
    told = recall_lines(nine_learners.results).told
    for name, learner in nine_learners.results.learners.items():
        scores = ", ".join(f"{session.recall['1']:.3f}" for session in learner.sessions)
        role = {"finetune": ", the lower bound", "joint": ", the upper bound"}.get(name, "")
        assert f"{name}{role}: {scores}" in told


def test_names_of_equal_ends_stand_around_them() -> None:
    assert spread([50.0, 50.0, 50.0], 10.0, 0.0, 100.0) == pytest.approx([40, 50, 60])
    assert spread([95.0, 95.0, 20.0], 10.0, 0.0, 100.0) == pytest.approx([90, 100, 20])
    assert spread([5.0, 5.0], 300.0, 0.0, 100.0) == pytest.approx([0, 300])  # no room for both


@given(
    st.lists(st.floats(-50, 450), min_size=1, max_size=8),
    st.floats(1, 30),
    st.lists(st.floats(-40, 40), min_size=8, max_size=8),
)
def test_names_are_spread_as_little_as_can_be(wanted: list[float], gap: float, moved: list[float]) -> None:
    found = spread(wanted, gap, 0.0, 400.0)
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    inside = sorted(found)
    assert [found[place] for place in order] == inside
    assert all(after - before >= gap - 1e-6 for before, after in pairwise(inside))
    assert inside[0] >= -1e-9 and inside[-1] <= 400 + 1e-6
    other = sorted(f + m for f, m in zip(inside, moved, strict=False))
    allowed = all(after - before >= gap for before, after in pairwise(other)) and other[0] >= 0 and other[-1] <= 400
    if allowed:  # no other allowed places are nearer to those wanted

        def distance(places: list[float]) -> float:
            return sum((at - wanted[place]) ** 2 for at, place in zip(places, order, strict=True))

        assert distance(inside) <= distance(other) + 1e-6


# --- uncertainty -----------------------------------------------------------------------------------------------------


def test_a_histogram_is_as_high_as_its_shares() -> None:
    groups = {
        "seen": Group(items=10, mean=0.32, counts=[1, 6, 3, 0]),
        "unseen": Group(items=20, mean=0.45, counts=[0, 4, 8, 8]),
    }
    found = Histogram(edges=[0.2, 0.3, 0.4, 0.5, 0.6], groups=groups)
    chart = uncertainty_plot("old", found, (0.2, 0.6))
    assert_page_ready(chart)
    steps = {patch.get_label(): patch.get_data() for patch in chart.axes.patches}
    assert steps["seen"].values.tolist() == [10, 60, 30, 0] and steps["unseen"].values.tolist() == [0, 20, 40, 40]
    assert all(data.edges.tolist() == found.edges and data.baseline == 0 for data in steps.values())
    assert [{x for x, _ in points(lines(chart, f"mean {group}")[0])} for group in groups] == [{0.32}, {0.45}]
    assert {"seen 0.320", "not seen 0.450"} <= set(words(chart))
    assert "mean 0.320, 10 items, most often between 0.3 and 0.4" in chart.told


def test_panels_share_one_scale(hyperbolic: SimpleNamespace, make_results: Callable[..., EvaluationResults]) -> None:
    found = uncertainties(make_results({"hbct": hyperbolic.evaluation}).evaluations)
    assert list(found) == ["old", "hbct"]
    limits = uncertainty_range(found)
    assert limits == (min(side.edges[0] for side in found.values()), max(side.edges[-1] for side in found.values()))
    charts = [uncertainty_plot("m", side, limits) for side in found.values()]
    assert charts[0].axes.get_xlim() == charts[1].axes.get_xlim() and ticks(charts[0]) == ticks(charts[1])
