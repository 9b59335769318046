from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, DataError, EmptyOverlapError, SpaceMismatchError
from limpet.evaluation.metrics import FAMILIES, METRICS, metrics_named
from limpet.evaluation.ranking.engine import Ranked
from limpet.evaluation.retrieval import rank_metrics, top_k
from limpet.geometry import Hypersphere, Side, Space

ALL = ("recall@1", "cmc@3", "map", "map@r", "map@2", "map@5")
Golden = Callable[[str], dict[str, NDArray[Any]]]


def embeddings(
    vectors: NDArray[Any], labels: Any = None, *, prefix: str = "item", names: Any = None, **values: Any
) -> EmbeddingSet:
    vectors = np.asarray(vectors, np.float32)
    settings = {"space": Hypersphere(vectors.shape[1]), "fingerprint": "declared:test"} | values
    return EmbeddingSet(
        ids=StringArray.of(f"{prefix}{row}" for row in range(len(vectors))),
        vectors=vectors,
        labels=None if labels is None else np.asarray(labels, np.int64),
        class_names=names,
        **settings,
    )


def slow_metrics(order: list[int], relevant: set[int]) -> dict[str, float]:
    """The definitions over a whole ranking, one place after another."""
    total = len(relevant)
    if total == 0:
        return dict.fromkeys(ALL, np.nan)
    hits = [item in relevant for item in order]
    precision = [sum(hits[: i + 1]) / (i + 1) for i in range(len(hits))]

    def upto(k: int) -> float:
        return sum(p for p, hit in zip(precision[:k], hits[:k], strict=True) if hit)

    return {
        "recall@1": float(any(hits[:1])),
        "cmc@3": float(any(hits[:3])),
        "map": upto(len(hits)) / total,
        "map@r": upto(total) / total,
        "map@2": upto(2) / min(total, 2),
        "map@5": upto(5) / min(total, 5),
    }


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 25), st.booleans())
def test_every_metric_follows_its_definition(seed: int, size: int, same_items: bool) -> None:
    rng = np.random.default_rng(seed)
    gallery = embeddings(rng.normal(size=(size, 4)), rng.integers(0, 4, size))
    query = gallery if same_items else embeddings(rng.normal(size=(6, 4)), rng.integers(0, 4, 6), prefix="q")
    try:
        found = rank_metrics(query, gallery, ALL, exclude_same_id=True)
    except EmptyOverlapError:
        found = {name: np.full(len(query), np.nan) for name in ALL}
    similarity = query.space.index_form(query.vectors, "query") @ gallery.space.index_form(gallery.vectors, "gallery").T
    for i in range(len(query)):
        order = [j for j in np.argsort(-similarity[i], kind="stable").tolist() if query.ids[i] != gallery.ids[j]]
        expected = slow_metrics(order, {j for j in order if gallery.labels[j] == query.labels[i]})
        for name in ALL:
            np.testing.assert_allclose(found[name][i], expected[name], rtol=1e-12, err_msg=name)


def test_golden_leave_one_out(golden: Golden) -> None:
    reference = golden("cmc_map_leave_one_out")
    names = [f"cmc@{k}" for k in range(1, 9)]
    query, gallery = (embeddings(reference[side], reference["labels"]) for side in ("q", "g"))
    found = rank_metrics(query, gallery, [*names, "map", "map@r"], exclude_same_id=True)
    np.testing.assert_allclose([np.nanmean(found[name]) for name in names], reference["cmc"], atol=1e-7)
    np.testing.assert_allclose(np.nanmean(found["map"]), reference["map"], atol=1e-7)
    np.testing.assert_allclose(np.nanmean(found["map@r"]), reference["map_at_r"], atol=1e-7)


def test_golden_landmarks_rule(golden: Golden) -> None:
    reference = golden("gldv2_map_at_k")
    ranked, k = reference["ranked"], int(reference["k"])
    items = 1 + max(ranked.max(), reference["gts"].max())
    scores = np.zeros((len(ranked), items), np.float32)  # against unit vectors as gallery, scores are the query itself
    for row, order in zip(scores, ranked, strict=True):
        row[order] = np.arange(len(order), 0, -1)
    relevant = [np.unique(row[row >= 0]) for row in reference["gts"]]
    query, gallery = embeddings(scores, prefix="q"), embeddings(np.eye(items))
    found = rank_metrics(query, gallery, [f"map@{k}"], relevant=relevant, no_relevant="zero")
    np.testing.assert_allclose(found[f"map@{k}"].mean(), reference["map"], atol=1e-7)


