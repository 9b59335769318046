from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.continual.plans import disjoint
from holdfast.continual.results import SessionsResults
from holdfast.reports import heat_map, sessions_cost_plots, sessions_plots
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
from holdfast.reports.sessions_plots import looks, recall_lines, recall_map, recall_range, spread
from holdfast.reports.svg import Scale, width_of

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
    drawings = [recall_lines(results, width=width)]
    drawings += [recall_map(name, learner, recall_range(results), width=width) for name, learner in learners.items()]
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


def test_lines_go_through_the_scores(nine_learners: SimpleNamespace) -> None:
    drawing = recall_lines(nine_learners.results, width=640)
    learners, found = nine_learners.results.learners, looks(nine_learners.results)
    ticks = {float(item.text or ""): number(item, "y") - 4 for item in items(drawing, "text", "tick")
             if item.get("text-anchor") == "end"}  # fmt: skip
    (low, bottom), *_, (high, top) = sorted(ticks.items())
    y = Scale(low, high, bottom, top)
    for name, learner in learners.items():
        (line,) = items(drawing, "path", f"track {found[name].kind}")
        scores = [session.recall["1"] for session in learner.sessions]
        assert [at for _, at in points(line)] == pytest.approx([y(score) for score in scores], abs=0.02)
        across = [at for at, _ in points(line)]
        assert np.diff(across) == pytest.approx([across[1] - across[0]] * 4, abs=0.02)
        marks = [] if found[name].shape is None else items(drawing, "path", f"spot-of {found[name].kind}")
        assert [place(mark) for mark in marks] == [pytest.approx(p, abs=0.01) for p in points(line)][: len(marks)]
        assert len(marks) == (0 if name in ("finetune", "joint") else 5)


def test_learners_differ_without_colour_and_the_bounds_have_no_marks(
    nine_learners: SimpleNamespace, make_sessions: Callable[..., SimpleNamespace]
) -> None:
    found = looks(nine_learners.results)
    assert found["finetune"] == ("bound lower", None) and found["joint"] == ("bound upper", None)
    others = [look for name, look in found.items() if name not in ("finetune", "joint")]
    assert len(set(others)) == len({look.kind for look in others}) == 7
    many = make_sessions(disjoint(np.repeat(np.arange(10), 10), sessions=2), [f"cvs {place}" for place in range(42)])
    assert len({(look.kind.split()[0], look.shape) for look in looks(many.results).values()}) == 42
    drawing = recall_lines(nine_learners.results)
    shapes = {look.kind: {mark.get("d") for mark in items(drawing, "path", f"spot-of {look.kind}")} for look in others}
    assert all(len(shape) == 1 for shape in shapes.values())
    assert len(set.union(*shapes.values())) == 6


def test_the_band_lies_between_both_bounds_or_nowhere(
    nine_learners: SimpleNamespace, blurry_learners: SimpleNamespace
) -> None:
    drawing = recall_lines(nine_learners.results)
    (band,) = items(drawing, "path", "between")
    upper, lower = (items(drawing, "path", f"track bound {bound}")[0] for bound in ("upper", "lower"))
    assert points(band) == [*points(upper), *reversed(points(lower))]
    assert not items(recall_lines(blurry_learners.results), "path", "between")


@pytest.mark.parametrize("width", WIDTHS)
def test_names_stand_in_the_order_of_the_ends_and_apart(nine_learners: SimpleNamespace, width: float) -> None:
    drawing = recall_lines(nine_learners.results, width=width)
    learners = nine_learners.results.learners
    names = {item.text: number(item, "y") for item in items(drawing, "text", "line-name")}
    assert sorted(names, key=names.__getitem__) == sorted(
        learners, key=lambda name: -learners[name].sessions[-1].recall["1"]
    )
    assert min(after - before for before, after in pairwise(sorted(names.values()))) >= 15.99
    assert words(drawing, "of-led") == ["cvs"]
    assert len(items(drawing, "path", "track led")) == 1


def test_names_that_do_not_fit_are_left_to_the_legend(
    make_sessions: Callable[..., SimpleNamespace], crowd: SimpleNamespace
) -> None:
    assert len(words(recall_lines(crowd.results), "line-name")) == 20
    plan = disjoint(np.repeat(np.arange(10), 10), sessions=2)
    many = make_sessions(plan, [f"cvs {place}" for place in range(40)])
    drawing = recall_lines(many.results)
    assert not words(drawing, "line-name") and len(items(drawing, "path", "track")) == 40


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
    told = ElementTree.fromstring(recall_lines(nine_learners.results)).findtext(SVG + "desc")
    for name, learner in learners.items():
        scores = ", ".join(f"{session.recall['1']:.3f}" for session in learner.sessions)
        assert re.search(rf"\b{name}(, the (lower|upper) bound)?: {scores}", str(told))
        described = ElementTree.fromstring(recall_map(name, learner, (0.0, 1.0))).findtext(SVG + "desc")
        found = [float(value) for value in re.findall(r"(\d\.\d{3}) of session", str(described))]
        assert found == pytest.approx([v for row in learner.recall_by_age for v in row if v is not None], abs=5e-4)


def test_every_class_that_is_drawn_has_a_style(nine_learners: SimpleNamespace) -> None:
    drawn = "".join(all_charts(nine_learners, 640))
    style = sessions_plots.STYLE + sessions_cost_plots.STYLE + heat_map.STYLE
    for kind in ("track", "bound", "between", "tie", "spot-of", "of-led", "layer-name", "base", "heat", "heat-self"):
        assert re.search(rf'class="[^"]*\b{kind}\b', drawn), kind
        assert f".{kind}{{" in style, kind
    for kind in KINDS:
        assert f'class="layer {kind}"' in drawn and f".layer.{kind}{{" in style
