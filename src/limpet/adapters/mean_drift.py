"""The shift between the means of two models."""

from __future__ import annotations

from limpet.adapters.base import Adapter, State
from limpet.adapters.moments import Floats, PairedVectors
from limpet.errors import SpaceMismatchError
from limpet.support.steps import Affine, Steps


class MeanDrift(Adapter):
    """A translation: image = x + mean(y) − mean(x) of unit rows, then normalised.

    After the idea of query drift compensation (arXiv:2506.00037): further training of a model shifts all embeddings by
    a common drift. It does not rotate: it is useless between independently trained models, whose coordinates are
    unrelated.

    Use it when the new model is the old one after further training, and you have few pairs.

    Args:
        direction: Which model's embeddings are mapped; see `Adapter`.

    >>> import numpy as np
    >>> old = np.random.default_rng(0).normal(size=(200, 8))
    >>> new = old / np.linalg.norm(old, axis=1, keepdims=True) + 0.3  # trained on: everything has moved a little
    >>> MeanDrift().fit(new, old).fitted.state["shift"].shape
    (8,)
    """

    kind = "mean_drift"
    turns = "with both models"
    equal_dimensions = True

    def solve(self, pairs: PairedVectors) -> State:
        """Return the shift (D,).

        Raises:
            SpaceMismatchError: The dimensions differ.
        """
        if pairs.source_dim != pairs.target_dim:
            raise SpaceMismatchError(
                f"{self.kind} was given embeddings of {pairs.source_dim} and {pairs.target_dim} dimensions.",
                expected="equal dimensions: a shift turns nothing, so both models must share their coordinates",
                to_do="fit procrustes, or any other adapter; each takes different dimensions.",
            )
        drift = sum(block.unit_target().sum(axis=0) - block.unit_source().sum(axis=0) for block in pairs.blocks())
        return {"shift": drift / len(pairs)}

    def images(self, rows: Floats) -> Floats:
        """Return rows + shift."""
        images: Floats = rows + self.fitted.state["shift"]
        return images

    def as_steps(self) -> Steps:
        """Return the shift."""
        return (Affine.shift(self.fitted.state["shift"]),)
