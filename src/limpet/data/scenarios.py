"""Training splits of the papers, as pure functions of labels and a seed.

Every function takes the labels of the whole training set, int64 (N,), and returns row numbers into it. Models match
classes by name, so classes are not renumbered here. The public GLDv2 split draws with another generator: counts
agree with it, the images drawn do not.
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
        labels: Class of every image of the list, int64 (N,).
        old: Ascending rows that the old model is trained on.
        new: Ascending rows that the new model is trained on.
        shared_allowed: Whether a row may be on both sides, because the new training set extends the old one.
        classes_apart: Whether the two sides must have no class in common.
        shared: Rows on both sides of otherwise disjoint sides: the only image of a class.
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
        DataError: A side is empty, or has a row twice or out of range; or an image or class is on both sides
            though the scenario keeps them apart.
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
    """One way to take a share of a training set.

    Args:
        choose: Function from labels (N,), fraction and seed to the chosen rows, ascending.
        single_on_both: Whether the only image of a class goes to both of two otherwise disjoint sides.
    """

    choose: Callable[[Labels, float, int], RowNumbers]
    single_on_both: bool
    description: str


def gldv2_counts(counts: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Return the number of images to take: one of up to three, otherwise the share rounded down (code of AdvBCT).

    >>> gldv2_counts(np.array([0, 1, 2, 3, 4, 10, 19]), 0.3).tolist()
    [0, 1, 1, 1, 1, 3, 5]
    """
    taken: NDArray[np.int64] = np.floor(fraction * counts + CLOSE).astype(np.int64)
    return np.where(counts < 4, np.minimum(counts, 1), taken)


def ms1mv3_counts(counts: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Return the number of images to take: the share rounded, half to even, and at least one (code of MixBCT).

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
"""The seed of the public GLDv2 split."""


@checked
def extended_data(labels: Labels, *, old_fraction: Fraction = 0.3, seed: Seed = SEED, rule: str = "gldv2") -> Split:
    """Old: a share of the images of every class. New: all images.

    Args:
        labels: Class of every image (N,).
        old_fraction: Share the old model saw, between 0 and 1.
        seed: Chooses the images.
        rule: How a share is counted and chosen, a name of `IMAGE_RULES`.
    """
    old = _image_rule(labels, rule).choose(labels, old_fraction, seed)
    return _checked(Split("extended-data", labels, old, np.arange(len(labels)), shared_allowed=True))


@checked
def open_data(labels: Labels, *, old_fraction: Fraction = 0.3, seed: Seed = SEED, rule: str = "gldv2") -> Split:
    """Old: a share of the images of every class. New: the other images.

    Under the rules "gldv2" and "ms1mv3" the only image of a class goes to both sides; the split names these rows
    as ``shared``.
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
        old_fraction: Share of the classes the old model saw, between 0 and 1.
        new_fraction: Share of the classes the new model sees, the old ones among them: below 1 for a step of a
            chain, such as NDPP's from 9 % to 30 % (see `class_chain`).
        seed: Chooses the classes.
        order: "random" classes, or the "first" by label (faces; HBCT with ``old_fraction=0.5``).
        rounding: "floor" (GLDv2, In-shop) or "round" (MS1Mv3).
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
    """Old: all images of a share of the classes. New: all images of the other classes."""
    (old,) = _nested_rows(labels, [old_fraction], seed, order, rounding)
    return _checked(Split("open-class", labels, old, _others(labels, old), shared_allowed=False, classes_apart=True))


def same_data(labels: Labels, *, old_fraction: float = 1.0, seed: int = SEED) -> Split:
    """Both models see everything; only the architecture changes. Nothing is drawn, so the seed has no effect."""
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
    """Several upgrades in a row, each to more classes, which include the ones before.

    Args:
        labels: Class of every image (N,).
        sizes: Classes of every generation, strictly increasing: whole numbers are counts, others are shares.
        seed: Chooses the classes.
        order: "random" classes, or the "first" by label.
        rounding: Of shares: "floor" (NDPP's 9 %, 30 %, 100 %) or "round" (MixBCT's 30 %, 70 %, 100 %).

    Returns:
        One split per upgrade, from each generation to the next: one fewer than ``sizes``.
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
        split: The function that divides the training set.
        old_fraction: Share of images or classes that the old model saw.
        old_backbone: Architecture of the old model; None for the one the user chose.
        new_backbone: Architecture of the new model; None for the one the user chose.
    """

    name: str
    split: Callable[..., Split]
    old_fraction: float = 0.3
    old_backbone: str | None = None
    new_backbone: str | None = None

    def divide(self, labels: Labels, **options: Any) -> Split:
        """Return the split of this scenario; ``options`` go to its function and override ``old_fraction``.

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
    """Return a number of classes; a whole number is taken as it is."""
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
