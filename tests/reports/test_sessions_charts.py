from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from holdfast.continual.plans import disjoint
from holdfast.continual.results import SessionsResults
from holdfast.reports.sessions_plots import recall_map, recall_range
from holdfast.reports.svg import width_of

SVG = "{http://www.w3.org/2000/svg}"
WIDTHS = (350.0, 640.0)


def items(drawing: str, name: str, kind: str = "") -> list[ElementTree.Element]:
    found = ElementTree.fromstring(drawing).iter(SVG + name)
    return [item for item in found if set(kind.split()) <= set(str(item.get("class")).split())]


def words(drawing: str, kind: str = "") -> list[str]:
    return [item.text or "" for item in items(drawing, "text", kind)]


def number(item: ElementTree.Element, name: str) -> float:
    return float(str(item.get(name)))


def points(item: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (point.split() for point in str(item.get("d"))[1:].split("L"))]


def place(mark: ElementTree.Element) -> tuple[float, float]:
    x, y = re.findall(r"-?[\d.]+", str(mark.get("transform")))[:2]
    return float(x), float(y)


def all_charts(found: SimpleNamespace, width: float) -> list[str]:
    results, learners = found.results, found.results.learners
    return [recall_map(name, learner, recall_range(results), width=width) for name, learner in learners.items()]


@pytest.fixture(scope="module")
def crowd(make_sessions: Callable[..., SimpleNamespace]) -> SimpleNamespace:
    """Twenty learners of long names through forty sessions."""
    plan = disjoint(np.repeat(np.arange(80), 10), sessions=40, validation=1)
    return make_sessions(plan, [f"cvs with another name that is long {place}" for place in range(20)])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["nine_learners", "one_learner", "blurry_learners", "crowd"])
def test_charts_are_well_formed_and_everything_lies_within(
    name: str, width: float, request: pytest.FixtureRequest
) -> None:
    for drawing in all_charts(request.getfixturevalue(name), width):
        root = ElementTree.fromstring(drawing)
        title, described = root.findtext(SVG + "title"), root.findtext(SVG + "desc")
        assert title and described and root.get("aria-label") == f"{title}. {described}"
        right, bottom = map(float, str(root.get("viewBox")).split()[2:])
        assert right == width
        for box in items(drawing, "rect"):
            assert 0 <= number(box, "x") <= number(box, "x") + number(box, "width") <= right + 0.01
            assert 0 <= number(box, "y") <= number(box, "y") + number(box, "height") <= bottom
        for item in items(drawing, "text"):
            across = width_of(str(item.text), 12) * 0.9  # what `width_of` says is rather too wide
            left = number(item, "x") - {"middle": across / 2, "end": across}.get(str(item.get("text-anchor")), 0)
            assert left >= -8 and left + across <= right + 8 and 0 < number(item, "y") <= bottom


def test_a_map_holds_every_group_that_was_asked(nine_learners: SimpleNamespace) -> None:
    learner = nine_learners.results.learners["lwf"]
    drawing = recall_map("lwf", learner, (0.0, 1.0))
    values = [value for row in learner.recall_by_age for value in row if value is not None]
    assert len(values) == 15
    assert words(drawing, "heat-number") == [f"{value:.2f}" for value in values]
    cells = items(drawing, "rect", "heat")
    assert [number(cell, "fill-opacity") for cell in cells] == pytest.approx([0.1 + 0.9 * v for v in values], abs=1e-3)
    assert len(items(drawing, "path", "heat-self")) == 5
    lefts = sorted({number(cell, "x") for cell in cells})
    tops = sorted({number(cell, "y") for cell in cells})
    where = [(tops.index(number(cell, "y")), lefts.index(number(cell, "x"))) for cell in cells]
    assert where == [(row, column) for row in range(5) for column in range(row + 1)]


def test_a_map_of_classes_known_from_the_start_is_a_whole_square(blurry_learners: SimpleNamespace) -> None:
    drawing = recall_map("cvs", blurry_learners.results.learners["cvs"], (0.0, 1.0))
    assert len(words(drawing, "heat-number")) == 16 and len(items(drawing, "path", "heat-self")) == 4


def test_a_group_that_was_never_asked_is_a_dash(nine_learners: SimpleNamespace) -> None:
    document = nine_learners.results.to_dict()
    for session in document["learners"]["lwf"]["sessions"]:
        session["recall_by_home"][1], session["queries_by_home"][1] = None, 0
    drawing = recall_map("lwf", SessionsResults.parse(document).learners["lwf"], (0.0, 1.0))
    assert len(items(drawing, "line", "heat-none")) == 4 and len(words(drawing, "heat-number")) == 11
    assert "session 2" not in str(ElementTree.fromstring(drawing).findtext(SVG + "desc")).replace("After session 2", "")


def test_numbers_that_do_not_fit_a_cell_are_left_out(crowd: SimpleNamespace) -> None:
    drawing = recall_map("x", next(iter(crowd.results.learners.values())), (0.0, 1.0))
    assert not "".join(words(drawing, "heat-number")).strip()
    assert len(items(drawing, "rect", "heat")) == 40 * 41 / 2
    ticks = [item for item in items(drawing, "text", "tick") if item.get("text-anchor") == "middle"]
    places = sorted(number(item, "x") for item in ticks)
    assert 3 < len(places) < 40 and min(np.diff(places)) >= width_of("40", 12)


def test_names_are_escaped(nine_learners: SimpleNamespace) -> None:
    document = nine_learners.results.to_dict()
    document["learners"] = {f"<b>&{name}": learner for name, learner in document["learners"].items()}
    document["bounds"] = {"lower": "<b>&finetune", "upper": None}
    for drawing in all_charts(SimpleNamespace(results=SessionsResults.parse(document)), 640):
        assert "<b>" not in drawing and ElementTree.fromstring(drawing) is not None


def test_the_text_alternatives_hold_all_numbers(nine_learners: SimpleNamespace) -> None:
    learners = nine_learners.results.learners
    for name, learner in learners.items():
        described = ElementTree.fromstring(recall_map(name, learner, (0.0, 1.0))).findtext(SVG + "desc")
        found = [float(value) for value in re.findall(r"(\d\.\d{3}) of session", str(described))]
        assert found == pytest.approx([v for row in learner.recall_by_age for v in row if v is not None], abs=5e-4)
