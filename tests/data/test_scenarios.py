"""Published class counts are the papers'; labels are made up, so image totals are those of the made-up counts."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.data.scenarios import (
    SCENARIOS,
    Split,
    check_split,
    class_chain,
    extended_classes,
    extended_data,
    open_classes,
    open_data,
    same_data,
)
from limpet.errors import ConfigError, DataError

LABELS = np.repeat(np.arange(12), [1, 1, 2, 3, 4, 7, 10, 10, 11, 15, 20, 30])
LABELS = LABELS[np.random.default_rng(0).permutation(len(LABELS))]

labels_of_some_classes = st.lists(st.integers(0, 9), min_size=8, max_size=60).map(
    lambda drawn: np.array([*range(4), *drawn], np.int64)
)


def counts(rows: np.ndarray, labels: np.ndarray = LABELS) -> list[int]:
    return np.bincount(labels[rows], minlength=12).tolist()


# --- published sizes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "fraction", "rounding", "old"),
    [
        (81_313, 0.30, "floor", 24_393),  # GLDv2-clean
        (81_313, 0.09, "floor", 7_318),
        (3_997, 0.30, "floor", 1_199),  # In-shop
        (93_431, 0.30, "round", 28_029),  # MS1Mv3
        (93_431, 0.30, "floor", 28_029),
        (751, 0.30, "floor", 225),  # Market-1501
        (100, 0.50, "floor", 50),  # CIFAR-100 (HBCT)
        (100, 0.29, "floor", 29),  # 0.29 * 100 is 28.999999999999996
    ],
)
def test_published_class_counts(classes: int, fraction: float, rounding: str, old: int) -> None:
    labels = np.arange(classes)
    extended = extended_classes(labels, old_fraction=fraction, rounding=rounding)  # type: ignore[arg-type]
    assert (len(extended.old_classes), len(extended.new_classes)) == (old, classes)
    apart = open_classes(labels, old_fraction=fraction, rounding=rounding)  # type: ignore[arg-type]
    assert (len(apart.old_classes), len(apart.new_classes)) == (old, classes - old)


def test_ms1mv3_open_class_leaves_65402() -> None:
    assert len(open_classes(np.arange(93_431), order="first", rounding="round").new_classes) == 65_402


@pytest.mark.parametrize(
    ("classes", "sizes", "rounding", "expected"),
    [
        (81_313, (0.09, 0.30, 1.0), "floor", [7_318, 24_393, 81_313]),  # NDPP
        (93_431, (0.30, 0.70, 1.0), "round", [28_029, 65_402, 93_431]),  # MixBCT
        (100, (20, 40, 60, 80, 100), "floor", [20, 40, 60, 80, 100]),  # HBCT
    ],
)
def test_published_chains(classes: int, sizes: tuple[float, ...], rounding: str, expected: list[int]) -> None:
    chain = class_chain(np.arange(classes), sizes, rounding=rounding)  # type: ignore[arg-type]
    assert [len(step.old_classes) for step in chain] == expected[:-1]
    assert [len(step.new_classes) for step in chain] == expected[1:]


def test_ms1mv3_both_sides_together_have_one_image_more_per_single_image_class() -> None:
    sizes = np.random.default_rng(0).integers(2, 9, 93_431)
    sizes[:12] = 1
    labels = np.repeat(np.arange(93_431), sizes)
    split = open_data(labels, rule="ms1mv3")
    assert len(split.old) + len(split.new) == len(labels) + 12
    assert len(split.old_classes) == len(split.new_classes) == 93_431
    assert len(split.old) == sum(max(1, round(0.3 * size)) for size in sizes.tolist())


def test_gldv2_takes_less_than_the_share() -> None:
    sizes = np.random.default_rng(0).integers(1, 40, 8_131)
    labels = np.repeat(np.arange(8_131), sizes)
    split = extended_data(labels, rule="gldv2")
    assert len(split.old) == sum(int(0.3 * size) if size >= 4 else 1 for size in sizes.tolist())
    assert len(split.old) < 0.3 * len(labels)
    assert len(split.old_classes) == 8_131


# --- the rules, on counts that can be checked by hand ----------------------------------------------------------------


def test_gldv2_by_hand() -> None:
    split = open_data(LABELS, rule="gldv2")
    assert counts(split.old) == [1, 1, 1, 1, 1, 2, 3, 3, 3, 4, 6, 9]
    assert counts(split.new) == [1, 1, 1, 2, 3, 5, 7, 7, 8, 11, 14, 21]
    assert LABELS[split.shared].tolist() == LABELS[np.isin(LABELS, [0, 1])].tolist()


def test_gldv2_takes_the_first_image_of_two_or_three() -> None:
    for seed in range(5):
        old = extended_data(LABELS, seed=seed).old
        for label in (2, 3):
            assert np.flatnonzero(label == LABELS)[0] in old


def test_gldv2_draws_among_four_or_more() -> None:
    drawn = {tuple(row for row in extended_data(LABELS, seed=seed).old if LABELS[row] == 4) for seed in range(30)}
    assert len(drawn) == 4


def test_ms1mv3_by_hand() -> None:
    split = open_data(LABELS, rule="ms1mv3")
    assert counts(split.old) == [1, 1, 1, 1, 1, 2, 3, 3, 3, 4, 6, 9]
    for label, taken in enumerate(counts(split.old)):
        rows = np.flatnonzero(label == LABELS)
        assert np.isin(rows, split.old).tolist() == [True] * taken + [False] * (len(rows) - taken)


def test_random_images_ignore_classes() -> None:
    split = extended_data(LABELS, old_fraction=0.5, rule="random")
    assert len(split.old) == 57
    assert len(open_data(LABELS, old_fraction=0.5, rule="random").shared) == 0


def test_first_classes_are_the_first_and_random_ones_are_not() -> None:
    labels = np.repeat(np.arange(100), 2)
    assert extended_classes(labels, order="first").old_classes.tolist() == list(range(30))
    assert extended_classes(labels, order="random").old_classes.tolist() != list(range(30))


def test_labels_with_gaps_count_the_classes_that_occur() -> None:
    labels = np.repeat([3, 7, 100, 101], 2)
    split = open_classes(labels, old_fraction=0.5, order="first")
    assert split.old_classes.tolist() == [3, 7]
    assert split.new_classes.tolist() == [100, 101]


# --- laws ------------------------------------------------------------------------------------------------------------

SPLITS: dict[str, Callable[..., Split]] = {
    "extended-data gldv2": lambda labels, seed: extended_data(labels, seed=seed),
    "extended-data random": lambda labels, seed: extended_data(labels, seed=seed, rule="random"),
    "open-data gldv2": lambda labels, seed: open_data(labels, seed=seed),
    "open-data ms1mv3": lambda labels, seed: open_data(labels, seed=seed, rule="ms1mv3"),
    "open-data random": lambda labels, seed: open_data(labels, seed=seed, rule="random"),
    "extended-class": lambda labels, seed: extended_classes(labels, old_fraction=0.6, seed=seed),
    "open-class": lambda labels, seed: open_classes(labels, old_fraction=0.6, seed=seed),
    "chain": lambda labels, seed: class_chain(labels, (2, 4, 1.0), seed=seed)[0],
}
DRAWN = sorted(set(SPLITS) - {"open-data ms1mv3"})


@pytest.mark.parametrize("name", SPLITS)
def test_the_same_seed_gives_the_same_split(name: str) -> None:
    first, second = SPLITS[name](LABELS, 3), SPLITS[name](LABELS, 3)
    np.testing.assert_array_equal(first.old, second.old)
    np.testing.assert_array_equal(first.new, second.new)


@pytest.mark.parametrize("name", DRAWN)
def test_another_seed_gives_another_split(name: str) -> None:
    assert len({SPLITS[name](LABELS, seed).old.tobytes() for seed in range(5)}) > 1


@pytest.mark.parametrize("name", [name for name in SPLITS if name != "chain"])
@settings(deadline=None, max_examples=25)
@given(labels=labels_of_some_classes, seed=st.integers(0, 99))
def test_nothing_is_lost_and_nothing_leaks(name: str, labels: np.ndarray, seed: int) -> None:
    labels = np.append(labels, np.unique(labels)) if name == "extended-class" else labels
    before = labels.copy()
    split = SPLITS[name](labels, seed)
    check_split(split)
    np.testing.assert_array_equal(labels, before)
    assert np.array_equal(np.union1d(split.old, split.new), np.arange(len(labels)))
    both = np.intersect1d(split.old, split.new)
    if name.startswith("extended"):
        np.testing.assert_array_equal(both, split.old)
        assert len(split.new) == len(labels)
    else:
        np.testing.assert_array_equal(both, split.shared)
        assert set(np.bincount(labels)[labels[split.shared]]) <= {1}
    if name.startswith("open-class"):
        assert not set(split.old_classes) & set(split.new_classes)


@settings(deadline=None, max_examples=25)
@given(labels=labels_of_some_classes, seed=st.integers(0, 99))
def test_chains_grow_and_each_begins_where_the_last_ended(labels: np.ndarray, seed: int) -> None:
    classes = len(np.unique(labels))
    first, second = class_chain(labels, (2, 3, classes), seed=seed)
    np.testing.assert_array_equal(first.new, second.old)
    assert set(first.old) < set(first.new) < set(second.new)
    assert len(second.new) == len(labels)


# --- scenarios of the table ------------------------------------------------------------------------------------------


def test_the_table_of_scenarios() -> None:
    backbones = {name: (scenario.old_backbone, scenario.new_backbone) for name, scenario in SCENARIOS.items()}
    same, enlarged, changed = (None, None), ("resnet18", "resnet50"), ("resnet18", "vit_b")
    assert backbones == {
        "extended-data": same,
        "extended-class": same,
        "open-data": same,
        "open-class": same,
        "enlarged-backbone-data": enlarged,
        "enlarged-backbone-class": enlarged,
        "new-architecture": changed,
        "both": changed,
    }


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("extended-data", 300, 1000),
        ("extended-class", 300, 1000),
        ("open-data", 300, 700),
        ("open-class", 300, 700),
        ("enlarged-backbone-data", 300, 1000),
        ("enlarged-backbone-class", 300, 1000),
        ("new-architecture", 1000, 1000),
        ("both", 500, 1000),
    ],
)
def test_every_scenario_divides_as_the_table_says(name: str, old: int, new: int) -> None:
    split = SCENARIOS[name].divide(np.repeat(np.arange(50), 20), seed=1)
    assert (len(split.old), len(split.new)) == (old, new)


def test_options_override_the_fraction_of_a_scenario() -> None:
    labels = np.repeat(np.arange(100), 2)
    hbct = SCENARIOS["extended-class"].divide(labels, old_fraction=0.5, order="first")
    assert hbct.old_classes.tolist() == list(range(50))


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_fractions_out_of_range_are_refused(fraction: float) -> None:
    for split in (extended_data, open_data, extended_classes, open_classes):
        with pytest.raises(ConfigError, match="old_fraction"):
            split(LABELS, old_fraction=fraction)


def test_unknown_words_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'gldv2'"):
        extended_data(LABELS, rule="gldv3")
    with pytest.raises(ConfigError, match="'random'"):
        extended_classes(LABELS, order="rondom")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'round'"):
        open_classes(LABELS, rounding="rounded")  # type: ignore[arg-type]


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"0\.1 of 12 classes is 1"):
        extended_classes(LABELS, old_fraction=0.1)
    with pytest.raises(ConfigError, match="13 of 12 classes"):
        class_chain(LABELS, (2, 13))


@pytest.mark.parametrize("sizes", [(0.5,), (), (0.5, 0.5), (6, 4), (0.5, 6)])
def test_chains_that_do_not_grow_are_refused(sizes: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="each with more classes"):
        class_chain(LABELS, sizes)


@pytest.mark.parametrize("labels", [np.empty(0, np.int64), np.array([0.5]), np.array([-1, 0]), np.zeros((2, 2), int)])
def test_labels_that_are_none_are_refused(labels: np.ndarray) -> None:
    for split in (extended_data, open_classes, same_data):
        with pytest.raises(DataError, match="Labels are"):
            split(labels)


def test_new_architecture_has_no_smaller_share() -> None:
    with pytest.raises(ConfigError, match="both models see everything"):
        SCENARIOS["new-architecture"].divide(LABELS, old_fraction=0.5)


def make_split(old: list[int], new: list[int], **values: object) -> Split:
    labels = np.array([0, 0, 1, 1, 2])
    given = {"shared_allowed": False, **values}
    return Split("made", labels, np.array(old, np.int64), np.array(new, np.int64), **given)  # type: ignore[arg-type]


def test_sides_that_are_apart_are_fine() -> None:
    check_split(make_split([0, 1], [2, 3, 4], classes_apart=True))
    check_split(make_split([0, 4], [1, 2, 3, 4], shared=np.array([4])))
    check_split(make_split([0, 1], [0, 1, 2], shared_allowed=True))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (make_split([0, 1], [1, 2]), "1 images of the split 'made' are on both sides, first: 1"),
        (make_split([0, 4], [0, 4], shared=np.array([4])), "first: 0"),
        (make_split([0], [1, 2], classes_apart=True), "1 classes .* first: 0"),
        (make_split([0, 0], [2]), "1 rows occur more than once on the old side"),
        (make_split([0], [2, 5]), "Rows 5 on the new side(.|\n)*rows from 0 to 4"),
        (make_split([-1], [2]), "Rows -1 on the old side"),
        (make_split([], [2]), "No images on the old side"),
        (make_split([2], []), "No images on the new side"),
    ],
)
def test_a_leak_or_a_wrong_row_is_refused(split: Split, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_split(split)


def test_a_split_says_how_large_it_is() -> None:
    assert repr(make_split([0, 1], [2, 3, 4])) == "Split('made': 2 images of 1 classes -> 3 images of 2 classes)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"old_fraction": "abc"}, "'old_fraction' of the scenario 'extended-class' is 'abc'"),
        ({"foo": 1}, "no option 'foo'"),
        ({"sed": 1}, "Did you mean 'seed'"),
        ({"seed": -1}, "'seed'"),
        ({"seed": "x"}, "'seed'"),
        ({"order": "last"}, "'random' or 'first'"),
    ],
)
def test_options_that_people_wrote_wrong_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SCENARIOS["extended-class"].divide(LABELS, **options)


@pytest.mark.parametrize("rule", ["gldv2", "random"])
def test_negative_seeds_are_refused_where_images_are_drawn(rule: str) -> None:
    with pytest.raises(ConfigError, match="'seed'"):
        SCENARIOS["extended-data"].divide(LABELS, seed=-1, rule=rule)


def test_a_whole_number_serves_as_a_fraction() -> None:
    assert len(SCENARIOS["new-architecture"].divide(LABELS, old_fraction=1).old) == len(LABELS)


def test_a_step_of_a_chain_as_a_scenario_of_its_own() -> None:
    """Old and new classes are those of the chain's step: nested, of one drawing."""
    labels = np.repeat(np.arange(100), 3)
    chain = class_chain(labels, (0.09, 0.3, 1.0), seed=5)
    step = extended_classes(labels, old_fraction=0.09, new_fraction=0.3, seed=5)
    assert np.array_equal(step.old, chain[0].old)
    assert np.array_equal(step.new, chain[0].new)
    assert (len(step.old_classes), len(step.new_classes)) == (9, 30)
    with pytest.raises(ConfigError, match=r"new_fraction = 0\.2"):
        extended_classes(labels, old_fraction=0.3, new_fraction=0.2)
    with pytest.raises(ConfigError, match=r"new_fraction = 1\.5"):
        extended_classes(labels, old_fraction=0.3, new_fraction=1.5)


@pytest.mark.parametrize("scenario", [extended_data, open_data, extended_classes, open_classes])
def test_scenarios_draw_by_the_seed_of_the_released_code_unless_told_otherwise(scenario: Callable[..., Split]) -> None:
    labels = np.repeat(np.arange(20), 10)
    usual, released, other = (scenario(labels, **seed).old for seed in ({}, {"seed": 666}, {"seed": 0}))
    np.testing.assert_array_equal(usual, released)
    assert not np.array_equal(usual, other)
