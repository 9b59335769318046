"""New score thresholds from the vectors that a gallery holds of two models."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from limpet.engines.store import Store
from limpet.errors import DataError
from limpet.evaluation.thresholds import FEWEST_QUERIES, Thresholds
from limpet.galleries.items import sample, vectors_of_both
from limpet.galleries.state import Generation
from limpet.support.ranges import PositiveInt, Seed, checked

_QUERIES = 500


@checked
def thresholds(
    store: Store, old: Generation, new: Generation, *, items: PositiveInt = 2000, class_column: str = "label",
    seed: Seed = 0,
) -> Thresholds:  # fmt: skip
    """Convert score thresholds of one model to those of another, each on its own vectors.

    Random items that have vectors of both search each other; at most 500 of them are queries. They represent queries as
    far as a model embeds queries like items: otherwise, measure with queries, in a rehearsal.

    Args:
        store: Store of the gallery.
        old: The generation of the old model.
        new: The generation of the new model.
        items: Number of items to draw.
        class_column: Column of the class, if there is one: items of the same class are relevant.
        seed: Random seed of the sample.

    Raises:
        DataError: Too few items have vectors of both models.
    """
    drawn = [name for name, _ in sample(store, items, seed, holding=[new.name])]
    ids, *forms = vectors_of_both(store, old.name, new.name, drawn)
    if len(ids) < FEWEST_QUERIES:
        raise DataError(
            f"{len(ids)} items have vectors of {old.name} and of {new.name}.", expected=f"at least {FEWEST_QUERIES}",
            to_do="backfill some items first, or measure on a copy: `limpet upgrade rehearse`.",
        )  # fmt: skip
    before, after = (_scores(*one) for one in zip((old, new), forms, strict=True))
    found = store.fetch(ids)
    known = dict(zip(found.ids, (row.get(class_column) for row in found.metadata), strict=True))
    classes = np.array(["" if known[name] is None else str(known[name]) for name in ids])
    relevant = (classes[:_QUERIES, None] == classes) & (classes != "")
    return Thresholds.of(before, after, (relevant, relevant) if relevant.any() else None, seed=seed)


def _scores(generation: Generation, stored: NDArray[np.float32]) -> NDArray[np.float64]:
    space = generation.geometry
    asked = space.query_form(space.from_index_form(stored[:_QUERIES]), space)
    scores: NDArray[np.float64] = (asked @ stored.T).astype(np.float64)
    np.fill_diagonal(scores, np.nan)  # an item does not match itself
    return scores
