"""Embeddings of a few classes by an old model and new models, laid out together in one plane.

All models share one layout, so old embeddings have the same positions in the panel of every new model.

Papers: Prototype Perturbation (NDPP, Fig. 2 and 6) shows old and new embeddings with old prototypes; AdvBCT (Fig. 2)
old and new embeddings; MixBCT a class and the three nearest to it (Fig. 4) and the old embeddings that are treated as
noise (Fig. 5); HBCT (Fig. 6) embeddings on a hyperboloid.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import DataError, SpaceMismatchError, refuse, unknown_name
from limpet.results import Part
from limpet_bench.pictures.layouts import LayoutName, canonical_points, laid_out

OLD, PROTOTYPES, NEW = "old", "old-prototypes", "new"
SHOWN = (OLD, NEW, PROTOTYPES)
"""Kinds of points that a map can show."""

_CLASSES_AT_ONCE = 256

ITEMS = 60
"""Default number of items to draw per class."""


class Cluster(Part):
    """The embeddings of one class by one model.

    Args:
        model: "old", or the name of a new model.
        name: Name of the class.
        ids: Ids of the items (n).
        x: Horizontal positions of the items (n).
        y: Vertical positions of the items (n).
    """

    model: str
    name: str
    ids: list[str]
    x: list[float]
    y: list[float]


class EmbeddingMap(Part):
    """Embeddings of some classes in one plane.

    Args:
        layout: Layout method.
        classes: Class names, in the order of the colours.
        models: Names of the new models; each has a panel.
        clusters: Clusters of the old model first, then those of every new model.
        prototypes: Position of the old prototype of every class; empty if prototypes are not shown.
        apart: Whether the old model has a panel of its own instead of being drawn in those of the new models.
        noise: Ids of items whose old embeddings are marked as noise; empty if noise is not marked.
    """

    layout: LayoutName
    seed: int
    classes: list[str]
    models: list[str]
    clusters: list[Cluster]
    prototypes: dict[str, tuple[float, float]]
    apart: bool = False
    noise: list[str] = Field(default_factory=list)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return columns and rows of a table, with one row per point."""
        rows = [
            [cluster.model, cluster.name, *place]
            for cluster in self.clusters
            for place in zip(cluster.ids, *(map("{:.4f}".format, axis) for axis in (cluster.x, cluster.y)), strict=True)
        ]
        rows += [["old prototype", name, "", f"{x:.4f}", f"{y:.4f}"] for name, (x, y) in self.prototypes.items()]
        return ["model", "class", "item", "x", "y"], rows


def prototypes_of(embeddings: EmbeddingSet) -> EmbeddingSet:
    """Return the class prototypes: the mean point of every class that has items, with class names as ids.

    Raises:
        DataError: The embeddings have no labels.
    """
    import torch

    labels = _labels(embeddings)
    present, own = np.unique(labels, return_inverse=True)
    means, _ = embeddings.space.mean(canonical_points(embeddings), torch.from_numpy(own), len(present))
    names = StringArray.of(_names(embeddings)[present])
    return EmbeddingSet(
        ids=names,
        vectors=means.numpy().astype(np.float32),
        fingerprint=embeddings.fingerprint,
        space=embeddings.space,
        labels=np.arange(len(present)),
        class_names=names,
    )


