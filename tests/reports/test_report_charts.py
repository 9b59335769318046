from __future__ import annotations

from xml.etree import ElementTree

import pytest

from holdfast.evaluation.results import Evaluation, EvaluationResults
from holdfast.reports.svg import Scale, clean, reaching, shortened
from holdfast.reports.trade_off_plot import trade_off

from .changes import changed

SVG = "{http://www.w3.org/2000/svg}"


def elements(drawing: str, name: str, kind: str) -> list[ElementTree.Element]:
    return [item for item in ElementTree.fromstring(drawing).iter(SVG + name) if item.get("class") == kind]


def words(drawing: str) -> list[str]:
    return [item.text or "" for item in ElementTree.fromstring(drawing).iter(SVG + "text")]


def all_charts(records: dict[str, Evaluation], width: float) -> list[str]:
    drawings = [
        trade_off(records, width=width),
    ]
    return [drawing for drawing in drawings if drawing]


@pytest.mark.parametrize("width", [350, 640])
def test_charts_are_well_formed_and_have_text_alternatives(results: EvaluationResults, width: float) -> None:
    drawings = all_charts(results.evaluations, width)
    assert len(drawings) == 1
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        title, description = root.find(SVG + "title"), root.find(SVG + "desc")
        assert title is not None and title.text
        assert description is not None and description.text
        assert root.get("role") == "img"
        assert root.get("aria-label") == f"{title.text}. {description.text}"
        assert float(str(root.get("viewBox")).split()[2]) == width


def test_names_are_escaped_and_control_characters_dropped(results: EvaluationResults) -> None:
    records = {"<script>alert(1)</script>\x00&\"'": results.evaluations["p2s"]}
    for drawing in all_charts(records, 640):
        assert "<script" not in drawing
        assert ElementTree.fromstring(drawing) is not None
    assert clean("a\x00<b>\x1f") == "a&lt;b&gt;"


def test_trade_off_places_models_by_their_numbers(results: EvaluationResults) -> None:
    records = {name: results.evaluations[name] for name in ("p2s", "same")}
    drawing = trade_off(records) or ""
    marks = [item for item in ElementTree.fromstring(drawing).iter(SVG + "path") if "point" in str(item.get("class"))]
    places = [tuple(map(float, str(mark.get("transform")).split("(")[1].split(")")[0].split())) for mark in marks]
    p_comp, p_up = ([getattr(record, key)["raw"]["map"] for record in records.values()] for key in ("p_comp", "p_up"))
    assert (places[0][0] > places[1][0]) == (p_comp[0] > p_comp[1])
    assert (places[0][1] < places[1][1]) == (p_up[0] > p_up[1])
    assert {mark.get("d") for mark in marks} == {marks[0].get("d"), marks[1].get("d")}
    assert marks[0].get("d") != marks[1].get("d")


def test_trade_off_keeps_far_marks_with_their_number(results: EvaluationResults) -> None:
    record = changed(results.evaluations["p2s"], lambda values: values["p_comp"]["raw"].update(map=-7.25))
    drawing = trade_off({"p2s": record}) or ""
    assert "p2s (P_comp −7.250)" in words(drawing)


def test_names_that_are_shortened_alike_keep_their_marks(results: EvaluationResults) -> None:
    long = "n" * 60
    records = {f"{long}{end}": results.evaluations["p2s"] for end in "ab"}
    assert (trade_off(records) or "").count('class="point series-') == 2


def test_models_without_p_metrics_are_not_placed(results: EvaluationResults) -> None:
    record = changed(results.evaluations["p2s"], lambda values: values["p_up"]["raw"].update(map=None))
    assert trade_off({"p2s": record}) is None


def test_scales_keep_their_ends() -> None:
    scale = reaching(0.13, 0.52, 0, 100)
    assert (scale.low, scale.high) == pytest.approx((0.1, 0.6))
    assert scale.ticks() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert Scale(0, 0, 5, 10)(0) == 5
    assert shortened("abc", 1) == "a…"


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (1.0, 1.0), (0.3, 0.3), (-0.5, -0.5), (1 - 1e-12, 1.0)])
def test_a_scale_around_a_single_value_has_room_and_ticks(low: float, high: float) -> None:
    scale = reaching(low, high, 0, 100, 4)
    assert scale.low <= low and high <= scale.high and scale.high - scale.low == pytest.approx(0.5)
    assert len(scale.ticks()) == 6
    assert Scale(2.0, 2.0, 0, 100).ticks() == [2.0]
