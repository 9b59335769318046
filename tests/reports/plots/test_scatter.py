from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.uncertainty import ring_radius
from limpet.reports.plots.scatter import disk_plot, trade_off
from limpet.reports.plots.swatches import class_swatch
from limpet.reports.readings import trade_off_points

from ..specs import assert_page_ready, axis, layers, points, rows, told, words


@pytest.mark.parametrize("width", [350.0, 640.0])
def test_marks_stand_where_compatibility_and_quality_are(results: EvaluationResults, width: float) -> None:
    records = results.evaluations
    chart, placed = trade_off(records, width=width), trade_off_points(records)
    assert chart is not None
    assert_page_ready(chart)
    (left, right), (low, high) = axis(chart)["domain"], axis(chart, "y")["domain"]
    clipped = [(min(max(x, left), right), min(max(y, low), high)) for x, y in placed.values()]
    assert points(chart, "models") == clipped
    assert len({(row["shape"], row["colour"]) for row in rows(chart, "models")}) == len(placed)
    assert all(name in told(chart) and any(said.startswith(name) for said in words(chart, "name")) for name in placed)
    assert {row["x"] for row in rows(chart, "old")} == {0.0} and {row["x"] for row in rows(chart, "independent")} == {
        1.0
    }


def test_without_an_independent_model_there_is_no_plane(results: EvaluationResults) -> None:
    record = results.evaluations["p2s"].model_copy(update={"p_comp": None, "p_up": None})
    assert trade_off({"p2s": record}) is None


def test_marks_stand_where_the_disk_says(hyperbolic: SimpleNamespace) -> None:
    disk = hyperbolic.disk
    chart = disk_plot("hbct", disk, width=560)
    assert_page_ready(chart)
    for kind in ("old", "new"):
        expected = np.concatenate([getattr(group, kind) for group in disk.classes])
        np.testing.assert_allclose(points(chart, kind), expected)
    shapes = {(row["shape"], row["colour"]) for row in rows(chart, "new")}
    assert len(shapes) == len(disk.classes)  # classes differ beyond colour
    assert len({class_swatch(number) for number in range(6)}) == 6
    outermost = next(float(said.split()[1]) for said in words(chart) if said.startswith("uncertainty"))
    assert (np.linalg.norm(points(chart, "old") + points(chart, "new"), axis=1) <= ring_radius(outermost)).all()
    (low, high), (bottom, top) = (layers(chart)["axes"]["encoding"][of]["scale"]["domain"] for of in ("x", "y"))
    assert low == bottom == -high == -top and abs(low) > ring_radius(outermost)
