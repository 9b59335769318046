"""The residual network with a variance of its errors, learnt with it: which of its images to replace first."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from limpet.adapters.moments import Floats, PairedVectors, unit_rows
from limpet.adapters.residual_mlp import NAMES, ResidualMLP, images_of, tensors_of

if TYPE_CHECKING:
    from torch import Tensor

LEAST = 1e-4  # squared error below which nothing is told apart


class FastFill(ResidualMLP):
    """`residual_mlp`, and how far each image will be from its target (Jaeckle et al., ICLR 2023, arXiv:2303.04766).

    It is trained by the likelihood of its squared errors, of unit rows, under a variance σ² of each source row x:
    log σ² = xs + GELU(xA + a)·t + u, of the hidden layer of the map. `variances` tells it, and the order "variance" of
    a backfill begins with the items of the largest.

    Departures: the paper's map is trained with the new model's classifier, too, which frozen models do not have; and
    weights are kept as those of `residual_mlp` are, by the likelihood on held-out pairs.

    Args:
        direction: Which model's embeddings are mapped; see `Adapter`.
        hidden: Width of the hidden layer.
        epochs: Most passes over the training pairs.
        patience: Passes without a better likelihood on the held-out pairs after which training ends.
        held_out: Share of the pairs that decides when to stop, between 0 and 1; at least one pair.
        learning_rate: Of Adam.
        batch_size: Pairs per step.
        seed: Seed of the held-out pairs, the first weights and the order of the pairs.
    """

    kind = "fastfill"
    usual = False
    names: ClassVar[tuple[str, ...]] = (*NAMES, "spread", "spread_inner", "spread_offset")

    def variances(self, vectors: NDArray[np.floating]) -> Floats:
        """Return the squared distance to be expected between the image of every vector (N, S) and its target (N,)."""
        from scipy.special import ndtr  # takes longer to import than all the rest of this package

        state, rows = self.fitted.state, unit_rows(np.asarray(vectors))
        inner = rows @ state["inner"] + state["inner_offset"]
        active = inner * ndtr(inner)  # GELU
        found: Floats = np.exp(rows @ state["spread"] + active @ state["spread_inner"] + state["spread_offset"])
        return found

    def _first_weights(self, pairs: PairedVectors) -> list[Tensor]:
        """Return those of the map, and a variance that is the same for all."""
        import torch

        weights = super()._first_weights(pairs)
        squares = torch.cat([_squares(weights, *tensors_of(part)) for part in pairs.blocks()])
        return [*weights, torch.zeros(pairs.source_dim), torch.zeros(self.hidden), squares.mean().log()]

    def _loss(self, parameters: list[Tensor], source: Tensor, target: Tensor) -> Tensor:
        import torch.nn.functional as F

        _, _, inner, inner_offset, _, _, spread, spread_inner, spread_offset = parameters
        active = F.gelu(source @ inner + inner_offset)
        log_variances = source @ spread + active @ spread_inner + spread_offset
        return gaussian_likelihood(_squares(parameters, source, target), log_variances)

    def _score(self, parameters: list[Tensor], pairs: tuple[Tensor, Tensor]) -> float:
        import torch

        with torch.no_grad():
            return -self._loss(parameters, *pairs).item()


def _squares(parameters: list[Tensor], source: Tensor, target: Tensor) -> Tensor:
    """Return ‖image − target‖² of unit rows (N,), never below a least one: a variance of 0 has no likelihood."""
    import torch.nn.functional as F

    images = images_of(parameters, source)
    return 2 - 2 * F.cosine_similarity(images, target) + LEAST


def gaussian_likelihood(squares: Tensor, log_variances: Tensor) -> Tensor:
    """Return mean_i [ q_i/σ_i² + log σ_i² ] / 2 of squared errors q (B,) and log σ² (B,).

    What FastFill (Jaeckle et al., ICLR 2023, arXiv:2303.04766) learns of every old vector: minus the logarithm of the
    density of a Gaussian, but for a constant, per dimension; σ² is then the squared error to be expected. An error
    counts the less, the more it was expected.

    >>> import torch
    >>> squares = torch.tensor([0.5, 2.0])
    >>> likely, alike = squares.log(), squares.mean().log().expand(2)
    >>> bool(gaussian_likelihood(squares, likely) < gaussian_likelihood(squares, alike))
    True
    """
    from limpet.losses.alignment import selected_mean

    return selected_mean((squares * (-log_variances).exp() + log_variances) / 2)
