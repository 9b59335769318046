from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from limpet.reports.plots.style import width_of
from limpet_bench.reports.charts.recall_maps import recall_map, recall_range
from limpet_bench.sessions.plans import disjoint
from limpet_bench.sessions.results import SessionsResults

from ....reports.specs import assert_page_ready, points, rows, told, words


@pytest.fixture(scope="module")
def crowd(make_sessions: Callable[..., SimpleNamespace]) -> SimpleNamespace:
    """A learner through forty sessions."""
    plan = disjoint(np.repeat(np.arange(80), 10), sessions=40, validation=1)
    return make_sessions(plan, ["cvs with another name that is long"])


@pytest.mark.parametrize("width", [340.0, 640.0])
@pytest.mark.parametrize("name", ["nine_learners", "one_learner", "blurry_learners", "crowd"])
def test_maps_are_ready_for_a_page(name: str, width: float, request: pytest.FixtureRequest) -> None:
    results = request.getfixturevalue(name).results
    learner = next(iter(results.learners))
    assert_page_ready(recall_map(learner, results.learners[learner], recall_range(results), width=width))


def test_a_map_holds_every_group_that_was_asked(nine_learners: SimpleNamespace) -> None:
    learner = nine_learners.results.learners["lwf"]
    chart = recall_map("lwf", learner, (0.0, 1.0))
    values = [value for row in learner.recall_by_age for value in row if value is not None]
    assert len(values) == 15
    assert words(chart, "numbers") == [f"{value:.2f}" for value in values]
    opacities = [row["opacity"] for row in rows(chart, "cells")]
    assert opacities == pytest.approx([0.1 + 0.9 * value for value in values], abs=1e-3)
    assert len(rows(chart, "own")) == 5
    where = [(int(y), int(x)) for x, y in points(chart, "cells")]
    assert where == [(row, column) for row in range(5) for column in range(row + 1)]
    assert all(f"{value:.3f} of session" in told(chart) for value in values)


def test_a_map_of_classes_known_from_the_start_is_a_whole_square(blurry_learners: SimpleNamespace) -> None:
    chart = recall_map("cvs", blurry_learners.results.learners["cvs"], (0.0, 1.0))
    assert len(words(chart, "numbers")) == 16 and len(rows(chart, "own")) == 4


def test_a_group_that_was_never_asked_is_a_dash(nine_learners: SimpleNamespace) -> None:
    document = nine_learners.results.to_dict()
    for session in document["learners"]["lwf"]["sessions"]:
        session["recall_by_home"][1], session["queries_by_home"][1] = None, 0
    chart = recall_map("lwf", SessionsResults.parse(document).learners["lwf"], (0.0, 1.0))
    assert len(rows(chart, "none")) == 4 and len(words(chart, "numbers")) == 11
    assert "session 2" not in told(chart).replace("After session 2", "")


def test_numbers_that_do_not_fit_a_cell_are_left_out(crowd: SimpleNamespace) -> None:
    chart = recall_map("x", next(iter(crowd.results.learners.values())), (0.0, 1.0))
    assert not words(chart, "numbers") and len(rows(chart, "cells")) == 40 * 41 / 2
    places = [row["x"] for row in rows(chart, "column names")]
    cell = chart.to_dict()["width"] / 40
    assert 3 < len(places) < 40 and cell * min(np.diff(places)) >= width_of("40", 12)