def choose_classes(
    prototypes: EmbeddingSet,
    *,
    drawn: int | None = None,
    similar: int | None = None,
    nearest: int | None = None,
    around: str | None = None,
    among: Collection[str] | None = None,
    examples: int = 1,
    seed: int = 0,
) -> list[list[str]]:
    """Return the names of classes to draw, one list per example; no class is in two lists.

    Args:
        prototypes: Class prototypes of the old model, from `prototypes_of`.
        drawn: Number of classes, drawn at random.
        similar: Number of classes with the most similar prototypes: those of the most similar pair, of the next pair,
            and so on. If the last pair has one class too many, the first of the two prototypes is used. Further
            examples use the remaining classes.
        nearest: Number of classes whose prototypes are nearest to that of the class ``around``, which is drawn with
            them.
        around: Class for ``nearest``. Default: drawn at random.
        among: Classes to choose from, such as those that have items. Default: all.
        examples: Number of lists; fewer are returned if there are not enough classes.
        seed: Random seed.

    Raises:
        ConfigError: Not exactly one of ``drawn``, ``similar`` and ``nearest`` is given, ``around`` is given without
            ``nearest`` or unknown, or there is no class to draw.
    """
    ways = {"drawn": drawn, "similar": similar, "nearest": nearest}
    refuse(
        sum(number is not None for number in ways.values()) != 1 or (around is not None and nearest is None),
        f"Classes to draw: {', '.join(f'{name} {number}' for name, number in ways.items())}, around {around}.",
        "one of the three: a number of classes to draw at random, of similar classes, or of classes nearest to a class",
    )
    names = list(prototypes.ids)
    if around is not None and around not in names:
        raise unknown_name("class", around, names)
    known = set(names if among is None else among)
    left = [name for name in names if name in known or name == around]
    refuse(not left, "There is no class to draw.", "items of at least one class")
    order = np.random.default_rng(seed).permutation(len(left))
    by_seed = [left[place] for place in order.tolist()]
    found: list[list[str]] = []
    while left and len(found) < examples:
        part = prototypes[np.flatnonzero(np.isin(names, left))]
        if drawn is not None:
            chosen = sorted(by_seed[:drawn], key=names.index)
        elif similar is not None:
            chosen = _most_alike(part, similar)
        else:
            chosen = _nearest_to(around or by_seed[0], part, nearest or 0)
        found.append(chosen)
        left, by_seed = ([name for name in all_left if name not in chosen] for all_left in (left, by_seed))
        if around is not None:
            break
    return found


def _most_alike(prototypes: EmbeddingSet, count: int) -> list[str]:
    """Return the classes of the most similar pairs, in blocks of rows, because there may be 100,000 classes."""
    import torch

    names, space = list(prototypes.ids), prototypes.space
    points = torch.from_numpy(np.array(prototypes.vectors, np.float64))
    most = count * (count - 1) // 2 + count  # this many pairs contain at least `count` classes
    best = (np.empty(0), np.empty((0, 2), np.int64))
    for start in range(0, len(names), _CLASSES_AT_ONCE):
        likeness = space.similarity(points[start : start + _CLASSES_AT_ONCE], points[start:]).numpy()
        again = np.tril_indices(len(likeness), 0, likeness.shape[1])  # count every pair once, and no class with itself
        likeness[again] = -np.inf
        values = likeness.ravel()
        least = np.partition(values, -most)[-most] if len(values) > most else -np.inf
        kept = np.flatnonzero((values >= least) & (values > -np.inf))
        pairs = np.stack(np.divmod(kept, likeness.shape[1]), axis=1) + start
        scores, rows = np.concatenate([best[0], values[kept]]), np.concatenate([best[1], pairs])
        order = np.argsort(-scores, kind="stable")[:most]
        best = scores[order], rows[order]
    chosen = dict.fromkeys(best[1].ravel().tolist() or range(len(names)))
    return [names[row] for row in chosen][:count]


def _nearest_to(name: str, prototypes: EmbeddingSet, count: int) -> list[str]:
    import torch

    names, points = list(prototypes.ids), torch.from_numpy(np.array(prototypes.vectors, np.float64))
    row = names.index(name)
    likeness = prototypes.space.similarity(points[row : row + 1], points).numpy()[0]
    order = [names[place] for place in np.argsort(-likeness, kind="stable").tolist() if place != row]
    return [name, *order[:count]]


def rows_of_classes(embeddings: EmbeddingSet, classes: Sequence[str], items: int, seed: int) -> NDArray[np.int64]:
    """Return rows of at most `items` random items per class, int64 (n,), class after class, ascending within each.

    Raises:
        DataError: The embeddings have no labels, or a class has no item.
    """
    names, generator = _names(embeddings)[_labels(embeddings)], np.random.default_rng(seed)
    rows = [np.sort(generator.permutation(np.flatnonzero(names == name))[:items]) for name in classes]
    for name, found in zip(classes, rows, strict=True):
        if not len(found):
            raise DataError(f"There is no item of the class '{name}' to draw.", expected="classes that have items")
    return np.concatenate(rows).astype(np.int64)


