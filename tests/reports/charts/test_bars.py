from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from limpet.evaluation.agreement import Agreement
from limpet.evaluation.class_change import ClassChangeSummary, class_change
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.reports.charts.bars import (
    agreement_bars,
    agreement_rows,
    change_swatch,
    class_changes,
    class_plot,
    class_range,
    class_rows,
    score_bars,
    share_of,
)
from limpet.reports.charts.canvas import Chart
from limpet.reports.svg import width_of
from limpet_bench.reports.charts.costs import (
    KINDS,
    Growth,
    cost_columns,
    growth_plot,
    growths,
    images_of,
    layer_swatch,
    seconds_by_session,
)
from limpet_bench.reports.sessions import count_of
from limpet_bench.sessions.plans import disjoint

from ..changes import changed
from ..reading import assert_page_ready, lines, points, words

WIDTHS = (350.0, 640.0)


def boxes(chart: Chart, label: str) -> list[Any]:
    """Return the rectangles of a label."""
    return [patch for patch in chart.axes.patches if patch.get_label() == label]


def ends(box: Any) -> tuple[float, float]:
    return box.get_y(), box.get_y() + box.get_height()


# --- scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_bars_are_as_long_as_their_scores(results: EvaluationResults, width: float) -> None:
    records = results.evaluations
    chart = score_bars(records, width=width)
    assert_page_ready(chart)
    assert chart.axes.get_xlim()[0] == 0
    for system in ("cross", "self_new"):
        bars, scores = boxes(chart, system), [getattr(record, system)["map"] for record in records.values()]
        assert [(bar.get_x(), bar.get_width()) for bar in bars] == [(0, score) for score in scores]
        assert {f"{score:.3f}" for score in scores} <= set(words(chart, "number"))
    old = records["p2s"].self_old["map"]
    assert [{x for x, _ in points(line)} for line in lines(chart, "level self_old")] == [{old}] * 3
    assert f"old {old:.3f}" in words(chart) and words(chart, "name") == ["p2s ✓", "same ?", "independent ✗"]


def test_bands_and_whiskers_are_the_intervals(results: EvaluationResults) -> None:
    record = results.evaluations["p2s"]
    chart = score_bars({"p2s": record})
    (band,) = boxes(chart, "band self_old")
    low, high = record.mean_interval["self_old"]["map"]
    assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((low, high))
    (whisker,) = lines(chart, "whisker cross")
    assert tuple(x for x, _ in points(whisker)) == tuple(record.mean_interval["cross"]["map"])
    (bar,) = boxes(chart, "cross")
    assert ends(bar)[0] < points(whisker)[0][1] < ends(bar)[1]


# --- agreement -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def agreement(unlabelled: Evaluation) -> Agreement:
    assert isinstance(unlabelled.agreement, Agreement)
    return unlabelled.agreement


@pytest.mark.parametrize("width", WIDTHS)
def test_agreement_bars_are_as_long_as_their_shares(agreement: Agreement, width: float) -> None:
    chart = agreement_bars("new", agreement, width=width)
    assert_page_ready(chart)
    for stage in ("cross", "self_new"):
        measures = ("first_kept", "overlap", "rank_biased_overlap")
        shares = [share_of(agreement, stage, measure)[0] for measure in measures]
        assert [bar.get_width() for bar in boxes(chart, stage)] == shares
        assert {f"{100 * share:.1f}\N{NO-BREAK SPACE}%" for share in shares} <= set(words(chart, "number"))


def test_the_first_hit_is_counted_as_one_that_stays(agreement: Agreement) -> None:
    share, (low, high) = share_of(agreement, "cross", "first_kept")
    assert share == pytest.approx(1 - agreement.cross.first_changed.mean)
    assert low <= share <= high


def test_agreement_rows_hold_all_numbers(agreement: Agreement) -> None:
    columns, rows = agreement_rows(agreement)
    assert columns[1:] == ["after the swap", "re-embedded"]
    assert len(rows) == 3 and all("[" in cell for row in rows for cell in row[1:])


