from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from limpet.adapters import build_adapter
from limpet.errors import ConfigError, DataError
from limpet.evaluation.intervals import mean_interval
from limpet.evaluation.retrieval import rank_metrics
from limpet.linking.compare import Candidate, FittedLink, identity, learning_curve

QUICK = {"resamples": 200}


def blurred(held_out, noise_of, seen=None, seed=4) -> Candidate:
    """A link whose queries are the old model's, blurred by an amount that the number of pairs decides."""

    def fit(old, new, _=None):
        if seen is not None:
            seen.append(old)
        noise = noise_of(len(old)) * np.random.default_rng(seed).normal(size=held_out.old.vectors.shape)
        return FittedLink(
            lambda _: held_out.old.replace(vectors=held_out.old.vectors + noise.astype(np.float32)), identity
        )

    return Candidate("blurred", "adapter", fit)


def test_every_point_is_a_fit_on_so_many_pairs(labelled, adapter) -> None:
    curve = learning_curve(adapter("ridge"), labelled, seed=3, **QUICK)
    pairs = len(labelled.fit_old)
    assert curve.candidate == "ridge" and [point.pairs for point in curve.points] == [64, 128, 256, pairs]
    rows = np.random.default_rng(3).permutation(pairs)[:128]
    link = build_adapter("ridge", {}).fit(labelled.fit_old[rows], labelled.fit_new[rows])
    cross = rank_metrics(link.apply(labelled.new), labelled.old, ("map",), exclude_same_id=True)["map"]
    assert curve.points[1].cross.mean == cross.mean()
    np.testing.assert_allclose(
        curve.points[1].cross.interval, mean_interval(cross, seed=3, clusters=labelled.old.labels, **QUICK)
    )
    assert curve.points[0].cross.mean < curve.points[-1].cross.mean


def test_subsets_are_random_and_lie_within_each_other(labelled) -> None:
    seen = []
    learning_curve(blurred(labelled, lambda size: 0, seen), labelled, sizes=[100, 9, 30, 9999], **QUICK)
    ids = [set(old.ids) for old in seen]
    assert [len(found) for found in ids] == [9, 30, 100, len(labelled.fit_old)]
    assert ids[0] < ids[1] < ids[2] < ids[3] == set(labelled.fit_old.ids)
    assert ids[0] != set(labelled.fit_old.ids[:9])


@pytest.mark.parametrize(("noise", "expected"), [
    ({}, 64), ({64: 1}, 128), ({64: 1, 128: 1}, 256), ({64: 1, 128: 1, 256: 1}, None), ({128: 1}, 256),
])  # fmt: skip
def test_enough_is_the_size_from_which_on_none_is_worse(labelled, noise, expected) -> None:
    curve = learning_curve(blurred(labelled, lambda size: noise.get(size, 0)), labelled, **QUICK)
    assert curve.enough == expected


@pytest.mark.parametrize(("noise", "seed", "sure", "large"), [
    (0.015, 2, True, False), (0.2, 4, False, True), (0.4, 3, True, True),
])  # fmt: skip
def test_a_loss_counts_if_it_is_sure_and_half_a_point(labelled, noise, seed, sure, large) -> None:
    clean = rank_metrics(labelled.old, labelled.old, ("map",), exclude_same_id=True)["map"]
    link = blurred(labelled, lambda size: noise, seed=seed).fit(labelled.old, labelled.new)
    loss = clean - rank_metrics(link.query(labelled.new), labelled.old, ("map",), exclude_same_id=True)["map"]
    classes = labelled.old.labels
    assert (mean_interval(loss, clusters=classes, **QUICK)[0] > 0, loss.mean() >= 0.005) == (sure, large)
    candidate = blurred(labelled, lambda size: noise * (size == 64), seed=seed)
    assert learning_curve(candidate, labelled, sizes=[64], **QUICK).enough == (None if sure and large else 64)


def test_a_large_loss_counts_although_few_queries_leave_it_open(labelled) -> None:
    """Of three classes, intervals are wide: nothing is sure, and ten points less are not enough all the same."""
    few = np.isin(labelled.old.labels, np.unique(labelled.old.labels)[:3])
    held_out = replace(labelled, old=labelled.old[few], new=labelled.new[few])
    candidate = blurred(held_out, lambda size: 3.0 * (size == 64), seed=0)
    curve = learning_curve(candidate, held_out, sizes=[64], **QUICK)
    assert curve.points[1].cross.mean - curve.points[0].cross.mean > 0.02 and curve.enough is None


def test_sizes_that_cannot_be_fitted_are_left_out(labelled) -> None:
    pairs = len(labelled.fit_old)

    def refusing(fewest, most):
        def fit(old, new, _=None):
            if not fewest <= len(old) <= most:
                raise DataError("No.")
            return FittedLink(lambda _: labelled.old, identity)

        return Candidate("refusing", "adapter", fit)

    curve = learning_curve(refusing(100, pairs), labelled, **QUICK)
    assert [point.pairs for point in curve.points] == [128, 256, pairs] and curve.enough == 128
    curve = learning_curve(refusing(0, 200), labelled, **QUICK)
    assert [point.pairs for point in curve.points] == [64, 128] and curve.enough is None
    assert learning_curve(refusing(1, 0), labelled, **QUICK).points == []


def test_without_labels_and_wrong_options(unlabelled, adapter) -> None:
    curve = learning_curve(adapter("procrustes"), unlabelled, sizes=[], **QUICK)
    assert len(curve.points) == 1 and 0 < curve.points[0].cross.mean < 1 and curve.enough is None
    with pytest.raises(ConfigError, match="0 pairs"):
        learning_curve(adapter("procrustes"), unlabelled, sizes=[0, 5])
    with pytest.raises(DataError, match="without labels"):
        learning_curve(adapter("procrustes"), unlabelled, metric="map")
