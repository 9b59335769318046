"""Counts are those of the papers and of the released lists; images are drawn by our own generator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.errors import ConfigError, DataError
from limpet_bench.sessions.plans import PLANS, Plan, blurry, disjoint, general_incremental


def even(classes: int, images: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(classes), images))


def counts(plan: Plan) -> np.ndarray:
    return plan.training_counts + plan.validation_counts


def sizes(parts: tuple[np.ndarray, ...]) -> list[int]:
    return [len(rows) for rows in parts]


CIFAR, TINY = even(100, 500), even(200, 500)
SMALL = even(12, 9)

SETUPS: dict[str, Callable[..., Plan]] = {
    "disjoint": lambda labels, **values: disjoint(labels, **{"sessions": 3, **values}),
    "blurry all": lambda labels, **values: blurry(labels, **{"sessions": 3, "minor_share": 0.3, **values}),
    "blurry others": lambda labels, **values: blurry(
        labels, **{"sessions": 3, "minor_share": 0.3, "spread": "others", **values}
    ),
    "general": lambda labels, **values: general_incremental(
        labels, **{"first_classes": 4, "new_classes": 3, "old_share": 0.3, "sessions": 3, **values}
    ),
}


# --- published counts ------------------------------------------------------------------------------------------------


def test_cifar_disjoint_uses_every_image() -> None:
    plan = disjoint(CIFAR, sessions=5)
    assert sizes(plan.training) == [9_000] * 5 and sizes(plan.validation) == [1_000] * 5
    assert [len(plan.introduced(session)) for session in range(5)] == [20] * 5
    assert counts(plan).max(axis=1).tolist() == [500] * 100


def test_tiny_imagenet_disjoint() -> None:
    plan = disjoint(TINY, sessions=10, validation=0.05)
    assert sizes(plan.training) == [9_500] * 10 and sizes(plan.validation) == [500] * 10
    assert [len(plan.introduced(session)) for session in range(10)] == [20] * 10


@pytest.mark.parametrize(
    ("spread", "major", "minor"),
    [("all", {460}, {10}), ("others", {450}, {12, 13})],
)
def test_cifar_blurry(spread: Any, major: set[int], minor: set[int]) -> None:
    plan = blurry(CIFAR, sessions=5, minor_share=0.1, spread=spread)
    assert sizes(plan.training) == [9_000] * 5 and sizes(plan.validation) == [1_000] * 5
    assert np.bincount(plan.home).tolist() == [20] * 5
    at_home = plan.home[:, None] == np.arange(5)
    assert set(counts(plan)[at_home].tolist()) == major
    assert set(counts(plan)[~at_home].tolist()) == minor


def test_tiny_imagenet_blurry_keeps_73_per_cent_at_home() -> None:
    plan = blurry(TINY, sessions=10, minor_share=0.3, validation=0.05)
    at_home = plan.home[:, None] == np.arange(10)
    assert set(counts(plan)[at_home].tolist()) == {365}
    assert sizes(plan.training) == [9_500] * 10


def test_cifar_general_has_the_totals_of_the_released_lists() -> None:
    plan = general_incremental(CIFAR, new_images=400)
    assert counts(plan).sum(axis=0).tolist() == [8_000, 8_880, 8_880, 8_840, 8_880]
    assert sizes(plan.training) == [7_200, 7_992, 7_992, 7_956, 7_992]
    assert counts(plan)[plan.introduced(0)].tolist() == [[400, 44, 22, 14, 11]] * 20
    assert counts(plan)[plan.introduced(2)].tolist() == [[0, 0, 400, 14, 11]] * 20
    assert sum(sizes(plan.training)) + sum(sizes(plan.validation)) == 43_480


@pytest.mark.parametrize(
    ("classes", "images", "setup", "first"),
    [
        (200, 500, (20, 20, 0.3, 10), [228, 97, 48, 32, 24, 19, 16, 13, 12, 10]),  # Tiny-ImageNet
        (120, 100, (60, 20, 0.3, 4), [76, 10, 8, 6]),  # Stanford Dog
        (200, 527, (100, 25, 0.3, 5), [399, 42, 34, 28, 24]),  # iNat-M
        (964, 16, (192, 192, 0.4, 5), [7, 4, 2, 1, 1]),  # Omniglot, 16 images a class left for training
    ],
)
def test_first_shares_are_the_largest_that_fit(
    classes: int, images: int, setup: tuple[int, int, float, int], first: list[int]
) -> None:
    plan = general(even(classes, images), setup)
    assert counts(plan)[plan.introduced(0)].tolist() == [first] * setup[0]
    for session in range(setup[3]):
        expected = [0] * session + first[:1] + first[session + 1 :]
        assert counts(plan)[plan.introduced(session)[0]].tolist() == expected


@pytest.mark.parametrize(
    ("classes", "setup", "used"),
    [
        (100, (20, 20, 0.1, 5), 100),  # CIFAR-100
        (200, (20, 20, 0.3, 10), 200),  # Tiny-ImageNet
        (120, (60, 20, 0.3, 4), 120),  # Stanford Dog
        (200, (100, 25, 0.3, 5), 200),  # iNat-M
        (2_743, (1_343, 700, 0.4, 3), 2_743),  # Product-M
        (964, (192, 192, 0.4, 5), 960),  # Omniglot
    ],
)
def test_class_arithmetic(classes: int, setup: tuple[int, int, float, int], used: int) -> None:
    plan = general(even(classes, 20), setup)
    assert [len(plan.introduced(session)) for session in range(setup[3])] == [setup[0]] + [setup[1]] * (setup[3] - 1)
    assert len(plan.classes_seen(setup[3] - 1)) == used
    assert (plan.home < 0).sum() == classes - used
    assert not counts(plan)[plan.home < 0].any()


def test_omniglot_sets_one_image_a_class_aside() -> None:
    plan = general(even(964, 16), (192, 192, 0.4, 5), validation=1)
    assert sizes(plan.validation) == [192] * 5
    assert plan.validation_counts[plan.home >= 0].sum(axis=1).tolist() == [1] * 960
    assert sizes(plan.training) == [192 * 6, 192 * (6 + 4), 192 * (6 + 2 * 2), 192 * (6 + 3), 192 * (6 + 4)]


def test_two_queries_a_class_come_from_its_first_session() -> None:
    labels = np.repeat(np.arange(30), np.random.default_rng(0).integers(20, 60, 30))
    plan = general_incremental(labels, first_classes=14, new_classes=8, old_share=0.4, sessions=3, validation=2)
    np.testing.assert_array_equal(plan.validation_counts, 2 * (plan.home[:, None] == np.arange(3)))


def general(labels: np.ndarray, setup: tuple[int, int, float, int], **values: Any) -> Plan:
    first, new, share, sessions = setup
    return general_incremental(
        labels, first_classes=first, new_classes=new, old_share=share, sessions=sessions, **values
    )


# --- small plans by hand ---------------------------------------------------------------------------------------------


def test_classes_that_do_not_divide_go_to_the_first_sessions() -> None:
    plan = disjoint(even(7, 4), sessions=3, validation=1)
    assert [len(plan.introduced(session)) for session in range(3)] == [3, 2, 2]


def test_a_class_gives_at_least_one_image_while_its_images_last() -> None:
    labels = np.repeat(np.arange(30), [3] * 10 + [40] * 20)
    plan = general_incremental(labels, first_classes=26, new_classes=1, old_share=0.1, sessions=5)
    large, small = (plan.home == 0) & (np.arange(30) >= 10), (plan.home == 0) & (np.arange(30) < 10)
    assert {tuple(row) for row in counts(plan)[large].tolist()} == {(36, 1, 1, 1, 1)}
    assert {tuple(row) for row in counts(plan)[small].tolist()} == {(1, 1, 1, 0, 0)}


def test_stratified_queries_leave_every_class_an_image() -> None:
    labels = np.repeat(np.arange(4), [2, 2, 3, 50])
    plan = disjoint(labels, sessions=2, validation=0.9)
    own = counts(plan) > 0
    assert (plan.training_counts[own] >= 1).all()
    np.testing.assert_array_equal(plan.validation_counts[own], np.minimum(counts(plan)[own] - 1, 45))


def test_what_is_lost_by_cutting_off_is_given_out_at_random() -> None:
    drawn = {tuple(disjoint(even(8, 6), sessions=2, seed=seed).validation_counts.sum(axis=1)) for seed in range(9)}
    assert len(drawn) > 1
    for taken in drawn:
        assert sum(taken) == 4 and max(taken) == 1  # 0.6 of each class, 2.4 of each session
    plans = [disjoint(even(8, 6), sessions=2, seed=seed) for seed in range(9)]
    first = [plan.introduced(0)[plan.validation_counts[plan.introduced(0), 0] > 0].tolist() for plan in plans]
    assert any(taken != plan.introduced(0)[:2].tolist() for taken, plan in zip(first, plans, strict=True))


@pytest.mark.parametrize("name", ["blurry all", "blurry others", "general"])
def test_the_images_of_a_class_are_drawn(name: str) -> None:
    plan = SETUPS[name](np.repeat(np.arange(12), 9), validation=1)
    given = np.sort(np.concatenate([plan.training[0], plan.validation[0]]))
    own = given[plan.home[plan.labels[given]] == 0] % 9
    assert len(np.unique(own)) > counts(plan)[plan.home == 0, 0].max()  # not the same places in every class


# --- what a plan answers ---------------------------------------------------------------------------------------------


def test_classes_and_queries_accumulate() -> None:
    for name in ("disjoint", "general"):
        plan = SETUPS[name](SMALL)
        for session in range(3):
            parts = [plan.introduced(earlier) for earlier in range(session + 1)]
            assert plan.classes_seen(session).tolist() == np.concatenate(parts).tolist()
            np.testing.assert_array_equal(
                plan.queries(session), np.sort(np.concatenate(plan.validation[: session + 1]))
            )
            assert set(SMALL[plan.rows(session)].tolist()) <= set(plan.classes_seen(session).tolist())
            assert not set(parts[session].tolist()) & set(np.concatenate([[], *parts[:session]]).tolist())


def test_a_blurry_plan_knows_everything_from_the_start() -> None:
    plan = SETUPS["blurry all"](SMALL)
    assert [len(plan.introduced(session)) for session in range(3)] == [12, 0, 0]
    assert [len(plan.classes_seen(session)) for session in range(3)] == [12, 12, 12]
    assert [len(plan.queries(session)) for session in range(3)] == [sum(sizes(plan.validation))] * 3


def test_it_remembers_what_was_asked() -> None:
    plan = SETUPS["general"](SMALL, seed=7)
    assert plan.asked == {
        "first_classes": 4, "new_classes": 3, "old_share": 0.3, "sessions": 3,
        "new_images": None, "validation": 0.1, "seed": 7,
    }  # fmt: skip
    again = PLANS["general-incremental"](SMALL, **plan.asked)
    assert [rows.tolist() for rows in again.training] == [rows.tolist() for rows in plan.training]
    assert repr(disjoint(CIFAR)) == "Plan('disjoint': 9000, 9000, 9000, 9000, 9000 images of 100 classes)"


@pytest.mark.parametrize("ask", ["rows", "queries", "introduced", "classes_seen"])
@pytest.mark.parametrize("session", [-1, 3])
def test_a_session_that_does_not_exist_is_refused(ask: str, session: int) -> None:
    for name in ("disjoint", "general"):
        with pytest.raises(ConfigError, match="with 3 sessions"):
            getattr(SETUPS[name](SMALL), ask)(session)


# --- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETUPS)
@settings(deadline=None, max_examples=25)
@given(
    images=st.lists(st.integers(9, 40), min_size=10, max_size=14),
    seed=st.integers(0, 99),
    share=st.floats(0.02, 0.6),
)
def test_sessions_never_share_an_image(name: str, images: list[int], seed: int, share: float) -> None:
    labels = np.repeat(np.arange(len(images)), images)
    plan = SETUPS[name](labels, seed=seed, validation=share)
    everything = np.concatenate([*plan.training, *plan.validation])
    assert len(np.unique(everything)) == len(everything)
    assert all(len(rows) and (np.diff(rows) > 0).all() for rows in plan.training)
    if name != "general":
        assert len(everything) == len(labels)
    for session, (rows, aside) in enumerate(zip(plan.training, plan.validation, strict=True)):
        assert set(labels[aside].tolist()) <= set(labels[rows].tolist())
        total = len(rows) + len(aside)
        most = np.minimum(counts(plan)[:, session] - 1, np.ceil(share * counts(plan)[:, session]))
        assert len(aside) <= max(1, total * share + 0.5 + 1e-6)
        assert (plan.validation_counts[:, session] <= np.maximum(0, most)).all()


@pytest.mark.parametrize("name", SETUPS)
def test_the_seed_decides_everything(name: str) -> None:
    first, again, other = (SETUPS[name](SMALL, seed=seed) for seed in (3, 3, 4))
    for part in ("training", "validation"):
        found, same = (np.concatenate(getattr(plan, part)).tolist() for plan in (first, again))
        assert found == same
    assert np.concatenate(first.training).tolist() != np.concatenate(other.training).tolist()
    assert first.home.tolist() != other.home.tolist()


@pytest.mark.parametrize("name", SETUPS)
def test_another_way_to_validate_leaves_the_sessions_alone(name: str) -> None:
    first, other = SETUPS[name](SMALL, validation=0.1), SETUPS[name](SMALL, validation=0.4)
    for session in range(3):
        assert sum(sizes(first.validation)) < sum(sizes(other.validation))
        both = [sorted([*plan.training[session], *plan.validation[session]]) for plan in (first, other)]
        assert both[0] == both[1]


def test_labels_with_gaps_are_classes_that_occur() -> None:
    labels = np.repeat([3, 7, 100, 101], 4)
    plan = disjoint(labels, sessions=2, validation=1)
    assert sorted(plan.classes_seen(1).tolist()) == [3, 7, 100, 101]
    assert (plan.home >= 0).sum() == 4


@settings(deadline=None, max_examples=40)
@given(
    first=st.integers(1, 9), new=st.integers(1, 9), share=st.sampled_from([0.1, 0.25, 0.3, 0.4, 0.5]),
    images=st.integers(2, 80),
)  # fmt: skip
def test_general_shares_by_a_slow_loop(first: int, new: int, share: float, images: int) -> None:
    labels = even(first + 3 * new, images)

    def later(given: int) -> list[int]:
        parts = [share / (1 - share) * new * given / (first + new * step) for step in range(3)]
        return [max(1, int(part + 1e-9)) for part in parts]

    fitting = max([given for given in range(1, images + 1) if given + sum(later(given)) <= images], default=1)
    if fitting == 1:
        with pytest.raises(ConfigError, match="Session 1 has no validation query"):
            general(labels, (first, new, share, 4))
        return
    plan = general(labels, (first, new, share, 4))
    left, expected = images, []
    for wanted in [fitting, *later(fitting)]:
        expected.append(min(wanted, left))
        left -= expected[-1]
    assert counts(plan)[plan.introduced(0)].tolist() == [expected] * first


# --- impossible plans ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: disjoint(even(4, 5), sessions=5), r"sessions = 5 for 4 classes.*\n.*a class for each"),
        (lambda: disjoint(even(4, 5), sessions=1), "sessions = 1"),
        (lambda: blurry(even(4, 5), sessions=5), "sessions = 5 for 4 classes"),
        (lambda: general_incremental(even(99, 5)), "need 100 classes, the data has 99"),
        (lambda: general_incremental(SMALL, first_classes=0, new_classes=3), "first_classes = 0"),
        (lambda: general_incremental(SMALL, first_classes=3, new_classes=0), "new_classes = 0"),
        (lambda: general_incremental(SMALL, first_classes=3, new_classes=3, sessions=1), "sessions = 1"),
        (lambda: general(SMALL, (3, 3, 0.0, 3)), r"old_share = 0\.0"),
        (lambda: general(SMALL, (3, 3, 1.0, 3)), r"old_share = 1\.0"),
        (lambda: blurry(SMALL, sessions=3, minor_share=0.0), r"minor_share = 0\.0"),
        (lambda: blurry(SMALL, sessions=3, minor_share=1.2), r"minor_share = 1\.2"),
        (lambda: blurry(SMALL, sessions=3, spread="other"), "Did you mean 'others'"),  # type: ignore[arg-type]
        (lambda: blurry(even(3, 2), sessions=3, minor_share=0.9, spread="others", validation=1), "with 0 images"),
        (lambda: disjoint(SMALL, sessions=3, validation=0.0), r"validation = 0\.0"),
        (lambda: disjoint(SMALL, sessions=3, validation=1.0), r"validation = 1\.0"),
        (lambda: disjoint(SMALL, sessions=3, validation=0), r"validation = 0.*\n.*from 1 to 8"),
        (lambda: disjoint(SMALL, sessions=3, validation=9), r"validation = 9 of a class with 9 images"),
        (lambda: disjoint(np.array([0, 0, 1, 2, 2]), sessions=2), r"1 classes have a single image, first: \[1\]"),
        (lambda: disjoint(SMALL, sessions=3, seed=-1), "seed ?= ?-1"),
        (lambda: general_incremental(CIFAR, new_images=500), r"new_images = 500; .* 500 images"),
        (lambda: general_incremental(CIFAR, new_images=0), r"from 1 to 407"),
    ],
)
def test_impossible_plans_say_what_was_given(make: Callable[[], Plan], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("labels", "message"), [(SMALL.astype(np.int32), "int32"), (np.empty(0, np.int64), r"shape \(0,\)")]
)
def test_labels_that_are_none_are_refused(labels: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        disjoint(labels, sessions=3)


def test_an_empty_session_is_refused() -> None:
    with pytest.raises(ConfigError, match="Session 4 of the blurry plan has no training images"):
        blurry(even(4, 2), sessions=4, minor_share=0.9, spread="others")  # every image goes to two of three others


def test_a_plan_that_shares_images_is_refused() -> None:
    plan = SETUPS["disjoint"](SMALL)
    with pytest.raises(ConfigError, match="1 images occur more than once"):
        replace(plan, training=(plan.training[0], np.append(plan.training[1], plan.training[0][0]), plan.training[2]))
    with pytest.raises(ConfigError, match="1 images occur more than once"):
        replace(plan, validation=(plan.training[0][:1], *plan.validation[1:]))
    with pytest.raises(ConfigError, match="Session 2 of the disjoint plan has no training images"):
        replace(plan, training=(plan.training[0], plan.training[1][:0], plan.training[2]))
    with pytest.raises(ConfigError, match="Session 1 has no validation query"):
        replace(plan, validation=(plan.validation[0][:0], *plan.validation[1:]))
