"""Vector computations as a list of plain steps that serving code can also run without limpet.

An adapter, a head over a frozen model and a space describe their computation as steps; `limpet.export` writes these in
other formats. A step is pure data: its docstring defines the computation, and every format implements it. Rows x are
(N, S); steps run in order.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]


class ExportStep(ABC):
    """One step; its fields are arrays, numbers or lists of steps."""

    name: ClassVar[str]
    """Name of the step in files."""
    words: ClassVar[str]
    """Description of the step, to be read after "the map"."""


Steps = tuple[ExportStep, ...]


@dataclass(frozen=True, eq=False)
class Normalise(ExportStep):
    """x / max(‖x‖, 10⁻¹²): unit rows, and zero for zero."""

    name = "normalise"
    words = "brings vectors to unit length"


@dataclass(frozen=True, eq=False)
class Scale(ExportStep):
    """x · factor.

    Args:
        factor: A number above 0.
    """

    name = "scale"
    words = "scales vectors"
    factor: float


@dataclass(frozen=True, eq=False)
class Affine(ExportStep):
    """x · weights + offset.

    Args:
        weights: (S, T).
        offset: (T,).
    """

    name = "affine"
    words = "is affine"
    weights: FloatArray
    offset: FloatArray

    @classmethod
    def linear(cls, weights: FloatArray) -> Affine:
        """Return x · weights."""
        return cls(weights, np.zeros(weights.shape[1], weights.dtype))

    @classmethod
    def shift(cls, offset: FloatArray) -> Affine:
        """Return x + offset."""
        return cls(np.eye(len(offset), dtype=offset.dtype), offset)


@dataclass(frozen=True, eq=False)
class Relu(ExportStep):
    """max(x, 0)."""

    name = "relu"
    words = "keeps what is above 0"


@dataclass(frozen=True, eq=False)
class Gelu(ExportStep):
    """x · Φ(x), with the normal distribution Φ itself, not an approximation of it."""

    name = "gelu"
    words = "has Gaussian error linear units"


@dataclass(frozen=True, eq=False)
class Sum(ExportStep):
    """The sum of the results of several lists of steps for x."""

    name = "sum"
    words = "adds up several maps"
    branches: tuple[Steps, ...]


@dataclass(frozen=True, eq=False)
class Mixture(ExportStep):
    """Σ share_c(x) · (x · weights_c + offset_c), with shares by similarity of x to centre c.

    Args:
        centres: (K, S).
        weights: (K, S, T).
        offsets: (K, T).
        temperature: Shares are softmax(x · centres / temperature); None gives the first nearest centre everything.
    """

    name = "mixture"
    words = "chooses among several maps by the nearest centre"
    centres: FloatArray
    weights: FloatArray
    offsets: FloatArray
    temperature: float | None


@dataclass(frozen=True, eq=False)
class Shorten(ExportStep):
    """x · min(1, length / ‖x‖): clip rows to this length.

    Args:
        length: Above 0.
    """

    name = "shorten"
    words = "shortens vectors that are longer than a bound"
    length: float


@dataclass(frozen=True, eq=False)
class Lift(ExportStep):
    """x · sinh(r) / r with r = √K ‖x‖, at most asinh(2¹⁵): from tangent vectors to points of the Lorentz space.

    See `limpet.geometry.lorentz.exp_map0`; longer vectors are clipped to the bound.

    Args:
        curvature: K > 0.
    """

    name = "lift"
    words = "lifts vectors onto the Lorentz space"
    curvature: float


def flattened(steps: Sequence[ExportStep]) -> list[ExportStep]:
    """Return steps together with nested ones."""
    inner = (branch for step in steps if isinstance(step, Sum) for branch in step.branches)
    return [*steps, *(step for branch in inner for step in flattened(branch))]
