"""How much an item is expected to gain by a vector of the new model, from what its old vector says.

FastFill (Jaeckle et al., ICLR 2023, arXiv:2303.04766) embeds those items first whose old vectors will disagree most
with the new model. It trains a head, jointly with the map between the models, that predicts the variance σ² of the
disagreement from the old vector. Where the gallery was mapped by such a map, the adapter `fastfill`, that is
`learnt_variances`. Other models have no such head, so `expected_gains` departs from it:

- where the old space knows an uncertainty, as the Lorentz space does, that is taken;
- otherwise the disagreement 1 − cos(old, new) of a random pilot, embedded first, is measured, and predicted for the
  other items as the mean over their 10 nearest neighbours in the pilot, by old vectors;
- where the two models' vectors cannot be compared, minus the label margin of the old vectors, as
  `limpet.evaluation.margin_order` has it, with class means of the items that are left.

On CLINC150 (5,250 texts searched, a pilot of 525, heads by "bct" over two pairs of frozen models) the area under the
upgrade curve was 0.587 and 0.696 by a pilot, against 0.581 and 0.683 at random and 0.579 and 0.673 with the same order
reversed after the pilot. By the label margin it was 0.579 and 0.700: margins may also be of no help.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import StringArray
from limpet.embeddings.string_array import IdIndex
from limpet.errors import ConfigError, refuse
from limpet.galleries.items import sample, vectors_of_both
from limpet.galleries.links import read_adapter
from limpet.galleries.state import GalleryState, Generation, Progress
from limpet.geometry import Space
from limpet.stores.base import Pointer, Store, Vectors

Values = NDArray[np.float64]
Rows = NDArray[np.int64]
Estimate = Callable[[Vectors, Rows], Values]
"""From vectors in index form (n, width) and the places of their items in a list (n,) to gains (n,)."""

FEWEST_PAIRS = 20
MOST_PAIRS = 5000  # the estimate takes two minutes for a million items; its time grows with the pairs
SMALLEST_PILOT = 50
NEIGHBOURS = 10

_SCORES_AT_ONCE = 4_194_304


def expected_gains(
    store: Store,
    state: GalleryState,
    target: str,
    ids: Sequence[str],
    codes: Rows | None,
    *,
    seed: int = 0,
    on_step: Progress | None = None,
) -> Values:
    """Return how much every item is expected to gain by a vector of the target (N,); only the order of them counts.

    An item is judged by its newest vector. Where items have vectors of several generations, whose estimates have no
    common unit, an item's share among those of its generation is returned. Items without any vector come first
    (infinite), and those of whom nothing can be said last (minus infinity).

    Args:
        store: The gallery's.
        state: Of the gallery.
        target: Generation that the items lack.
        ids: Of the items, ascending (N).
        codes: Class of every item (N,), -1 without; None where there are no classes.
        seed: Of the pilot, as given to `pilot_ids`.
        on_step: Told "step", "done" and "total" while vectors are read.

    Raises:
        ConfigError: Nothing can be said of any item.
    """
    reader = _Reader(store, target, ids, on_step)
    judged = 0
    for generation in _judging(store.pointer(), state, target):
        estimate = _estimate_of(reader, state, generation, codes, seed)
        if estimate is None:
            reader.leave(generation.name)
        else:
            reader.judge(generation.name, estimate)
            judged += 1
    if not judged and np.isneginf(reader.gains).any():
        raise ConfigError(
            f"The order 'uncertainty': nothing tells which items gain most by vectors of {target}.",
            expected="old vectors on a space that knows an uncertainty, or on that of the new model with at least "
            f"{FEWEST_PAIRS} items that have both vectors, or labels",
            to_do="choose another order: random, traffic, class-balanced or id.",
        )
    return reader.gains


def learnt_variances(
    store: Store, state: GalleryState, target: str, ids: Sequence[str], *, on_step: Progress | None = None
) -> Values:
    """Return how far the mapped vector of every item is expected to be from that of the target, squared (N,).

    Items without a vector that was mapped come first (infinite).

    Args:
        store: The gallery's.
        state: Of the gallery.
        target: Generation that the items lack.
        ids: Of the items, ascending (N).
        on_step: Told "step", "done" and "total" while vectors are read.

    Raises:
        ConfigError: No adapter took vectors of this gallery to the target's model, or it learnt no variance.
    """
    aim = state.by_name[target].fingerprint
    for generation in reversed(state.generations):
        estimate = _learnt_estimate(store, state, generation, aim)
        if estimate is not None:
            reader = _Reader(store, target, ids, on_step)
            reader.judge(str(generation.mapped_from), estimate)
            return reader.gains
    raise ConfigError(
        f"The order 'variance': nothing learnt how far mapped vectors are from those of {target}.",
        expected="a generation that was prepared with an adapter that learns a variance, of the old gallery: fastfill",
        to_do="fit one (`limpet adapt --adapter fastfill --direction old_to_new`) and prepare with it, or choose "
        "another order.",
    )


def _learnt_estimate(store: Store, state: GalleryState, generation: Generation, aim: str) -> Estimate | None:
    """Return the variances of the adapter that made a generation of vectors for the model ``aim``, if it learnt any."""
    if generation.mapped_from is None or generation.adapter is None:
        return None
    adapter, space = read_adapter(store, generation.adapter), state.by_name[generation.mapped_from].geometry

    def estimate(vectors: Vectors, rows: Rows) -> Values:
        found = adapter.variances(space.from_index_form(vectors))
        return np.full(len(vectors), np.nan) if found is None else found

    learnt = adapter.variances(np.empty((0, space.dim))) is not None
    return estimate if learnt and adapter.fitted.target == aim else None


def _estimate_of(
    reader: _Reader, state: GalleryState, generation: Generation, codes: Rows | None, seed: int
) -> Estimate | None:
    space = generation.geometry
    if space.name in UNCERTAINTY:
        known = UNCERTAINTY[space.name]
        return lambda vectors, rows: known(space, space.from_index_form(vectors))
    if space == state.by_name[reader.target].geometry:
        old, disagreement = _pairs(reader.store, generation.name, reader.target, seed)
        if len(old) >= FEWEST_PAIRS:
            return predicted_disagreement(old, disagreement)
    if codes is not None and codes.max(initial=-1) >= 0:
        return margin_estimate(reader.rows(generation.name), codes)
    return None


class _Reader:
    """Streams old vectors of the backlog, and keeps what was found of each item."""

    def __init__(self, store: Store, target: str, ids: Sequence[str], on_step: Progress | None) -> None:
        self.store, self.target, self.on_step = store, target, on_step
        self.gains = np.full(len(ids), np.inf)
        self._index = IdIndex(StringArray.of(ids))
        self._open = np.ones(len(ids), np.bool_)  # no newer vector was found

    def rows(self, generation: str) -> Iterator[tuple[Rows, Vectors]]:
        """Yield places and vectors of the items that have no newer vector than this generation's."""
        done, total = 0, self.store.pointer().covered([generation])
        for names, _, vectors in self.store.scan_rows(generation):
            places = self._index.find(names)
            known = places >= 0
            known[known] = self._open[places[known]]
            yield places[known], vectors[known]
            done += len(names)
            if self.on_step is not None:
                self.on_step({"step": f"reading {generation}", "done": done, "total": total})

    def judge(self, generation: str, estimate: Estimate) -> None:
        """Note the estimates of a generation."""
        places, values = [np.empty(0, np.int64)], [np.empty(0)]
        for some, vectors in self.rows(generation):
            places.append(some)
            values.append(estimate(vectors, some))
        rows, gains = np.concatenate(places), np.concatenate(values)
        unknown = np.isnan(gains) | np.isneginf(gains)
        if len(rows) < len(self.gains):  # the others are judged by another generation
            gains = shares(gains)
        self.gains[rows], self._open[rows] = np.where(unknown, -np.inf, gains), False

    def leave(self, generation: str) -> None:
        """Note that nothing can be said of the items of a generation."""
        for rows, _ in self.rows(generation):
            self.gains[rows], self._open[rows] = -np.inf, False


