from __future__ import annotations

from collections.abc import Callable

import pytest

from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.linking.results import AdaptResults
from limpet.reports.plots.forest import Gain, candidate_dots, difference_plot, gain_plot, sets_plot
from limpet.reports.plots.swatches import kind_swatch, set_swatch
from limpet.reports.words import SYSTEMS

from ..changes import changed
from ..specs import assert_page_ready, axis, rows, told, words

Make = Callable[..., AdaptResults]
WIDTHS = (350.0, 640.0)
FAR = "← off the scale"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("labelled", [True, False])
def test_charts_are_ready_for_a_page(
    make_adapt: Make,
    make_combination: Callable[..., CombinationResults],
    results: EvaluationResults,
    labelled: bool,
    width: float,
) -> None:
    assert_page_ready(candidate_dots(make_adapt(labelled=labelled), width=width))
    assert_page_ready(difference_plot(results.evaluations, width=width))
    assert_page_ready(sets_plot(make_combination({"one": {}, "two": {}}).sets, width=width))


@pytest.mark.parametrize("width", WIDTHS)
def test_marks_intervals_and_references_are_the_numbers(adapted: AdaptResults, width: float) -> None:
    chart = candidate_dots(adapted, width=width)
    drawn = [found for found in adapted.by_score() if found.cross][:-1]  # mean_drift is off the scale
    marks = rows(chart, "marks")
    assert [(row["kind"], row["x"]) for row in marks] == [(found.kind, found.cross.mean) for found in drawn]
    intervals = [(row["low"], row["high"]) for row in rows(chart, "intervals")]
    assert intervals == [tuple(found.cross.interval) for found in drawn]
    assert [row["y"] for row in marks] == sorted(row["y"] for row in marks) and axis(chart, "x")["grid"]
    for system, found in adapted.systems.by_name().items():
        (level,), (band,) = rows(chart, f"level {system}"), rows(chart, f"band {system}")
        assert level["x"] == level["x2"] == found.mean and (band["x"], band["x2"]) == tuple(found.interval)
    assert f"old model as it is {adapted.systems.self_old.mean:.3f}" in words(chart)
    assert f"everything re-embedded {adapted.systems.self_new.mean:.3f}" in words(chart)


@pytest.mark.parametrize("width", WIDTHS)
def test_names_and_numbers_stand_on_their_rows(adapted: AdaptResults, width: float) -> None:
    chart = candidate_dots(adapted, width=width)
    names = {row["text"]: row["y"] for name in ("name", "name of the best") for row in rows(chart, name)}
    numbers = {row["y"]: row["text"] for name in ("number", "number of the best") for row in rows(chart, name)}
    assert sorted(names, key=names.__getitem__) == [found.name for found in adapted.by_score()]
    scores = [f"{found.cross.mean:.3f}" for found in adapted.by_score() if found.cross]
    assert [numbers[y] for y in sorted(numbers)] == scores


def test_adapters_and_heads_differ_in_shape_and_colour(adapted: AdaptResults) -> None:
    marks = rows(candidate_dots(adapted), "marks")
    looks = {
        kind: {(row["shape"], row["colour"]) for row in marks if row["kind"] == kind} for kind in ("adapter", "head")
    }
    assert len(looks["adapter"]) == len(looks["head"]) == 1 and not set(*looks["adapter"]) & set(*looks["head"])
    assert len({kind_swatch(kind) for kind in ("adapter", "head", "self_old", "self_new")}) == 4
    assert len({set_swatch(system) for system in SYSTEMS}) == 4


@pytest.mark.parametrize("width", WIDTHS)
def test_the_recommended_candidate_stands_out(adapted: AdaptResults, width: float) -> None:
    chart = candidate_dots(adapted, width=width)
    marks = rows(chart, "marks")
    (led,) = [row for row in marks if row["x"] == adapted.recommended.cross.mean]
    assert all(led["size"] > row["size"] for row in marks if row is not led and row["shape"] == led["shape"])
    (tint,) = rows(chart, "tint")
    assert tint["y"] < led["y"] < tint["y2"] and words(chart, "detail") == ["recommended"]
    advice = {"action": "re-embed", "candidate": None, "sentences": []}
    none = candidate_dots(changed(adapted, lambda values: values.update(recommendation=advice)), width=width)
    assert not rows(none, "tint") and "recommended" not in words(none)


