from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from holdfast.adapters.results import AdaptResults, ScoreMapRecord
from holdfast.reports.adapt_curve_plots import learning_curve, score_map_plot
from holdfast.reports.adapt_tables import thresholds
from holdfast.reports.svg import width_of

from .changes import changed

Make = Callable[..., AdaptResults]

SVG = "{http://www.w3.org/2000/svg}"
WIDTHS = (350.0, 640.0)


def items(drawing: str, name: str, kind: str = "") -> list[ElementTree.Element]:
    found = ElementTree.fromstring(drawing).iter(SVG + name)
    return [item for item in found if set(kind.split()) <= set(str(item.get("class")).split())]


def words(drawing: str, kind: str = "") -> list[str]:
    return [item.text or "" for item in items(drawing, "text", kind)]


def number(item: ElementTree.Element, name: str) -> float:
    return float(str(item.get(name)))


def place(mark: ElementTree.Element) -> tuple[float, float]:
    x, y = re.findall(r"-?[\d.]+", str(mark.get("transform")))[:2]
    return float(x), float(y)


def points(item: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (point.split() for point in str(item.get("d"))[1:].split("L"))]


def axis(drawing: str, *, across: bool) -> Callable[[float], float]:
    """Return where a value is drawn, from the ticks of a linear axis."""
    side = ("x", 0.0) if across else ("y", -4.0)
    ticks = [item for item in items(drawing, "text", "tick") if (item.get("text-anchor") != "end") == across]
    values = [float(str(item.text).replace("−", "-").replace(",", "")) for item in ticks]
    slope, start = np.polyfit(values, [number(item, side[0]) + side[1] for item in ticks], 1)
    return lambda value: float(slope * value + start)


def drawn_curve(results: AdaptResults, **size: float) -> str:
    return learning_curve(results, results.learning_curve, **size)


