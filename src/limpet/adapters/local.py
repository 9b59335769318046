"""One affine map per region of the source space, each held near the map of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Gt

from limpet.adapters.base import Adapter, State
from limpet.adapters.moments import (
    FOLDS,
    Floats,
    Moments,
    PairedVectors,
    RowNumbers,
    best_penalty,
    fold_of_pair,
    ridge,
    total,
)
from limpet.adapters.pairs import Direction
from limpet.support.ranges import Positive, PositiveInt, Seed
from limpet.support.steps import Affine, Mixture, Steps

Assignment = Literal["hard", "soft"]

_SAMPLE = 10_000  # sources among which centres are sought
ROUNDS = 25
FEWEST_PER_CLUSTER = 20
STRENGTHS = (0.25, 1.0, 4.0, 16.0, np.inf)  # shrinkages tried, as multiples of the source dimension
_FLOOR = 1e-9  # share of the mean square of a coordinate that keeps every system of equations regular


class Local(Adapter):
    """Ridge maps of clusters of the source, shrunk to the ridge map of all pairs.

    Sources are clustered by cosine (k-means on the sphere, on a sample of 10,000). The map of cluster c minimises
    Σ_c ‖[x, 1]W − y‖² + τ · mean over all pairs of ‖[x, 1] (W − W_all)‖² + τ·λ·v·‖W − W_all‖²: the map of all pairs has
    the weight of τ pairs, so small clusters follow it, and large ones their own pairs. λ and v are those of `Ridge`.

    This is our own method, for two models whose relation differs between regions; Drift-Adapter's residual network
    (arXiv:2509.23471) addresses the same case. Images are normalised afterwards.

    Use it when you have many pairs, and a single linear map underfits.

    Args:
        direction: Which model's embeddings are mapped; see `Adapter`.
        clusters: Maximum number of clusters; at most one per 20 pairs.
        shrinkage: τ, in pairs, above 0; infinity is the map of all pairs. Default: the best on a held-out fifth of the
            pairs, among ¼ to 16 times the source dimension, and infinity.
        assignment: "hard" maps every vector with the map of its nearest centre. "soft" averages the images of all maps,
            weighted by softmax(cosine to the centre / temperature): continuous, but slower by the number of clusters.
            Maps are fitted on hard clusters in both cases.
        temperature: Temperature of the soft weights, above 0.
        seed: Random seed of the sample and of the initial centres.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(200, 8))
    >>> new = old @ np.linalg.qr(rng.normal(size=(8, 8)))[0]  # the old vectors, turned
    >>> found = Local(clusters=4).fit_transform(new, old)
    >>> bool(((found * old).sum(axis=1) > 0.95 * np.linalg.norm(old, axis=1)).all())
    True
    """

    kind = "local"
    effects: ClassVar[Mapping[str, tuple[Mapping[str, Any], Any]]] = {
        "clusters": ({"shrinkage": 5.0}, 1),
        "shrinkage": ({}, 5.0),
        "assignment": ({"shrinkage": 5.0}, "soft"),
        "temperature": ({"shrinkage": 5.0, "assignment": "soft"}, 1.0),
        "seed": ({"shrinkage": 5.0}, 1),
    }

    def __init__(
        self,
        direction: Direction = "new_to_old",
        *,
        clusters: PositiveInt = 8,
        shrinkage: Annotated[float, Gt(0)] | None = None,
        assignment: Assignment = "hard",
        temperature: Positive = 0.05,
        seed: Seed = 0,
    ) -> None:
        super().__init__(direction)
        self.clusters, self.shrinkage, self.assignment = clusters, shrinkage, assignment
        self.temperature, self.seed = temperature, seed

    def solve(self, pairs: PairedVectors) -> State:
        """Return the centres (k, S) and one map (S + 1, T) for each."""
        rng = np.random.default_rng(self.seed)
        sample = np.sort(rng.permutation(len(pairs))[:_SAMPLE])
        clusters = max(1, min(self.clusters, len(pairs) // FEWEST_PER_CLUSTER))
        centres = spherical_means(pairs[sample].unit_source(), clusters, rng)
        cells = cell_moments(pairs, centres)
        penalty = best_penalty([total(column) for column in zip(*cells, strict=True)])
        strength = self.shrinkage or best_strength(cells, penalty)
        return {"centres": centres, "weights": local_maps([total(row) for row in cells], penalty, strength)}

    def images(self, rows: Floats) -> Floats:
        """Return the images by the maps of the nearest centres, or the weighed mean of those by all maps."""
        state = self.fitted.state
        cosines, weights = rows @ state["centres"].T, state["weights"]
        if self.assignment == "soft":
            from scipy.special import softmax  # takes longer to import than all the rest of this package

            shares = softmax(cosines / self.temperature, axis=1)
            every = (share[:, None] * (rows @ w[:-1] + w[-1]) for share, w in zip(shares.T, weights, strict=True))
            mean: Floats = reduce(add, every)
            return mean
        images, nearest = np.empty((len(rows), weights.shape[2])), cosines.argmax(axis=1)
        for place, (_, w) in enumerate(zip(state["centres"], weights, strict=True)):
            images[nearest == place] = rows[nearest == place] @ w[:-1] + w[-1]
        return images

    def as_steps(self) -> Steps:
        """Return the choice among the maps, or the one map where all are the same."""
        state = self.fitted.state
        weights = state["weights"]
        if (weights == weights[0]).all():  # one cluster, or an infinite shrinkage
            return (Affine(weights[0, :-1], weights[0, -1]),)
        temperature = self.temperature if self.assignment == "soft" else None
        return (Mixture(state["centres"], weights[:, :-1], weights[:, -1], temperature),)


def spherical_means(rows: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Cluster unit rows (N, D) by cosine, and return the directions of the cluster means (count, D).

    Starts from different rows drawn at random. A cluster that loses all its rows keeps its centre.

    Lloyd's rounds are written here because SciPy's k-means warns of an empty cluster instead, and its seed has another
    name before SciPy 1.15.
    """
    centres = rows[np.sort(rng.choice(len(rows), count, replace=False))]
    nearest = np.full(len(rows), -1)
    for _ in range(ROUNDS):
        before, nearest = nearest, (rows @ centres.T).argmax(axis=1)
        if np.array_equal(before, nearest):
            break
        for place in range(count):
            mean = rows[nearest == place].sum(axis=0)
            length = np.linalg.norm(mean)
            centres[place] = mean / length if length > 0 else centres[place]
    return centres


