from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import altair as alt
import numpy as np
import pytest

from limpet_bench.reports.charts.costs import (
    KINDS,
    Growth,
    cost_columns,
    growth_plot,
    growths,
    images_of,
    layer_swatch,
    seconds_by_session,
)
from limpet_bench.reports.sessions import count_of
from limpet_bench.sessions.plans import disjoint

from ....reports.specs import assert_page_ready, layers, rows, told, words

WIDTHS = (350.0, 640.0)


def ends(chart: alt.LayerChart, name: str) -> list[tuple[float, float]]:
    """Return where every rectangle of a layer begins and ends upwards."""
    return [(row["y"], row["y2"]) for row in rows(chart, name)]


# --- sessions --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd(make_sessions: Callable[..., SimpleNamespace]) -> SimpleNamespace:
    """Twenty learners of long names through forty sessions."""
    plan = disjoint(np.repeat(np.arange(80), 10), sessions=40, validation=1)
    return make_sessions(plan, [f"cvs with another name that is long {place}" for place in range(20)])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["nine_learners", "one_learner", "blurry_learners", "crowd"])
def test_costs_are_ready_for_a_page(name: str, width: float, request: pytest.FixtureRequest) -> None:
    learners = request.getfixturevalue(name).results.learners
    for growth in growths(learners):
        assert_page_ready(growth_plot(growth, max(growth.gallery), width=width))
    costs = {name: images_of(learner) for name, learner in learners.items()}
    assert_page_ready(cost_columns("Images by session", costs, ("trained on", "embedded"), count_of, width=width))


def test_the_gallery_is_the_sum_of_its_layers(nine_learners: SimpleNamespace) -> None:
    once, again = growths(nine_learners.results.learners)
    assert again.names == ("joint",) and len(once.names) == 8
    assert (once.again, again.again) == (0, 76_716)
    for growth in (once, again):
        for session, images in enumerate(growth.gallery):
            assert sum(size for _, _, size in growth.layers(session)) == images
    training = nine_learners.results.plan.training
    assert once.layers(3) == [("kept", 0, 7200), ("kept", 1, 7992), ("kept", 2, 7992), ("new", 3, 7956)]
    assert again.layers(3) == [("again", 3, sum(training[:3])), ("new", 3, training[3])]
    assert again.layers(0) == once.layers(0) == [("new", 0, 7200)]


def test_layers_are_as_high_as_their_images() -> None:
    growth = Growth(("a",), (100, 150, 400), (100, 50, 250), 0)
    chart = growth_plot(growth, 400)
    assert ends(chart, "new") == [(0, 100), (100, 150), (150, 400)]
    assert ends(chart, "kept") == [(0, 100), (0, 100), (100, 150)]
    assert words(chart, "layer names") == ["1", "1", "2"]
    domains = [layers(growth_plot(growth, most))["axes"]["encoding"]["y"]["scale"]["domain"] for most in (400, 800)]
    assert domains == [[0, 400], [0, 800]]
    ((low, high),) = ends(growth_plot(Growth(("b",), (100, 150), (100, 150), 100), 400), "again")
    assert 0 < low < 3 and 97 < high < 100  # and the line around it
    assert len({layer_swatch(kind) for kind in KINDS}) == 3


def test_costs_are_columns_on_one_scale_with_their_sum() -> None:
    costs = {"a": [(100.0, 50.0), (200.0, 200.0)], "b": [(50.0, 0.0), (100.0, 20.0)]}
    chart = cost_columns("Images", costs, ("trained on", "embedded"), count_of)
    filled, hollow = ends(chart, "filled"), ends(chart, "hollow")
    assert [bottom - top for top, bottom in filled] == pytest.approx([24, 48, 12, 24])  # pixels from the top
    assert [bottom - top for top, bottom in hollow] == pytest.approx([12 - 1.4, 48 - 1.4, 4.8 - 1.4])
    for (top, _), (_, bottom) in zip(filled[:2], hollow[:2], strict=True):
        assert bottom + 0.7 == pytest.approx(top)
    assert {"550", "170", "session; the highest column is 400"} <= set(words(chart))
    assert filled[2][0] > filled[1][0]
    assert "a: 100 + 50, 200 + 200; in all 550" in told(chart)


def test_costs_are_those_of_the_sessions(nine_learners: SimpleNamespace) -> None:
    learner = nine_learners.results.learners["cvs"]
    sessions = learner.sessions
    assert images_of(learner) == [(session.trained_images, session.encoded_images) for session in sessions]
    assert all(min(both) > 0 and both[0] != both[1] for both in images_of(learner))
    assert seconds_by_session(learner) == [(session.seconds.training, session.seconds.rest) for session in sessions]


def test_nothing_that_cost_nothing_fails() -> None:
    assert "0" in words(cost_columns("Time", {"a": [(0.0, 0.0)]}, ("x", "y"), count_of))
    assert_page_ready(growth_plot(Growth(("a",), (0,), (0,), 0), 0))
