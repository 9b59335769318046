"""Hold-out split of embedding pairs: pairs to fit on, pairs to measure with, and classes excluded from fitting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray

from limpet.adapters.pairs import FEWEST_TESTED, matched
from limpet.data.held_out import held_out_rows
from limpet.data.sampling import generator_of, lowest_of_each_class
from limpet.embeddings import EmbeddingSet
from limpet.embeddings.embedding_set import joined
from limpet.embeddings.same_items import with_common_labels
from limpet.errors import DataError
from limpet.evaluation.protocols.relevance_lists import Relevance
from limpet.support.ranges import Fraction, Seed, checked

FEWEST_UNLABELLED = 21  # items held out without labels, so that the first ten are at most half of the searched items
_FEWEST_CLASSES = 4  # classes of two items or more that are needed to exclude one

_Rows = NDArray[np.int64]
Unlabelled = tuple[EmbeddingSet, EmbeddingSet] | None
"""Embeddings of items without a class by the old and the new model, in the same order; None for none."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Queries by both models, with human relevance judgements.

    Args:
        old: Embeddings of the queries by the old model.
        new: Embeddings of the queries by the new model, in the same order.
        relevance: Relevant items of each query, by ids.
    """

    old: EmbeddingSet
    new: EmbeddingSet
    relevance: Relevance

    @classmethod
    def of(cls, old: EmbeddingSet, new: EmbeddingSet, relevance: Relevance) -> Self:
        """Take the queries that both models embedded, in the same order.

        Raises:
            DataError: The models embedded no query in common.
        """
        rows = new.ids.find(old.ids)
        both = np.flatnonzero(rows >= 0)
        if not len(both):
            raise DataError(
                f"None of the {len(old)} queries of the old model is among the {len(new)} of the new one.",
                expected="the same queries on both sides, matched by id",
                to_do="embed the same queries with both models, under the same ids.",
            )
        return cls(old[both], new[rows[both]], relevance)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The same items under two models, split; both sides of a split have one row order, and the same labels or none.

    Args:
        fit_old: Embeddings of the items to fit on, by the old model.
        fit_new: Embeddings of the same items by the new model.
        old: Embeddings of the held-out items by the old model.
        new: Embeddings of the held-out items by the new model.
        unseen: Mask of the queries of a class that is excluded from fitting by design, bool (queries,).
        pairs: Number of pairs before the split, with those that neither side uses.
        classes: Number of their classes; None without labels.
        unlabelled: Further items to fit on without labels, by the old and the new model; None if there are none.
        judged: Queries with human judgements of `old` and `new` items; they then replace the items as queries.
    """

    fit_old: EmbeddingSet
    fit_new: EmbeddingSet
    old: EmbeddingSet
    new: EmbeddingSet
    unseen: NDArray[np.bool_]
    pairs: int
    classes: int | None
    unlabelled: Unlabelled = None
    judged: Judged | None = None

    @property
    def asking(self) -> tuple[EmbeddingSet, EmbeddingSet]:
        """The queries by the old and the new model: those that were judged, or else every item."""
        return (self.old, self.new) if self.judged is None else (self.judged.old, self.judged.new)

    @property
    def answered(self) -> bool:
        """Whether labels or judgements define relevance."""
        return self.judged is not None or self.labelled

    @property
    def fitted_on(self) -> int:
        """Number of pairs to fit on."""
        return len(self.fit_old) + (0 if self.unlabelled is None else len(self.unlabelled[0]))

    @property
    def all_to_fit(self) -> tuple[EmbeddingSet, EmbeddingSet, Unlabelled]:
        """All items to fit on."""
        return self.fit_old, self.fit_new, self.unlabelled

    def subset(self, rows: _Rows) -> tuple[EmbeddingSet, EmbeddingSet, Unlabelled]:
        """Return some of the pairs to fit on, by ascending position; labelled ones come first."""
        first = len(self.fit_old)
        known, rest = rows[rows < first], rows[rows >= first] - first
        unlabelled = None
        if self.unlabelled is not None and len(rest):
            unlabelled = self.unlabelled[0][rest], self.unlabelled[1][rest]
        return self.fit_old[known], self.fit_new[known], unlabelled

    @property
    def labelled(self) -> bool:
        """Whether the items have labels."""
        return self.old.labels is not None

    @property
    def unseen_classes(self) -> int:
        """Number of classes that are excluded from fitting."""
        if self.judged is not None or self.old.labels is None:
            return 0
        return len(np.unique(self.old.labels[self.unseen]))


class _Split(NamedTuple):
    fit: _Rows
    held: _Rows
    unseen: NDArray[np.bool_]  # of the held rows
    aside: _Rows  # rows of unseen classes that are not held out