# --- classes ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def change() -> ClassChangeSummary:
    """300 classes of 20 queries, some much better, some much worse."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(300), 20)
    before = rng.random(6000)
    after = before + 0.1 * rng.normal(size=6000) + 0.3 * ((labels % 10 == 0) * 1.0 - (labels % 25 == 1))
    return class_change(before, after, labels).summary("map", [f"class {row}" for row in range(300)])


def with_curve(change: ClassChangeSummary, curve: list[float]) -> ClassChangeSummary:
    shares = {"better": sum(v > 0 for v in curve) / len(curve), "worse": sum(v < 0 for v in curve) / len(curve)}
    return change.model_copy(update={"curve": curve, "classes": len(curve)} | shares)


def test_classes_are_bars_as_high_as_their_changes_and_on_their_side(change: ClassChangeSummary) -> None:
    few = with_curve(change, [-0.2, -0.1, 0.0, 0.1, 0.4])
    chart = class_plot("new", few, class_range({"new": few}))
    worse, better = boxes(chart, "worse"), boxes(chart, "better")
    assert [ends(bar) for bar in (*worse, *better)] == [(0, -0.2), (0, -0.1), (0, 0.1), (0, 0.4)]  # none for no change
    assert [bar.get_x() for bar in (*worse, *better)] == pytest.approx([0.0, 0.2, 0.6, 0.8])
    assert {bar.get_facecolor() for bar in worse}.isdisjoint(bar.get_facecolor() for bar in better)


@pytest.mark.parametrize("width", WIDTHS)
def test_many_classes_are_drawn_by_quantiles_inside_the_drawing(change: ClassChangeSummary, width: float) -> None:
    chart = class_plot("new", change, class_range({"new": change}), width=width)
    assert_page_ready(chart)
    bars = boxes(chart, "worse") + boxes(chart, "better")
    assert 190 < len(bars) <= 201
    assert all(0 <= bar.get_x() < bar.get_x() + bar.get_width() <= 1 + 1e-9 for bar in bars)
    assert "300 classes score more" in chart.told
    assert all(getattr(change, end)[0].name in chart.told for end in ("worst", "best"))
    assert "share of the 300 classes" in words(chart)


@pytest.mark.parametrize("curve", [[-0.2, *[0.3] * 30], [*[-0.3] * 30, 0.2], [-1.0, 1.0]])
@pytest.mark.parametrize("width", WIDTHS)
def test_words_lie_above_all_bars_and_apart(change: ClassChangeSummary, curve: list[float], width: float) -> None:
    """Also where few classes lose among many that gain, whose bars reach to the other side of the chart."""
    found = with_curve(change, curve)
    chart = class_plot("new", found, class_range({"new": found}), width=width, height=280)
    highest = min(chart.down(ends(bar)[1]) for bar in boxes(chart, "worse") + boxes(chart, "better"))
    left, right = (text for text in chart.axes.texts if " score " in text.get_text())
    assert all(chart.height - text.xy[1] + 4 <= highest for text in (left, right))
    assert left.xy[0] + width_of(left.get_text(), 12) < right.xy[0] - width_of(right.get_text(), 12)


@pytest.mark.parametrize("curve", [[0.1, 0.2], [-0.2, -0.1], [0.0, 0.0], [-1.0, 1.0]])
def test_one_sided_changes_leave_room_for_the_words(change: ClassChangeSummary, curve: list[float]) -> None:
    found = with_curve(change, curve)
    low, high = class_range({"new": found})
    assert low < 0 < high and low <= min(curve) and high >= max(curve)
    chart = class_plot("new", found, (low, high), height=280)
    assert ("100.0\N{NO-BREAK SPACE}% score more" in words(chart)) == (min(curve) > 0)


def test_panels_share_their_scale(change: ClassChangeSummary, unlabelled: Evaluation) -> None:
    small, large = with_curve(change, [-0.05, 0.05]), with_curve(change, [-0.5, 0.25])
    assert class_range({"a": small, "b": large}) == (-0.5, 0.25)
    records = {"a": unlabelled.model_copy(update={"class_change": small}), "b": unlabelled}
    records["c"] = changed(unlabelled, lambda values: values.pop("class_change"))
    assert class_changes(records) == {"a": small}


def test_rows_name_the_ends_and_mark_what_is_clear(change: ClassChangeSummary) -> None:
    columns, rows = class_rows(change, "worst", 5)
    assert columns == ["class", "queries", "before", "after", "change"]
    assert [row[0] for row in rows] == [one.name for one in change.worst[:5]]
    assert all(row[4].startswith("−") for row in rows)
    assert [row[4].endswith(" *") for row in rows] == [one.clear for one in change.worst[:5]]
    assert any(one.clear for one in change.worst)
    assert len(class_rows(change, "best")[1]) == 20


# --- sessions --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd(make_sessions: Callable[..., SimpleNamespace]) -> SimpleNamespace:
    """Twenty learners of long names through forty sessions."""
    plan = disjoint(np.repeat(np.arange(80), 10), sessions=40, validation=1)
    return make_sessions(plan, [f"cvs with another name that is long {place}" for place in range(20)])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["nine_learners", "one_learner", "blurry_learners", "crowd"])
def test_costs_are_ready_for_a_page(name: str, width: float, request: pytest.FixtureRequest) -> None:
    learners = request.getfixturevalue(name).results.learners
    for growth in growths(learners):
        assert_page_ready(growth_plot(growth, max(growth.gallery), width=width))
    costs = {name: images_of(learner) for name, learner in learners.items()}
    assert_page_ready(cost_columns("Images by session", costs, ("trained on", "embedded"), count_of, width=width))


def test_the_gallery_is_the_sum_of_its_layers(nine_learners: SimpleNamespace) -> None:
    once, again = growths(nine_learners.results.learners)
    assert again.names == ("joint",) and len(once.names) == 8
    assert (once.again, again.again) == (0, 76_716)
    for growth in (once, again):
        for session, rows in enumerate(growth.gallery):
            assert sum(size for _, _, size in growth.layers(session)) == rows
    training = nine_learners.results.plan.training
    assert once.layers(3) == [("kept", 0, 7200), ("kept", 1, 7992), ("kept", 2, 7992), ("new", 3, 7956)]
    assert again.layers(3) == [("again", 3, sum(training[:3])), ("new", 3, training[3])]
    assert again.layers(0) == once.layers(0) == [("new", 0, 7200)]


def test_layers_are_as_high_as_their_images() -> None:
    growth = Growth(("a",), (100, 150, 400), (100, 50, 250), 0)
    chart = growth_plot(growth, 400)
    assert [ends(box) for box in boxes(chart, "new")] == [(0, 100), (100, 150), (150, 400)]
    assert [ends(box) for box in boxes(chart, "kept")] == [(0, 100), (0, 100), (100, 150)]
    assert words(chart, "layer name") == ["1", "1", "2"]
    assert chart.axes.get_ylim() == (0, 400) and growth_plot(growth, 800).axes.get_ylim() == (0, 800)
    again = growth_plot(Growth(("b",), (100, 150), (100, 150), 100), 400)
    (layer,) = boxes(again, "again")
    pixels = again.down(ends(layer)[0]) - again.down(ends(layer)[1])
    assert pixels == pytest.approx(again.down(0) - again.down(100) - 1.8)  # and the line around it
    assert len({layer_swatch(kind) for kind in KINDS}) == 3
    assert len({change_swatch(kind) for kind in ("fixed", "broken", "other", "same")}) == 4


def test_costs_are_columns_on_one_scale_with_their_sum() -> None:
    costs = {"a": [(100.0, 50.0), (200.0, 200.0)], "b": [(50.0, 0.0), (100.0, 20.0)]}
    chart = cost_columns("Images", costs, ("trained on", "embedded"), count_of)
    filled, hollow = boxes(chart, "filled"), boxes(chart, "hollow")
    assert [-box.get_height() for box in filled] == pytest.approx([24, 48, 12, 24])  # pixels from the top
    assert [1.4 - box.get_height() for box in hollow] == pytest.approx([12 + 1.4, 48 + 1.4, 4.8 + 1.4], abs=1.5)
    for lower, upper in zip(filled[:2], hollow[:2], strict=True):
        assert ends(upper)[0] + 0.7 == pytest.approx(ends(lower)[1])
    assert {"550", "170", "session; the highest column is 400"} <= set(words(chart))
    assert ends(filled[2])[0] > ends(filled[1])[0]
    assert "a: 100 + 50, 200 + 200; in all 550" in chart.told


def test_costs_are_those_of_the_sessions(nine_learners: SimpleNamespace) -> None:
    learner = nine_learners.results.learners["cvs"]
    sessions = learner.sessions
    assert images_of(learner) == [(session.trained_images, session.encoded_images) for session in sessions]
    assert all(min(both) > 0 and both[0] != both[1] for both in images_of(learner))
    assert seconds_by_session(learner) == [(session.seconds.training, session.seconds.rest) for session in sessions]


def test_nothing_that_cost_nothing_fails() -> None:
    assert "0" in words(cost_columns("Time", {"a": [(0.0, 0.0)]}, ("x", "y"), count_of))
    assert_page_ready(growth_plot(Growth(("a",), (0,), (0,), 0), 0))
