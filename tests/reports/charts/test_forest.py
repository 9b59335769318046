from __future__ import annotations

from collections.abc import Callable

import pytest

from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.linking.results import AdaptResults
from limpet.reports.charts.forest import (
    SYSTEMS,
    Gain,
    candidate_dots,
    difference_plot,
    gain_plot,
    kind_swatch,
    set_swatch,
    sets_plot,
)

from ..changes import changed
from ..reading import assert_page_ready, lines, points, ticks, values, words

Make = Callable[..., AdaptResults]
WIDTHS = (350.0, 640.0)
REASON = "failed: vectors of 384"


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
def test_dots_whiskers_and_references_are_the_numbers(adapted: AdaptResults, width: float) -> None:
    chart = candidate_dots(adapted, width=width)
    drawn = [found for found in adapted.by_score() if found.cross][:-1]  # mean_drift is off the scale
    for kind in ("adapter", "head"):
        own = [found for found in drawn if found.kind == kind]
        assert values(chart, kind) == [found.cross.mean for found in own]
        ends = [tuple(x for x, _ in points(line)) for line in lines(chart, f"whisker {kind}")]
        assert ends == [tuple(found.cross.interval) for found in own]
        heights = [points(line)[0][1] for line in lines(chart, kind)]
        assert heights == sorted(heights)  # pixels from the top
        assert heights == [points(line)[0][1] for line in lines(chart, f"whisker {kind}")]
    for system, found in adapted.systems.by_name().items():
        levels = lines(chart, f"level {system}")
        bands = [band for band in chart.axes.collections if band.get_label() == f"band {system}"]
        assert len(levels) == len(bands) == (1 if width > 480 else len(drawn))
        for line, band in zip(levels, bands, strict=True):
            assert {x for x, _ in points(line)} == {found.mean}
            assert tuple(band.get_paths()[0].get_extents().intervalx) == pytest.approx(found.interval)
    assert f"old model as it is {adapted.systems.self_old.mean:.3f}" in words(chart)
    assert f"everything re-embedded {adapted.systems.self_new.mean:.3f}" in words(chart)


@pytest.mark.parametrize("width", WIDTHS)
def test_names_stand_best_first_beside_their_numbers(adapted: AdaptResults, width: float) -> None:
    chart = candidate_dots(adapted, width=width)
    assert words(chart, "name") == [found.name for found in adapted.by_score()]
    assert words(chart, "number") == [f"{found.cross.mean:.3f}" for found in adapted.by_score() if found.cross]


def test_adapters_and_heads_differ_in_shape_and_colour(adapted: AdaptResults) -> None:
    chart = candidate_dots(adapted)
    adapter, head = ({(m.get_marker(), m.get_color()) for m in lines(chart, kind)} for kind in ("adapter", "head"))
    assert len(adapter) == len(head) == 1 and not set(*adapter) & set(*head)
    assert len({kind_swatch(kind) for kind in ("adapter", "head", "self_old", "self_new")}) == 4
    assert len({set_swatch(system) for system in SYSTEMS}) == 4


@pytest.mark.parametrize("width", WIDTHS)
def test_the_recommended_candidate_stands_out(adapted: AdaptResults, width: float) -> None:
    chart = candidate_dots(adapted, width=width)
    (led,) = [line for line in lines(chart, "adapter") if points(line)[0][0] == adapted.recommended.cross.mean]
    others = [line for kind in ("adapter", "head") for line in lines(chart, kind) if line is not led]
    assert led.get_markersize() > max(line.get_markersize() for line in others if line.get_marker() == "o")
    (tint,) = chart.axes.patches
    assert tint.get_y() < points(led)[0][1] < tint.get_y() + tint.get_height()
    assert "recommended" in words(chart)
    advice = {"action": "re-embed", "candidate": None, "sentences": []}
    none = candidate_dots(changed(adapted, lambda values: values.update(recommendation=advice)), width=width)
    assert not none.axes.patches and "recommended" not in words(none)


