"""Who saw which images and classes: the splits of the papers, as pure functions of labels and a seed.

Every function takes the labels of the whole training set, int64 (N,), and returns row numbers into it. Models match
classes by name, so classes are not renumbered here. The public GLDv2 split draws with another generator: counts
agree with it, the images drawn do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from holdfast.data.image_rules import CLOSE, IMAGE_RULES, ImageRule, Labels, Rows
from holdfast.data.sampling import check_labels, generator_of
from holdfast.data.split import Split, check_split
from holdfast.errors import ConfigError, unknown_name
from holdfast.options import bound

Order = Literal["random", "first"]
Rounding = Literal["floor", "round"]

SEED = 666
"""The seed of the public GLDv2 split."""


def extended_data(labels: Labels, *, old_fraction: float = 0.3, seed: int = SEED, rule: str = "gldv2") -> Split:
    """Old: a share of the images of every class. New: all images.

    Args:
        labels: Class of every image (N,).
        old_fraction: Share the old model saw, between 0 and 1.
        seed: Chooses the images.
        rule: How a share is counted and chosen, a name of `IMAGE_RULES`.
    """
    old = _image_rule(labels, old_fraction, rule).choose(labels, old_fraction, seed)
    return _checked(Split("extended-data", labels, old, np.arange(len(labels)), shared_allowed=True))


def open_data(labels: Labels, *, old_fraction: float = 0.3, seed: int = SEED, rule: str = "gldv2") -> Split:
    """Old: a share of the images of every class. New: the other images.

    Under the rules "gldv2" and "ms1mv3" the only image of a class goes to both sides; the split names these rows
    as ``shared``.
    """
    chosen = _image_rule(labels, old_fraction, rule)
    old = chosen.choose(labels, old_fraction, seed)
    shared = np.flatnonzero(np.bincount(labels)[labels] == 1) if chosen.single_on_both else old[:0]
    new = np.union1d(_others(labels, old), shared)
    return _checked(Split("open-data", labels, old, new, shared_allowed=False, shared=shared))


def extended_classes(
    labels: Labels,
    *,
    old_fraction: float = 0.3,
    new_fraction: float = 1.0,
    seed: int = SEED,
    order: Order = "random",
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
    _check_fraction(old_fraction)
    if not old_fraction < new_fraction <= 1:
        raise ConfigError(f"new_fraction = {new_fraction}.", expected=f"above old_fraction {old_fraction}, at most 1")
    old, new = _nested_rows(labels, [old_fraction, float(new_fraction)], seed, order, rounding)
    return _checked(Split("extended-class", labels, old, new, shared_allowed=True))


def open_classes(
    labels: Labels,
    *,
    old_fraction: float = 0.3,
    seed: int = SEED,
    order: Order = "random",
    rounding: Rounding = "floor",
) -> Split:
    """Old: all images of a share of the classes. New: all images of the other classes."""
    _check_fraction(old_fraction)
    (old,) = _nested_rows(labels, [old_fraction], seed, order, rounding)
    return _checked(Split("open-class", labels, old, _others(labels, old), shared_allowed=False, classes_apart=True))


def same_data(labels: Labels, *, old_fraction: float = 1.0, seed: int = SEED) -> Split:
    """Both models see everything; only the architecture changes. Nothing is drawn, so the seed has no effect."""
    check_labels(labels)
    if old_fraction != 1:
        raise ConfigError(f"old_fraction = {old_fraction}.", expected="1: both models see everything here")
    everything = np.arange(len(labels))
    return _checked(Split("same-data", labels, everything, everything, shared_allowed=True))


def class_chain(
    labels: Labels,
    sizes: Sequence[float | int] = (0.09, 0.3, 1.0),
    *,
    seed: int = SEED,
    order: Order = "random",
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
        name: Its name.
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


def _others(labels: Labels, rows: Rows) -> Rows:
    return np.setdiff1d(np.arange(len(labels)), rows, assume_unique=True)


def _image_rule(labels: Labels, fraction: float, rule: str) -> ImageRule:
    check_labels(labels)
    _check_fraction(fraction)
    if rule not in IMAGE_RULES:
        raise unknown_name("image rule", rule, IMAGE_RULES)
    return IMAGE_RULES[rule]


def _nested_rows(
    labels: Labels, sizes: Sequence[float | int], seed: int, order: Order, rounding: Rounding
) -> list[Rows]:
    """Return, for every size, the rows of the first so many classes of one ordering; each list ascending."""
    check_labels(labels)
    classes = _ordered_classes(labels, seed, order)
    place = np.empty(int(labels.max()) + 1, np.int64)
    place[classes] = np.arange(len(classes))
    return [np.flatnonzero(place[labels] < _class_count(size, len(classes), rounding)) for size in sizes]


def _ordered_classes(labels: Labels, seed: int, order: Order) -> NDArray[np.int64]:
    classes = np.unique(labels)
    if order not in get_args(Order):
        raise unknown_name("order of classes", order, get_args(Order))
    return classes if order == "first" else generator_of(seed).permutation(classes)


def _class_count(size: float | int, classes: int, rounding: Rounding) -> int:
    """Return a number of classes; a whole number is taken as it is."""
    if rounding not in get_args(Rounding):
        raise unknown_name("rounding", rounding, get_args(Rounding))
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


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise ConfigError(f"old_fraction = {fraction}.", expected="a share above 0 and below 1")
