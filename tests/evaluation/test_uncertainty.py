from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.uncertainty import gallery_uncertainty, histogram, seen_items, uncertainty_of

LABELS = [0, 0, 1, 1, 2]
OLD = [0.25, 0.375, 0.25, 0.5, 0.75]


@pytest.fixture
def gallery(make_embeddings: Callable[..., EmbeddingSet]) -> Callable[..., EmbeddingSet]:
    """Five items of classes c0, c1 and c2 with these uncertainties, or without any."""

    def build(name: str, values: Any = None) -> EmbeddingSet:
        columns = {} if values is None else {"uncertainty": np.asarray(values, np.float32)}
        vectors = np.eye(3)[LABELS] + 0.01
        return make_embeddings(vectors, LABELS, fingerprint=f"declared:{name}", form="points", columns=columns)

    return build


def test_worked_histogram(gallery: Callable[..., EmbeddingSet]) -> None:
    """0.25 to 0.75 in bins of 0.02 from 0.24 on; the seen class c0 has 0.25 in the first and 0.375 in [0.36, 0.38)."""
    found = gallery_uncertainty(gallery("old", OLD), gallery("new"), ["c0", "elsewhere"])
    assert found is not None and found.new is None
    old = found.old
    np.testing.assert_allclose(old.edges, np.arange(12, 39) / 50)
    seen, unseen = old.groups["seen"], old.groups["unseen"]
    assert (seen.items, unseen.items) == (2, 3)
    assert seen.mean == pytest.approx(0.3125)
    assert unseen.mean == pytest.approx(0.5)
    assert np.flatnonzero(seen.counts).tolist() == [0, 6]
    assert np.flatnonzero(unseen.counts).tolist() == [0, 13, 25]
    assert (sum(seen.counts), sum(unseen.counts)) == (2, 3)


@pytest.mark.parametrize("old_classes", [None, []])
def test_one_group_where_nobody_knows_what_was_seen(gallery: Callable[..., EmbeddingSet], old_classes: Any) -> None:
    found = gallery_uncertainty(gallery("old", OLD), gallery("new", OLD), old_classes)
    assert found is not None
    assert found.old == found.new
    assert list(found.old.groups) == ["all"]
    assert found.old.groups["all"].mean == pytest.approx(np.mean(OLD))


def test_a_group_without_items_is_left_out(gallery: Callable[..., EmbeddingSet]) -> None:
    for old_classes, group in ((["c0", "c1", "c2"], "seen"), (["another"], "unseen")):
        found = gallery_uncertainty(gallery("old", OLD), gallery("new"), old_classes)
        assert found is not None
        assert list(found.old.groups) == [group]


def test_classes_are_told_by_name(gallery: Callable[..., EmbeddingSet]) -> None:
    old = gallery("old", OLD)
    assert seen_items(old, ["c1", "c0"]).tolist() == [True, True, True, True, False]
    turned = old.replace(class_names=["c2", "c1", "c0"])
    assert seen_items(turned, ["c0"]).tolist() == [False, False, False, False, True]
    assert seen_items(old.replace(labels=None, class_names=None), ["c0"]) is None
    assert seen_items(old.replace(class_names=None), ["c0"]) is None


@pytest.mark.parametrize("spread", [0.0, 1e-6, 0.01, 0.1, 0.4, 1.0])
@pytest.mark.parametrize("start", [0.0, 0.2384, 1.0])
def test_bins_cover_every_value_and_no_more(spread: float, start: float) -> None:
    values = np.clip(start + spread * np.random.default_rng(0).uniform(-1, 1, 300), 0, 1)
    found = histogram(values, {"all": np.ones(300, np.bool_)})
    edges, (group,) = found.edges, found.groups.values()
    width = edges[1] - edges[0]
    assert sum(group.counts) == group.items == 300
    assert 0 <= edges[0] <= values.min() and values.max() <= edges[-1] <= 1
    assert edges[0] > values.min() - width - 1e-12 and edges[-1] < values.max() + width + 1e-12
    assert np.allclose(np.diff(edges), width) and len(edges) <= 101
    assert len(edges) > 20 or width == pytest.approx(0.001)


def test_the_same_items_in_another_order_give_the_same_numbers() -> None:
    values, mask = np.random.default_rng(0).random(50), np.arange(50) < 20
    order = np.random.default_rng(1).permutation(50)
    straight, shuffled = (
        histogram(values[rows], {"seen": mask[rows], "unseen": ~mask[rows]}) for rows in (slice(None), order)
    )
    for group in ("seen", "unseen"):
        assert straight.groups[group].counts == shuffled.groups[group].counts


@pytest.mark.parametrize("values", [[0.1, 0.2, -0.1, 0.3, 0.4], [0.1, 0.2, 1.1, 0.3, 0.4], [np.nan] * 5])
def test_what_is_no_uncertainty_is_refused(gallery: Callable[..., EmbeddingSet], values: Any) -> None:
    with pytest.raises(DataError, match="'uncertainty' of declared:old"):
        uncertainty_of(gallery("old", values))
    with pytest.raises(DataError, match=r"shape \(5, 2\)"):
        uncertainty_of(gallery("old", np.full((5, 2), 0.5)))


def test_an_evaluation_holds_it_for_matched_items(gallery: Callable[..., EmbeddingSet]) -> None:
    old, new = gallery("old", OLD), gallery("new", [0.1, 0.2, 0.3, 0.4, 0.5])
    shuffled = new[[4, 2, 0, 1, 3]]
    found = evaluate(old, shuffled, resamples=50, curve=False, old_classes=["c0"])
    assert found.uncertainty is not None and found.uncertainty == gallery_uncertainty(old, new, ["c0"])
    assert found.uncertainty.new is not None
    assert found.uncertainty.new.groups["seen"].mean == pytest.approx(0.15)
    assert gallery_uncertainty(old, new.replace(class_names=None), ["c0"]) == found.uncertainty
    bare = [side.replace(labels=None, class_names=None) for side in (old, new)]
    unlabelled = evaluate(bare[0], bare[1], resamples=50, old_classes=["c0"])
    assert unlabelled.verdict == "unlabelled"
    assert list(unlabelled.uncertainty.old.groups) == ["all"]


def test_without_the_column_there_is_nothing(gallery: Callable[..., EmbeddingSet]) -> None:
    old, new = gallery("old"), gallery("new")
    assert uncertainty_of(old) is None
    assert gallery_uncertainty(old, new, ["c0"]) is None
    found = evaluate(old, new, resamples=50, curve=False, old_classes=["c0"])
    assert found.uncertainty is None