def test_what_failed_is_shown_with_its_reason_below_the_references(adapted: AdaptResults) -> None:
    chart = candidate_dots(adapted)
    (reason,) = [text for text in chart.axes.texts if text.get_text().startswith(REASON)]
    (level,) = lines(chart, "level self_old")
    assert max(y for _, y in points(level)) < reason.xy[1]
    assert f"identity (adapter) failed: {adapted.candidates[7].failed}" in chart.told


def test_only_the_first_line_of_a_reason_is_drawn(make_adapt: Make) -> None:
    chart = candidate_dots(make_adapt({"ridge": "3 pairs.\nExpected: at least 20", "local": ""}))
    assert [told for told in words(chart) if told.startswith("failed")] == ["failed: 3 pairs.", "failed: "]


def test_a_score_off_the_scale_is_an_arrow_with_its_number(adapted: AdaptResults, make_adapt: Make) -> None:
    chart, far = candidate_dots(adapted), "◂ off the scale"
    assert words(chart).count(far) == 1
    drift = adapted.named("mean_drift")
    assert drift.cross.mean < float(ticks(chart)[0]) and f"{drift.cross.mean:.3f}" in words(chart, "number")
    assert far not in words(candidate_dots(make_adapt({"ridge": 0.5, "mean_drift": -0.6})))
    alone = candidate_dots(make_adapt({"mean_drift": -2.2}))  # the best there is, though far below
    assert far not in words(alone) and lines(alone, "adapter")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_picture_of_nothing_but_failures(make_adapt: Make, width: float) -> None:
    chart = candidate_dots(make_adapt({"ridge": "too few pairs", "local": "no memory"}), width=width)
    assert {"failed: too few pairs", "failed: no memory"} <= set(words(chart))
    assert not lines(chart, "adapter") and bool(lines(chart, "level self_new")) == (width > 480)


def test_long_names_are_shortened(make_adapt: Make) -> None:
    for width in WIDTHS:
        chart = candidate_dots(make_adapt({"n" * 90: 0.5, "head " + "m" * 90: 0.4}), width=width)
        assert all("…" in name for name in words(chart, "name"))
        assert_page_ready(chart)


def test_differences_stand_on_their_side_of_zero(results: EvaluationResults) -> None:
    record = results.evaluations["p2s"]
    chart = difference_plot({"p2s": record})
    (zero,), (whisker,) = lines(chart, "zero"), lines(chart, "whisker compatible")
    assert {x for x, _ in points(zero)} == {0.0}
    assert tuple(x for x, _ in points(whisker)) == tuple(record.gain_interval())
    assert values(chart, "compatible") == [record.gain()] and record.gain() > 0


def test_a_difference_off_the_scale_is_an_arrow_with_its_number(results: EvaluationResults) -> None:
    records = results.evaluations
    chart = difference_plot(records)
    assert "◂ off the scale" in words(chart) and not lines(chart, "not compatible")
    far = records["independent"].cross["map"] - records["independent"].self_old["map"]
    assert f"{far:+.3f}".replace("-", "−") in words(chart, "number")
    assert values(difference_plot({"independent": records["independent"]}), "not compatible") == [pytest.approx(far)]


def test_gains_are_marks_with_their_verdicts() -> None:
    gains = [Gain("up", 0.2, (0.1, 0.3), "compatible"), Gain("down", -0.2, (-0.3, -0.1), "not compatible")]
    chart = gain_plot("gains", gains, "difference")
    assert words(chart, "number") == ["+0.200", "−0.200"] and words(chart, "name") == ["up", "down"]
    assert (values(chart, "compatible"), values(chart, "not compatible")) == ([0.2], [-0.2])
    assert "up: +0.200 [+0.100, +0.300], compatible; down: −0.200" in chart.told
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
        assert values(chart, system) == found
    assert words(chart, "name") == ["one", "two"] and {"mAP", "recall@1"} <= set(words(chart))
