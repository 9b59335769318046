from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet_bench.reports.charts.recall import learner_swatch, looks, recall_lines, spread
from limpet_bench.sessions.plans import disjoint

from ....reports.specs import assert_page_ready, layers, points, rows, told, words

WIDTHS = (350.0, 640.0)


# --- learners in sessions --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd(make_sessions: Callable[..., SimpleNamespace]) -> SimpleNamespace:
    """Twenty learners of long names through forty sessions."""
    plan = disjoint(np.repeat(np.arange(80), 10), sessions=40, validation=1)
    return make_sessions(plan, [f"cvs with another name that is long {place}" for place in range(20)])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["nine_learners", "one_learner", "blurry_learners", "crowd"])
def test_charts_of_learners_are_ready_for_a_page(name: str, width: float, request: pytest.FixtureRequest) -> None:
    assert_page_ready(recall_lines(request.getfixturevalue(name).results, width=width))


def test_lines_go_through_the_scores(nine_learners: SimpleNamespace) -> None:
    chart = recall_lines(nine_learners.results, width=640)
    drawn = looks(nine_learners.results)
    for name, learner in nine_learners.results.learners.items():
        expected = [(number, session.recall["1"]) for number, session in enumerate(learner.sessions, start=1)]
        assert points(chart, f"track {name}") == expected
        assert layers(chart)[f"track {name}"]["mark"]["color"] == drawn[name].colour
        assert points(chart, f"marks {name}") == (expected if drawn[name].shape is not None else [])


def test_learners_differ_without_colour_and_the_bounds_have_no_marks(
    nine_learners: SimpleNamespace, make_sessions: Callable[..., SimpleNamespace]
) -> None:
    found = looks(nine_learners.results)
    assert found["finetune"].shape is None and found["joint"].shape is None
    assert found["finetune"].dashes != found["joint"].dashes
    others = [look for name, look in found.items() if name not in ("finetune", "joint")]
    assert len(set(others)) == len({look.colour for look in others}) == 7
    assert len({learner_swatch(look) for look in found.values()}) == 9
    many = make_sessions(disjoint(np.repeat(np.arange(10), 10), sessions=2), [f"cvs {place}" for place in range(42)])
    assert len({(look.colour, look.shape) for look in looks(many.results).values()}) == 42
    chart = recall_lines(nine_learners.results)
    marks = [layers(chart)[f"marks {name}"]["mark"] for name, look in found.items() if look.shape is not None]
    assert len({mark["shape"] for mark in marks}) == 6


def test_the_band_lies_between_both_bounds_or_nowhere(
    nine_learners: SimpleNamespace, blurry_learners: SimpleNamespace
) -> None:
    chart = recall_lines(nine_learners.results)
    band = rows(chart, "between")
    assert points(chart, "between") == points(chart, "track finetune")
    assert [(row["x"], row["y2"]) for row in band] == points(chart, "track joint")
    assert not rows(recall_lines(blurry_learners.results), "between")


@pytest.mark.parametrize("width", WIDTHS)
def test_names_stand_in_the_order_of_the_ends_and_apart(nine_learners: SimpleNamespace, width: float) -> None:
    chart, learners = recall_lines(nine_learners.results, width=width), nine_learners.results.learners
    low, high = layers(chart)["axes"]["encoding"]["y"]["scale"]["domain"]
    pixels = chart.to_dict()["height"] / (high - low)
    names = {row["text"]: -pixels * row["y"] for name in ("names", "first name") for row in rows(chart, name)}
    assert sorted(names, key=names.__getitem__) == sorted(
        learners, key=lambda name: -learners[name].sessions[-1].recall["1"]
    )
    assert min(after - before for before, after in pairwise(sorted(names.values()))) >= 15.99
    assert words(chart, "first name") == ["cvs"]
    thick = {name for name in learners if layers(chart)[f"track {name}"]["mark"]["strokeWidth"] > 3}
    assert thick == {"cvs"}


def test_names_that_do_not_fit_are_left_to_the_legend(
    make_sessions: Callable[..., SimpleNamespace], crowd: SimpleNamespace
) -> None:
    chart = recall_lines(crowd.results)
    assert len(words(chart, "names") + words(chart, "first name")) == 20
    plan = disjoint(np.repeat(np.arange(10), 10), sessions=2)
    chart = recall_lines(make_sessions(plan, [f"cvs {place}" for place in range(40)]).results)
    assert not rows(chart, "names") and not rows(chart, "first name")
    assert len([name for name in layers(chart) if name.startswith("track ")]) == 40


def test_the_text_alternative_holds_all_scores(nine_learners: SimpleNamespace) -> None:
    said = told(recall_lines(nine_learners.results))
    for name, learner in nine_learners.results.learners.items():
        scores = ", ".join(f"{session.recall['1']:.3f}" for session in learner.sessions)
        role = {"finetune": ", the lower bound", "joint": ", the upper bound"}.get(name, "")
        assert f"{name}{role}: {scores}" in said


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