@checked
def hold_out(
    old: EmbeddingSet,
    new: EmbeddingSet,
    *,
    share: Fraction = 0.2,
    unseen_share: Annotated[float, Ge(0), Lt(1)] = 0.1,
    most: Annotated[int, Ge(FEWEST_UNLABELLED)] = 4000,
    unlabelled: Sequence[str] = (),
    unseen_pairs: bool = False,
    seed: Seed = 0,
) -> HeldOut:
    """Hold out pairs that no candidate may be fitted on.

    With labels, a share of the items of every class is held out. For a share of the classes, all other items are also
    excluded from fitting: no candidate learns from these classes. Without labels, a share of all items is held out. The
    split depends on ids and seed alone, not on the order of the rows.

    Args:
        old: Embeddings of the old model.
        new: Embeddings of the new model; labels may come with either set.
        share: Share of the items of every class to hold out, or of all items, in (0, 1).
        unseen_share: Share of the classes with two items or more that is excluded from fitting, in [0, 1): the share
            that labels will not cover. Unless it is 0, at least one class is excluded if there are four such classes,
            and none if there are fewer. Excluded classes have their natural share of the held-out items.
        most: Maximum number of held-out items. The surplus is drawn evenly over the classes, which keep two items or
            none, and returns to the items to fit on, except that of unseen classes, which is not used.
        unlabelled: Class names that mean "no label", such as "" or "unknown". Candidates are fitted on their items as
            pairs without a label; these items are not held out.
        unseen_pairs: Whether to fit on the other items of unseen classes as pairs without a label, like items that both
            models have embedded and that have no label; otherwise they are not used.
        seed: Random seed.

    Raises:
        ConfigError: An option is out of range.
        EmptyOverlapError: No id occurs in both sets.
        DataError: The labels of the sets contradict each other, or the pairs are too few to measure anything.
    """
    old, new, rest = apart(*paired(old, new), unlabelled)
    pairs = len(old) + (0 if rest is None else len(rest[0]))
    if old.labels is None:
        split, classes = _any_items(len(old), share, most, seed), None
    else:
        split, classes = _by_class(old.labels, share, unseen_share, most, seed), len(np.unique(old.labels))
    if unseen_pairs and len(split.aside):
        rest = both(rest, _bare(old[split.aside], new[split.aside]))
    return HeldOut(
        fit_old=old[split.fit],
        fit_new=new[split.fit],
        old=old[split.held],
        new=new[split.held],
        unseen=split.unseen,
        pairs=pairs,
        classes=classes,
        unlabelled=rest,
    )


def asked_by(judged: Judged, old: EmbeddingSet, new: EmbeddingSet, unlabelled: Sequence[str] = ()) -> HeldOut:
    """Return all pairs to fit on, and the same items as the gallery of judged queries, which are held out.

    Raises:
        EmptyOverlapError: No id occurs in both sets.
        DataError: The sets' labels contradict each other, or the pairs are too few.
    """
    old, new = paired(old, new)
    fit_old, fit_new, rest = apart(old, new, unlabelled)
    classes = None if fit_old.labels is None else len(np.unique(fit_old.labels))
    unseen = np.zeros(len(judged.old), np.bool_)
    return HeldOut(fit_old, fit_new, old, new, unseen, len(old), classes, rest, judged)


def apart(
    old: EmbeddingSet, new: EmbeddingSet, unlabelled: Sequence[str]
) -> tuple[EmbeddingSet, EmbeddingSet, Unlabelled]:
    """Divide pairs into those with a label, and those whose class name means "no label".

    Args:
        old: Embeddings of the old model.
        new: The same items by the new model, in the same order and with the same labels.
        unlabelled: Class names that mean "no label".

    Raises:
        DataError: No item has one of these class names, or all items have.
    """
    if not unlabelled:
        return old, new, None
    names = list(old.class_names or ())
    rows = [row for row, name in enumerate(names) if name in unlabelled]
    unknown = np.isin(np.empty(0, np.int64) if old.labels is None else old.labels, rows)
    if not unknown.any() or unknown.all():
        raise DataError(
            f"{'All' if len(unknown) and unknown.all() else 'No'} items are of a class called "
            f"{' or '.join(map(repr, unlabelled))}.",
            expected=f"some of the items, and classes for others; there is {', '.join(map(repr, names[:5])) or 'none'}",
            to_do="name the class that stands for a missing label, or leave --unlabelled out.",
        )
    known, rest = np.flatnonzero(~unknown), np.flatnonzero(unknown)
    return old[known], new[known], _bare(old[rest], new[rest])


UNCOVERED = 1000  # maximum number of items to compare


