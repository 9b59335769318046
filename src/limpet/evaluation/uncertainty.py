"""Uncertainty of the models on the gallery: histograms, and sample items on the Poincaré disk.

Spaces in which the length of a vector says something, such as hyperbolic space, give every item an uncertainty in
[0, 1]: 1 at the origin, 0 infinitely far from it. Embedding stores it in a column of the set; this module depends only
on that column. Histograms tell classes that the old model has seen from others.

Paper: Learning Along the Arrow of Time (HBCT), which finds unseen classes more uncertain. Its Fig. 6 uses UMAP, which
gives up distances (`limpet_bench.pictures.layouts`). Here the distance from the origin is exact, only the direction is
a projection, and nothing is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.embeddings.embedding_set import UNCERTAINTY
from limpet.errors import DataError
from limpet.evaluation.sides import matched
from limpet.geometry.lorentz_arrays import log_map0
from limpet.results import Part
from limpet.support.ranges import PositiveInt, Seed, checked

_FEWEST_BINS = 20  # over the values that occur
_BINS_PER_UNIT = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Group(Part):
    """Values of a group of items.

    Args:
        counts: Number of items in each bin (B,).
        clipped: Share of them at the model's largest length, within 1e-5 of the value there; vectors that are not
            clipped hardly share one. None where the value does not depend on the length.
    """

    items: int
    mean: float
    counts: list[int]
    clipped: float | None = None


class Histogram(Part):
    """Histogram of values, by group of items.

    Args:
        edges: Edges of the bins (B + 1,); each bin includes its lower edge, the last one both.
        groups: Non-empty groups by name.
        auc: Probability that an item of an unseen class has a larger value than one of a seen class, ties counted half;
            None without either group.
    """

    edges: list[float]
    groups: dict[str, Group]
    auc: float | None = None


class Uncertainty(Part):
    """Uncertainty of both models on the gallery; None for a model whose embeddings do not include it."""

    old: Histogram | None
    new: Histogram | None


def uncertainty_of(embeddings: EmbeddingSet) -> NDArray[np.float64] | None:
    """Return the uncertainty of every item (N,), in [0, 1], or None if the embeddings do not include it.

    Raises:
        DataError: The column holds something else.
    """
    column = embeddings.columns.get(UNCERTAINTY)
    if column is None:
        return None
    values = np.asarray(column, np.float64)
    outside = int(np.count_nonzero(~((values >= 0) & (values <= 1))))
    if values.ndim != 1 or outside:
        raise DataError(
            f"The column '{UNCERTAINTY}' of {embeddings.fingerprint} has shape {values.shape}, {outside} of its values "
            "are not between 0 and 1.",
            expected="one number between 0 and 1 per item, as `limpet embed` writes it",
            to_do="embed again, or give a column of another meaning another name.",
        )
    return values


def seen_items(embeddings: EmbeddingSet, old_classes: Sequence[str] | None) -> NDArray[np.bool_] | None:
    """Return whether the class of every item is one of the old model's, by name; None if unknown."""
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

    Queries are left out: the old model embedded the gallery, and with leave-one-out both are the same items.

    Args:
        old_gallery: The gallery by the old model, with or without labels.
        new_gallery: The same items in the same order by the new model.
        old_classes: Names of the classes that the old model has seen; None if unknown.

    Returns:
        Histograms in the groups "seen" and "unseen", without empty groups, or in one group "all"; None if no embeddings
        carry an uncertainty.

    Raises:
        DataError: A value is no uncertainty.
    """
    by_model = {"old": uncertainty_of(old_gallery), "new": uncertainty_of(new_gallery)}
    if all(values is None for values in by_model.values()):
        return None
    seen = seen_items(old_gallery, old_classes)
    groups = {"all": np.ones(len(old_gallery), np.bool_)} if seen is None else {"seen": seen, "unseen": ~seen}
    return Uncertainty(
        **{model: None if values is None else histogram(values, groups) for model, values in by_model.items()}
    )


def histogram(
    values: NDArray[np.float64],
    groups: dict[str, NDArray[np.bool_]],
    most: float = 1.0,
    span: tuple[float, float] | None = None,
    longest: Literal["smallest", "largest"] | None = "smallest",
) -> Histogram:
    """Count values in bins of one round width that cover all of them, at least 20 where they are 0.02 apart.

    Args:
        values: One number of at least 0 per item (N,).
        groups: Which items belong to a group (N,), by name.
        most: The largest value there can be, where a bin may end.
        span: What the bins cover, such as the values of several models, whose bins are then alike; the values' own
            when left out.
        longest: Whether the longest vectors have the smallest value, as with uncertainty, or the largest; None where
            the value does not depend on the length.

    >>> found = histogram(np.array([0.0, 0.5, 0.99, 1.0]), {"a": np.array([True, True, False, False])})
    >>> len(found.edges), found.edges[:3], found.groups["a"].mean, sum(found.groups["a"].counts)
    (21, [0.0, 0.05, 0.1], 0.25, 2)
    >>> seen = np.array([True, True, True, False, False])
    >>> found = histogram(np.array([0.2, 0.2, 0.4, 0.2, 0.6]), {"seen": seen, "unseen": ~seen})
    >>> round(found.groups["seen"].clipped, 3), found.groups["unseen"].clipped, round(found.auc, 3)
    (0.667, 0.5, 0.667)
    """
    low, high = (float(values.min()), float(values.max())) if span is None else span
    per_unit = next((count for count in _BINS_PER_UNIT if (high - low) * count >= _FEWEST_BINS), _BINS_PER_UNIT[-1])
    first = int(min(np.floor(low * per_unit), most * per_unit - 1))
    last = max(int(np.ceil(high * per_unit)), first + 1)
    edges = np.arange(first, last + 1) / per_unit
    inside = np.clip(values, edges[0], edges[-1])  # a value that rounds to an edge is still counted
    limit = None if longest is None or not len(inside) else inside.min() if longest == "smallest" else inside.max()
    at_limit = np.zeros(len(inside), np.bool_) if limit is None else np.isclose(inside, limit, rtol=1e-5, atol=1e-5)
    groups_found = {
        name: Group(
            items=int(rows.sum()),
            mean=float(inside[rows].mean()),
            counts=np.histogram(inside[rows], edges)[0].tolist(),
            clipped=None if limit is None else float(at_limit[rows].mean()),
        )
        for name, rows in groups.items()
        if rows.any()
    }
    auc = None
    if {"seen", "unseen"} <= groups_found.keys():
        from scipy.stats import mannwhitneyu

        of_seen, of_unseen = inside[groups["seen"]], inside[groups["unseen"]]
        auc = float(mannwhitneyu(of_unseen, of_seen).statistic / (len(of_seen) * len(of_unseen)))
    return Histogram(edges=edges.tolist(), groups=groups_found, auc=auc)


@dataclass(frozen=True, eq=False)
class DiskClass:
    """The items of one class that were chosen; row i is the same item for both models.

    Args:
        seen: Whether the old model has seen the class; None if unknown.
        ids: Item ids (n).
        old: Positions by the old model, (n, 2), inside the unit disk.
        new: Positions by the new model, (n, 2).
        old_uncertainty: Mean uncertainty of these items by the old model.
        new_uncertainty: Mean uncertainty of these items by the new model.
    """

    name: str
    seen: bool | None
    ids: tuple[str, ...]
    old: NDArray[np.float64]
    new: NDArray[np.float64]
    old_uncertainty: float
    new_uncertainty: float


@dataclass(frozen=True)
class PoincareDisk:
    """Two models on the Poincaré disk of curvature -1; its rim is infinitely far from the origin.

    Args:
        classes: Those that were chosen, seen ones first.
        old_share: How much of the squared lengths of the old tangent vectors the two directions hold, in [0, 1].
        new_share: The same for the new tangent vectors.
    """

    classes: tuple[DiskClass, ...]
    old_share: float
    new_share: float


@checked
def choose_disk(
    old_gallery: EmbeddingSet,
    new_gallery: EmbeddingSet,
    *,
    old_classes: Sequence[str] | None = None,
    classes: PositiveInt = 6,
    items: PositiveInt = 30,
    seed: Seed = 0,
) -> PoincareDisk | None:
    """Choose classes and items at random, and place them on the disk by both models.

    Half of the classes are unseen by the old model, if its classes are known and enough are unseen. The distance from
    the origin is exact. The direction is that of the tangent vector at the origin, projected onto the two directions in
    which the old model's tangent vectors are longest; the new vectors are projected onto the same two. These are
    principal components about the origin, not about the mean, because directions are seen from the origin.

    Args:
        old_gallery: The gallery by the old model.
        new_gallery: The same items by the new model.
        old_classes: Names of the classes that the old model has seen; None if unknown.
        classes: Maximum number of classes.
        items: Maximum number of items per class.
        seed: Random seed for the choice.

    Returns:
        The disk; None without labels, without uncertainties, or in a space without curvature.

    Raises:
        ConfigError: Fewer than one class or item.
        DataError: Fingerprints or labels contradict each other, or a value is no uncertainty.
        EmptyOverlapError: The models embedded different items.
        SpaceMismatchError: The old and the new model have different spaces.
    """
    uncertain = [uncertainty_of(gallery) is not None for gallery in (old_gallery, new_gallery)]
    curvature = old_gallery.space.curvature
    if not all(uncertain) or curvature is None:
        return None
    models = matched((old_gallery, old_gallery), (new_gallery, new_gallery))
    old, new = models.old[1], models.new[1]
    if old.labels is None:
        return None
    seen = seen_items(old, old_classes)
    groups = _sample(old.labels, seen, classes, items, seed)
    rows = np.concatenate(groups)
    old_tangents, new_tangents = (_tangents(side[rows], curvature) for side in (old, new))
    directions = main_directions(old_tangents)
    places = [on_disk(tangents, directions, curvature) for tangents in (old_tangents, new_tangents)]
    ends = np.cumsum([len(group) for group in groups])[:-1]
    chosen = [
        _disk_class(old[group], new[group], None if seen is None else bool(seen[group[0]]), *sides)
        for group, *sides in zip(groups, *(np.split(side, ends) for side in places), strict=True)
    ]
    return PoincareDisk(tuple(chosen), *(_share(tangents, directions) for tangents in (old_tangents, new_tangents)))


def _disk_class(
    old: EmbeddingSet,
    new: EmbeddingSet,
    seen: bool | None,
    old_places: NDArray[np.float64],
    new_places: NDArray[np.float64],
) -> DiskClass:
    label = 0 if old.labels is None else int(old.labels[0])
    name = str(label) if old.class_names is None else old.class_names[label]
    means = (0.0 if values is None else float(values.mean()) for values in map(uncertainty_of, (old, new)))
    return DiskClass(name, seen, tuple(old.ids), old_places, new_places, *means)


def _sample(
    labels: NDArray[np.int64], seen: NDArray[np.bool_] | None, classes: int, items: int, seed: int
) -> list[NDArray[np.int64]]:
    """Return rows of items by class: seen classes first, half of them unseen where there are enough of both.

    >>> labels = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    >>> [labels[rows].tolist() for rows in _sample(labels, labels < 3, classes=2, items=1, seed=0)]
    [[2], [3]]
    """
    generator = np.random.default_rng(seed)
    known = np.ones(len(labels), np.bool_) if seen is None else seen
    familiar, unfamiliar = (generator.permutation(np.unique(labels[rows])) for rows in (known, ~known))
    strange = min(len(unfamiliar), max(classes // 2, classes - len(familiar)))
    chosen = [*np.sort(familiar[: classes - strange]), *np.sort(unfamiliar[:strange])]
    return [np.sort(generator.permutation(np.flatnonzero(labels == label))[:items]) for label in chosen]


def _tangents(embeddings: EmbeddingSet, curvature: float) -> NDArray[np.float64]:
    """Return tangent vectors at the origin (N, D); their lengths are the distances from the origin."""
    points = np.asarray(embeddings.vectors)
    points = points if embeddings.form == "points" else embeddings.space.project_array(points)
    return log_map0(points.astype(np.float64), curvature)


def main_directions(tangents: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the two orthonormal directions (2, D) in which vectors (N, D) are longest; zero where there is none.

    The sign of each is such that its largest component is positive.

    >>> main_directions(np.array([[0.0, -3.0], [1.0, 0.0]]))
    array([[0., 1.],
           [1., 0.]])
    """
    _, lengths, rows = np.linalg.svd(tangents, full_matrices=False)
    directions = np.zeros((2, tangents.shape[1]))
    directions[: len(rows)] = rows[:2] * (lengths[:2] > 0)[:, None]
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    return directions * np.where(largest < 0, -1.0, 1.0) + 0.0


