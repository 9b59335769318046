"""Orders in which a backfill embeds items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import StringArray
from limpet.embeddings.string_array import IdIndex
from limpet.engines.store import Store, Vectors
from limpet.errors import ConfigError, unknown_name
from limpet.galleries.items import pages
from limpet.galleries.state import GalleryState
from limpet.geometry import Space
from limpet.support.progress import Progress, Told, listener, showing

_Values = NDArray[np.float64]


@dataclass(frozen=True)
class Backlog:
    """Items without a vector of a generation, and functions that return the data of orders.

    Args:
        ids: Ids of the items, ascending (N).
        traffic: Returns the number of retrievals by id.
        uncertainty: Returns the uncertainty of the old vectors (N,); see `uncertainties`.
    """

    ids: Sequence[str]
    traffic: Callable[[], Mapping[str, int]]
    uncertainty: Callable[[], _Values]


_Order = Callable[[Backlog, int], list[str]]
"""Function from a backlog and a random seed to its ids in the order of embedding."""


def by_id(backlog: Backlog, seed: int) -> list[str]:
    """Return the ids in ascending order."""
    return list(backlog.ids)


def at_random(backlog: Backlog, seed: int) -> list[str]:
    """Return the ids in a random order that depends on the seed."""
    rows = np.random.default_rng(seed).permutation(len(backlog.ids))
    return [backlog.ids[row] for row in rows]


def by_uncertainty(backlog: Backlog, seed: int) -> list[str]:
    """Return the ids by falling uncertainty of the old vectors, ties by id.

    Raises:
        ConfigError: No old vector has an uncertainty.
    """
    return [backlog.ids[row] for row in np.argsort(-backlog.uncertainty(), kind="stable")]


def by_traffic(backlog: Backlog, seed: int) -> list[str]:
    """Return the ids by falling number of retrievals, ties by id.

    Raises:
        ConfigError: The gallery has not counted retrievals.
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


ORDERS: dict[str, _Order] = {
    "id": by_id,
    "random": at_random,
    "uncertainty": by_uncertainty,
    "traffic": by_traffic,
}


@showing("order")
def order_ids(
    store: Store, state: GalleryState, target: str, order: str, *, seed: int = 0, progress: Progress[Told] = None
) -> list[str]:
    """Return the ids of the items without a vector of a generation, in the order of embedding.

    Args:
        store: Store of the gallery.
        state: State of the gallery.
        target: Name of the generation.
        order: Name of the order, from `ORDERS`.
        seed: Random seed of random orders.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "step", "done" and "total"
            while vectors are read.

    Raises:
        ConfigError: The order is unknown, or the gallery does not hold what it needs.
    """
    if order not in ORDERS:
        raise unknown_name("order", order, ORDERS)
    ids = [one for items in pages(store, lacking=target) for one in items.ids]
    backlog = Backlog(ids, store.traffic, lambda: uncertainties(store, state, target, ids, progress=progress))
    return ORDERS[order](backlog, seed)


def lorentz_uncertainty(points: Vectors, curvature: float) -> _Values:
    """Return 1 − ‖s‖/t of points s (N, D) with time t, in (0, 1]: `Lorentz.uncertainty` without torch.

    >>> lorentz_uncertainty(np.array([[0.0, 0.75], [0.0, 0.0]], np.float32), 1.0).tolist()  # t = 5/4
    [0.4, 1.0]
    """
    squares = np.einsum("nd,nd->n", points, points, dtype=np.float64)
    times, lengths = np.sqrt(1 / curvature + squares), np.sqrt(squares)
    values: _Values = np.minimum(1 / (curvature * times * (times + lengths)), 1)
    return values


_UNCERTAINTY: Mapping[str, Callable[[Space, Vectors], _Values]] = {
    "lorentz": lambda space, points: lorentz_uncertainty(points, float(space.curvature or 1)),
}
"""Functions that return the uncertainty of points, by the name of their space."""


@showing("order")
def uncertainties(
    store: Store, state: GalleryState, target: str, ids: Sequence[str], *, progress: Progress[Told] = None
) -> _Values:
    """Return the uncertainty of the newest vector of every item (N,).

    It is infinite for an item without a vector, and minus infinity if the space of the vector defines no uncertainty.

    Args:
        store: Store of the gallery.
        state: State of the gallery.
        target: Generation that the items lack.
        ids: Ids of the items, ascending (N).
        progress: "rich" or "tqdm" for a bar, or a function that is called with "step", "done" and "total"
            while vectors are read.

    Raises:
        ConfigError: There are vectors, but the space of none defines an uncertainty.
    """
    values, index, unseen = np.full(len(ids), np.inf), IdIndex(StringArray.of(ids)), np.ones(len(ids), np.bool_)
    for generation in reversed(state.generations):
        if generation.name == target or not unseen.any():
            continue
        space, done = generation.geometry, 0
        known, total = _UNCERTAINTY.get(space.name), store.pointer().covered([generation.name])
        for names, _, vectors in store.scan_rows(generation.name):
            places = index.find(names)
            mine = places >= 0
            mine[mine] = unseen[places[mine]]
            rows = places[mine]
            values[rows] = -np.inf if known is None else known(space, space.from_index_form(vectors[mine]))
            unseen[rows] = False
            done += len(names)
            listener(progress)({"step": f"reading {generation.name}", "done": done, "total": total})
    if np.isneginf(values).any() and not np.isfinite(values).any():
        raise ConfigError(
            "The order 'uncertainty': the stored vectors carry no uncertainty.",
            expected="old vectors on a space that knows one, such as lorentz",
            to_do="choose another order: random, traffic or id; the gallery is intact.",
        )
    return values