def uncovered_share(new: EmbeddingSet, unlabelled: EmbeddingSet, seed: int = 0) -> float:
    """Estimate the share of unlabelled items whose classes have no labels, in [0, 1].

    An item of a labelled class has a near neighbour among the labelled items; an item of another class has none nearer
    than the neighbours of labelled items outside their class. The mean similarity of unlabelled items, between these
    two extremes, gives the share.

    Args:
        new: Labelled embeddings by the new model, of two classes or more.
        unlabelled: Unlabelled embeddings by the same model.
        seed: Random seed for drawing at most 1,000 items of each set.
    """
    rng, labels = np.random.default_rng(seed), new.labels
    if labels is None or len(np.unique(labels)) < 2 or not len(unlabelled):
        return 0.0
    points = new.space.canonical_array(np.asarray(new.vectors, np.float64))
    asked = np.sort(rng.permutation(len(new))[:UNCOVERED])
    similar = new.space.similarity_array(points[asked], points)
    similar[np.arange(len(asked)), asked] = -np.inf
    within = similar.max(axis=1)
    similar[labels[asked][:, None] == labels] = -np.inf
    outside = similar.max(axis=1)
    rows = np.sort(rng.permutation(len(unlabelled))[:UNCOVERED])
    others = new.space.canonical_array(np.asarray(unlabelled.vectors[rows], np.float64))
    found = new.space.similarity_array(others, points).max(axis=1).mean()
    apart = within.mean() - outside.mean()
    return float(np.clip((within.mean() - found) / apart, 0, 1)) if apart > 0 else 0.0


def both(first: Unlabelled, second: Unlabelled) -> Unlabelled:
    """Concatenate the items of two such sets."""
    if first is None or second is None:
        return first or second
    old, new = (joined(sides) for sides in zip(first, second, strict=True))
    return old, new


def all_pairs(old: EmbeddingSet, new: EmbeddingSet, unlabelled: Unlabelled) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Return all items, for candidates that need no labels."""
    found = both(None if unlabelled is None else _bare(old, new), unlabelled)
    return (old, new) if found is None else found


def _bare(old: EmbeddingSet, new: EmbeddingSet) -> tuple[EmbeddingSet, EmbeddingSet]:
    return old.replace(labels=None, class_names=None), new.replace(labels=None, class_names=None)


def paired(old: EmbeddingSet, new: EmbeddingSet) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Return the items of both sets, in the same order, with the labels of the first set that has any.

    Raises:
        EmptyOverlapError: No id occurs in both sets.
        DataError: The sets' labels contradict each other, or the pairs are too few.
    """
    pairs = matched(old, new, minimum=FEWEST_TESTED)
    old, new = with_common_labels([old[pairs.old_rows], new[pairs.new_rows]])
    return old, new.replace(labels=old.labels, class_names=old.class_names)


def _any_items(pairs: int, share: float, most: int, seed: int) -> _Split:
    held = min(round(share * pairs), most)
    if held < FEWEST_UNLABELLED:
        raise DataError(
            f"{pairs} pairs without labels, of which {held} would be held out.",
            expected=f"at least {FEWEST_UNLABELLED} held out, to compare the first ten that each of them finds",
            to_do=f"embed at least {int(np.ceil(FEWEST_UNLABELLED / share))} of the same items with both models, give "
            "labels, or hold out a larger share.",
        )
    order = generator_of(seed).permutation(pairs)
    return _Split(np.sort(order[held:]), np.sort(order[:held]), np.zeros(held, np.bool_), order[:0])


def _by_class(labels: NDArray[np.int64], share: float, unseen_share: float, most: int, seed: int) -> _Split:
    group, generator = np.unique(labels, return_inverse=True)[1], generator_of(seed)
    unseen = np.isin(group, _unseen_classes(np.bincount(group), unseen_share, generator))
    seen = np.flatnonzero(~unseen)
    aside = held_out_rows(group, share, seed)
    held = np.sort(aside[_at_most(most, group[aside], generator)])
    if len(held) == 0 or np.bincount(group[held]).max() < 2:
        raise DataError(
            f"No two of the {len(held)} held-out items are of one class: the largest class has "
            f"{np.bincount(group).max()} of the {len(group)} pairs.",
            expected="a class with at least four items",
            to_do="embed more items per class, or leave the labels out to measure agreement with re-embedding.",
        )
    return _Split(np.setdiff1d(seen, held), held, unseen[held], np.setdiff1d(np.flatnonzero(unseen), held))


def _unseen_classes(counts: NDArray[np.int64], share: float, generator: np.random.Generator) -> _Rows:
    """Draw classes (C,) to exclude from fitting, among those with at least two items."""
    able = np.flatnonzero(counts >= 2)
    if share == 0 or len(able) < _FEWEST_CLASSES:
        return np.empty(0, np.int64)
    return generator.choice(able, min(max(1, round(share * len(able))), len(able) - 1), replace=False)


def _at_most(most: int, group: NDArray[np.int64], generator: np.random.Generator) -> _Rows:
    """Choose positions of at most `most` items (N,): the same share of every class, but either none or two or more."""
    if len(group) <= most:
        return np.arange(len(group))
    counts = np.bincount(group)
    wanted = np.maximum(counts * most // len(group), np.minimum(counts, 2))
    order = generator.permutation(len(counts))
    wanted[order[np.cumsum(wanted[order]) > most]] = 0
    return lowest_of_each_class(group, generator.random(len(group)), wanted)