def test_what_failed_is_shown_with_its_reason_below_the_references(adapted: AdaptResults) -> None:
    chart = candidate_dots(adapted)
    (reason,) = [row for row in rows(chart, "instead") if row["text"].startswith("failed: vectors of 384")]
    assert rows(chart, "level self_old")[0]["y2"] < reason["y"]
    assert f"identity (adapter) failed: {adapted.candidates[7].failed}" in told(chart)


def test_only_the_first_line_of_a_reason_is_drawn(make_adapt: Make) -> None:
    chart = candidate_dots(make_adapt({"ridge": "3 pairs.\nExpected: at least 20", "local": ""}))
    assert words(chart, "instead") == ["failed: 3 pairs.", "failed: "]


def test_a_score_off_the_scale_is_named_at_the_edge(adapted: AdaptResults, make_adapt: Make) -> None:
    chart = candidate_dots(adapted)
    drift = adapted.named("mean_drift")
    assert words(chart).count(FAR) == 1 and drift.cross.mean < axis(chart)["domain"][0]
    assert f"{drift.cross.mean:.3f}".replace("-", "−") in words(chart, "number")
    assert FAR not in words(candidate_dots(make_adapt({"ridge": 0.5, "mean_drift": -0.6})))
    alone = candidate_dots(make_adapt({"mean_drift": -2.2}))  # the best there is, though far below
    assert FAR not in words(alone) and rows(alone, "marks")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_picture_of_nothing_but_failures(make_adapt: Make, width: float) -> None:
    chart = candidate_dots(make_adapt({"ridge": "too few pairs", "local": "no memory"}), width=width)
    assert words(chart, "instead") == ["failed: too few pairs", "failed: no memory"] and not rows(chart, "marks")
    assert_page_ready(chart)


@pytest.mark.parametrize("width", WIDTHS)
def test_long_names_are_shortened(make_adapt: Make, width: float) -> None:
    chart = candidate_dots(make_adapt({"n" * 90: 0.5, "head " + "m" * 90: 0.4}), width=width)
    assert all("…" in name for name in words(chart, "name"))


def test_differences_stand_on_their_side_of_zero(results: EvaluationResults) -> None:
    record = results.evaluations["p2s"]
    chart = difference_plot({"p2s": record})
    (zero,), (mark,) = rows(chart, "zero"), rows(chart, "marks")
    assert zero["x"] == zero["x2"] == 0 and mark["x"] == record.gain() > 0 and mark["kind"] == "compatible"
    assert (mark["low"], mark["high"]) == tuple(record.gain_interval()) and mark["note"].startswith("p2s: +")


def test_a_difference_off_the_scale_is_named_with_its_number(results: EvaluationResults) -> None:
    records = results.evaluations
    chart = difference_plot(records)
    assert FAR in words(chart) and "not compatible" not in {row["kind"] for row in rows(chart, "marks")}
    far = records["independent"].cross["map"] - records["independent"].self_old["map"]
    assert f"{far:+.3f}".replace("-", "−") in words(chart, "number")
    (alone,) = rows(difference_plot({"independent": records["independent"]}), "marks")
    assert alone["x"] == pytest.approx(far)


def test_gains_are_marks_with_their_verdicts() -> None:
    gains = [Gain("up", 0.2, (0.1, 0.3), "compatible"), Gain("down", -0.2, (-0.3, -0.1), "not compatible")]
    chart = gain_plot("gains", gains, "difference")
    assert words(chart, "number") == ["+0.200", "−0.200"] and words(chart, "name") == ["up", "down"]
    assert [(row["kind"], row["x"]) for row in rows(chart, "marks")] == [("compatible", 0.2), ("not compatible", -0.2)]
    assert len({row["shape"] for row in rows(chart, "marks")}) == 2
    assert "up: +0.200 [+0.100, +0.300], compatible; down: −0.200" in told(chart)
    tall = gain_plot("gains", [Gain("n" * 60, 0.1, (0.0, 0.2), "inconclusive")], "difference", width=350)
    assert words(tall, "name")[0].endswith("n…")


@pytest.mark.parametrize("width", WIDTHS)
def test_every_score_of_a_set_stands_on_its_row(
    make_combination: Callable[..., CombinationResults], width: float
) -> None:
    sets = make_combination({"one": {}, "two": {"gate_metric": "recall@1"}}).sets
    chart = sets_plot(sets, width=width)
    for system in SYSTEMS:
        found = [record.score(system) for record in sets.values() if record.score(system) is not None]
        assert [row["x"] for row in rows(chart, "marks") if row["kind"] == system] == found
    assert words(chart, "name") == ["one", "two"] and words(chart, "detail") == ["mAP", "recall@1"]
    assert len(rows(chart, "joined")) == 2
