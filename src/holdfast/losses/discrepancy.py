"""How far two sets of embeddings are apart as distributions (MMD, in Chen et al., BMVC 2020, arXiv:2010.08020)."""

from __future__ import annotations

from torch import Tensor

from holdfast.losses.coherence import all_distances


def mean_discrepancy(new: Tensor, old: Tensor, bandwidth: float | None = None) -> Tensor:
    """Return the squared maximum mean discrepancy, mean k(z, z') + mean k(o, o') − 2 mean k(z, o).

    With the kernel k(x, y) = exp(−‖x − y‖² / h). All pairs count, an item's with itself too, so the estimate is biased
    upwards and at least 0. Departure from the paper, which leaves kernel and bandwidth open: those of CVS's public
    comparison.

    Args:
        new: Features z (B, D), as the model gives them, of any length.
        old: Features o of the frozen model (G, D), detached.
        bandwidth: h > 0; D² when left out, so wide for long vectors that mostly the means are compared.

    Returns:
        A scalar in [0, 2], up to rounding; 0, with a gradient of 0, where one side is empty. It holds
        B² + G² + B·G distances.

    >>> import torch
    >>> z, o = torch.tensor([[0.0]]), torch.tensor([[2.0]])
    >>> round(mean_discrepancy(z, o, bandwidth=4.0).item(), 4)  # 2 − 2/e
    1.2642
    """
    if not len(new) or not len(old):
        return new.sum() * 0
    width = new.shape[1] ** 2 if bandwidth is None else bandwidth
    within, frozen, across = (_kernel_mean(x, y, width) for x, y in ((new, new), (old, old), (new, old)))
    return within + frozen - 2 * across


def _kernel_mean(x: Tensor, y: Tensor, bandwidth: float) -> Tensor:
    return (-all_distances(x, y).square() / bandwidth).exp().mean()
