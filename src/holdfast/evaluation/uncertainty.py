"""How uncertain the models are of the gallery: histograms, apart for classes that the old model has seen and has not.

Spaces in which the length of a vector says something, such as hyperbolic space, give every item an uncertainty in
[0, 1]: 1 at the origin, 0 infinitely far from it. Embedding writes it into a column of the set; whether the column is
there is all that counts here.

Paper: Learning Along the Arrow of Time (HBCT), which finds unseen classes more uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet
from holdfast.embeddings.uncertainty import COLUMN
from holdfast.errors import DataError
from holdfast.results import Part

_FEWEST_BINS = 20  # over the values that occur
_BINS_PER_UNIT = (20, 50, 100, 200, 500, 1000)


class Group(Part):
    """The values of a group of items.

    Args:
        items: How many.
        mean: Of their values.
        counts: How many are in each bin (B,).
    """

    items: int
    mean: float
    counts: list[int]


class Histogram(Part):
    """How values are distributed, over groups of items.

    Args:
        edges: Of the bins (B + 1,); each holds its lower edge, the last one both.
        groups: By name, those that have an item.
    """

    edges: list[float]
    groups: dict[str, Group]


class Uncertainty(Part):
    """How uncertain both models are of the gallery; None of a model whose embeddings do not say."""

    old: Histogram | None
    new: Histogram | None


def uncertainty_of(embeddings: EmbeddingSet) -> NDArray[np.float64] | None:
    """Return the uncertainty of every item (N,), in [0, 1], or None where the embeddings carry none.

    Raises:
        DataError: The column holds something else.
    """
    column = embeddings.columns.get(COLUMN)
    if column is None:
        return None
    values = np.asarray(column, np.float64)
    outside = int(np.count_nonzero(~((values >= 0) & (values <= 1))))
    if values.ndim != 1 or outside:
        raise DataError(
            f"The column '{COLUMN}' of {embeddings.fingerprint} has shape {values.shape}, {outside} of its values are "
            "not between 0 and 1.",
            expected="one number between 0 and 1 per item, as `holdfast embed` writes it",
            to_do="embed again, or give a column of another meaning another name.",
        )
    return values


def seen_items(embeddings: EmbeddingSet, old_classes: Sequence[str] | None) -> NDArray[np.bool_] | None:
    """Return for every item whether its class is one of the old model's, by name; None where nobody can tell."""
    if not old_classes or embeddings.labels is None or embeddings.class_names is None:
        return None
    names = set(old_classes)
    known = np.array([name in names for name in embeddings.class_names], np.bool_)
    seen: NDArray[np.bool_] = known[embeddings.labels]
    return seen


def gallery_uncertainty(
    old_gallery: EmbeddingSet, new_gallery: EmbeddingSet, old_classes: Sequence[str] | None = None
) -> Uncertainty | None:
    """Measure the uncertainty of both models on the gallery, every item once (Fig. 2 of the paper).

    The gallery alone, not the queries: it is what the old model embedded, and with leave-one-out both are the same
    items.

    Args:
        old_gallery: The gallery by the old model, with labels if there are any.
        new_gallery: The same items in the same order by the new model.
        old_classes: Names of the classes that the old model has seen; None where nobody knows.

    Returns:
        Groups are "seen" and "unseen", those without items left out, or "all"; None where no embeddings carry an
        uncertainty.

    Raises:
        DataError: A value is no uncertainty.
    """
    found = {"old": uncertainty_of(old_gallery), "new": uncertainty_of(new_gallery)}
    if all(values is None for values in found.values()):
        return None
    seen = seen_items(old_gallery, old_classes)
    groups = {"all": np.ones(len(old_gallery), np.bool_)} if seen is None else {"seen": seen, "unseen": ~seen}
    return Uncertainty(
        **{model: None if values is None else histogram(values, groups) for model, values in found.items()}
    )


def histogram(values: NDArray[np.float64], groups: dict[str, NDArray[np.bool_]]) -> Histogram:
    """Count values in [0, 1] in bins of one round width that cover all of them, at least 20 where they are 0.02 apart.

    Args:
        values: One number per item (N,).
        groups: Which items belong to a group (N,), by name.

    >>> found = histogram(np.array([0.0, 0.5, 0.99, 1.0]), {"a": np.array([True, True, False, False])})
    >>> len(found.edges), found.edges[:3], found.groups["a"].mean, sum(found.groups["a"].counts)
    (21, [0.0, 0.05, 0.1], 0.25, 2)
    """
    low, high = float(values.min()), float(values.max())
    per_unit = next((count for count in _BINS_PER_UNIT if (high - low) * count >= _FEWEST_BINS), _BINS_PER_UNIT[-1])
    first = min(int(np.floor(low * per_unit)), per_unit - 1)
    last = max(int(np.ceil(high * per_unit)), first + 1)
    edges = np.arange(first, last + 1) / per_unit
    inside = np.clip(values, edges[0], edges[-1])  # a value that rounds to an edge is still counted
    members = {name: inside[rows] for name, rows in groups.items() if rows.any()}
    groups_found = {
        name: Group(items=len(found), mean=float(found.mean()), counts=np.histogram(found, edges)[0].tolist())
        for name, found in members.items()
    }
    return Histogram(edges=edges.tolist(), groups=groups_found)
