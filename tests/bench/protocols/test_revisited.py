from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.errors import ConfigError, DataError, EmptyOverlapError
from limpet_bench.datasets.revisited import RevisitedTruth
from limpet_bench.protocols.landmarks import Revisited

Golden = Callable[[str], dict[str, NDArray[Any]]]
Make = Callable[..., Any]


def truth_of(reference: dict[str, NDArray[Any]]) -> RevisitedTruth:
    images, queries = reference["ranks"].shape
    return RevisitedTruth(
        gallery_names=tuple(f"all_souls_{image:06d}" for image in range(images)),
        query_names=tuple(f"q{query}" for query in range(queries)),
        boxes=np.tile([0.0, 0, 9, 9], (queries, 1)),
        **{kind: tuple(row[row >= 0] for row in reference[kind]) for kind in ("easy", "hard", "junk")},
    )


def scores_of(reference: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    ranks = reference["ranks"].T
    scores = np.empty(ranks.shape, np.float32)
    np.put_along_axis(scores, ranks, np.arange(ranks.shape[1], 0, -1, dtype=np.float32)[None], axis=1)
    return scores


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard"])
def test_golden(golden: Golden, make_rankings: Make, difficulty: Any) -> None:
    reference = golden("roxford_rparis")
    truth = truth_of(reference)
    query, gallery = make_rankings(scores_of(reference), ids=truth.gallery_names)
    places = [f"mp@{k}" for k in (1, 4, 9)]
    found = Revisited(truth=truth, difficulty=difficulty).measure(query, gallery, ["map-trapezoid", *places])
    np.testing.assert_allclose(found["map-trapezoid"], reference[f"aps_{difficulty}"], rtol=1e-7)
    np.testing.assert_allclose(np.nanmean(found["map-trapezoid"]), reference[f"map_{difficulty}"], rtol=1e-7)
    np.testing.assert_allclose(np.stack([found[k] for k in places], 1), reference[f"prs_{difficulty}"], rtol=1e-7)
    np.testing.assert_allclose([np.nanmean(found[k]) for k in places], reference[f"mpk_{difficulty}"], rtol=1e-7)


def test_medium_is_the_number_of_the_papers(golden: Golden, make_rankings: Make) -> None:
    reference = golden("roxford_rparis")
    truth = truth_of(reference)
    query, gallery = make_rankings(scores_of(reference), ids=truth.gallery_names)
    found = Revisited(truth=truth).measure(query, gallery, [Revisited.gate_metric])
    np.testing.assert_allclose(np.nanmean(found[Revisited.gate_metric]), reference["main"], rtol=1e-7)


def test_order_folders_and_far_distractors_change_nothing_near_ones_do(golden: Golden, make_items: Make) -> None:
    reference = golden("roxford_rparis")
    truth, scores = truth_of(reference), scores_of(reference)
    order = np.random.default_rng(0).permutation(60)
    ids = [*(f"jpg/{name}.jpg" for name in truth.gallery_names), *(f"distractor{row}" for row in range(5))]
    asked = np.random.default_rng(1).permutation(8)
    names = [*(f"query/{name}.png" for name in truth.query_names), "another"]

    def measured(of_distractors: float) -> NDArray[np.float64]:
        wide = np.hstack([scores, np.full((len(scores), 5), of_distractors)])
        query = make_items(np.vstack([wide, np.ones(60)])[asked], ids=[names[row] for row in asked])
        gallery = make_items(np.eye(60)[order], ids=[ids[row] for row in order])
        found = Revisited(truth=truth).measure(query, gallery, ["map-trapezoid"])["map-trapezoid"]
        assert Revisited(truth=truth).left_out(query, gallery)["queries not asked"] == 1
        return found[np.argsort(asked)]

    far, near = measured(-1), measured(100)
    np.testing.assert_allclose(far[:7], reference["aps_medium"], rtol=1e-7)
    assert np.isnan(far[7])
    assert (near[:7] < far[:7]).all()


def test_queries_without_sought_images_are_counted(golden: Golden, make_rankings: Make) -> None:
    reference = golden("roxford_rparis")
    truth = truth_of(reference)
    sides = make_rankings(scores_of(reference), ids=truth.gallery_names)
    assert Revisited(truth=truth, difficulty="easy").left_out(*sides) == {
        "queries without relevant items": 2,
        "gallery items ignored, over all queries": int((reference["junk"] >= 0).sum() + (reference["hard"] >= 0).sum()),
    }
    zero = Revisited(truth=truth, difficulty="easy", no_relevant="zero").measure(*sides, ["mp@4"])["mp@4"]
    assert zero[[2, 5]].tolist() == [0, 0]


def test_what_does_not_fit_is_named(make_rankings: Make) -> None:
    easy, hard, junk = np.array([0]), np.array([1]), np.array([], np.int64)
    truth = RevisitedTruth(("a", "b"), ("q0",), (easy,), (hard,), (junk,), np.array([[0.0, 0, 9, 9]]))
    query, gallery = make_rankings([[1, 0.5]], ids=["x/a.jpg", "c"])
    with pytest.raises(DataError, match=r"1 of the 2 gallery .* 'b'; the embedded ones are 'x/a.jpg', 'c'"):
        Revisited(truth=truth).measure(query, gallery, ["map"])
    with pytest.raises(EmptyOverlapError, match="1 of the 1 queries"):
        Revisited(truth=truth).measure(query.replace(ids=["other"]), gallery, ["map"])
    with pytest.raises(DataError, match=r"'a' of the ground truth could be any of 2 .* 'x/a.jpg', 'y/a.jpg'"):
        Revisited(truth=truth).measure(query, gallery.replace(ids=["x/a.jpg", "y/a.jpg"]), ["map"])
    with pytest.raises(ConfigError, match=r"Unknown difficulty 'Medium'. Did you mean 'medium'"):
        Revisited(truth=truth, difficulty="Medium")  # type: ignore[arg-type]


def test_the_official_file_is_read(make_rankings: Make, tmp_path: Path) -> None:
    queries = [{"easy": [1], "hard": [0], "junk": [2], "bbx": [0, 0, 5, 5]}]
    content = {"imlist": ["a", "b", "c"], "qimlist": ["q0"], "gnd": queries}
    (tmp_path / "gnd_roxford5k.json").write_text(json.dumps(content))
    sides = make_rankings([[1, 3, 5]], ids=["a", "b", "c"])
    for path in (tmp_path, tmp_path / "gnd_roxford5k.json"):
        hard = Revisited.opened(path, difficulty="hard")
        assert hard.record() == {
            "name": "revisited",
            "leave_one_out": False,
            "no_relevant": "exclude",
            "difficulty": "hard",
        }
        assert hard.measure(*sides, ["map"])["map"].tolist() == [1.0]
    with pytest.raises(ConfigError, match=r"needs a ground truth[\s\S]*gnd_roxford5k.json"):
        Revisited.opened(None)
