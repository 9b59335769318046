from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from limpet.reports.charts.canvas import Chart
from limpet_bench.pictures.embedding_map import Cluster, EmbeddingMap
from limpet_bench.reports.charts.maps import embedding_panels, own_side

SVG = "{http://www.w3.org/2000/svg}"


def plane(layout: str = "tsne", models: tuple[str, ...] = ("mine",), **values: object) -> EmbeddingMap:
    """Class a around (0, 0) and class b around (10, 0); one of two new points of b lies at a."""
    places = {"old": {"a": [(-1, 0), (1, 0)], "b": [(9, 0), (11, 0)]}}
    places |= {model: {"a": [(0, 1), (0, 2)], "b": [(9, 1), (1, 1)]} for model in models}
    clusters = [
        Cluster(model=model, name=name, ids=["i", "j"], x=[x for x, _ in points], y=[y for _, y in points])
        for model, classes in places.items()
        for name, points in classes.items()
    ]
    return EmbeddingMap(layout=layout, seed=0, classes=["a", "b"], models=list(models), clusters=clusters,
                        prototypes={"a": (0.0, 0.0), "b": (10.0, 0.0)}, **values)  # fmt: skip


def labels(chart: Chart) -> list[str]:
    return [str(item.get_label()) for item in chart.axes.get_children()]


@pytest.mark.parametrize("width", [350, 640])
@pytest.mark.parametrize("models", [("mine",), ("mine", "yours"), ("mine", "yours", "theirs")])
def test_every_model_has_a_panel_with_old_points_and_its_own(models: tuple[str, ...], width: float) -> None:
    chart = embedding_panels("A plane", plane(models=models), width=width)
    found = labels(chart)
    assert found.count("panel") == len(models)
    assert found.count("old a") == found.count("old b") == len(models)
    assert all(found.count(f"{model} b") == 1 for model in models)
    assert found.count("prototype") == 2 * len(models)
    panels = [item for item in chart.axes.patches if item.get_label() == "panel"]
    assert all(item.get_x() >= 0 and item.get_x() + item.get_width() <= width + 1e-6 for item in panels)
    points = np.concatenate([item.get_path().vertices for item in chart.axes.patches if "mine" in item.get_label()])
    first = panels[0]
    assert (points[:, 0] > first.get_x()).all() and (points[:, 0] < first.get_x() + first.get_width()).all()
    assert (points[:, 1] > first.get_y()).all() and (points[:, 1] < first.get_y() + first.get_height()).all()


def test_an_old_model_apart_has_a_panel_of_its_own_and_is_in_no_other() -> None:
    found = labels(embedding_panels("A plane", plane(apart=True)))
    assert found.count("panel") == 2
    assert found.count("old a") == found.count("mine a") == 1 and found.count("prototype") == 4


def test_noise_is_a_cross_in_place_of_the_mark_of_its_class() -> None:
    chart = embedding_panels("A plane", plane(noise=["i"]))
    assert labels(chart).count("noise") == 2 * 2 + 2  # two lines for an item of either class, and in the legend
    (old,) = [item for item in chart.axes.patches if item.get_label() == "old a"]
    assert len(old.get_path().vertices) == 5  # a triangle
    assert "1 old embeddings of them are taken for noise" in chart.told


def test_prototypes_in_one_place_are_drawn_inside_each_other() -> None:
    def sizes(found: EmbeddingMap) -> list[float]:
        lines = embedding_panels("", found).axes.lines
        return [line.get_markersize() for line in lines if line.get_label() == "prototype"]

    first, second = sizes(plane().model_copy(update={"prototypes": {"a": (0.0, 0.0), "b": (0.0, 0.0)}}))
    assert first > 1.5 * second and sizes(plane()) == [first, first]


def test_numbers_of_classes_in_one_place_stand_beside_each_other() -> None:
    def numbers(found: EmbeddingMap) -> list[str]:
        return [item.get_text() for item in embedding_panels("", found).axes.texts if item.get_label() == "class"]

    assert numbers(plane()) == ["1", "2"]
    first, *_ = plane().clusters
    together = [one.model_copy(update={"x": first.x, "y": first.y}) for one in plane().clusters]
    assert numbers(plane().model_copy(update={"clusters": together})) == ["1, 2"]


def test_a_headline_stands_above_the_panels() -> None:
    plain, headed = embedding_panels("A plane", plane()), embedding_panels("A plane", plane(), head="a place")
    assert "place" in labels(headed) and headed.height == plain.height + 24


def test_how_many_new_points_lie_at_the_old_centre_of_their_class_is_told() -> None:
    assert own_side(plane(), "mine") == 0.75
    svg = ElementTree.fromstring(embedding_panels("A plane", plane()).svg())
    assert "mine: 75\N{NO-BREAK SPACE}% of the new points" in str(svg.findtext(SVG + "desc"))
    assert own_side(plane(), "old") is None


def test_only_a_hyperboloid_has_an_origin() -> None:
    assert "origin" not in labels(embedding_panels("", plane()))
    found = labels(embedding_panels("", plane("hyperboloid")))
    assert found.count("origin") == 2 and "ring" in found


def test_many_dots_are_one_shape_and_pictures_stay_apart() -> None:
    chart = Chart("t", "told", (100, 100), (0, 0, 0, 0), (0.0, 100.0))
    chart.dots(range(20, 70), range(20, 70), "#0072b2", 3)
    chart.triangles(range(20, 70), range(20, 70), "#d55e00", 3)
    for at in (0, 50):
        chart.picture(at, 0, 20, 20, np.full((2, 2, 3), at, np.uint8), note=f"at {at}")
    svg = ElementTree.fromstring(chart.svg())
    paths = [item.get("d", "") for item in svg.iter(SVG + "path")]
    assert sorted(d.count("M") for d in paths) == [50, 50]
    images = list(svg.iter(SVG + "image"))
    assert [image.findtext(SVG + "title") for image in images] == ["at 0", "at 50"]
    assert all(str(image.get("href")).startswith("data:image/png;base64,iVBOR") for image in images)
    assert "#" not in "".join(str(item.get("style")) for item in svg.iter(SVG + "path"))
