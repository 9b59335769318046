from __future__ import annotations

import pytest

from limpet.reports.charts.canvas import CROSS, REVERSE, Chart
from limpet_bench.figure_values import Arrivals
from limpet_bench.reports.charts.arrivals import arrivals_panel, known_from_start, others_arrive

from ..reading import assert_page_ready

DISJOINT = Arrivals(place="disjoint", classes=[*"abc"], home=[1, 1, 2], images=[[4, 2, 0], [0, 0, 8]])
OLD_TOO = Arrivals(place="", classes=[*"abc"], home=[1, 1, 2], images=[[4, 2, 0], [1, 0, 8]])
BLURRY = Arrivals(place="", classes=[*"abc"], home=[1, 1, 2], images=[[4, 4, 1], [1, 1, 8]])


def bands(chart: Chart, session: int) -> list[tuple[str, list[float]]]:
    """Return the colour of the parts of a session, and how many images of every class each shows."""
    found = []
    for item in chart.axes.patches:
        if item.get_label() == f"session {session}":
            values, _, baseline = item.get_data()  # type: ignore[attr-defined]
            from matplotlib.colors import to_hex

            found.append((to_hex(item.get_facecolor()), [round((baseline - one) / 0.82 * 8, 6) for one in values]))
    return found


@pytest.mark.parametrize("width", [350, 640])
def test_a_session_shows_its_own_classes_apart_from_others_on_one_scale(width: float) -> None:
    chart = arrivals_panel("Classes", OLD_TOO, width=width)
    assert bands(chart, 1) == [(CROSS, [4, 2, 0]), (REVERSE, [0, 0, 0])]
    assert bands(chart, 2) == [(CROSS, [0, 0, 8]), (REVERSE, [1, 0, 0])]
    assert "Session 2: 9 images, 8 of 1 classes of its own, 1 of 1 others." in chart.told
    assert_page_ready(chart)


def test_the_key_names_what_is_there() -> None:
    keys = [
        [item.get_text() for item in arrivals_panel("", found).axes.texts if item.get_label() == "key"]
        for found in (DISJOINT, OLD_TOO, BLURRY)
    ]
    assert keys[0] == ["classes that the session introduces"]
    assert keys[1] == ["classes that the session introduces", "classes of other sessions"]
    assert keys[2] == ["classes of which the session brings most", "classes of other sessions"]


def test_setups_are_told_apart_by_what_arrives() -> None:
    assert [known_from_start(found) for found in (DISJOINT, OLD_TOO, BLURRY)] == [False, False, True]
    assert [others_arrive(found) for found in (DISJOINT, OLD_TOO, BLURRY)] == [False, True, True]
