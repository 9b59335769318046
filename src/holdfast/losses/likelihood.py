"""How likely errors are under variances that are learnt with what makes them."""

from __future__ import annotations

from torch import Tensor

from holdfast.losses.alignment import selected_mean


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
    return selected_mean((squares * (-log_variances).exp() + log_variances) / 2)
