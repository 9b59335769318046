"""Contrasts within a batch: a new embedding and its old one against items of other classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

INFINITY = float("inf")


def hardest(cosines: Tensor, other: Tensor, count: int) -> Tensor:
    """Return the largest cosines of every row among its negatives.

    Args:
        cosines: Cosines (B, G) of rows to keys.
        other: Whether a key is of another class than the row, bool (B, G).
        count: How many to keep; 0 keeps all.

    Returns:
        (B, G), or (B, min(count, G)) in falling order; −inf where a row has fewer negatives.

    >>> hardest(torch.tensor([[0.9, 0.1, 0.5]]), torch.tensor([[False, True, True]]), 1).tolist()
    [[0.5]]
    """
    negatives = cosines.masked_fill(~other, -INFINITY)
    return negatives.topk(min(count, negatives.shape[1]), dim=1).values if count else negatives


def hard_negative_contrast(new: Tensor, old: Tensor, blocks: Sequence[Tensor], temperature: float) -> Tensor:
    """Classify every item's old embedding against its negatives (Hot-Refresh, arXiv:2201.09724).

    −log( exp(<z_i, o_i>/τ) / ( exp(<z_i, o_i>/τ) + Σ_blocks Σ_k exp(s_ik/τ) ) ), averaged over the batch.

    Args:
        new: Unit rows z (B, D).
        old: Unit rows o of the same items (B, D), detached.
        blocks: Cosines s to negatives, each (B, k), −inf where there is none; see `hardest`.
        temperature: τ > 0.

    Returns:
        A scalar, at least 0; a row without negatives counts 0.

    >>> x = torch.tensor([[1.0, 0.0]])
    >>> round(hard_negative_contrast(x, x, [torch.tensor([[0.0]])], 1.0).item(), 4)  # ln(1 + exp(-1))
    0.3133
    """
    positive = (new * old).sum(dim=1, keepdim=True)
    logits = torch.cat([positive, *blocks], dim=1) / temperature
    return (torch.logsumexp(logits, dim=1) - logits[:, 0]).sum() / max(len(new), 1)


def hard_negative_triplet(new: Tensor, old: Tensor, blocks: Sequence[Tensor], margin: float) -> Tensor:
    """Average max(0, ‖z_i − o_i‖ − ‖z_i − n_k‖ + margin) over negatives n, then over rows; sum over the blocks.

    The triplet form of OpenCompatible's Hot-Refresh. Departure: its rows always have k negatives; here a row averages
    over those that it has, and counts 0 when it has none.

    Args:
        new: Unit rows z (B, D).
        old: Unit rows o of the same items (B, D), detached.
        blocks: Cosines to negatives, each (B, k), −inf where there is none; see `hardest`.
        margin: Distance by which negatives must be farther than the positive, at least 0.

    Returns:
        A scalar in [0, blocks · (2 + margin)]. The gradient is 0, not undefined, where two points coincide.

    >>> x = torch.tensor([[1.0, 0.0]])
    >>> hard_negative_triplet(x, x, [torch.tensor([[0.5]])], margin=1.25).item()  # a chord of 60 degrees has length 1
    0.25
    """
    near = _root((new - old).square().sum(dim=1, keepdim=True))
    loss = new.sum() * 0
    for cosines in blocks:
        excess = F.relu(near - _root(2 - 2 * cosines) + margin)
        rows = excess.sum(dim=1) / torch.isfinite(cosines).sum(dim=1).clamp_min(1)
        loss = loss + rows.sum() / max(len(new), 1)
    return loss


def _root(squared: Tensor) -> Tensor:
    """Return the square root, 0 with a gradient of 0 where rounding left nothing or less."""
    return torch.where(squared > 0, squared, 1.0).sqrt() * (squared > 0)


def high_order_contrast(
    new: Tensor, old: Tensor, labels: Tensor, scale: float, form: Literal["strict", "infonce", "reference"] = "strict"
) -> Tensor:
    """Contrast every old embedding with the new ones: the HOC loss (Biondi et al., CVPR 2024, arXiv:2405.02581).

    mean_i [ −S_ii + logsumexp over j of S_ij ] with S_ij = μ <o_i, z_j>.

    Args:
        new: Unit rows z (B, D).
        old: Unit rows o of the same items (B, D), detached.
        labels: Class of every item, int64 (B,).
        scale: μ > 0.
        form: Which j a row sums over. "strict": those of other classes, and 0 for a row that has none. "infonce":
            these and i itself. "reference": all, with S replaced by 0 where the class is the same, as in the public
            code, so that each of these (i too) adds e⁰ = 1.

    Returns:
        A scalar; at least 0 for "infonce", at least −2μ for "strict" and −μ for "reference".

    >>> x, y = torch.eye(2), torch.tensor([0, 1])
    >>> high_order_contrast(x, x, y, 2.0).item()  # −2 + ln(exp(0))
    -2.0
    """
    similarities = scale * (old @ new.T)
    same = labels[:, None] == labels
    if form == "reference":
        terms = similarities.masked_fill(same, 0.0)
    else:
        own = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        # a row alone with its class is compared with itself: exactly 0, and its gradient too
        kept = own & same.all(dim=1, keepdim=True) if form == "strict" else own
        terms = similarities.masked_fill(same & ~kept, -INFINITY)
    return (torch.logsumexp(terms, dim=1) - similarities.diagonal()).sum() / max(len(labels), 1)
