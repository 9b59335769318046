from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.errors import ConfigError, DataError
from limpet_bench.datasets.landmarks import LandmarksTruth
from limpet_bench.protocols.landmarks import Landmarks

Golden = Callable[[str], dict[str, NDArray[Any]]]
Make = Callable[..., Any]


def test_golden(golden: Golden, make_rankings: Make) -> None:
    reference = golden("gldv2_map_at_k")
    ranked, k = reference["ranked"], int(reference["k"])
    images = 1 + max(ranked.max(), reference["gts"].max())
    scores = np.zeros((len(ranked), images))
    np.put_along_axis(scores, ranked, np.arange(ranked.shape[1], 0, -1.0)[None], axis=1)
    names = [f"{image:016x}" for image in range(images)]
    relevant = tuple(tuple(names[image] for image in np.unique(row[row >= 0])) for row in reference["gts"])
    query, gallery = make_rankings(scores, ids=names)
    truth = LandmarksTruth(tuple(f"q{row}" for row in range(len(scores))), relevant)
    found = Landmarks(truth=truth).measure(query, gallery, [f"map@{k}"])[f"map@{k}"]
    np.testing.assert_allclose(found.mean(), reference["map"], atol=1e-7)


def test_a_named_query_without_answers_is_zero_and_others_are_not_asked(make_rankings: Make) -> None:
    query, gallery = make_rankings([[3, 2, 1], [3, 2, 1], [3, 2, 1]], ids=["a", "b", "c"])
    truth = LandmarksTruth(("q2", "q0"), ((), ("b", "c")))
    protocol = Landmarks(truth=truth)
    found = protocol.measure(query, gallery, ["map@100", "map@1"])
    np.testing.assert_allclose(found["map@100"], [(1 / 2 + 2 / 3) / 2, np.nan, 0])
    np.testing.assert_allclose(found["map@1"], [0, np.nan, 0])
    assert protocol.left_out(query, gallery) == {
        "queries not asked": 1,
        "queries without relevant items": 1,
        "gallery items ignored, over all queries": 0,
    }
    excluding = Landmarks(truth=truth, no_relevant="exclude").measure(query, gallery, ["map@100"])["map@100"]
    assert np.isnan(excluding).tolist() == [False, True, True]


def test_labels_answer_where_there_is_no_solution(make_items: Make) -> None:
    query, gallery = make_items([[1, 0], [1, 0]], [0, 9], prefix="q"), make_items([[1, 0], [1, 1]], [1, 0])
    protocol = Landmarks.opened(None)
    assert protocol.measure(query, gallery, ["map@100"])["map@100"].tolist() == [0.5, 0]
    assert protocol.record() == {
        "name": "gldv2",
        "leave_one_out": False,
        "no_relevant": "zero",
        "usage": "both",
    }
    assert Landmarks.opened(None, no_relevant="exclude").no_relevant == "exclude"
    with pytest.raises(DataError, match="Neither labels of the gallery nor a solution"):
        protocol.measure(query, gallery.replace(labels=None), ["map@100"])


def test_images_that_are_not_there_are_named(make_rankings: Make) -> None:
    query, gallery = make_rankings([[3, 2]], ids=["a", "b"])
    with pytest.raises(DataError, match=r"1 of the 2 gallery .*'z'"):
        Landmarks(truth=LandmarksTruth(("q0",), (("a", "z"),))).measure(query, gallery, ["map@100"])
    with pytest.raises(DataError, match=r"1 of the 2 queries .*'q7'"):
        Landmarks(truth=LandmarksTruth(("q0", "q7"), (("a",), ("b",)))).measure(query, gallery, ["map@100"])
    with pytest.raises(ConfigError, match="Unknown metric 'map@k'"):
        Landmarks.opened(None).measure(query, gallery, ["map@k"])


def test_the_official_file_is_read(make_rankings: Make, tmp_path: Path) -> None:
    path = tmp_path / "retrieval_solution_v2.1.csv"
    path.write_text("id,images,Usage\nq0,b,Public\nq1,None,Ignored\nq2,a c,Private\n")
    sides = make_rankings([[3, 2, 1]] * 3, ids=["a", "b", "c"])
    for usage, expected in (("both", [1 / 2, np.nan, 5 / 6]), ("Public", [1 / 2, np.nan, np.nan])):
        protocol = Landmarks.opened(path, usage=usage)
        np.testing.assert_allclose(protocol.measure(*sides, ["map@100"])["map@100"], expected)
        assert protocol.record()["usage"] == usage