@pytest.mark.parametrize("junk", [False, True])
def test_golden_market_protocol_through_ignored_rows(golden: Golden, junk: bool) -> None:
    reference = golden("market1501")
    distances, query_ids, suffix = reference["distmat"], reference["q_ids"], "_junk" if junk else ""
    gallery_ids = reference["g_ids" + suffix]
    gallery = embeddings(np.eye(distances.shape[1]))
    query = embeddings(distances.max() + 1 - distances, prefix="q")
    relevant = [np.flatnonzero(gallery_ids == person) for person in query_ids]
    ignore = [
        np.flatnonzero((gallery_ids == -1) | ((gallery_ids == person) & (reference["g_cams"] == camera)))
        for person, camera in zip(query_ids, reference["q_cams"], strict=True)
    ]
    names = [f"cmc@{k}" for k in range(1, 16)]
    found = rank_metrics(query, gallery, [*names, "map"], relevant=relevant, ignore=ignore)
    np.testing.assert_allclose([np.nanmean(found[name]) for name in names], reference["cmc" + suffix], atol=1e-6)
    np.testing.assert_allclose(np.nanmean(found["map"]), reference["map" + suffix], atol=1e-6)
    assert np.isnan(found["map"]).any()


def test_full_map_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    query = embeddings(rng.normal(size=(8, 5)), np.arange(8) % 3, prefix="q")
    gallery = embeddings(rng.normal(size=(90, 5)), rng.integers(0, 3, 90))
    found = rank_metrics(query, gallery, ("map",))["map"]
    similarity = query.space.index_form(query.vectors, "query") @ gallery.space.index_form(gallery.vectors, "gallery").T
    expected = [average_precision_score(gallery.labels == query.labels[i], similarity[i]) for i in range(8)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_adding_a_far_irrelevant_item_changes_nothing_a_near_one_does() -> None:
    rng = np.random.default_rng(1)
    vectors = np.abs(rng.normal(size=(20, 4)))
    labels = rng.integers(0, 3, 20)
    query = embeddings(np.abs(rng.normal(size=(4, 4))), [0, 1, 2, 0], prefix="q")
    before = rank_metrics(query, embeddings(vectors, labels), ALL)
    far = rank_metrics(query, embeddings(np.vstack([vectors, -np.ones(4)]), np.append(labels, 9)), ALL)
    near = rank_metrics(query, embeddings(np.vstack([vectors, query.vectors[0]]), np.append(labels, 9)), ALL)
    for name in ALL:
        np.testing.assert_array_equal(before[name], far[name])
    assert near["map"][0] < before["map"][0]
    assert near["recall@1"][0] == 0


def test_leave_one_out_matches_ids_never_positions() -> None:
    rng = np.random.default_rng(2)
    items = embeddings(rng.normal(size=(30, 4)), rng.integers(0, 5, 30))
    order = rng.permutation(30)
    straight = rank_metrics(items, items, ("map",), exclude_same_id=True)["map"]
    shuffled = rank_metrics(items[order], items, ("map",), exclude_same_id=True)["map"]
    np.testing.assert_array_equal(straight[order], shuffled)
    others = embeddings(items.vectors, items.labels, prefix="other")
    assert np.nanmean(rank_metrics(others, items, ("recall@1",), exclude_same_id=True)["recall@1"]) == 1
    assert np.nanmean(rank_metrics(items, items, ("recall@1",), exclude_same_id=True)["recall@1"]) < 1


def test_classes_are_compared_by_name_where_both_sides_have_names() -> None:
    vectors = np.eye(3) + 0.1
    query = embeddings(vectors, [0, 1, 2], names=["ape", "bee", "cat"], prefix="q")
    gallery = embeddings(vectors, [2, 1, 0], names=["cat", "bee", "ape"])
    assert rank_metrics(query, gallery, ("recall@1",))["recall@1"].tolist() == [1, 1, 1]
    unnamed = gallery.replace(class_names=None)
    assert rank_metrics(query, unnamed, ("recall@1",))["recall@1"].tolist() == [0, 1, 0]
    unknown = embeddings(vectors, [0, 1, 2], names=["dog", "bee", "eel"], prefix="q")
    np.testing.assert_array_equal(rank_metrics(unknown, gallery, ("map",))["map"], [np.nan, 1, np.nan])


def test_queries_without_relevant_items_are_nan_or_zero() -> None:
    query = embeddings(np.eye(2), [0, 7], prefix="q")
    gallery = embeddings(np.eye(2), [0, 1])
    for name in ALL:
        np.testing.assert_array_equal(rank_metrics(query, gallery, (name,))[name], [1, np.nan])
        np.testing.assert_array_equal(rank_metrics(query, gallery, (name,), no_relevant="zero")[name], [1, 0])


def test_ignored_rows_add_to_leave_one_out() -> None:
    vectors = [[1, 0], [1, 0.1], [1, 0.2], [0, 1]]
    items = embeddings(vectors, [0, 1, 0, 1])
    alone = rank_metrics(items, items, ("map",), exclude_same_id=True)["map"]
    ignoring = rank_metrics(items, items, ("map",), exclude_same_id=True, ignore=[[1], [], [], []])["map"]
    assert (alone[0], ignoring[0]) == (0.5, 1.0)
    assert top_k(items, items, 4, exclude_same_id=True, ignore=[[1], [], [], []]).rows[0].tolist() == [2, 3, -1, -1]


@dataclass(frozen=True)
class Line(Space):
    """Negative squared distance on a line: query and gallery have different index forms."""

    points_are = "numbers"
    name: str = "line"
    dim: int = 1
    curvature: float | None = None

    def check(self, points: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.empty(0, np.int64)

    def index_form(self, points: NDArray[np.float32], side: Side) -> NDArray[np.float32]:
        ones = np.ones_like(points)
        return np.hstack([2 * points, -ones]) if side == "query" else np.hstack([points, points**2])

    def project(self, features: Any) -> Any:
        return features / 10

    def similarity(self, x: Any, y: Any, scale: float = 1.0) -> Any:
        return -scale * (x - y.T) ** 2

    def _not_asked_for(self, *values: Any) -> Any:
        raise NotImplementedError

    paired_similarity = distance = paired_distance = summed = centre = _not_asked_for


def test_the_space_decides_what_is_near() -> None:
    query = embeddings([[1.0]], [0], prefix="q", space=Line())
    gallery = embeddings([[30.0], [2.0], [-1.0]], [1, 1, 0], space=Line())
    assert top_k(query, gallery, 3).rows.tolist() == [[1, 2, 0]]
    raw = query.replace(vectors=query.vectors * 20, form="features")  # projects to 2
    assert top_k(raw, gallery, 2).rows.tolist() == [[1, 2]]


def test_raw_features_are_projected_first() -> None:
    rng = np.random.default_rng(5)
    points = embeddings(rng.normal(size=(12, 3)), np.arange(12) % 3)
    features = points.replace(form="features")
    np.testing.assert_array_equal(rank_metrics(features, features)["map"], rank_metrics(points, points)["map"])


def test_top_k_gives_ids() -> None:
    items = embeddings([[1, 0], [1, 1], [0, 1]])
    found = top_k(items, items, 2, exclude_same_id=True)
    assert [found.ids(i) for i in range(3)] == [["item1", "item2"], ["item0", "item2"], ["item1", "item0"]]
    everything = top_k(items, items, 3, exclude_same_id=True)
    assert everything.rows[:, 2].tolist() == [-1, -1, -1]
    assert everything.ids(0) == ["item1", "item2"]
    with pytest.raises(ConfigError, match="k=0"):
        top_k(items, items, 0)


def test_every_metric_lies_between_0_and_1_and_is_1_for_a_perfect_ranking() -> None:
    names = [*METRICS, *(family.replace("@k", "@3") for family in FAMILIES)]
    perfect, worst = Ranked.of([[0, 1]], [9]), Ranked.of([[7, 8]], [9])
    for name, metric in metrics_named(names).items():
        assert metric(perfect).tolist() == [1.0], name
        assert 0 <= metric(worst)[0] < 0.4, name


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("recal@1", "recall@1"), ("mAP", "map"), ("map@0", "map"), ("recall@k", "recall@"), ("x", "")],
)
def test_unknown_metrics_stop_before_any_computing(name: str, suggestion: str) -> None:
    with pytest.raises(ConfigError, match=f"Unknown metric '{name}'.*{suggestion}"):
        rank_metrics(None, None, (name,))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="sequence of names"):
        rank_metrics(None, None, "map")  # type: ignore[arg-type]


def test_unusable_sides_are_refused() -> None:
    items, flat = embeddings(np.eye(3), [0, 1, 1]), embeddings(np.eye(2), [0, 1])
    with pytest.raises(SpaceMismatchError, match=r"dimension 2.*dimension 3"):
        rank_metrics(flat, items)
    with pytest.raises(DataError, match="gallery is empty"):
        rank_metrics(items, items[[]])
    with pytest.raises(DataError, match="query set is empty"):
        rank_metrics(items[[]], items)
    with pytest.raises(DataError, match="gallery has no labels"):
        rank_metrics(items, items.replace(labels=None))
    with pytest.raises(DataError, match="queries have no labels"):
        rank_metrics(items.replace(labels=None), items)
    with pytest.raises(EmptyOverlapError, match="None of the 1 queries"):
        rank_metrics(items[[0]], items, exclude_same_id=True)
    with pytest.raises(ConfigError, match="no_relevant='skip'"):
        rank_metrics(items, items, no_relevant="skip")  # type: ignore[arg-type]
