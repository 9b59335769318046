"""Training splits of the papers, as pure functions of labels and a seed.

Every function takes the labels of the whole training set, int64 (N,), and returns its row numbers. Models match classes
by name, so classes are not renumbered here. The public GLDv2 split was drawn with another random generator: the counts
agree with it, the drawn images do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from limpet.data.sampling import check_labels, class_counts, generator_of, lowest_of_each_class
from limpet.errors import ConfigError, DataError, refuse, unknown_name
from limpet.support.options import bound
from limpet.support.ranges import Fraction, Seed, checked


@dataclass(frozen=True, eq=False)
class Split:
    """The old and the new training set of one upgrade, as rows of one list of images.

    Args:
        name: Name of the scenario.
        labels: Class of every image of the list, int64 (N,).
        old: Rows that the old model is trained on, ascending.
        new: Rows that the new model is trained on, ascending.
        shared_allowed: Whether a row may be on both sides, because the new training set extends the old one.
        classes_apart: Whether the two sides must have no class in common.
        shared: Rows that are on both sides although the sides are otherwise disjoint: the only images of their classes.
    """

    name: str
    labels: NDArray[np.int64]
    old: NDArray[np.int64]
    new: NDArray[np.int64]
    shared_allowed: bool
    classes_apart: bool = False
    shared: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __repr__(self) -> str:
        sides = (
            f"{len(rows)} images of {len(classes)} classes"
            for rows, classes in ((self.old, self.old_classes), (self.new, self.new_classes))
        )
        return f"Split('{self.name}': {' -> '.join(sides)})"

    @cached_property
    def old_classes(self) -> NDArray[np.int64]:
        """Labels that occur on the old side, ascending."""
        return np.unique(self.labels[self.old])

    @cached_property
    def new_classes(self) -> NDArray[np.int64]:
        """Labels that occur on the new side, ascending."""
        return np.unique(self.labels[self.new])


def check_split(split: Split) -> None:
    """Refuse a split that violates the rules of its scenario.

    Raises:
        DataError: A side is empty, or has a row twice or out of range; or an image or class is on both sides although
            the scenario separates them.
    """
    for side in ("old", "new"):
        _check_rows(split, side, getattr(split, side))
    both = np.intersect1d(split.old, split.new, assume_unique=True)
    leaked = np.setdiff1d(both, split.shared)
    if len(leaked) and not split.shared_allowed:
        raise DataError(
            f"{len(leaked)} images of the split '{split.name}' are on both sides, first: {_first(leaked)}.",
            to_do="remove these rows from one side, or choose an extended scenario.",
        )
    common = np.intersect1d(split.old_classes, split.new_classes)
    if len(common) and split.classes_apart:
        raise DataError(
            f"{len(common)} classes of the split '{split.name}' are on both sides, first: {_first(common)}.",
            expected="every class on one side",
            to_do="give all images of a class to one side.",
        )


def _check_rows(split: Split, side: str, rows: NDArray[np.int64]) -> None:
    where = f"on the {side} side of the split '{split.name}'"
    total = len(split.labels)
    if len(rows) == 0:
        raise DataError(f"No images {where}.", expected="at least one", to_do="choose another fraction.")
    outside = rows[(rows < 0) | (rows >= total)]
    if len(outside):
        raise DataError(f"Rows {_first(outside)} {where}.", expected=f"rows from 0 to {total - 1}")
    repeated = np.flatnonzero(np.bincount(rows) > 1)
    if len(repeated):
        raise DataError(f"{len(repeated)} rows occur more than once {where}: {_first(repeated)}.", expected="each once")


def _first(rows: NDArray[np.int64]) -> str:
    return ", ".join(str(row) for row in rows[:3].tolist()) + (", ..." if len(rows) > 3 else "")


CLOSE = 1e-9
"""Added before rounding down, so that 0.29 of 100 is 29 although 0.29 * 100 is 28.999999999999996."""

Labels = NDArray[np.int64]
RowNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class ImageRule:
    """A rule that selects a share of a training set.

    Args:
        choose: Function from labels (N,), fraction and seed to the selected rows, ascending.
        single_on_both: Whether the only image of a class is put on both sides of an otherwise disjoint split.
        description: One line that describes the rule.
    """

    choose: Callable[[Labels, float, int], RowNumbers]
    single_on_both: bool
    description: str


def gldv2_counts(counts: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Return the number of images to select per class: one of up to three, else the share rounded down (AdvBCT's code).

    >>> gldv2_counts(np.array([0, 1, 2, 3, 4, 10, 19]), 0.3).tolist()
    [0, 1, 1, 1, 1, 3, 5]
    """
    taken: NDArray[np.int64] = np.floor(fraction * counts + CLOSE).astype(np.int64)
    return np.where(counts < 4, np.minimum(counts, 1), taken)


