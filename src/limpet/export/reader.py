"""Map vectors with what `limpet export --to npz` wrote. This file needs NumPy alone: copy it where you serve."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np


def _lengths(x: Any) -> Any:
    return np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def _mixture(x: Any, centres: Any, weights: Any, offsets: Any, temperature: float | None) -> Any:
    cosines = x @ centres.T
    shares = np.eye(len(centres))[cosines.argmax(axis=1)]  # the first nearest centre gets everything
    if temperature is not None:
        shares = np.exp((cosines - cosines.max(axis=1, keepdims=True)) / temperature)
        shares /= shares.sum(axis=1, keepdims=True)
    return (shares.T[:, :, None] * (x @ weights + offsets[:, None])).sum(axis=0)


def _lift(x: Any, curvature: float) -> Any:
    r = _lengths(x) * curvature**0.5
    return x * np.sinh(np.minimum(r, math.asinh(2**15))) / r


_STEPS: dict[str, Any] = {
    "normalise": lambda x: x / _lengths(x),
    "scale": lambda x, factor: x * factor,
    "affine": lambda x, weights, offset: x @ weights + offset,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf, otypes=[float])(x / 2**0.5)) / 2,
    "mixture": _mixture,
    "shorten": lambda x, length: x * np.minimum(1, length / _lengths(x)),
    "lift": _lift,
}


class Map:
    """A map from a folder; ``about`` is what its export.json says, and ``map(vectors)`` takes (N, S) to (N, T)."""

    def __init__(self, folder: str | Path) -> None:
        self.about = json.loads((Path(folder) / "export.json").read_text(encoding="utf-8"))
        with np.load(Path(folder) / "map.npz", allow_pickle=False) as file:
            self.arrays = {name: file[name].astype(np.float64) for name in file.files}

    def _run(self, steps: Any, x: Any) -> Any:
        for step in steps:
            arrays = {name: self.arrays[place] for name, place in step["arrays"].items()}
            sums = [self._run(branch, x) for branch in step["branches"]]
            x = sum(sums) if sums else _STEPS[step["step"]](x, **arrays, **step["numbers"])
        return x

    def __call__(self, vectors: Any) -> Any:
        """Return the images, float32, of vectors of the source model: one (S,), or several (N, S)."""
        rows = np.asarray(vectors, np.float64)
        images = self._run(self.about["steps"], np.atleast_2d(rows)).astype(np.float32)
        return images if rows.ndim == 2 else images[0]