def all_charts(results: AdaptResults, width: float) -> list[str]:
    return [
        drawn_curve(results, width=width),
        score_map_plot(results.score_map, width=width),
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("labelled", [True, False])
def test_charts_are_well_formed_and_everything_lies_within(make_adapt: Make, labelled: bool, width: float) -> None:
    for drawing in all_charts(make_adapt(labelled=labelled), width):
        root = ElementTree.fromstring(drawing)
        title, described = root.findtext(SVG + "title"), root.findtext(SVG + "desc")
        assert title and described and root.get("aria-label") == f"{title}. {described}"
        right, bottom = map(float, str(root.get("viewBox")).split()[2:])
        assert right == width
        for item in items(drawing, "text"):
            across = width_of(str(item.text), 12) * 0.9  # what `width_of` says is rather too wide
            left = number(item, "x") - {"middle": across / 2, "end": across}.get(str(item.get("text-anchor")), 0)
            assert left >= -8 and left + across <= right + 8 and 0 < number(item, "y") <= bottom
        for mark in items(drawing, "path", "spot-of"):
            assert 0 < place(mark)[0] < right and 0 < place(mark)[1] < bottom


def test_names_are_escaped_and_shortened(make_adapt: Make) -> None:
    attack = "<script>alert(1)</script>&\"'"
    for width in WIDTHS:
        for drawing in all_charts(make_adapt({attack: 0.5, "head " + "n" * 90: 0.4}), width):
            assert "<script" not in drawing and ElementTree.fromstring(drawing) is not None


@pytest.mark.parametrize("width", WIDTHS)
def test_the_curve_goes_through_its_points_on_a_logarithmic_axis(adapted: AdaptResults, width: float) -> None:
    drawing, curve = drawn_curve(adapted, width=width), adapted.learning_curve
    y = axis(drawing, across=False)
    (track,), (band,) = items(drawing, "path", "track"), items(drawing, "path", "around")
    drawn = points(track)
    assert [at for _, at in drawn] == pytest.approx([y(p.cross.mean) for p in curve.points], abs=0.1)
    logs, across = np.log10([p.pairs for p in curve.points]), [at for at, _ in drawn]
    slope, start = np.polyfit(logs, across, 1)
    assert across == pytest.approx(slope * logs + start, abs=0.05) and slope > 0
    ends = [y(p.cross.interval[1]) for p in curve.points]
    ends += [y(p.cross.interval[0]) for p in reversed(curve.points)]
    assert [at for _, at in points(band)] == pytest.approx(ends, abs=0.1)
    for system, score in adapted.systems.by_name().items():
        (line,) = items(drawing, "line", f"reference {system}")
        assert number(line, "y1") == number(line, "y2") == pytest.approx(y(score.mean), abs=0.1)


def test_the_curve_marks_where_it_is_enough(adapted: AdaptResults) -> None:
    drawing, curve = drawn_curve(adapted), adapted.learning_curve
    (ring,), (line,), (track,) = items(drawing, "path", "enough-ring"), items(drawing, "line", "enough"), items(
        drawing, "path", "track"
    )  # fmt: skip
    number_of = [p.pairs for p in curve.points].index(curve.enough)
    assert place(ring) == pytest.approx(points(track)[number_of], abs=0.01)
    assert number(line, "x1") == pytest.approx(place(ring)[0])
    assert "enough: 1,024 pairs" in words(drawing)
    never = changed(adapted, lambda values: values["learning_curve"].update(enough=None))
    drawing = drawn_curve(never)
    assert not items(drawing, "path", "enough-ring") and not any("enough" in told for told in words(drawing))


def test_numbers_of_pairs_are_left_out_where_they_do_not_fit(adapted: AdaptResults) -> None:
    def crowd(values: dict[str, Any]) -> None:
        curve = values["learning_curve"]
        curve["points"] = [curve["points"][0] | {"pairs": 10_000 + 10 * step} for step in range(60)]
        curve["enough"] = None

    crowded = changed(adapted, crowd)
    drawing = drawn_curve(crowded, width=350)
    ticks = [item for item in items(drawing, "text", "tick") if item.get("text-anchor") == "middle"]
    places = sorted(number(item, "x") for item in ticks)
    assert 2 <= len(ticks) < 10 and min(np.diff(places)) >= width_of("10,000", 12)
    assert ticks[0].text == "10,590"


def test_a_curve_of_a_single_point_stands_in_the_middle(adapted: AdaptResults) -> None:
    first = adapted.to_dict()["learning_curve"]["points"][:1]
    single = changed(adapted, lambda values: values["learning_curve"].update(points=first, enough=None))
    (mark,) = items(drawn_curve(single), "path", "spot-of")
    assert 250 < place(mark)[0] < 420


@pytest.mark.parametrize("width", WIDTHS)
def test_the_map_goes_through_its_knots_and_marks_thresholds(adapted: AdaptResults, width: float) -> None:
    drawing, score_map = score_map_plot(adapted.score_map, width=width), adapted.score_map
    x, y = axis(drawing, across=True), axis(drawing, across=False)
    (track,) = items(drawing, "path", "track")
    assert points(track) == [pytest.approx((x(old), y(new)), abs=0.1) for old, new in score_map.knots]
    marks = [place(mark) for mark in items(drawing, "path", "read-off")]
    assert marks == [pytest.approx((x(old), y(new)), abs=0.1) for old, new in thresholds(score_map)]
    (same,) = items(drawing, "line", "same")
    for end, value in (("1", 0.1), ("2", 0.9)):  # what both axes have in common
        ends = number(same, f"x{end}"), number(same, f"y{end}")
        assert ends == pytest.approx((x(value), y(value)), abs=0.1)


def test_scores_without_a_common_range_have_no_line_of_equal_ones() -> None:
    drawing = score_map_plot(ScoreMapRecord(error=0, text="", knots=[(0.1, 10.0), (0.9, 20.0)]))
    assert not items(drawing, "line", "same") and "equal scores" not in words(drawing)