def on_disk(tangents: NDArray[np.float64], directions: NDArray[np.float64], curvature: float) -> NDArray[np.float64]:
    """Place tangent vectors (N, D) on the Poincaré disk (N, 2): exact distance from the origin, projected direction.

    A point at distance r from the origin has radius tanh(sqrt(K) r / 2), in [0, 1].
    """
    radius = np.tanh(np.sqrt(curvature) * np.linalg.norm(tangents, axis=1) / 2)
    x, y = (tangents @ directions.T).T
    angle = np.arctan2(y, x)
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)


def ring_radius(uncertainty: float) -> float:
    """Return the radius on the disk of the points with this uncertainty, the same for every curvature.

    An uncertainty u is 1 - tanh(sqrt(K) r) at distance r, and the radius is tanh(sqrt(K) r / 2).

    >>> round(ring_radius(0.2), 12), ring_radius(0.0), ring_radius(1.0)
    (0.5, 1.0, 0.0)
    """
    certainty = 1 - uncertainty
    return certainty / (1 + float(np.sqrt(1 - certainty**2)))


def _share(tangents: NDArray[np.float64], directions: NDArray[np.float64]) -> float:
    return float(np.sum((tangents @ directions.T) ** 2) / max(float(np.sum(tangents**2)), np.finfo(np.float64).tiny))
