from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, EmptyOverlapError
from limpet.evaluation.protocols import ByCamera

Golden = Callable[[str], dict[str, NDArray[Any]]]
Make = Callable[..., EmbeddingSet]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("suffix", ["", "_junk"])
def test_golden(golden: Golden, make_items: Make, suffix: str, named: bool) -> None:
    reference = golden("market1501")
    distances, persons = reference["distmat"], reference["g_ids" + suffix]
    query = make_items(distances.max() + 1 - distances, reference["q_ids"], prefix="q",
                       columns={"camera": reference["q_cams"]})  # fmt: skip
    gallery = make_items(np.eye(len(persons)), persons, columns={"camera": reference["g_cams"]})
    if named:  # junk is then the class named "-1", whatever its number
        names = sorted({str(person) for person in [*reference["q_ids"], *persons, -1]}, reverse=True)
        query, gallery = (
            part.replace(labels=np.array([names.index(str(label)) for label in part.labels]), class_names=names)
            for part in (query, gallery)
        )
    metrics = [f"cmc@{k}" for k in range(1, 16)]
    found = ByCamera().measure(query, gallery, [*metrics, "map"])
    np.testing.assert_allclose([np.nanmean(found[name]) for name in metrics], reference["cmc" + suffix], atol=1e-6)
    np.testing.assert_allclose(np.nanmean(found["map"]), reference["map" + suffix], atol=1e-6)
    assert np.isnan(found["map"]).sum() == 1


def people(make_items: Make) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Two queries; the gallery by falling score for both: junk, own camera, distractor, junk, own camera, the mate."""
    query = make_items([[1, 0], [1, 0]], [0, 1], prefix="q", class_names=["ann", "bob", "0000", "-1"],
                       columns={"camera": np.array([4, 9])})  # fmt: skip
    gallery = make_items(
        [[1, 0.1 * row] for row in range(6)],
        [3, 0, 2, 3, 0, 0],
        class_names=["ann", "bob", "0000", "-1"],
        columns={"camera": np.array([4, 4, 4, 5, 4, 5], np.int32)},
    )
    return query, gallery


def test_junk_and_the_own_camera_are_ignored_and_distractors_count(make_items: Make) -> None:
    found = ByCamera().measure(*people(make_items), ["map", "cmc@1", "cmc@2"])
    np.testing.assert_array_equal(found["map"], [1 / 2, np.nan])
    np.testing.assert_array_equal(found["cmc@1"], [0, np.nan])
    np.testing.assert_array_equal(found["cmc@2"], [1, np.nan])
    np.testing.assert_array_equal(ByCamera(no_relevant="zero").measure(*people(make_items), ["map"])["map"], [1 / 2, 0])


def test_what_is_left_out_is_counted(make_items: Make) -> None:
    assert ByCamera().left_out(*people(make_items)) == {
        "queries without relevant items": 1,
        "gallery items that no query ranks": 2,
        "gallery items ignored, over all queries": 2,
    }


def test_lists_of_the_whole_gallery_leave_junk_out_too(make_items: Make) -> None:
    lists = ByCamera().lists(*people(make_items))
    assert [sorted(lists.ignore[query].tolist()) for query in (0, 1)] == [[0, 1, 3, 4], [0, 3]]
    assert lists.answering().tolist() == [1, 0]


def test_an_upgrade_curve_keeps_no_list_of_junk_for_every_query(make_items: Make) -> None:
    query, gallery = ByCamera().taking_part(*people(make_items))
    options = ByCamera().curve_options(query, gallery)
    assert list(gallery.ids) == ["item1", "item2", "item4", "item5"]
    assert options["ignore"].counts.tolist() == [2, 0]


def test_a_camera_that_the_gallery_lacks_hides_nothing(make_items: Make) -> None:
    query, gallery = people(make_items)
    elsewhere = query.replace(columns={"camera": np.array([7, 7])})
    np.testing.assert_array_equal(ByCamera().measure(elsewhere, gallery, ["cmc@1"])["cmc@1"], [1, np.nan])


def test_what_is_missing_is_named(make_items: Make) -> None:
    query, gallery = people(make_items)
    with pytest.raises(DataError, match="column 'camera' of the queries, and found no such column"):
        ByCamera().measure(query.replace(columns={}), gallery, ["map"])
    with pytest.raises(DataError, match="column 'camera' of the gallery, and found float64"):
        ByCamera().measure(query, gallery.replace(columns={"camera": np.zeros(6)}), ["map"])
    with pytest.raises(DataError, match="The gallery has no labels"):
        ByCamera().measure(query, gallery.replace(labels=None), ["map"])
    with pytest.raises(EmptyOverlapError, match="None of the 1 queries"):
        ByCamera().measure(query[[1]], gallery, ["map"])
    with pytest.raises(DataError, match="gallery is empty"):
        ByCamera().measure(query, gallery[[0, 3]], ["map"])


def test_one_camera_for_everybody_is_what_is_wrong(make_items: Make) -> None:
    query, gallery = people(make_items)
    one = [side.replace(columns={"camera": np.ones(len(side), np.int64)}) for side in (query, gallery)]
    for measure in (ByCamera().measure, ByCamera(no_relevant="zero").measure):
        with pytest.raises(EmptyOverlapError, match="from the query's own camera") as refusal:
            measure(*one, ["map"])
        assert "class names" not in str(refusal.value) and "camera" in refusal.value.to_do
