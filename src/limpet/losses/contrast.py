"""Contrasts within a batch: a new embedding and its old one against items of other classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

INFINITY = float("inf")


def each_its_own(labels: Tensor) -> Tensor:
    """Return labels (B,) in which every item without a class, below 0, is a class of its own.

    >>> each_its_own(torch.tensor([4, -1, 4, -1])).tolist()
    [4, -2, 4, -4]
    """
    return torch.where(labels >= 0, labels, -1 - torch.arange(len(labels), device=labels.device))


def hardest(similarities: Tensor, other: Tensor, count: int) -> Tensor:
    """Return the largest similarities of every row among its negatives.

    Args:
        similarities: Of rows to keys (B, G).
        other: Whether a key is of another class than the row, bool (B, G).
        count: How many to keep; 0 keeps all.

    Returns:
        (B, G), or (B, min(count, G)) in falling order; −inf where a row has fewer negatives.

    >>> hardest(torch.tensor([[0.9, 0.1, 0.5]]), torch.tensor([[False, True, True]]), 1).tolist()
    [[0.5]]
    """
    negatives = similarities.masked_fill(~other, -INFINITY)
    return negatives.topk(min(count, negatives.shape[1]), dim=1).values if count else negatives


def hard_negative_contrast(positive: Tensor, blocks: Sequence[Tensor], temperature: float) -> Tensor:
    """Classify every item's old embedding against its negatives (Hot-Refresh, arXiv:2201.09724).

    −log( exp(s_i/τ) / ( exp(s_i/τ) + Σ_blocks Σ_k exp(s_ik/τ) ) ), averaged over the batch.

    Args:
        positive: Similarity s of every new embedding to the old one of the same item (B,).
        blocks: Similarities to negatives, each (B, k), −inf where there is none; see `hardest`.
        temperature: τ > 0.

    Returns:
        A scalar, at least 0; a row without negatives counts 0.

    >>> round(hard_negative_contrast(torch.ones(1), [torch.zeros(1, 1)], 1.0).item(), 4)  # ln(1 + exp(-1))
    0.3133
    """
    logits = torch.cat([positive[:, None], *blocks], dim=1) / temperature
    return (torch.logsumexp(logits, dim=1) - logits[:, 0]).sum() / max(len(positive), 1)


def hard_negative_triplet(near: Tensor, blocks: Sequence[Tensor], margin: float) -> Tensor:
    """Average max(0, d_i − d_ik + margin) over negatives k, then over rows i; sum over the blocks.

    The triplet form of OpenCompatible's Hot-Refresh. Departure: its rows always have k negatives; here a row averages
    over those that it has, and counts 0 when it has none.

    Args:
        near: Distance d of every new embedding to the old one of the same item (B,).
        blocks: Distances to negatives, each (B, k), +inf where there is none; see `hardest`.
        margin: Distance by which negatives must be farther than the positive, at least 0.

    Returns:
        A scalar, at least 0.

    >>> hard_negative_triplet(torch.zeros(1), [torch.ones(1, 1)], margin=1.25).item()
    0.25
    """
    loss = near.sum() * 0
    for distances in blocks:
        excess = F.relu(near[:, None] - distances + margin)
        rows = excess.sum(dim=1) / torch.isfinite(distances).sum(dim=1).clamp_min(1)
        loss = loss + rows.sum() / max(len(near), 1)
    return loss


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
