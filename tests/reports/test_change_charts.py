from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest

from holdfast.evaluation.agreement import Agreement, compared
from holdfast.evaluation.class_change import ClassChangeSummary, class_change
from holdfast.evaluation.results import Evaluation
from holdfast.reports.agreement_plot import agreement_bars, agreement_rows, agreements, share_of
from holdfast.reports.change_words import agreement_finding, class_finding, flips, p_words
from holdfast.reports.class_plot import class_changes, class_plot, class_range, class_rows
from holdfast.reports.svg import width_of

from .changes import changed

SVG = "{http://www.w3.org/2000/svg}"


def boxes(drawing: str, kind: str) -> list[dict[str, float]]:
    found = [item for item in ElementTree.fromstring(drawing).iter(SVG + "rect") if item.get("class") == kind]
    return [{key: float(str(item.get(key))) for key in ("x", "y", "width", "height")} for item in found]


def words(drawing: str) -> list[str]:
    return [item.text or "" for item in ElementTree.fromstring(drawing).iter(SVG + "text")]


@pytest.fixture(scope="module")
def change() -> ClassChangeSummary:
    """300 classes of 20 queries, some much better, some much worse."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(300), 20)
    before = rng.random(6000)
    after = before + 0.1 * rng.normal(size=6000) + 0.3 * ((labels % 10 == 0) * 1.0 - (labels % 25 == 1))
    names = [f"class {row}" for row in range(300)]
    return class_change(before, after, labels).summary("map", names)


def with_curve(change: ClassChangeSummary, curve: list[float]) -> ClassChangeSummary:
    shares = {"better": sum(v > 0 for v in curve) / len(curve), "worse": sum(v < 0 for v in curve) / len(curve)}
    return change.model_copy(update={"curve": curve, "classes": len(curve)} | shares)


def test_bars_are_as_high_as_their_changes_and_on_their_side(change: ClassChangeSummary) -> None:
    few = with_curve(change, [-0.2, -0.1, 0.0, 0.1, 0.4])
    drawing = class_plot("new", few, class_range({"new": few}))
    worse, better = boxes(drawing, "change worse"), boxes(drawing, "change better")
    assert (len(worse), len(better)) == (2, 2)  # nothing is drawn for no change
    unit = worse[1]["height"] / 0.1
    assert [bar["height"] / unit for bar in (*worse, *better)] == pytest.approx([0.2, 0.1, 0.1, 0.4], abs=2e-3)
    zero = worse[0]["y"]
    assert {bar["y"] for bar in worse} == {zero}
    assert [bar["y"] + bar["height"] for bar in better] == pytest.approx([zero, zero], abs=0.02)
    assert [bar["x"] for bar in (*worse, *better)] == sorted(bar["x"] for bar in (*worse, *better))


@pytest.mark.parametrize("width", [350, 640])
def test_many_classes_are_drawn_by_quantiles_inside_the_drawing(change: ClassChangeSummary, width: float) -> None:
    drawing = class_plot("new", change, class_range({"new": change}), width=width)
    bars = boxes(drawing, "change worse") + boxes(drawing, "change better")
    assert 190 < len(bars) <= 201
    assert all(bar["x"] > 0 and bar["x"] + bar["width"] <= width for bar in bars)
    root = ElementTree.fromstring(drawing)
    description = str(root.findtext(SVG + "desc"))
    assert root.get("role") == "img" and "300 classes score more" in description
    for end in ("worst", "best"):
        assert getattr(change, end)[0].name in description
    assert "share of the 300 classes" in words(drawing)


@pytest.mark.parametrize("curve", [[-0.2, *[0.3] * 30], [*[-0.3] * 30, 0.2], [-1.0, 1.0]])
@pytest.mark.parametrize("width", [350, 640])
def test_words_lie_above_all_bars_and_apart(change: ClassChangeSummary, curve: list[float], width: float) -> None:
    """Also where few classes lose among many that gain, whose bars reach to the other side of the chart."""
    found = with_curve(change, curve)
    drawing = class_plot("new", found, class_range({"new": found}), width=width, height=280)
    texts = list(ElementTree.fromstring(drawing).iter(SVG + "text"))
    named = [item for item in texts if "change-name" in str(item.get("class"))]
    highest = min(bar["y"] for kind in ("worse", "better") for bar in boxes(drawing, f"change {kind}"))
    assert len(named) == 2 and all(float(str(item.get("y"))) + 4 <= highest for item in named)
    (left, right) = named
    assert float(str(left.get("x"))) + width_of(str(left.text)) < float(str(right.get("x"))) - width_of(str(right.text))


@pytest.mark.parametrize("curve", [[0.1, 0.2], [-0.2, -0.1], [0.0, 0.0], [-1.0, 1.0]])
def test_one_sided_changes_leave_room_for_the_words(change: ClassChangeSummary, curve: list[float]) -> None:
    found = with_curve(change, curve)
    low, high = class_range({"new": found})
    assert low < 0 < high and low <= min(curve) and high >= max(curve)
    drawing = class_plot("new", found, (low, high), height=280)
    assert ("100.0\N{NO-BREAK SPACE}% score more" in words(drawing)) == (min(curve) > 0)
    texts = list(ElementTree.fromstring(drawing).iter(SVG + "text"))
    named = [float(str(item.get("y"))) for item in texts if "change-name" in str(item.get("class"))]
    ticks = [float(str(item.get("y"))) for item in texts if item.get("class") == "tick"]
    assert all(at < max(ticks) - 16 for at in named)


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


def test_names_are_escaped(change: ClassChangeSummary) -> None:
    hostile = changed(change, lambda values: values["worst"][0].update(name="<script>alert(1)</script>"))
    drawing = class_plot("<b>", hostile, class_range({"x": hostile}))
    assert "<script" not in drawing and "<b>" not in drawing


def test_the_finding_counts_classes(change: ClassChangeSummary) -> None:
    found = class_finding(change)
    assert f"of 300 classes score more than before and {100 * change.worse:.1f}" in found
    assert f"{change.clearly_better} are clearly better and {change.clearly_worse} clearly worse." in found
    assert change.clearly_better > 10 < change.clearly_worse + 5
    nothing = change.model_copy(update={"clearly_better": 0, "clearly_worse": 0})
    assert "none does so beyond chance" in class_finding(nothing)
    assert "no class has enough" in class_finding(nothing.model_copy(update={"testable": 0}))
    assert class_finding(change.model_copy(update={"classes": 1})) == "All queries are of one class."


def test_p_values_and_flips_in_words() -> None:
    assert (p_words(0.5), p_words(1.0), p_words(9.9e-5), p_words(0.00042)) == (
        "p = 0.500", "p = 1.000", "p = 0.0001", "p = 0.0004",
    )  # fmt: skip
    told = flips({"cross": 0.1, "self_new": 0.2}, {"cross": 0.3, "self_new": None}, "probes").replace("\xa0", " ")
    assert told == (
        "Negative flips: 10.0 % of probes were right before and are wrong now, 20.0 % after re-embedding. "
        "Positive flips, wrong before and right now: 30.0 %."
    )
    assert flips(None, None) == flips({"cross": None}, {"cross": 0.1}) == ""


@pytest.fixture(scope="module")
def agreement(unlabelled: Evaluation) -> Agreement:
    assert isinstance(unlabelled.agreement, Agreement)
    return unlabelled.agreement


@pytest.mark.parametrize("width", [350, 640])
def test_agreement_bars_are_as_long_as_their_shares(agreement: Agreement, width: float) -> None:
    drawing = agreement_bars("new", agreement, width=width)
    order = ("first_kept", "overlap", "rank_biased_overlap")
    for stage in ("cross", "self_new"):
        bars = boxes(drawing, f"bar {stage}")
        shares = [share_of(agreement, stage, measure)[0] for measure in order]
        assert [bar["width"] / (width - 70.5) for bar in bars] == pytest.approx(shares, abs=1e-3)
        for share in shares:
            assert f"{100 * share:.1f}\N{NO-BREAK SPACE}%" in words(drawing)
    assert ElementTree.fromstring(drawing).get("role") == "img"


def test_the_first_hit_is_counted_as_one_that_stays(agreement: Agreement) -> None:
    share, (low, high) = share_of(agreement, "cross", "first_kept")
    assert share == pytest.approx(1 - agreement.cross.first_changed.mean)
    assert low <= share <= high
    same = compared(np.array([[1, 2]]), np.array([[1, 2]]))
    assert same["first_changed"].tolist() == [0.0]


def test_agreement_rows_hold_all_numbers(agreement: Agreement) -> None:
    columns, rows = agreement_rows(agreement)
    assert columns[1:] == ["after the swap", "re-embedded"]
    assert len(rows) == 3 and all("[" in cell for row in rows for cell in row[1:])


def test_agreement_is_never_called_good_or_bad(agreement: Agreement, unlabelled: Evaluation) -> None:
    found = agreement_finding(agreement, "95 %")
    assert "agreement is not quality" in found
    assert not {"good", "bad", "better", "worse", "compatible"} & set(found.replace(".", "").split())
    without = unlabelled.model_copy(update={"agreement": None})
    earlier = changed(unlabelled, lambda values: values.update(agreement={"overlap@10": 1, "interval": [0, 1]}))
    assert agreements({"a": unlabelled, "b": without, "c": earlier}) == {"a": agreement}
    assert math.isfinite(agreement.cross.overlap.mean)
