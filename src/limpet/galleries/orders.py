"""In which order items get their new vectors: pure functions of what is known of them.

What is embedded first decides how soon searches get better (FastFill, arXiv:2303.04766). Every order depends on ids,
metadata, vectors and the seed alone, and never has all vectors in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.errors import ConfigError, unknown_name
from limpet.galleries.expected_gain import expected_gains, learnt_variances
from limpet.galleries.items import pages
from limpet.galleries.state import GalleryState, Progress
from limpet.stores.base import Store


@dataclass(frozen=True)
class Backlog:
    """Items without a vector of a generation, and how an order learns what it needs of them.

    Args:
        ids: Their ids, ascending (N).
        classes: Returns the class of every item (N); None for one without.
        traffic: Returns how often items were retrieved, by id.
        gains: Returns how much every item is expected to gain by a new vector (N,), in any unit.
        variances: Returns how far what stands for its new vector is expected to be from it, squared (N,).
    """

    ids: Sequence[str]
    classes: Callable[[], Sequence[Any]]
    traffic: Callable[[], Mapping[str, int]]
    gains: Callable[[], NDArray[np.float64]]
    variances: Callable[[], NDArray[np.float64]]


Order = Callable[[Backlog, int], list[str]]
"""From a backlog and a seed to its ids, the first to be embedded first."""


def by_id(backlog: Backlog, seed: int) -> list[str]:
    """Ascending by id."""
    return list(backlog.ids)


def at_random(backlog: Backlog, seed: int) -> list[str]:
    """In an order drawn from the seed."""
    rows = np.random.default_rng(seed).permutation(len(backlog.ids))
    return [backlog.ids[row] for row in rows]


def by_uncertainty(backlog: Backlog, seed: int) -> list[str]:
    """Those first whose old vectors serve the new model worst, see `expected_gains`; ties by id."""
    return [backlog.ids[row] for row in np.argsort(-backlog.gains(), kind="stable")]


def by_variance(backlog: Backlog, seed: int) -> list[str]:
    """Those first whose mapped vectors are least to be relied on, as the adapter learnt it; ties by id.

    FastFill's order (arXiv:2303.04766); see `learnt_variances`.
    """
    return [backlog.ids[row] for row in np.argsort(-backlog.variances(), kind="stable")]


def by_traffic(backlog: Backlog, seed: int) -> list[str]:
    """The most retrieved first, ties by id.

    Raises:
        ConfigError: Nobody counted what was retrieved.
    """
    retrieved = backlog.traffic()
    if not retrieved and len(backlog.ids):
        raise ConfigError(
            "The order 'traffic' of a gallery that has not counted what was retrieved.",
            expected="a gallery that searches were counted in",
            to_do="open it with count_traffic=True where it is searched, or choose another order.",
        )
    counts = np.array([retrieved.get(identifier, 0) for identifier in backlog.ids], np.int64)
    return [backlog.ids[row] for row in np.argsort(-counts, kind="stable")]


def class_balanced(backlog: Backlog, seed: int) -> list[str]:
    """One item of every class, then another one of each, and so on: whenever it stops, classes are equally far.

    Which item of a class comes first is drawn from the seed. Items without a class come last.

    >>> unknown = lambda: np.zeros(4)
    >>> backlog = Backlog(["a", "b", "c", "d"], lambda: ["x", "x", None, "y"], dict, unknown, unknown)
    >>> ["xxny"["abcd".index(name)] for name in class_balanced(backlog, seed=0)]
    ['x', 'y', 'x', 'n']
    """
    drawn = np.random.default_rng(seed).permutation(len(backlog.ids))
    codes = class_codes(backlog.classes())[drawn]
    by_class = np.argsort(codes, kind="stable")
    _, starts, counts = np.unique(codes[by_class], return_index=True, return_counts=True)
    rounds = np.empty(len(codes), np.int64)
    rounds[by_class] = np.arange(len(codes)) - np.repeat(starts, counts)
    return [backlog.ids[drawn[row]] for row in np.lexsort((codes, rounds, codes < 0))]


ORDERS: dict[str, Order] = {
    "id": by_id,
    "random": at_random,
    "uncertainty": by_uncertainty,
    "variance": by_variance,
    "traffic": by_traffic,
    "class-balanced": class_balanced,
}


def class_codes(classes: Sequence[Any]) -> NDArray[np.int64]:
    """Return the rank of every item's class among those that occur (N,), ascending; -1 for an item without one.

    >>> class_codes(["b", None, "a", "b"]).tolist()
    [1, -1, 0, 1]
    """
    number = {name: place for place, name in enumerate(sorted({name for name in classes if name is not None}))}
    return np.array([-1 if name is None else number[name] for name in classes], np.int64)


def order_ids(
    store: Store,
    state: GalleryState,
    target: str,
    order: str,
    *,
    seed: int = 0,
    class_column: str = "label",
    on_step: Progress | None = None,
) -> list[str]:
    """Return the ids of the items without a vector of a generation, the first to be embedded first.

    Args:
        store: The gallery's.
        state: Of the gallery.
        target: The generation.
        order: Name in `ORDERS`.
        seed: Of random orders and samples.
        class_column: Metadata column with the class, for "class-balanced", and for "uncertainty" where nothing else
            helps.
        on_step: Told "step", "done" and "total" while vectors are read.

    Raises:
        ConfigError: An unknown order or column, or an order that cannot be had from what the gallery knows.
    """
    if order not in ORDERS:
        raise unknown_name("order", order, ORDERS)
    ids, classes = _lacking(store, target, class_column)

    def known_classes() -> Sequence[Any]:
        if class_column not in state.columns:
            raise unknown_name("metadata column", class_column, state.columns)
        return classes

    def gains() -> NDArray[np.float64]:
        codes = class_codes(classes) if class_column in state.columns else None
        return expected_gains(store, state, target, ids, codes, seed=seed, on_step=on_step)

    def variances() -> NDArray[np.float64]:
        return learnt_variances(store, state, target, ids, on_step=on_step)

    backlog = Backlog(ids, classes=known_classes, traffic=store.traffic, gains=gains, variances=variances)
    return ORDERS[order](backlog, seed)


def _lacking(store: Store, target: str, class_column: str) -> tuple[list[str], list[Any]]:
    """Return ids of the items without a vector of a generation, ascending, and their classes."""
    ids: list[str] = []
    classes: list[Any] = []
    names: dict[Any, Any] = {}  # one object per class, not per item
    for items in pages(store, lacking=target):
        ids += items.ids
        class_names = (metadata.get(class_column) for metadata in items.metadata)
        classes += [names.setdefault(name, name) for name in class_names]
    return ids, classes
