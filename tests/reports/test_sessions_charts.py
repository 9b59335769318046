from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from holdfast.continual.plans import disjoint
from holdfast.continual.results import SessionsResults
from holdfast.reports import heat_map, sessions_cost_plots
from holdfast.reports.sessions_cost_plots import (
    KINDS,
    Growth,
    cost_columns,
    count_of,
    growth_plot,
    growths,
    images_of,
    seconds_by_session,
)
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
    drawings = [recall_map(name, learner, recall_range(results), width=width) for name, learner in learners.items()]
    drawings += [growth_plot(growth, max(growth.gallery), width=width) for growth in growths(learners)]
    costs = {name: images_of(learner) for name, learner in learners.items()}
    return [*drawings, cost_columns("Images by session", costs, ("trained on", "embedded"), count_of, width=width)]


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
    drawing = growth_plot(growth, 400, width=520)
    new, kept = items(drawing, "rect", "layer new"), items(drawing, "rect", "layer kept")
    factor = number(new[0], "height") / 100
    assert [number(item, "height") for item in new] == pytest.approx([100 * factor, 50 * factor, 250 * factor], abs=0.1)
    assert [number(item, "height") for item in kept] == pytest.approx(
        [100 * factor, 100 * factor, 50 * factor], abs=0.1
    )
    assert words(drawing, "layer-name") == ["1", "1", "2"]
    bottoms = [number(item, "y") + number(item, "height") for item in (*new[:1], *kept[:2])]
    assert bottoms == pytest.approx([bottoms[0]] * 3)
    assert number(new[1], "y") + number(new[1], "height") == pytest.approx(number(kept[0], "y"), abs=0.1)
    half = growth_plot(growth, 800, width=520)
    assert number(items(half, "rect", "layer new")[0], "height") == pytest.approx(50 * factor, abs=0.1)
    again = growth_plot(Growth(("b",), (100, 150), (100, 150), 100), 400)
    (layer,) = items(again, "rect", "layer again")
    assert number(layer, "height") == pytest.approx(100 * factor - 1.8, abs=0.1)  # and the line around it


def test_costs_are_columns_on_one_scale_with_their_sum() -> None:
    costs = {"a": [(100.0, 50.0), (200.0, 200.0)], "b": [(50.0, 0.0), (100.0, 20.0)]}
    drawing = cost_columns("Images", costs, ("trained on", "embedded"), count_of)
    filled, hollow = items(drawing, "rect", "bar cross"), items(drawing, "rect", "bar self_new")
    assert [number(item, "height") for item in filled] == pytest.approx([24, 48, 12, 24], abs=0.02)
    assert [number(item, "height") + 1.4 for item in hollow] == pytest.approx([12, 48, 4.8], abs=0.02)
    for lower, upper in zip(filled[:2], hollow[:2], strict=True):
        assert number(upper, "y") + number(upper, "height") + 0.7 == pytest.approx(number(lower, "y"), abs=0.02)
    assert {"550", "170", "session; the highest column is 400"} <= set(words(drawing))
    assert number(items(drawing, "text", "line-name")[1], "y") > number(filled[1], "y")


def test_costs_are_those_of_the_sessions(nine_learners: SimpleNamespace) -> None:
    learner = nine_learners.results.learners["cvs"]
    sessions = learner.sessions
    assert images_of(learner) == [(session.trained_images, session.encoded_images) for session in sessions]
    assert all(min(both) > 0 and both[0] != both[1] for both in images_of(learner))
    assert seconds_by_session(learner) == [(session.seconds.training, session.seconds.rest) for session in sessions]


def test_nothing_that_cost_nothing_fails() -> None:
    drawing = cost_columns("Time", {"a": [(0.0, 0.0)]}, ("x", "y"), count_of)
    assert "0" in words(drawing)
    assert growth_plot(Growth(("a",), (0,), (0,), 0), 0)


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


def test_every_class_that_is_drawn_has_a_style(nine_learners: SimpleNamespace) -> None:
    drawn = "".join(all_charts(nine_learners, 640))
    style = sessions_cost_plots.STYLE + heat_map.STYLE
    for kind in ("layer-name", "base", "heat", "heat-self"):
        assert re.search(rf'class="[^"]*\b{kind}\b', drawn), kind
        assert f".{kind}{{" in style, kind
    for kind in KINDS:
        assert f'class="layer {kind}"' in drawn and f".layer.{kind}{{" in style
