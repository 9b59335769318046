from __future__ import annotations

import altair as alt
import numpy as np
import pytest

from limpet.evaluation.uncertainty import Group, Histogram
from limpet.reports.plots.rendering import width_of
from limpet_bench.pictures.histograms import Histograms
from limpet_bench.reports.charts.histograms import histogram_panels

from ....reports.specs import assert_page_ready, axis, points, rows, told, words


def of(**groups: list[int]) -> Histogram:
    found = {name: Group(items=sum(counts), mean=mean_of(counts), counts=counts) for name, counts in groups.items()}
    return Histogram(edges=[0.0, 20.0, 40.0, 60.0], groups=found)


def mean_of(counts: list[int]) -> float:
    return float(np.average([10, 30, 50], weights=counts))


def drawn(chart: alt.LayerChart, name: str) -> list[float]:
    """Return the heights of a distribution."""
    return [y for _, y in points(chart, name)[1:-1:2]]


@pytest.mark.parametrize("width", [350, 640])
def test_models_stand_over_each_other_in_one_chart(width: float) -> None:
    found = Histograms(quantity="radius", split=False, panels={"old": of(all=[1, 3, 0]), "mine": of(all=[0, 1, 1])})
    (chart,) = histogram_panels("Radii", found, place="a place", width=width)
    assert drawn(chart, "old model") == [25, 75, 0] and drawn(chart, "mine") == [0, 50, 50]
    assert words(chart, "key") == ["old model: mean 25 of 4", "mine: mean 40 of 2"]
    assert words(chart, "model") == ["a place"] and width_of(chart) == width
    assert "old model: mean 25.000, 4 items, most often between 20 and 40." in told(chart)
    assert_page_ready(chart)


def test_a_title_that_names_the_axis_is_not_repeated() -> None:
    found = Histograms(quantity="radius", split=False, panels={"mine": of(all=[1, 3, 0])})
    (other,) = histogram_panels("Picture", found)
    axis_words = told(other).partition(". ")[0]
    (same,) = histogram_panels(axis_words.capitalize(), found)
    assert told(same) == told(other).removeprefix(f"{axis_words}. ") != told(other)


def test_classes_that_are_apart_have_a_chart_for_each_model_on_one_scale() -> None:
    panels = {"mine": of(seen=[1, 1, 0], unseen=[0, 0, 4]), "yours": of(seen=[1, 1, 1])}
    found = Histograms(quantity="angle", split=True, panels=panels)
    charts = histogram_panels("Angles", found, width=640, beside=400)
    assert [words(chart, "model") for chart in charts] == [["mine"], ["yours"]]
    assert drawn(charts[0], "seen by the old model") == [50, 50, 0] and drawn(charts[0], "not seen") == [0, 0, 100]
    assert axis(charts[0], "y")["domain"] == axis(charts[1], "y")["domain"] and axis(charts[0], "y")["domain"][1] >= 100
    assert [width_of(chart) for chart in charts] == [400, 400]
    means = [rows(charts[0], f"mean {name}")[0]["x"] for name in ("seen by the old model", "not seen")]
    assert means == [20, 50]


def test_a_model_alone_has_the_width_of_one() -> None:
    found = Histograms(quantity="radius", split=True, panels={"old": of(seen=[1, 1, 0], unseen=[0, 1, 1])})
    (chart,) = histogram_panels("Radii", found, width=640, beside=400)
    assert width_of(chart) == 640 and words(chart, "model") == ["old model"]