def pilot_ids(store: Store, state: GalleryState, target: str, share: float = 0.02, *, seed: int = 0) -> list[str]:
    """Return the items to embed first, so that the order "uncertainty" can tell where old and new models disagree.

    They are drawn by a hash of their ids: those of an interrupted pilot, less what was embedded, are the same ones.

    Args:
        store: The gallery's.
        state: Of the gallery.
        target: Generation to fill.
        share: Of the items; but no fewer than 1,000 or a tenth of them, whichever is less, and no more than 5,000. 0
            for no pilot.
        seed: Of the draw.

    Returns:
        Ids; none where the order needs no pilot, or could not use one.
    """
    refuse(not 0 <= share <= 1, f"pilot={share}", "a share of the items, from 0 to 1")
    space = state.by_name[target].geometry
    judging = _judging(store.pointer(), state, target)
    names = {one.name for one in judging if one.geometry == space and space.name not in UNCERTAINTY}
    if not names or not share:
        return []
    eligible = store.pointer().covered(sorted(names))
    size = max(math.ceil(share * eligible), min(1000, eligible // 10), SMALLEST_PILOT)
    return [
        name for name, holding in sample(store, min(size, MOST_PAIRS), seed, holding=names) if target not in holding
    ]


def _judging(pointer: Pointer, state: GalleryState, target: str) -> list[Generation]:
    """Return the generations that hold the newest vector of an item without one of the target, newest first."""
    judging, newer = [], {target}
    for generation in reversed(state.generations):
        if generation.name == target:
            continue
        if any(count and generation.name in names and not names & newer for names, count in pointer.held.items()):
            judging.append(generation)
        newer.add(generation.name)
    return judging


def _pairs(store: Store, old: str, new: str, seed: int) -> tuple[Vectors, Values]:
    """Return old vectors (P, width) of items that have both, and how much the new ones disagree with them (P,)."""
    ids = [name for name, holding in sample(store, MOST_PAIRS, seed, holding={old}) if new in holding]
    _, new_vectors, old_vectors = vectors_of_both(store, new, old, ids)
    agreement = np.einsum("nd,nd->n", old_vectors, new_vectors, dtype=np.float64)
    return old_vectors, 1 - agreement


def lorentz_uncertainty(points: Vectors, curvature: float) -> Values:
    """Return 1 − ‖s‖/t of points s (N, D) with time t, in (0, 1]: `Lorentz.uncertainty` without torch.

    >>> lorentz_uncertainty(np.array([[0.0, 0.75], [0.0, 0.0]], np.float32), 1.0).tolist()  # t = 5/4
    [0.4, 1.0]
    """
    squares = np.einsum("nd,nd->n", points, points, dtype=np.float64)
    times, lengths = np.sqrt(1 / curvature + squares), np.sqrt(squares)
    values: Values = np.minimum(1 / (curvature * times * (times + lengths)), 1)
    return values


UNCERTAINTY: Mapping[str, Callable[[Space, Vectors], Values]] = {
    "lorentz": lambda space, points: lorentz_uncertainty(points, float(space.curvature or 1)),
}
"""Spaces that know an uncertainty of their points, by name."""


def predicted_disagreement(old: Vectors, disagreement: Values, neighbours: int = NEIGHBOURS) -> Estimate:
    """Return the estimate that a pilot gives: the mean disagreement over the nearest old vectors of the pilot.

    Args:
        old: Old vectors of the pilot in index form (P, width); nearer means a larger inner product.
        disagreement: Of the pilot (P,).
        neighbours: How many count.
    """
    count = min(neighbours, len(old))

    def estimate(vectors: Vectors, rows: Rows) -> Values:
        values = np.empty(len(vectors), np.float64)
        step = max(1, _SCORES_AT_ONCE // len(old))
        for start in range(0, len(vectors), step):
            scores = vectors[start : start + step] @ old.T
            nearest = np.argpartition(scores, len(old) - count, axis=1)[:, len(old) - count :]
            values[start : start + step] = disagreement[nearest].mean(axis=1)
        return values

    return estimate


def margin_estimate(parts: Iterator[tuple[Rows, Vectors]], codes: Rows) -> Estimate:
    """Return the estimate that labels give: the cosine to the nearest other class mean, minus that to the own.

    Args:
        parts: The vectors that class means are made of: places of their items, unit vectors.
        codes: Class of every item, -1 without; such an item has no estimate (NaN).
    """
    means = _class_means(parts, codes)
    empty = ~means.any(axis=1)  # classes of items with other vectors

    def estimate(vectors: Vectors, rows: Rows) -> Values:
        values = np.empty(len(vectors), np.float64)
        step = max(1, _SCORES_AT_ONCE // len(means))
        for start in range(0, len(vectors), step):
            own = codes[rows[start : start + step]]
            scores = (vectors[start : start + step] @ means.T).astype(np.float64)
            scores[:, empty] = -np.inf
            place = (np.arange(len(scores)), own)
            to_own, scores[place] = scores[place], -np.inf
            with np.errstate(invalid="ignore"):  # no other class, and no direction of the own one
                values[start : start + step] = np.where(own >= 0, scores.max(axis=1) - to_own, np.nan)
        return values

    return estimate


def _class_means(parts: Iterator[tuple[Rows, Vectors]], codes: Rows) -> Vectors:
    """Return the direction of every class mean (C, width); zero for a class without vectors."""
    sums = np.zeros((codes.max() + 1, 1))
    for rows, vectors in parts:
        labelled = np.flatnonzero(codes[rows] >= 0)
        by_class = labelled[np.argsort(codes[rows[labelled]], kind="stable")]
        present, starts = np.unique(codes[rows[by_class]], return_index=True)
        if sums.shape[1] != vectors.shape[1]:
            sums = np.zeros((len(sums), vectors.shape[1]))
        if len(present):
            sums[present] += np.add.reduceat(vectors[by_class], starts, axis=0, dtype=np.float64)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    means: Vectors = (sums / np.maximum(lengths, 1e-12)).astype(np.float32)
    return means


def shares(values: Values) -> Values:
    """Return for every value the share of values that are smaller, equal ones counted half; in [0, 1].

    >>> shares(np.array([5.0, 9.0, 5.0, 1.0])).tolist()
    [0.5, 0.875, 0.5, 0.125]
    """
    ordered = np.sort(values)
    places = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    shares_below: Values = places / (2 * max(1, len(values)))
    return shares_below
