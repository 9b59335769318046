from __future__ import annotations

import numpy as np
import pytest

from limpet.errors import ConfigError, DataError
from limpet_bench.pictures.strips import Searched, choose_strips


def turned(degrees: list[float]) -> np.ndarray:
    return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)


@pytest.fixture
def models(items):
    """Four queries of classes a, b, a, b; the second model finds the third query a wrong item first."""
    labels = [0, 1, 0, 1]
    gallery = items(turned([0, 10, 90, 100]), [0, 0, 1, 1]).replace(ids=["g0", "g10", "g90", "g100"])
    good = items(turned([1, 91, 8, 99]), labels)
    bad = items(turned([1, 91, 70, 99]), labels, model="new")
    return {"good": Searched(good, [gallery]), "bad": Searched(bad, [gallery])}


def test_hits_are_the_nearest_items_and_marked_by_their_class(models) -> None:
    found = choose_strips(models, queries=4, hits=3)
    assert found.models == ["good", "bad"] and [strip.query for strip in found.strips] == ["i0", "i1", "i2", "i3"]
    third = found.strips[2]
    assert third.label == "a"
    assert [(hit.id, hit.label, hit.right) for hit in third.hits["good"]] == [
        ("g10", "a", True), ("g0", "a", True), ("g90", "b", False),
    ]  # fmt: skip
    assert [(hit.id, hit.right) for hit in third.hits["bad"]] == [("g90", False), ("g100", False), ("g10", True)]
    assert found.ids[:4] == ["i0", "g0", "g10", "g90"] and len(found.ids) == 8


@pytest.mark.parametrize("seed", range(5))
def test_queries_on_which_models_differ_come_first(models, seed: int) -> None:
    assert [strip.query for strip in choose_strips(models, queries=1, hits=2, seed=seed).strips] == ["i2"]
    two = {strip.query for strip in choose_strips(models, queries=2, hits=2, seed=seed).strips}
    assert "i2" in two and len(two) == 2


def test_the_seed_draws_the_others(models) -> None:
    drawn = {tuple(s.query for s in choose_strips(models, queries=2, hits=2, seed=seed).strips) for seed in range(20)}
    assert drawn == {("i0", "i2"), ("i1", "i2"), ("i2", "i3")}
    assert choose_strips(models, queries=2, seed=3) == choose_strips(models, queries=2, seed=3)


def test_a_gallery_in_parts_is_searched_as_one(models) -> None:
    (query, (gallery,)) = models["good"]
    parts = [gallery[[2, 0]], gallery[[3, 1]].replace(fingerprint="declared:other")]
    whole, apart = (choose_strips({"m": Searched(query, one)}, hits=4) for one in ([gallery], parts))
    assert whole == apart


def test_an_item_does_not_find_itself_and_a_small_gallery_is_used_up(items) -> None:
    points = items(turned([0, 10, 50]), [0, 0, 1])
    found = choose_strips({"m": Searched(points, [points])}, queries=3, hits=4)
    assert [[hit.id for hit in strip.hits["m"]] for strip in found.strips] == [["i1", "i2"], ["i0", "i2"], ["i1", "i0"]]
    assert [hit.right for hit in found.strips[2].hits["m"]] == [False, False]


def test_without_labels_nobody_judges(items) -> None:
    points = items(turned([0, 10, 50]), [0, 0, 1]).replace(labels=None, class_names=None)
    found = choose_strips({"m": Searched(points, [points])}, queries=1, hits=1)
    assert found.strips[0].hits["m"][0].right is None and found.strips[0].label == ""
    assert found.table()[1][0][-2:] == ["", ""]


def test_the_table_has_a_row_for_every_item(models) -> None:
    columns, rows = choose_strips(models, queries=1, hits=2).table()
    assert columns[:3] == ["query", "class", "model"]
    assert rows == [
        ["i2", "a", "good", "1", "g10", "a", "right"],
        ["i2", "a", "good", "2", "g0", "a", "right"],
        ["i2", "a", "bad", "1", "g90", "b", "wrong"],
        ["i2", "a", "bad", "2", "g100", "b", "wrong"],
    ]


def test_what_cannot_be_compared_is_refused(models) -> None:
    with pytest.raises(ConfigError, match="Strips of no model"):
        choose_strips({})
    with pytest.raises(ConfigError, match="hits"):
        choose_strips(models, hits=0)
    other = models["good"]._replace(query=models["good"].query[[1, 0, 2, 3]])
    with pytest.raises(DataError, match="'worse' has other queries"):
        choose_strips({**models, "worse": other})
    with pytest.raises(DataError, match="no part"):
        choose_strips({"m": models["good"]._replace(gallery=[])})
