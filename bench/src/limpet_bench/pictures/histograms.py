"""Histograms of values of items, by model: uncertainty, radius, and the angle between old and new embedding.

Paper: Learning Along the Arrow of Time (HBCT), Fig. 2 (uncertainty of the old model for seen and unseen classes) and
the histograms of Fig. 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.evaluation import Histogram, histogram, seen_items, uncertainty_of
from limpet.results import Part

Quantity = Literal["uncertainty", "angle", "radius"]
Values = NDArray[np.float64]  # (N,)


class Measure(NamedTuple):
    """A quantity of items and how to compute it.

    Args:
        words: Axis title.
        most: Largest possible value.
        alone: Function of the embeddings of one model; None for a quantity between two models.
        paired: Function of old and new embeddings of the same items; None for a quantity of one model.
        longest: See `histogram`.
    """

    words: str
    most: float
    alone: Callable[[EmbeddingSet], Values] | None = None
    paired: Callable[[EmbeddingSet, EmbeddingSet], Values] | None = None
    longest: Literal["smallest", "largest"] | None = None


class Histograms(Part):
    """Histograms of one quantity, by model.

    Args:
        split: Whether items are grouped by whether the old model has seen their class.
        panels: Histograms by model, all with the same bins: "old" first if the quantity is of one model, then the new
            models by name.
    """

    quantity: Quantity
    split: bool
    panels: dict[str, Histogram]

    @property
    def words(self) -> str:
        """Axis title of the quantity."""
        return MEASURES[self.quantity].words

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return columns and rows of a table, with one row per bin that is not empty."""
        rows = [
            [model, group, f"{low:g}", f"{high:g}", str(count)]
            for model, found in self.panels.items()
            for group, members in found.groups.items()
            for low, high, count in zip(found.edges, found.edges[1:], members.counts, strict=False)
            if count
        ]
        return ["model", "group", "from", "to", "items"], rows


def histograms(
    quantity: Quantity,
    old: EmbeddingSet,
    new: Mapping[str, EmbeddingSet],
    old_classes: Sequence[str] | None = None,
) -> Histograms:
    """Return histograms of a quantity of the same items by several models.

    Args:
        quantity: The quantity, a key of `MEASURES`.
        old: Items embedded by the old model.
        new: The same items in the same order, embedded by new models, by name.
        old_classes: Names of the classes that the old model has seen, to separate seen from unseen items; None for one
            group of all items.

    Raises:
        ConfigError: Classes are to be separated, but items have no class names.
        DataError: There is no item or no model to compare, a new model embedded different items, or the quantity is
            not defined for the embeddings.
        SpaceMismatchError: The quantity is between two models, and their spaces differ.
    """
    measure = MEASURES[quantity]
    for name, embeddings in new.items():
        if embeddings.ids != old.ids:
            raise DataError(f"'{name}' and the old model embedded different items.", expected="the same, in one order")
    if not len(old) or (measure.alone is None and not new):
        raise DataError(
            f"A histogram of {len(old)} items by {1 + len(new)} models.",
            expected="one item at least, and for what is between two models an old and a new one",
        )
    seen = seen_items(old, old_classes)
    if old_classes is not None and seen is None:
        raise ConfigError(
            "Classes that the old model has seen are to be kept apart, but it is unknown which these are.",
            expected="items with class names, and a release that names the classes it was trained on",
        )
    groups = {"all": np.ones(len(old), np.bool_)} if seen is None else {"seen": seen, "unseen": ~seen}
    values: dict[str, Values] = {}
    if measure.alone is not None:
        values = {name: measure.alone(embeddings) for name, embeddings in {"old": old, **new}.items()}
    if measure.paired is not None:
        values |= {name: measure.paired(old, embeddings) for name, embeddings in new.items()}
    span = (min(float(one.min()) for one in values.values()), max(float(one.max()) for one in values.values()))
    panels = {name: histogram(found, groups, measure.most, span, measure.longest) for name, found in values.items()}
    return Histograms(quantity=quantity, split=seen is not None, panels=panels)


def angles(old: EmbeddingSet, new: EmbeddingSet) -> Values:
    """Return the angle at the origin between old and new embedding of every item, in degrees, 0 to 180 (N,).

    Raises:
        SpaceMismatchError: The models have different spaces or dimensions.
    """
    if old.space.name != new.space.name or old.dim != new.dim:
        raise SpaceMismatchError(
            f"The angle between embeddings on the {old.space} and on the {new.space}.",
            expected="models of one space and dimension",
        )
    first, second = (
        rows / np.maximum(np.linalg.norm(rows, axis=1), 1e-30)[:, None] for rows in map(_tangents, (old, new))
    )
    chord = np.linalg.norm(first - second, axis=1)  # 2 asin is precise for small angles, where the cosine is near 1
    found: Values = np.degrees(2 * np.arcsin(np.clip(chord / 2, 0, 1)))
    return found


def radii(embeddings: EmbeddingSet) -> Values:
    """Return the distance of every item from the origin (N,).

    Raises:
        DataError: The space ignores lengths.
    """
    if not embeddings.space.lengths_count:
        raise DataError(
            f"The radius of embeddings on the {embeddings.space}, where only directions count.",
            expected="embeddings of a space in which lengths count, such as lorentz",
            to_do="draw angles instead: of='angle' in the suite.",
        )
    found: Values = np.linalg.norm(_tangents(embeddings), axis=1)
    return found


def uncertainties(embeddings: EmbeddingSet) -> Values:
    """Return the uncertainty of every item (N,), in [0, 1].

    Raises:
        DataError: The embeddings have no uncertainty.
    """
    found = uncertainty_of(embeddings)
    if found is None:
        raise DataError(
            f"The embeddings of {embeddings.fingerprint} carry no uncertainty.",
            expected="embeddings on a space that knows one (lorentz), as `limpet embed` writes them",
            to_do="draw angles instead: of='angle' in the suite.",
        )
    return found


MEASURES: dict[Quantity, Measure] = {
    "uncertainty": Measure("uncertainty", 1.0, alone=uncertainties, longest="smallest"),
    "radius": Measure("distance from the origin", np.inf, alone=radii, longest="largest"),
    "angle": Measure("angle between old and new embedding, in degrees", 180.0, paired=angles),
}
"""Quantities by name."""


def _tangents(embeddings: EmbeddingSet) -> NDArray[np.float64]:
    """Return the tangent vectors at the origin (N, D)."""
    import torch

    rows = torch.from_numpy(np.array(embeddings.vectors, np.float64))
    found: NDArray[np.float64] = (embeddings.space.unproject(rows) if embeddings.form == "points" else rows).numpy()
    return found
