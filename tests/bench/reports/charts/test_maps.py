from __future__ import annotations

import pytest

from limpet.reports.plots.style import SOFT
from limpet_bench.pictures.embedding_map import Cluster, EmbeddingMap
from limpet_bench.reports.charts.maps import embedding_panels, own_side

from ....reports.specs import assert_page_ready, rows, told, words


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


@pytest.mark.parametrize("width", [350, 640])
@pytest.mark.parametrize("models", [("mine",), ("mine", "yours"), ("mine", "yours", "theirs")])
def test_every_model_has_a_panel_with_old_points_and_its_own(models: tuple[str, ...], width: float) -> None:
    chart = embedding_panels("A plane", plane(models=models), width=width)
    assert_page_ready(chart)
    panels, old, new = (rows(chart, name) for name in ("panels", "old", "new"))
    assert len(panels) == len(models) and all(0 <= one["x"] < one["x2"] <= width for one in panels)
    assert len(old) == 4 * len(models) + 1 and len(new) == 4 * len(models) + 1 + 2  # and a legend
    assert len(rows(chart, "prototypes")) == 2 * len(models) + 1
    first = panels[0]
    for one in (*old[:4], *new[:4]):
        assert first["x"] < one["x"] < first["x2"] and first["y"] < one["y"] < first["y2"]
    assert len({one["colour"] for one in old if one["colour"] != SOFT}) == 2


def test_an_old_model_apart_has_a_panel_of_its_own_and_is_in_no_other() -> None:
    chart = embedding_panels("A plane", plane(apart=True))
    panels = rows(chart, "panels")
    assert len(panels) == 2 and len(rows(chart, "old")) == 4 + 1 and len(rows(chart, "prototypes")) == 4 + 1
    assert all(one["x"] < panels[0]["x2"] for one in rows(chart, "old"))


def test_noise_is_a_cross_in_place_of_the_mark_of_its_class() -> None:
    chart = embedding_panels("A plane", plane(noise=["i"]))
    assert len(rows(chart, "noise")) == 2 * 2 + 2  # two lines for an item of either class, and in the legend
    assert len(rows(chart, "old")) == 2 + 1
    assert "1 old embeddings of them are taken for noise" in told(chart)


def test_prototypes_in_one_place_are_drawn_inside_each_other() -> None:
    def sizes(found: EmbeddingMap) -> list[float]:
        return [row["size"] for row in rows(embedding_panels("", found), "prototypes")][:2]

    first, second = sizes(plane().model_copy(update={"prototypes": {"a": (0.0, 0.0), "b": (0.0, 0.0)}}))
    assert first > 2 * second and sizes(plane()) == [first, first]


def test_numbers_of_classes_in_one_place_stand_beside_each_other() -> None:
    def numbers(found: EmbeddingMap) -> list[str]:
        return words(embedding_panels("", found), "class")

    assert numbers(plane()) == ["1", "2"]
    first, *_ = plane().clusters
    together = [one.model_copy(update={"x": first.x, "y": first.y}) for one in plane().clusters]
    assert numbers(plane().model_copy(update={"clusters": together})) == ["1, 2"]


def test_a_headline_stands_above_the_panels() -> None:
    plain, headed = embedding_panels("A plane", plane()), embedding_panels("A plane", plane(), head="a place")
    assert words(headed, "place") == ["a place"] and headed.to_dict()["height"] == plain.to_dict()["height"] + 24


def test_how_many_new_points_lie_at_the_old_centre_of_their_class_is_told() -> None:
    assert own_side(plane(), "mine") == 0.75
    assert "mine: 75\N{NO-BREAK SPACE}% of the new points" in told(embedding_panels("A plane", plane()))
    assert own_side(plane(), "old") is None


def test_only_a_hyperboloid_has_an_origin() -> None:
    assert not rows(embedding_panels("", plane()), "origins")
    chart = embedding_panels("", plane("hyperboloid"))
    assert len(rows(chart, "origins")) == 2 + 2 and rows(chart, "rings")
