from __future__ import annotations

import altair as alt
import pytest

from limpet_bench.figure_values import Arrivals
from limpet_bench.reports.charts.arrivals import arrivals_panel, known_from_start, others_arrive

from ....reports.specs import assert_page_ready, rows, told, words

DISJOINT = Arrivals(place="disjoint", classes=[*"abc"], home=[1, 1, 2], images=[[4, 2, 0], [0, 0, 8]])
OLD_TOO = Arrivals(place="", classes=[*"abc"], home=[1, 1, 2], images=[[4, 2, 0], [1, 0, 8]])
BLURRY = Arrivals(place="", classes=[*"abc"], home=[1, 1, 2], images=[[4, 4, 1], [1, 1, 8]])


def images(chart: alt.LayerChart, session: int, name: str) -> dict[int, float]:
    """Return how many images of every class a session shows."""
    own = [row for row in rows(chart, name) if row["y"] == session]
    return {row["x"]: round((row["y"] - row["y2"]) / 0.82 * 8, 6) for row in own}


@pytest.mark.parametrize("width", [350, 640])
def test_a_session_shows_its_own_classes_apart_from_others_on_one_scale(width: float) -> None:
    chart = arrivals_panel("Classes", OLD_TOO, width=width)
    assert images(chart, 1, "own") == {0: 4, 1: 2} and images(chart, 1, "others") == {}
    assert images(chart, 2, "own") == {2: 8} and images(chart, 2, "others") == {0: 1}
    assert "Session 2: 9 images, 8 of 1 classes of its own, 1 of 1 others." in told(chart)
    assert_page_ready(chart)


def test_the_key_names_what_is_there() -> None:
    keys = [words(arrivals_panel("", found), "key") for found in (DISJOINT, OLD_TOO, BLURRY)]
    assert keys[0] == ["classes that the session introduces"]
    assert keys[1] == ["classes that the session introduces", "classes of other sessions"]
    assert keys[2] == ["classes of which the session brings most", "classes of other sessions"]


def test_setups_are_told_apart_by_what_arrives() -> None:
    assert [known_from_start(found) for found in (DISJOINT, OLD_TOO, BLURRY)] == [False, False, True]
    assert [others_arrive(found) for found in (DISJOINT, OLD_TOO, BLURRY)] == [False, True, True]
