"""Contrasts within a batch: a new embedding and its old one against items of other classes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

INFINITY = float("inf")


def each_its_own(labels: Tensor) -> Tensor:
    """Return labels (B,) in which every item without a class, below 0, is a class of its own.

    >>> each_its_own(torch.tensor([4, -1, 4, -1])).tolist()
    [4, -2, 4, -4]
    """
    return torch.where(labels >= 0, labels, -1 - torch.arange(len(labels), device=labels.device))


def high_order_contrast(
    similarities: Tensor, labels: Tensor, form: Literal["strict", "infonce", "reference"] = "strict"
) -> Tensor:
    """Contrast every old embedding with the new ones: the HOC loss (Biondi et al., CVPR 2024, arXiv:2405.02581).

    mean_i [ −S_ii + logsumexp over j of S_ij ].

    Args:
        similarities: S (B, B): μ times the similarity of the old embedding of item i to the new one of item j.
        labels: Class of every item, int64 (B,).
        form: Which j a row sums over. "strict": those of other classes, and 0 for a row that has none. "infonce":
            these and i itself. "reference": all, with S replaced by 0 where the class is the same, as in the public
            code, so that each of these (i too) adds e⁰ = 1.

    Returns:
        A scalar; at least 0 for "infonce"; of cosines, at least −2μ for "strict" and −μ for "reference".

    >>> high_order_contrast(2.0 * torch.eye(2), torch.tensor([0, 1])).item()  # −2 + ln(exp(0))
    -2.0
    """
    same = labels[:, None] == labels
    if form == "reference":
        terms = similarities.masked_fill(same, 0.0)
    else:
        own = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        # a row alone with its class is compared with itself: exactly 0, and its gradient too
        kept = own & same.all(dim=1, keepdim=True) if form == "strict" else own
        terms = similarities.masked_fill(same & ~kept, -INFINITY)
    return (torch.logsumexp(terms, dim=1) - similarities.diagonal()).sum() / max(len(labels), 1)