def ms1mv3_counts(counts: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Return the number of images to select per class: the share rounded, half to even, at least one (MixBCT's code).

    >>> ms1mv3_counts(np.array([0, 1, 2, 5, 10, 15]), 0.3).tolist()
    [0, 1, 1, 2, 3, 4]
    """
    taken: NDArray[np.int64] = np.rint(fraction * counts).astype(np.int64)
    return np.minimum(counts, np.maximum(1, taken))


def _gldv2(labels: Labels, fraction: float, seed: int) -> RowNumbers:
    counts = class_counts(labels)
    draws = generator_of(seed).random(len(labels))
    keys = np.where(counts[labels] < 4, np.arange(len(labels)) / len(labels), draws)
    return lowest_of_each_class(labels, keys, gldv2_counts(counts, fraction))


def _ms1mv3(labels: Labels, fraction: float, seed: int) -> RowNumbers:
    return lowest_of_each_class(labels, np.arange(len(labels)), ms1mv3_counts(class_counts(labels), fraction))


def _random(labels: Labels, fraction: float, seed: int) -> RowNumbers:
    count = int(fraction * len(labels) + CLOSE)
    return np.sort(generator_of(seed).permutation(len(labels))[:count])


IMAGE_RULES: dict[str, ImageRule] = {
    "gldv2": ImageRule(_gldv2, True, "per class the first of up to three images, of more the share cut off, at random"),
    "ms1mv3": ImageRule(_ms1mv3, True, "per class the share rounded, at least one, the first images; no seed needed"),
    "random": ImageRule(_random, False, "a share of the whole set at random, whatever the classes (HBCT)"),
}


_Order = Literal["random", "first"]
Rounding = Literal["floor", "round"]

SEED = 666
"""Random seed of the public GLDv2 split."""


@checked
def extended_data(labels: Labels, *, old_fraction: Fraction = 0.3, seed: Seed = SEED, rule: str = "gldv2") -> Split:
    """Old: a share of the images of every class. New: all images.

    Args:
        labels: Class of every image (N,).
        old_fraction: Share of the images that the old model is trained on, between 0 and 1.
        seed: Random seed that selects the images.
        rule: Rule that counts and selects the share, a name of `IMAGE_RULES`.

    Raises:
        ConfigError: An option is unknown or out of range.
        DataError: The labels are invalid, or a side is empty.
    """
    old = _image_rule(labels, rule).choose(labels, old_fraction, seed)
    return _checked(Split("extended-data", labels, old, np.arange(len(labels)), shared_allowed=True))


@checked
def open_data(labels: Labels, *, old_fraction: Fraction = 0.3, seed: Seed = SEED, rule: str = "gldv2") -> Split:
    """Old: a share of the images of every class. New: the other images.

    With the rules "gldv2" and "ms1mv3", the only image of a class is on both sides; ``Split.shared`` holds these rows.

    Args:
        labels: Class of every image (N,).
        old_fraction: Share of the images that the old model is trained on, between 0 and 1.
        seed: Random seed that selects the images.
        rule: Rule that counts and selects the share, a name of `IMAGE_RULES`.

    Raises:
        ConfigError: An option is unknown or out of range.
        DataError: The labels are invalid, or a side is empty.
    """
    chosen = _image_rule(labels, rule)
    old = chosen.choose(labels, old_fraction, seed)
    shared = np.flatnonzero(np.bincount(labels)[labels] == 1) if chosen.single_on_both else old[:0]
    new = np.union1d(_others(labels, old), shared)
    return _checked(Split("open-data", labels, old, new, shared_allowed=False, shared=shared))


@checked
def extended_classes(
    labels: Labels,
    *,
    old_fraction: Fraction = 0.3,
    new_fraction: float = 1.0,
    seed: Seed = SEED,
    order: _Order = "random",
    rounding: Rounding = "floor",
) -> Split:
    """Old: all images of a share of the classes. New: all images, or those of a larger share of the classes.

    Args:
        labels: Class of every image (N,).
        old_fraction: Share of the classes that the old model is trained on, between 0 and 1.
        new_fraction: Share of the classes that the new model is trained on, including the old ones: below 1 for a step
            of a chain, such as NDPP's from 9 % to 30 % (see `class_chain`).
        seed: Random seed that selects the classes.
        order: "random" classes, or the "first" by label (faces; HBCT with ``old_fraction=0.5``).
        rounding: Rounding of the number of classes: "floor" (GLDv2, In-shop) or "round" (MS1Mv3).

    Raises:
        ConfigError: An option is out of range, or a share is fewer than two classes.
        DataError: The labels are invalid.
    """
    if not old_fraction < new_fraction <= 1:
        raise ConfigError(f"new_fraction = {new_fraction}.", expected=f"above old_fraction {old_fraction}, at most 1")
    old, new = _nested_rows(labels, [old_fraction, float(new_fraction)], seed, order, rounding)
    return _checked(Split("extended-class", labels, old, new, shared_allowed=True))


@checked
def open_classes(
    labels: Labels,
    *,
    old_fraction: Fraction = 0.3,
    seed: Seed = SEED,
    order: _Order = "random",
    rounding: Rounding = "floor",
) -> Split:
    """Old: all images of a share of the classes. New: all images of the other classes.

    Args:
        labels: Class of every image (N,).
        old_fraction: Share of the classes that the old model is trained on, between 0 and 1.
        seed: Random seed that selects the classes.
        order: "random" classes, or the "first" by label.
        rounding: Rounding of the number of classes: "floor" or "round".

    Raises:
        ConfigError: An option is out of range, or the share is fewer than two classes.
        DataError: The labels are invalid.
    """
    (old,) = _nested_rows(labels, [old_fraction], seed, order, rounding)
    return _checked(Split("open-class", labels, old, _others(labels, old), shared_allowed=False, classes_apart=True))


def same_data(labels: Labels, *, old_fraction: float = 1.0, seed: int = SEED) -> Split:
    """Old and new: all images, for a change of the architecture. Nothing is random, so the seed has no effect.

    Raises:
        ConfigError: ``old_fraction`` is not 1.
        DataError: The labels are invalid.
    """
    check_labels(labels)
    refuse(old_fraction != 1, f"old_fraction = {old_fraction}.", "1: both models see everything here")
    everything = np.arange(len(labels))
    return _checked(Split("same-data", labels, everything, everything, shared_allowed=True))


@checked
def class_chain(
    labels: Labels,
    sizes: Sequence[float | int] = (0.09, 0.3, 1.0),
    *,
    seed: int = SEED,
    order: _Order = "random",
    rounding: Rounding = "floor",
) -> tuple[Split, ...]:
    """Several consecutive upgrades, each to more classes, which include the earlier ones.

    Args:
        labels: Class of every image (N,).
        sizes: Number of classes of every generation, strictly increasing: integers are counts, floats are shares.
        seed: Random seed that selects the classes.
        order: "random" classes, or the "first" by label.
        rounding: Rounding of shares: "floor" (NDPP's 9 %, 30 %, 100 %) or "round" (MixBCT's 30 %, 70 %, 100 %).

    Returns:
        One split per upgrade, from each generation to the next: one fewer than ``sizes``.

    Raises:
        ConfigError: There are fewer than two sizes, they do not increase, or one is not between 2 and all classes.
        DataError: The labels are invalid.
    """
    rows = _nested_rows(labels, sizes, seed, order, rounding)
    lengths = [len(np.unique(labels[part])) for part in rows]
    if len(sizes) < 2 or sorted(set(lengths)) != lengths:
        raise ConfigError(
            f"A chain of sizes {list(sizes)}, which are {lengths} classes.",
            expected="at least two generations, each with more classes than the one before",
        )
    return tuple(
        _checked(Split(f"class-chain-{step}", labels, old, new, shared_allowed=True))
        for step, (old, new) in enumerate(pairwise(rows), start=1)
    )


@dataclass(frozen=True)
class Scenario:
    """One row of the papers' table of upgrades.

    Args:
        name: Name of the scenario.
        split: Function that divides the training set.
        old_fraction: Share of the images or classes that the old model is trained on.
        old_backbone: Architecture of the old model; None for the one that the user chose.
        new_backbone: Architecture of the new model; None for the one that the user chose.
    """

    name: str
    split: Callable[..., Split]
    old_fraction: float = 0.3
    old_backbone: str | None = None
    new_backbone: str | None = None

    def divide(self, labels: Labels, **options: Any) -> Split:
        """Return the split of this scenario; ``options`` are passed to its function and override ``old_fraction``.

        Raises:
            ConfigError: An option is unknown, of another type or out of range.
        """
        chosen = bound(self.split, options, f"scenario '{self.name}'")
        return self.split(labels, **{"old_fraction": self.old_fraction, **chosen})


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("extended-data", extended_data),
        Scenario("extended-class", extended_classes),
        Scenario("open-data", open_data),
        Scenario("open-class", open_classes),
        Scenario("enlarged-backbone-data", extended_data, 0.3, "resnet18", "resnet50"),
        Scenario("enlarged-backbone-class", extended_classes, 0.3, "resnet18", "resnet50"),
        Scenario("new-architecture", same_data, 1.0, "resnet18", "vit_b"),
        Scenario("both", extended_classes, 0.5, "resnet18", "vit_b"),
    )
}


def _checked(split: Split) -> Split:
    check_split(split)
    return split


def _others(labels: Labels, rows: RowNumbers) -> RowNumbers:
    return np.setdiff1d(np.arange(len(labels)), rows, assume_unique=True)


def _image_rule(labels: Labels, rule: str) -> ImageRule:
    check_labels(labels)
    if rule not in IMAGE_RULES:
        raise unknown_name("image rule", rule, IMAGE_RULES)
    return IMAGE_RULES[rule]


def _nested_rows(
    labels: Labels, sizes: Sequence[float | int], seed: int, order: _Order, rounding: Rounding
) -> list[RowNumbers]:
    """Return, for every size, the ascending rows of that number of classes, taken from the start of one ordering."""
    check_labels(labels)
    classes = _ordered_classes(labels, seed, order)
    place = np.empty(int(labels.max()) + 1, np.int64)
    place[classes] = np.arange(len(classes))
    return [np.flatnonzero(place[labels] < _class_count(size, len(classes), rounding)) for size in sizes]


def _ordered_classes(labels: Labels, seed: int, order: _Order) -> NDArray[np.int64]:
    classes = np.unique(labels)
    return classes if order == "first" else generator_of(seed).permutation(classes)


def _class_count(size: float | int, classes: int, rounding: Rounding) -> int:
    """Return the number of classes of a size: an integer itself, or the rounded share of all classes.

    Raises:
        ConfigError: The number is not between 2 and all classes.
    """
    whole = isinstance(size, int | np.integer)
    share = size * classes + (CLOSE if rounding == "floor" else 0.5)
    count = int(size) if whole else int(share)
    if not 2 <= count <= classes:
        raise ConfigError(
            f"{size} of {classes} classes is {count}.",
            expected=f"from 2 to {classes} classes",
            to_do="give more classes or another share (--scenario-options.old-fraction 0.5), or a whole number of "
            "classes in a chain.",
        )
    return count
