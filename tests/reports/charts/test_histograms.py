from __future__ import annotations

import numpy as np
import pytest

from limpet.evaluation.uncertainty import Group, Histogram
from limpet.reports.charts.canvas import Chart
from limpet_bench.pictures.histograms import Histograms
from limpet_bench.reports.charts.histograms import histogram_panels

from ..reading import assert_page_ready


def of(**groups: list[int]) -> Histogram:
    found = {name: Group(items=sum(counts), mean=mean_of(counts), counts=counts) for name, counts in groups.items()}
    return Histogram(edges=[0.0, 20.0, 40.0, 60.0], groups=found)


def mean_of(counts: list[int]) -> float:
    return float(np.average([10, 30, 50], weights=counts))


def drawn(chart: Chart, label: str) -> list[float]:
    """Return the heights of what is drawn under a name, without its sample in the legend."""
    found = [item for item in chart.axes.patches if item.get_label() == label]
    return found[0].get_data().values.tolist()  # type: ignore[attr-defined,no-any-return]


def texts(chart: Chart, label: str) -> list[str]:
    return [item.get_text() for item in chart.axes.texts if item.get_label() == label]


@pytest.mark.parametrize("width", [350, 640])
def test_models_stand_over_each_other_in_one_chart(width: float) -> None:
    found = Histograms(quantity="radius", split=False, panels={"old": of(all=[1, 3, 0]), "mine": of(all=[0, 1, 1])})
    (chart,) = histogram_panels("Radii", found, place="a place", width=width)
    assert drawn(chart, "old model") == [25, 75, 0] and drawn(chart, "mine") == [0, 50, 50]
    assert texts(chart, "key") == ["old model: mean 25 of 4", "mine: mean 40 of 2"]
    assert texts(chart, "model") == ["a place"] and chart.width == width
    assert "old model: mean 25.000, 4 items, most often between 20 and 40." in chart.told
    assert_page_ready(chart)


def test_a_title_that_names_the_axis_is_not_repeated() -> None:
    found = Histograms(quantity="radius", split=False, panels={"mine": of(all=[1, 3, 0])})
    (other,) = histogram_panels("Picture", found)
    words = other.told.partition(". ")[0]
    (same,) = histogram_panels(words.capitalize(), found)
    assert same.told == other.told.removeprefix(f"{words}. ") != other.told


def test_classes_that_are_apart_have_a_chart_for_each_model_on_one_scale() -> None:
    panels = {"mine": of(seen=[1, 1, 0], unseen=[0, 0, 4]), "yours": of(seen=[1, 1, 1])}
    found = Histograms(quantity="angle", split=True, panels=panels)
    charts = histogram_panels("Angles", found, width=640, beside=400)
    assert [texts(chart, "model") for chart in charts] == [["mine"], ["yours"]]
    assert drawn(charts[0], "seen by the old model") == [50, 50, 0] and drawn(charts[0], "not seen") == [0, 0, 100]
    assert charts[0].axes.get_ylim() == charts[1].axes.get_ylim() and charts[0].axes.get_ylim()[1] >= 100
    assert [chart.width for chart in charts] == [400, 400]
    lines = {line.get_label(): line.get_xdata()[0] for line in charts[0].axes.lines}
    assert lines["mean seen by the old model"] == 20 and lines["mean not seen"] == 50


def test_a_model_alone_has_the_width_of_one() -> None:
    found = Histograms(quantity="radius", split=True, panels={"old": of(seen=[1, 1, 0], unseen=[0, 1, 1])})
    (chart,) = histogram_panels("Radii", found, width=640, beside=400)
    assert chart.width == 640 and texts(chart, "model") == ["old model"]
