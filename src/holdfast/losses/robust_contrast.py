"""Contrasts of a new embedding with all old ones, whatever the similarity: robust to wrong pairs, or not."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LEAST_EXPONENT = 1e-3  # smaller q count as this one, where all but terms of its size has become the limit q = 0


def robust_contrast(positive: Tensor, scores: Tensor, uncertainty: Tensor, beta: float) -> Tensor:
    """Return the RINCE loss with an exponent of its own for every row (HBCT, Eq. 12; Chuang et al., CVPR 2022).

    mean_i [ −exp(q_i s_ii) + (β Σ_j exp(s_ij))^q_i ] / q_i. A large q_i, an uncertain old embedding, lowers the pull of
    pairs that are far apart; for q_i towards 0 a row becomes that of `info_nce`, plus log β. Departures: the similarity
    is divided by a temperature before it comes here (the paper lists τ, but leaves it out of Eq. 12), and there is no
    factor 2τ as in RINCE's public MoCo variant.

    Args:
        positive: Similarity s_ii of every new embedding to its own old one (B,), over the temperature.
        scores: Similarities s_ij to all old embeddings, the own one among them (B, G), over the temperature; −inf where
            one is left out. No row may be left out whole.
        uncertainty: q of every old embedding (B,), detached; held within [0.001, 1].
        beta: β > 0, the weight of the sum.

    Returns:
        A scalar; 0 for an empty batch.

    >>> s = torch.zeros(1, 1)
    >>> robust_contrast(s[0], s, torch.ones(1), beta=0.5).item()  # −1 + 0.5
    -0.5
    """
    exponents = uncertainty.clamp(LEAST_EXPONENT, 1.0)
    crowd = math.log(beta) + torch.logsumexp(scores, dim=1)
    # expm1 for exp: the ones cancel in the difference, and would leave few digits of it for a small exponent
    rows = (torch.expm1(exponents * crowd) - torch.expm1(exponents * positive)) / exponents
    return rows.sum() / max(len(rows), 1)


def info_nce(positive: Tensor, scores: Tensor) -> Tensor:
    """Return mean_i [ −s_ii + log Σ_j exp(s_ij) ] (van den Oord et al., arXiv:1807.03748); see `robust_contrast`.

    Args:
        positive: s_ii (B,).
        scores: s_ij (B, G), s_ii among them, −inf where one is left out.

    Returns:
        A scalar, at least 0; 0 for an empty batch.

    >>> round(info_nce(torch.zeros(1), torch.zeros(1, 4)).item(), 4)  # ln 4
    1.3863
    """
    return (torch.logsumexp(scores, dim=1) - positive).sum() / max(len(positive), 1)
