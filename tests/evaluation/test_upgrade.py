from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, DataError, EmptyOverlapError, SpaceMismatchError
from limpet.evaluation.retrieval import rank_metrics
from limpet.evaluation.upgrade import (
    Curve,
    UpgradeCurves,
    label_margins,
    margin_order,
    mixed_ranks,
    random_order,
    upgrade_curves,
    usual_orders,
)
from limpet.geometry import Hypersphere


def upgrade_curve(*sides: EmbeddingSet, order: np.ndarray, **options: Any) -> Curve:
    return upgrade_curves(*sides, orders={"one": [order]}, **options)["one"]


def items(
    noise: float, seed: int, *, name: str = "m", size: int = 60, prefix: str = "i", classes: int = 6
) -> EmbeddingSet:
    labels = np.arange(size) % classes
    rng = np.random.default_rng(seed)
    vectors = np.eye(8)[labels] + noise * rng.normal(size=(size, 8))
    return EmbeddingSet(
        ids=StringArray.of(f"{prefix}{row}" for row in range(size)),
        vectors=vectors.astype(np.float32),
        fingerprint=f"declared:{name}",
        space=Hypersphere(8),
        labels=labels,
    )


def mixed(old: EmbeddingSet, new: EmbeddingSet, rows: NDArray[Any]) -> EmbeddingSet:
    vectors = old.vectors.copy()
    vectors[rows] = new.vectors[rows]
    return old.replace(vectors=vectors)


@pytest.mark.parametrize("metric", ["map", "recall@1", "map@r"])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_every_share_is_the_metric_on_the_mixed_gallery(metric: str, leave_one_out: bool) -> None:
    old, new = items(0.6, 0), items(0.3, 1)
    query = new if leave_one_out else items(0.3, 2, prefix="q", size=15)
    shares, order = (0.0, 0.1, 0.33, 0.5, 0.9, 1.0), random_order(60, seed=4)
    options = {"metric": metric, "exclude_same_id": leave_one_out}
    curve = upgrade_curve(query, old, new, order=order, shares=shares, block=7, **options)
    for share, value in zip(shares, curve.values, strict=True):
        gallery = mixed(old, new, order[: round(share * 60)])
        expected = rank_metrics(query, gallery, (metric,), exclude_same_id=leave_one_out, block=7)[metric].mean()
        assert value == pytest.approx(expected, rel=1e-12), share


