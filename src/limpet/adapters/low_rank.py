"""An affine map through fewer dimensions than either side has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from limpet.adapters.base import Adapter, State
from limpet.adapters.moments import (
    Floats,
    Moments,
    PairedVectors,
    RidgePath,
    chosen_penalty,
    fold_moments,
    total,
)
from limpet.adapters.pairs import Direction
from limpet.errors import ConfigError
from limpet.support.ranges import NonNegative, PositiveInt
from limpet.support.steps import Affine, Steps


class LowRank(Adapter):
    """Reduced-rank ridge regression (Mukherjee and Zhu, Stat. Anal. Data Min. 4, 2011), with an offset.

    Among all maps of rank r, it minimises the objective of `Ridge`: with the ridge weights B, their images' principal
    directions P are those of Bᵀ(XᵀX + λvI)B about the means, and the map is B·P_r·P_rᵀ. It is the low-rank affine map
    of Drift-Adapter, arXiv:2509.23471, in closed form. At full rank, it equals `Ridge`.

    Use it for wide vectors when the map itself must be small: it stores 2·r rows instead of D.

    Args:
        direction: Which model's embeddings are mapped; see `Adapter`.
        rank: r, from 1 to the smaller dimension; by default the one with the smallest squared error in five-fold
            cross-validation over the pairs.
        penalty: λ, as in `Ridge`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(200, 8))
    >>> new = old @ rng.normal(size=(8, 64))  # 64 dimensions, of which 8 tell something
    >>> link = LowRank(rank=8).fit(new, old)
    >>> {name: value.shape for name, value in link.fitted.state.items()}
    {'left': (64, 8), 'right': (8, 8), 'offset': (8,)}
    """

    kind = "low_rank"
    effects: ClassVar[Mapping[str, tuple[Mapping[str, Any], Any]]] = {"rank": ({}, 1), "penalty": ({}, 5.0)}

    def __init__(
        self,
        direction: Direction = "new_to_old",
        *,
        rank: PositiveInt | None = None,
        penalty: NonNegative | None = None,
    ) -> None:
        super().__init__(direction)
        self.rank, self.penalty = rank, penalty

    def solve(self, pairs: PairedVectors) -> State:
        """Return the two factors (S, r) and (r, T) of the map, and its offset (T,).

        Raises:
            ConfigError: The rank is larger than the smaller dimension.
            DataError: The penalty is 0, and there are fewer pairs than determine the map.
        """
        largest = min(pairs.source_dim, pairs.target_dim)
        if self.rank is not None and self.rank > largest:
            raise ConfigError(
                f"{self.kind} was given rank={self.rank}",
                expected=f"at most {largest}, the smaller dimension of {pairs.source_dim} and {pairs.target_dim}",
            )
        folds = fold_moments(pairs)
        penalty, whole = chosen_penalty(self.penalty, folds), total(folds)
        weights, directions = principal_images(whole, penalty)
        kept = directions[:, : self.rank or best_rank(folds, penalty, largest)]
        left = weights @ kept
        offset = whole.target_mean - whole.source_mean @ left @ kept.T
        return {"left": left, "right": np.ascontiguousarray(kept.T), "offset": offset}

    def images(self, rows: Floats) -> Floats:
        """Return rows · left · right + offset."""
        state = self.fitted.state
        images: Floats = rows @ state["left"] @ state["right"] + state["offset"]
        return images

    def as_steps(self) -> Steps:
        """Return the two affine steps."""
        state = self.fitted.state
        return (Affine.linear(state["left"]), Affine(state["right"], state["offset"]))


def principal_images(moments: Moments, penalty: float) -> tuple[Floats, Floats]:
    """Return the ridge weights (S, T) and the principal directions of their images (T, T), greatest first."""
    path = RidgePath.of(moments)
    rotated = path.rotated_weights(penalty)
    directions = np.linalg.eigh(rotated.T @ (path.divisor(penalty)[:, None] * rotated))[1]
    return path.directions @ rotated, directions[:, ::-1]


def best_rank(folds: Sequence[Moments], penalty: float, largest: int) -> int:
    """Return the rank from 1 to the largest with the least squared error on folds left out in turn."""
    errors, whole = np.zeros(largest), total(folds)
    for held in folds if len(folds) > 1 else ():
        rest = whole - held
        weights, directions = principal_images(rest, penalty)
        inputs, products = held.sums_about(rest)
        images = weights @ directions[:, :largest]
        gains = 2 * np.einsum("sr,sr->r", images, products @ directions[:, :largest])
        errors += np.cumsum(np.einsum("sr,sr->r", images, inputs @ images) - gains)
    return int(np.argmin(errors)) + 1