def embedding_map(
    old: EmbeddingSet,
    new: Mapping[str, EmbeddingSet],
    prototypes: EmbeddingSet,
    classes: Sequence[str],
    *,
    layout: LayoutName = "tsne",
    show: Collection[str] = (OLD, NEW),
    apart: bool = False,
    noise: Collection[str] = (),
    seed: int = 0,
) -> EmbeddingMap:
    """Lay out embeddings of a few classes.

    Args:
        old: Items of these classes only, embedded by the old model, with labels.
        new: The same items in the same order, embedded by every new model, by the name of the model.
        prototypes: Class prototypes of the old model, from `prototypes_of`.
        classes: Class names, in the order of the colours.
        layout: Layout method.
        show: Kinds of points to show, from `SHOWN`.
        apart: Whether to draw the old model in a panel of its own.
        noise: Ids of items whose old embeddings are marked as noise.
        seed: Random seed of the layout.

    Raises:
        ConfigError: A kind of points is unknown, there are too few points, or a package is missing.
        DataError: A new model embedded different items, or the old embeddings have no labels.
        SpaceMismatchError: A new model has another space than the old one.
    """
    for name in show:
        if name not in SHOWN:
            raise unknown_name("thing to show", name, SHOWN)
    _check_alike(old, new)
    shown = {OLD: old} if OLD in show else {}
    shown |= new if NEW in show else {}
    wanted = prototypes[np.flatnonzero(np.isin(_names(prototypes), list(classes)))]
    parts = [*shown.values(), *([wanted] if PROTOTYPES in show else [])]
    refuse(not parts, "A picture of nothing.", f"some of {', '.join(SHOWN)} to show")
    vectors = np.concatenate([canonical_points(part).numpy() for part in parts])
    together = EmbeddingSet(
        ids=StringArray.of(map(str, range(len(vectors)))), vectors=vectors, fingerprint=old.fingerprint, space=old.space
    )
    plane = laid_out(together, layout, seed)
    names, noisy = _names(old)[_labels(old)], set(noise)
    clusters = []
    for number, model in enumerate(shown):
        places = plane[number * len(old) : (number + 1) * len(old)]
        for name in classes:
            rows = np.flatnonzero(names == name)
            x, y = places[rows].T.tolist()
            clusters.append(Cluster(model=model, name=name, ids=list(old.ids[rows]), x=x, y=y))
    of_prototypes = dict(zip(wanted.ids, plane[len(shown) * len(old) :].tolist(), strict=False))
    return EmbeddingMap(
        layout=layout,
        seed=seed,
        classes=list(classes),
        models=list(new) if NEW in show else [],
        clusters=clusters,
        prototypes={
            name: (of_prototypes[name][0], of_prototypes[name][1]) for name in classes if name in of_prototypes
        },
        apart=apart and OLD in show and NEW in show,
        noise=[name for name in old.ids if name in noisy] if OLD in show else [],
    )


def _check_alike(old: EmbeddingSet, new: Mapping[str, EmbeddingSet]) -> None:
    for name, embeddings in new.items():
        if embeddings.space != old.space:
            raise SpaceMismatchError(
                f"The old model is on the {old.space}, '{name}' on the {embeddings.space}.",
                expected="one space, whose distances lay out all of them",
            )
        if embeddings.ids != old.ids:
            raise DataError(f"'{name}' and the old model embedded different items.", expected="the same, in one order")


def _labels(embeddings: EmbeddingSet) -> NDArray[np.int64]:
    if embeddings.labels is None:
        raise DataError(
            f"The embeddings of {embeddings.fingerprint} have no labels.",
            expected="a class for every item, whose colour it gets",
            to_do="embed images that lie in folders by class, or give files with labels.",
        )
    return embeddings.labels


def _names(embeddings: EmbeddingSet) -> NDArray[np.str_]:
    """Return the name of every class (C,), or its number if classes have no names."""
    if embeddings.class_names is not None:
        return np.array(list(embeddings.class_names), np.str_)
    return np.arange(int(_labels(embeddings).max(initial=-1)) + 1).astype(np.str_)
