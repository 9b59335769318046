from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from limpet.evaluation.agreement import Agreement
from limpet.evaluation.class_change import ClassChangeSummary, class_change
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.galleries.rehearsal.results import Rehearsal
from limpet.reports.plots.bars import agreement_bars, class_plot, first_hit_bars, score_bars
from limpet.reports.plots.style import width_of
from limpet.reports.plots.swatches import change_swatch, system_swatch
from limpet.reports.readings import (
    CHANGES,
    agreement_rows,
    changes_of,
    class_changes,
    class_range,
    class_rows,
    share_of,
)

from ..changes import changed
from ..specs import assert_page_ready, axis, points, rows, told, words
from ..test_example_documents import DOCUMENTS

WIDTHS = (350.0, 640.0)


# --- scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_bars_are_as_long_as_their_scores(results: EvaluationResults, width: float) -> None:
    records = results.evaluations
    chart = score_bars(records, width=width)
    assert_page_ready(chart)
    assert axis(chart)["domain"][0] == 0
    for system, name in (("cross", "bars"), ("self_new", "hollow bars")):
        scores = [getattr(record, system)["map"] for record in records.values()]
        assert [(row["x"], row["x2"]) for row in rows(chart, name)] == [(0, score) for score in scores]
        assert {f"{score:.3f}" for score in scores} <= set(words(chart, "number"))
    old = records["p2s"].self_old["map"]
    assert [{row["x"], row["x2"]} for row in rows(chart, "level self_old")] == [{old}] * 3
    assert f"old {old:.3f}" in words(chart) and words(chart, "name") == ["p2s ✓", "same ?", "independent ✗"]
    assert len({system_swatch(system) for system in ("cross", "self_new", "self_old", "self_independent")}) == 4


def test_bands_and_whiskers_are_the_intervals(results: EvaluationResults) -> None:
    record = results.evaluations["p2s"]
    chart = score_bars({"p2s": record})
    (band,), whisker, (bar,) = rows(chart, "band self_old"), rows(chart, "intervals")[0], rows(chart, "bars")
    assert (band["x"], band["x2"]) == tuple(record.mean_interval["self_old"]["map"])
    assert (whisker["x"], whisker["x2"]) == tuple(record.mean_interval["cross"]["map"])
    assert bar["y"] < whisker["y"] == whisker["y2"] < bar["y2"]
    assert bar["note"].startswith(f"{record.cross['map']:.3f} [")


# --- agreement -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def agreement(unlabelled: Evaluation) -> Agreement:
    assert isinstance(unlabelled.agreement, Agreement)
    return unlabelled.agreement


@pytest.mark.parametrize("width", WIDTHS)
def test_agreement_bars_are_as_long_as_their_shares(agreement: Agreement, width: float) -> None:
    chart = agreement_bars("new", agreement, width=width)
    assert_page_ready(chart)
    for stage, name in (("cross", "bars"), ("self_new", "hollow bars")):
        measures = ("first_kept", "overlap", "rank_biased_overlap")
        shares = [share_of(agreement, stage, measure)[0] for measure in measures]  # type: ignore[arg-type]
        assert [row["x2"] for row in rows(chart, name)] == shares
        assert {f"{100 * share:.1f}\N{NO-BREAK SPACE}%" for share in shares} <= set(words(chart, "number"))


def test_the_first_hit_is_counted_as_one_that_stays(agreement: Agreement) -> None:
    share, (low, high) = share_of(agreement, "cross", "first_kept")
    assert share == pytest.approx(1 - agreement.cross.first_changed.mean)
    assert low <= share <= high


def test_agreement_rows_hold_all_numbers(agreement: Agreement) -> None:
    columns, found = agreement_rows(agreement)
    assert columns[1:] == ["after the swap", "re-embedded"]
    assert len(found) == 3 and all("[" in cell for row in found for cell in row[1:])


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
    bars = rows(class_plot("new", few, class_range({"new": few})), "classes")
    assert [(bar["y"], bar["y2"]) for bar in bars] == [(0, -0.2), (0, -0.1), (0, 0.1), (0, 0.4)]  # none for no change
    assert [bar["x"] for bar in bars] == pytest.approx([0.0, 0.2, 0.6, 0.8])
    colours = [bar["colour"] for bar in bars]
    assert colours[0] == colours[1] != colours[2] == colours[3]


@pytest.mark.parametrize("width", WIDTHS)
def test_many_classes_are_drawn_by_quantiles_inside_the_drawing(change: ClassChangeSummary, width: float) -> None:
    chart = class_plot("new", change, class_range({"new": change}), width=width)
    assert_page_ready(chart)
    bars = rows(chart, "classes")
    assert 190 < len(bars) <= 201
    assert all(0 <= bar["x"] < bar["x2"] <= 1 + 1e-9 for bar in bars)
    assert "300 classes score more" in told(chart) and axis(chart)["title"] == "share of the 300 classes"
    assert all(getattr(change, end)[0].name in told(chart) for end in ("worst", "best"))


@pytest.mark.parametrize("curve", [[-0.2, *[0.3] * 30], [*[-0.3] * 30, 0.2], [-1.0, 1.0]])
@pytest.mark.parametrize("width", WIDTHS)
def test_words_lie_above_all_bars_and_apart(change: ClassChangeSummary, curve: list[float], width: float) -> None:
    """Also where few classes lose among many that gain, whose bars reach to the other side of the chart."""
    found = with_curve(change, curve)
    chart = class_plot("new", found, class_range({"new": found}), width=width, height=280)
    (left,), (right,) = rows(chart, "less"), rows(chart, "more")
    assert min(left["y"], right["y"]) > axis(chart, "y")["domain"][1] >= max(curve)
    pixels = width - 68  # of the axes
    assert pixels * left["x"] + width_of(left["text"], 12) < pixels * right["x"] - width_of(right["text"], 12)


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
    columns, found = class_rows(change, "worst", 5)
    assert columns == ["class", "queries", "before", "after", "change"]
    assert [row[0] for row in found] == [one.name for one in change.worst[:5]]
    assert all(row[4].startswith("−") for row in found)
    assert [row[4].endswith(" *") for row in found] == [one.clear for one in change.worst[:5]]
    assert any(one.clear for one in change.worst)
    assert len(class_rows(change, "best")[1]) == 20


# --- first hits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rehearsal", "rehearsal-unlabelled"])
@pytest.mark.parametrize("width", WIDTHS)
def test_shares_of_first_hits_follow_each_other_to_the_whole(name: str, width: float) -> None:
    rehearsed = Rehearsal.load(DOCUMENTS / f"{name}.json")
    chart = first_hit_bars(rehearsed, width=width)
    assert_page_ready(chart)
    parts: list[dict[str, Any]] = [row for kind in CHANGES for row in rows(chart, kind)]
    for place, found in enumerate(rehearsed.first_hits):
        expected = changes_of(found, rehearsed.judged / rehearsed.asked)
        own = sorted(
            (row for row in parts if row["y"] == place * (42 if width > 500 else 60)), key=lambda row: row["x"]
        )
        assert [row["x2"] - row["x"] for row in own] == pytest.approx(list(expected.values()), abs=1e-9)
        assert own[0]["x"] == 0 and own[-1]["x2"] == pytest.approx(1, abs=1e-5)
    assert len(points(chart, "stage")) == len(rehearsed.first_hits)
    assert len({change_swatch(kind) for kind in CHANGES}) == 4
