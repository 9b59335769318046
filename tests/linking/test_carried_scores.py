from __future__ import annotations

import json

import numpy as np
import pytest

from limpet.adapters import build_adapter
from limpet.adapters.score_map import load_score_map, save_score_map
from limpet.errors import DataError
from limpet.linking.adapt import score_map_of
from limpet.linking.compare import FittedLink, identity
from limpet.linking.held_out import hold_out


@pytest.fixture(scope="module")
def through_ridge(labelled):
    adapter = build_adapter("ridge", {}).fit(labelled.fit_old, labelled.fit_new)
    return score_map_of(FittedLink.of_adapter(adapter), labelled)


@pytest.fixture(scope="module")
def same(two_models):
    """One model under two names: its scores stay as they are."""
    old, _ = two_models(400)
    return hold_out(old, old.replace(fingerprint="declared:other"))


def test_a_link_that_leaves_scores_as_they_are(same) -> None:
    found = score_map_of(FittedLink(identity, identity), same)
    np.testing.assert_allclose(found.score_map.values, found.score_map.knots, atol=1e-7)
    assert found.error.mean_absolute_error < 1e-4, "but for scores beyond those of the other fifths"
    row = found.thresholds.at(0.5)
    assert row.new == pytest.approx(0.5, abs=5e-3) and row.precision == pytest.approx(row.precision_before, abs=5e-3)


def test_lengths_do_not_count(same) -> None:
    lengths = np.linspace(0.1, 9, len(same.old), dtype=np.float32)[:, None]

    def longer(embeddings):
        return embeddings.replace(vectors=embeddings.vectors * lengths[: len(embeddings)])

    expected = score_map_of(FittedLink(identity, identity), same)
    for form in ("points", "features"):
        found = score_map_of(
            FittedLink(
                lambda query, form=form: longer(query).replace(form=form),
                lambda old, form=form: longer(old).replace(form=form),
            ),
            same,
        )
        np.testing.assert_allclose(found.score_map.knots, expected.score_map.knots)
        np.testing.assert_allclose(found.new_scores, expected.new_scores, atol=1e-6)


def test_both_systems_score_the_same_pairs(labelled, through_ridge) -> None:
    adapter = build_adapter("ridge", {}).fit(labelled.fit_old, labelled.fit_new)
    old = labelled.old.vectors.astype(np.float64)
    before, after = old @ old.T, adapter.apply(labelled.new).vectors.astype(np.float64) @ old.T
    per_query = len(through_ridge.queries) // len(old)
    assert per_query == 40 and through_ridge.error.pairs == 40 * len(old)
    for query in range(len(old)):
        scored = through_ridge.queries == query
        np.fill_diagonal(before, -np.inf)
        nearest = np.sort(before[query])[::-1][:20]
        np.testing.assert_allclose(through_ridge.old_scores[scored][:20], nearest, atol=1e-6)
        for one, other in zip(through_ridge.old_scores[scored], through_ridge.new_scores[scored], strict=True):
            item = np.argmin(np.abs(before[query] - one))
            assert item != query and other == pytest.approx(after[query, item], abs=1e-5)


def test_the_error_is_that_of_queries_left_out(through_ridge) -> None:
    found = through_ridge
    again = found.score_map.error_of(found.old_scores, found.new_scores, queries=found.queries)
    assert found.error == again and 0 < again.mean_absolute_error < 0.5


def test_thresholds_are_of_all_pairs_and_their_labels(labelled, through_ridge) -> None:
    found, old = through_ridge.thresholds, labelled.old.vectors.astype(np.float64)
    scores = old @ old.T
    np.fill_diagonal(scores, -np.inf)  # an item does not ask for itself
    assert (found.kept, found.queries, found.pairs) == ("precision", len(old), len(old) * (len(old) - 1))
    row = found.rows[30]
    passing, right = scores >= row.old, labelled.old.labels[:, None] == labelled.old.labels
    assert row.passing_before == pytest.approx(passing.sum(axis=1).mean(), rel=1e-3)
    assert row.precision_before == pytest.approx(right[passing].mean(), abs=1e-3)


def test_seeds_decide_the_pairs(labelled) -> None:
    link = FittedLink(lambda new: labelled.old, identity)
    first, again, other = (score_map_of(link, labelled, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.old_scores, again.old_scores)
    assert not np.array_equal(first.old_scores, other.old_scores)


def test_scores_that_say_nothing_have_no_map(labelled) -> None:
    turned = labelled.old.replace(vectors=-labelled.old.vectors)
    assert score_map_of(FittedLink(lambda new: turned[labelled.old.ids.find(new.ids)], identity), labelled) is None
    vectors = np.ones_like(labelled.old.vectors)
    alike = hold_out(labelled.old.replace(vectors=vectors), labelled.new)
    assert score_map_of(FittedLink(lambda new: alike.old, identity), alike) is None


def test_a_few_items_are_all_scored(labelled) -> None:
    few = hold_out(labelled.old[:90], labelled.new[:90])
    found = score_map_of(FittedLink(lambda new: few.old[few.old.ids.find(new.ids)], identity), few)
    items = len(few.old)
    assert found.error.pairs == items * min(items - 1, 20 + min(20, items - 21))


def test_a_saved_map_is_the_same_map(through_ridge, tmp_path) -> None:
    whose = {"candidate": "ridge", "old": "declared:a", "new": "declared:b"}
    path = save_score_map(through_ridge.score_map, through_ridge.error, tmp_path / "new" / "score_map.json", **whose)
    written = json.loads(path.read_text(encoding="utf-8"))
    assert {name: written[name] for name in whose} == whose
    found = load_score_map(path)
    asked = np.linspace(-1, 1, 50)
    np.testing.assert_array_equal(found.apply(asked).values, through_ridge.score_map.apply(asked).values)
    assert found.direction == "old_to_new" and [file.name for file in path.parent.iterdir()] == ["score_map.json"]
    content = json.loads(path.read_text())
    assert content["mean_absolute_error"] == through_ridge.error.mean_absolute_error


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"format_version": 2}, "format version 2, and 1 is known"),
        ({"knots": None}, "Knots and values of shapes"),
        ({"knots": [0.5, 0.1]}, "out of order"),
        ({"values": [0.1, "x"]}, "could not convert"),
        ({"direction": "sideways"}, "direction='sideways'"),
        ({"values": [0.1, float("nan")]}, "NaN is no number"),
    ],
)
def test_a_damaged_map_is_refused(tmp_path, damage, reason) -> None:
    content = {"format_version": 1, "direction": "old_to_new", "knots": [0.1, 0.5], "values": [0.2, 0.3]}
    path = tmp_path / "score_map.json"
    path.write_text(json.dumps(content))
    assert load_score_map(path).apply(0.1).values == 0.2
    path.write_text(json.dumps(content | damage))
    with pytest.raises(DataError, match=f"(?s)Cannot read the score map .*{reason}.*fit it again"):
        load_score_map(path)


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b"\xff\xfe", b"3", b'{"format_version": 1}'])
def test_what_is_no_map_is_refused(tmp_path, content) -> None:
    path = tmp_path / "score_map.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match="Cannot read the score map"):
        load_score_map(path)