def cell_moments(pairs: PairedVectors, centres: Floats) -> list[list[Moments]]:
    """Return the sums over the pairs of every cluster (outer list) in every fold (inner list)."""
    nearest: RowNumbers = np.concatenate([(part.unit_source() @ centres.T).argmax(axis=1) for part in pairs.blocks()])
    fold = fold_of_pair(len(pairs))
    folds = range(min(FOLDS, len(pairs)))
    return [
        [Moments.of(pairs[np.flatnonzero((nearest == place) & (fold == part))]) for part in folds]
        for place in range(len(centres))
    ]


def local_maps(clusters: Sequence[Moments], penalty: float, strength: float) -> Floats:
    """Return the shrunk map of every cluster (k, S + 1, T); with infinite strength, the map of all pairs throughout."""
    whole = total(clusters)
    return _shrunk_maps(clusters, ridge(whole, penalty), _prior(whole, penalty), strength)


def _shrunk_maps(clusters: Sequence[Moments], common: Floats, prior: Floats, strength: float) -> Floats:
    if np.isinf(strength):
        return np.stack([common] * len(clusters))
    return np.stack([common + _change(cluster, common, strength * prior) for cluster in clusters])


def _prior(whole: Moments, penalty: float) -> Floats:
    """Return what holds a map to that of all pairs, for a strength of 1: (S + 1, S + 1)."""
    inputs: Floats = whole.inputs / whole.count
    varied = float(np.trace(whole.sums(centred=True)[0])) / whole.count
    even = (penalty * varied + _FLOOR * float(np.trace(inputs))) / len(inputs)
    return inputs + even * np.eye(len(inputs))


def _change(cluster: Moments, common: Floats, prior: Floats) -> Floats:
    change = np.linalg.solve(cluster.inputs + prior, cluster.products - cluster.inputs @ common)
    return np.asarray(change, np.float64)


def best_strength(cells: Sequence[Sequence[Moments]], penalty: float) -> float:
    """Return the shrinkage with the least squared error on the first fold, by maps fitted on the others.

    Of equally good ones it is the largest.
    """
    if len(cells) == 1 or len(cells[0]) == 1:
        return float(np.inf)
    held, rest = [row[0] for row in cells], [total(row[1:]) for row in cells]
    whole, dimension = total(rest), len(held[0].inputs) - 1
    common, prior, errors = ridge(whole, penalty), _prior(whole, penalty), []
    for multiple in reversed(STRENGTHS):
        maps = _shrunk_maps(rest, common, prior, multiple * dimension)
        errors.append(sum(part.squared_error(w) for part, w in zip(held, maps, strict=True)))
    return float(STRENGTHS[::-1][int(np.argmin(errors))] * dimension)
