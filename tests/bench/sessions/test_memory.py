from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.errors import ConfigError
from limpet_bench.sessions.memory import herding, quotas, random_exemplars, spread_by_uncertainty, vote_uncertainty

labels_of_some_classes = st.lists(st.integers(0, 6), min_size=1, max_size=60).map(lambda drawn: np.array(drawn))


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# --- reference numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", [np.float64, np.float32])
def test_herding_chooses_in_the_reference_order(golden: Callable[..., dict], precision: type) -> None:
    g = golden("cvs_herding")
    wanted = quotas(g["labels"], int(g["budget"]))
    rows = herding(g["feats"].astype(precision), g["labels"], wanted)
    assert rows.tolist() == np.concatenate([g[f"class{c}_order"] for c in range(len(wanted))]).tolist()


def test_uncertainty_and_what_is_chosen_by_it(golden: Callable[..., dict]) -> None:
    g = golden("rainbow_memory")
    uncertainty = vote_uncertainty(g["logits"].argmax(axis=2))
    np.testing.assert_allclose(uncertainty, g["uncertainty"], rtol=1e-6, atol=1e-6)
    rows = spread_by_uncertainty(uncertainty, g["labels"], quotas(g["labels"], int(g["memory"])))
    expected = g["selected_uncertainty"]
    assert g["labels"][rows].tolist() == np.repeat(np.arange(len(expected)), expected.shape[1]).tolist()
    np.testing.assert_allclose(uncertainty[rows].reshape(expected.shape), expected, rtol=1e-6, atol=1e-6)


# --- herding ---------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(labels=labels_of_some_classes, budget=st.integers(1, 70), seed=st.integers(0, 99))
def test_herding_by_a_slow_loop(labels: np.ndarray, budget: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(len(labels), 4))
    wanted = quotas(labels, budget, fill=True)
    expected = []
    for c, number in enumerate(wanted.tolist()):
        left, picked = np.flatnonzero(labels == c).tolist(), np.zeros(4)
        points = unit(vectors)
        mean = points[left].mean(axis=0) if left else picked
        for k in range(1, number + 1):
            distances = [float(np.linalg.norm(mean - (picked + points[row]) / k)) for row in left]
            best = next(row for row, distance in zip(left, distances, strict=True) if distance <= min(distances) + 1e-6)
            left.remove(best)
            picked = picked + points[best]
            expected.append(best)
    assert herding(vectors, labels, wanted).tolist() == expected


def test_the_first_exemplars_are_those_of_a_smaller_memory() -> None:
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(30, 5)), np.repeat([0, 1, 2], 10)
    large = herding(vectors, labels, np.array([6, 6, 6])).reshape(3, 6)
    small = herding(vectors, labels, np.array([2, 4, 0]))
    assert small.tolist() == [*large[0, :2], *large[1, :4]]


def test_length_does_not_matter_and_the_mean_is_not_normalised_again() -> None:
    rng = np.random.default_rng(1)
    vectors, labels, wanted = rng.normal(size=(40, 3)), np.zeros(40, np.int64), np.array([9])
    rows = herding(vectors, labels, wanted)
    assert rows.tolist() == herding(vectors * rng.uniform(0.1, 9, (40, 1)), labels, wanted).tolist()
    mean = unit(vectors).mean(axis=0)
    errors = [np.linalg.norm(mean - unit(vectors)[rows[:k]].mean(axis=0)) for k in (1, 9)]
    assert np.linalg.norm(mean) < 0.5 and errors[1] < errors[0] / 3


def test_ties_zero_vectors_and_empty_classes() -> None:
    same = np.ones((4, 2), np.float32)
    assert herding(same, np.array([1, 1, 1, 1]), np.array([0, 3])).tolist() == [0, 1, 2]
    assert sorted(herding(np.zeros((3, 2)), np.zeros(3, np.int64), np.array([3])).tolist()) == [0, 1, 2]
    assert herding(same, np.array([1, 1, 1, 1]), np.array([0, 0])).tolist() == []
    two = np.random.default_rng(0).normal(size=(60, 4))
    assert herding(two, np.repeat(np.arange(30), 2), np.ones(30, np.int64)).tolist() == list(range(0, 60, 2))
    assert herding(same, np.array([0, 1, 1, 0]), np.array([9, 1])).tolist() == [0, 3, 1]
    assert herding(same[:0], np.empty(0, np.int64), np.array([2])).tolist() == []


# --- quotas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "budget", "each"),
    [(20, 2_000, 100), (100, 2_000, 20), (60, 2_000, 33), (120, 600, 5), (200, 4_000, 20), (1_343, 3_000, 2)],
)
def test_the_memories_of_the_paper(classes: int, budget: int, each: int) -> None:
    assert quotas(np.repeat(np.arange(classes), 100), budget).tolist() == [each] * classes