def test_the_ends_are_cross_test_and_self_test_exactly() -> None:
    old, new = items(0.9, 0, size=700), items(0.5, 1, size=700)
    for curve in upgrade_curves(new, old, new, exclude_same_id=True, shares=(0, 0.5, 1)).values():
        assert curve.values[0] == np.nanmean(rank_metrics(new, old, ("map",), exclude_same_id=True)["map"])
        assert curve.values[-1] == np.nanmean(rank_metrics(new, new, ("map",), exclude_same_id=True)["map"])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_mixed_ranks_with_ties_are_those_of_the_mixed_row(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    old, new = rng.integers(0, 6, size=(2, size)).astype(np.float32)
    wanted = np.flatnonzero(rng.random(size) < 0.4)
    changed = rng.integers(0, 5, size=(2, size))  # of 4 shares: 4 never changes
    above, tied = mixed_ranks(old, new, wanted, changed, 4)
    for order in range(2):
        for share in range(4):
            row = np.where(changed[order] <= share, new, old)
            expected = sorted((int((row > row[one]).sum()), int((row == row[one]).sum())) for one in wanted)
            assert list(zip(above[order, share].tolist(), tied[order, share].tolist(), strict=True)) == expected


def test_the_curve_of_a_gallery_that_ties_does_not_hang_on_its_order() -> None:
    old, new = items(0.6, 0), items(0.3, 1)
    signs = [one.replace(vectors=np.sign(one.vectors)) for one in (new, old, new)]
    shuffled = np.random.default_rng(0).permutation(60)
    order = random_order(60, seed=1)
    straight = upgrade_curve(*signs, order=order, exclude_same_id=True)
    turned = upgrade_curve(*(one[shuffled] for one in signs), order=np.argsort(shuffled)[order],
                           exclude_same_id=True)  # fmt: skip
    np.testing.assert_allclose(turned.values, straight.values, rtol=1e-12)
    ends = (np.nanmean(rank_metrics(signs[0], side, ("map",), exclude_same_id=True)["map"]) for side in signs[1:])
    np.testing.assert_allclose(straight.values[[0, -1]], [*ends], rtol=1e-12)


def test_galleries_are_matched_by_id() -> None:
    old, new = items(0.6, 0), items(0.3, 1)
    shuffled = new[np.random.default_rng(0).permutation(60)]
    order = random_order(60, seed=1)
    straight = upgrade_curve(new, old, new, order=order)
    assert upgrade_curve(new, old, shuffled, order=order).values.tolist() == straight.values.tolist()
    with pytest.raises(EmptyOverlapError, match="1 items of the old gallery are not in the new gallery: 'i59'"):
        upgrade_curve(new, old, new[:59], order=order)
    with pytest.raises(EmptyOverlapError, match="1 items of the new gallery are not in the old gallery: 'i59'"):
        upgrade_curve(new, old[:59], new, order=order[:59])


def test_margins_by_hand() -> None:
    # Class means: (1, 0) and (0, 1). The third item lies at 45 degrees between them; its class mean leans to (1, 0).
    vectors = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    old = EmbeddingSet(
        ids=StringArray.of("abcd"),
        vectors=vectors,
        fingerprint="declared:old",
        space=Hypersphere(2),
        labels=np.array([0, 0, 1, 1]),
    )
    np.testing.assert_allclose(label_margins(old), [1, 1, 1, 1], atol=1e-6)
    wrong = old.replace(labels=np.array([0, 0, 1, 0]))
    own = np.array([2, 1]) / np.sqrt(5)  # mean of class 0
    np.testing.assert_allclose(label_margins(wrong), [own[0], own[0], 1 - own[1], own[1] - 1], atol=1e-6)
    assert margin_order(wrong).tolist() == [3, 2, 0, 1]
    assert usual_orders(wrong, [0])["margin_reversed"][0].tolist() == [1, 0, 2, 3]
    features = wrong.replace(vectors=3 * vectors, form="features")
    np.testing.assert_allclose(label_margins(features), label_margins(wrong), atol=1e-6)


def test_a_single_class_keeps_the_order() -> None:
    assert margin_order(items(0.5, 0, classes=1, size=5)).tolist() == [0, 1, 2, 3, 4]


def test_random_orders_are_seeded_permutations() -> None:
    assert random_order(50, 1).tolist() == random_order(50, 1).tolist() != random_order(50, 2).tolist()
    assert sorted(random_order(50, 1).tolist()) == list(range(50))


def test_three_curves_and_their_area() -> None:
    old, new = items(0.8, 0), items(0.2, 1)
    curves = upgrade_curves(new, old, new, shares=(0.0, 0.25, 0.5, 1.0), seeds=(5, 6))
    assert set(curves) == {"random", "margin", "margin_reversed"}
    both = [
        upgrade_curve(new, old, new, order=random_order(60, s), shares=(0.0, 0.25, 0.5, 1.0)).values for s in (5, 6)
    ]
    np.testing.assert_allclose(curves["random"].values, np.mean(both, axis=0), rtol=1e-12)
    values = curves["margin"].values
    by_hand = (
        0.25 * (values[0] + values[1]) / 2 + 0.25 * (values[1] + values[2]) / 2 + 0.5 * (values[2] + values[3]) / 2
    )
    assert curves["margin"].area == pytest.approx(by_hand)
    plain = UpgradeCurves.of(curves)
    assert plain.shares == [0.0, 0.25, 0.5, 1.0]
    assert plain.area["margin"] == curves["margin"].area
    assert plain.values["margin"] == values.tolist()


def test_queries_without_relevant_items_follow_the_rule() -> None:
    old, new = items(0.6, 0), items(0.3, 1)
    query = items(0.3, 2, prefix="q", size=7, classes=7)  # the seventh class is in no gallery
    order = random_order(60, 0)
    excluded = upgrade_curve(query, old, new, order=order, shares=(0, 1))
    zero = upgrade_curve(query, old, new, order=order, shares=(0, 1), no_relevant="zero")
    np.testing.assert_allclose(zero.values, excluded.values * 6 / 7, rtol=1e-12)
    lost = query[[6]]
    with pytest.raises(EmptyOverlapError, match="None of the 1 queries"):
        upgrade_curve(lost, old, new, order=order)


def test_wrong_arguments_are_refused() -> None:
    old, new = items(0.6, 0), items(0.3, 1)
    order = random_order(60, 0)
    for shares in ((), (0.5, 0.5), (0.5, 0.2), (-0.1, 1), (0, 1.1)):
        with pytest.raises(ConfigError, match="Shares"):
            upgrade_curve(new, old, new, order=order, shares=shares)
    for wrong in (order[:-1], np.zeros(60, np.int64), order + 1):
        with pytest.raises(ConfigError, match="order of"):
            upgrade_curve(new, old, new, order=wrong)
    with pytest.raises(ConfigError, match="Unknown metric"):
        upgrade_curve(new, old, new, order=order, metric="mapp")
    with pytest.raises(ConfigError, match="No seed"):
        upgrade_curves(new, old, new, seeds=())
    with pytest.raises(DataError, match="without labels"):
        margin_order(old.replace(labels=None))
    flat = old.replace(vectors=old.vectors[:, :3].copy(), space=Hypersphere(3))
    with pytest.raises(SpaceMismatchError, match=r"dimension 8.*dimension 3"):
        upgrade_curve(new, flat, new, order=order)