def test_product_m_spends_what_is_left_when_asked_to() -> None:
    labels = np.repeat(np.arange(2_743), 5)
    assert set(quotas(labels, 3_000).tolist()) == {1}
    filled = quotas(labels, 3_000, fill=True)
    assert np.bincount(filled).tolist() == [0, 2_743 - 257, 257]
    assert not np.array_equal(filled, quotas(labels, 3_000, fill=True, seed=1))
    assert np.array_equal(filled, quotas(labels, 3_000, fill=True))


def test_more_classes_than_slots_get_one_each_as_far_as_it_goes() -> None:
    labels = np.repeat(np.arange(30), 4)
    kept = quotas(labels, 7)
    assert kept.sum() == 7 and kept.max() == 1
    assert not np.array_equal(kept, quotas(labels, 7, seed=1))


@given(labels=labels_of_some_classes, budget=st.integers(1, 90), seed=st.integers(0, 9))
def test_a_filled_budget_is_spent_evenly(labels: np.ndarray, budget: int, seed: int) -> None:
    available, kept = np.bincount(labels), quotas(labels, budget, fill=True, seed=seed)
    assert kept.sum() == min(budget, len(labels))
    assert (kept <= available).all()
    growing = kept[kept < available]
    if len(growing):
        assert kept.max() - growing.min() <= 1
    plain = quotas(labels, budget)
    assert plain.sum() <= budget
    assert (plain <= kept).all() or budget < (available > 0).sum()


def test_wrong_quotas_are_refused() -> None:
    with pytest.raises(ConfigError, match="budget = 0"):
        quotas(np.array([0]), 0)
    labels = np.array([0, 2])
    for wanted in (np.array([1, 1]), np.array([1, -1, 1])):
        for choose in (
            lambda: herding(np.ones((2, 2)), labels, wanted),  # noqa: B023
            lambda: random_exemplars(labels, wanted, seed=0),  # noqa: B023
            lambda: spread_by_uncertainty(np.ones(2), labels, wanted),  # noqa: B023
        ):
            with pytest.raises(ConfigError, match="labels up to 2"):
                choose()


# --- other choices ---------------------------------------------------------------------------------------------------


def test_random_exemplars_follow_the_quotas_and_the_seed() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [3, 20, 20]))
    rows = random_exemplars(labels, np.array([5, 4, 0]), seed=1)
    assert np.bincount(labels[rows]).tolist() == [3, 4]
    assert (np.diff(rows) > 0).all()
    assert rows.tolist() == random_exemplars(labels, np.array([5, 4, 0]), seed=1).tolist()
    assert len({tuple(random_exemplars(labels, np.array([0, 4, 0]), seed=seed)) for seed in range(5)}) > 1


def test_uncertainty_by_hand() -> None:
    votes = np.array([[7, 7, 7, 7, 7, 7], [1, 2, 3, 4, 5, 6], [2, 1, 2, 1, 1, 0]])
    np.testing.assert_allclose(vote_uncertainty(votes), [0, 5 / 6, 0.5])
    with pytest.raises(ConfigError, match=r"shape \(3, 0\)"):
        vote_uncertainty(votes[:, :0])
    with pytest.raises(ConfigError, match=r"shape \(6,\)"):
        vote_uncertainty(votes[0])


def test_every_third_of_seven_is_taken_for_two() -> None:
    uncertainty, labels = np.array([0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]), np.ones(7, np.int64)
    assert spread_by_uncertainty(uncertainty, labels, np.array([0, 2])).tolist() == [6, 3]
    assert spread_by_uncertainty(uncertainty, labels, np.array([0, 9])).tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert spread_by_uncertainty(np.zeros(7), labels, np.array([0, 3])).tolist() == [0, 2, 4]


@given(labels=labels_of_some_classes, budget=st.integers(1, 90), seed=st.integers(0, 9))
def test_every_choice_keeps_what_the_quotas_say(labels: np.ndarray, budget: int, seed: int) -> None:
    wanted = quotas(labels, budget, fill=True, seed=seed)
    rng = np.random.default_rng(seed)
    for rows in (
        herding(rng.normal(size=(len(labels), 2)), labels, wanted),
        random_exemplars(labels, wanted, seed),
        spread_by_uncertainty(rng.random(len(labels)), labels, wanted),
    ):
        assert len(set(rows.tolist())) == len(rows)
        assert np.bincount(labels[rows], minlength=len(wanted)).tolist() == wanted.tolist()
