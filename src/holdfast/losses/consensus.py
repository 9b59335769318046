"""Neighbourhood consensus with a queue of old embeddings, and which of these can be trusted (NCCL).

Wu et al., Neighborhood Consensus Contrastive Learning for Backward-Compatible Representation, AAAI 2022,
arXiv:2108.03372.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.geometry.segments import segment_mean

ELEMENTS = 1 << 26  # of one block of distances: 256 MB in float32
SMALLEST_VARIANCE = 1e-6


def consensus_weights(old: Tensor, labels: Tensor, queue: Tensor, queue_labels: Tensor) -> Tensor:
    """Return how much every queue entry counts for every anchor: (1 + <o_i, q_j>)/2 where the classes agree.

    Divided by the anchor's number of such entries and by the number of anchors that have any, so that
    `consensus_contrast` is the mean over anchors.

    Args:
        old: Unit rows o, the old embeddings of the anchors (B, D).
        labels: Class of every anchor, int64 (B,); -1 for a row that is no anchor.
        queue: Unit rows q (Q, D).
        queue_labels: Class of every queue entry, int64 (Q,); -1 for an empty slot.

    Returns:
        (B, Q), at least 0, with a sum of at most 1.

    >>> x = torch.eye(2)
    >>> consensus_weights(x[:1], torch.tensor([0]), x, torch.tensor([0, 0])).tolist()  # 1 and 1/2, over 2 entries
    [[0.5, 0.25]]
    """
    positive = (labels[:, None] == queue_labels) & (queue_labels >= 0)
    entries = positive.sum(dim=1, keepdim=True)
    anchors = (entries > 0).sum().clamp_min(1)
    return (1 + old @ queue.T) / 2 * positive / (entries.clamp_min(1) * anchors)


def consensus_contrast(scores: Tensor, weights: Tensor, filled: Tensor) -> Tensor:
    """Return −Σ_ij w_ij log softmax_j(s_ij), the softmax over the filled slots of the queue.

    Departure: the public code leaves the zero rows of empty slots in the denominator until the queue is full.

    Args:
        scores: Similarities s of anchors to queue entries, divided by the temperature (B, Q).
        weights: See `consensus_weights` (B, Q); 0 for empty slots.
        filled: Which slots hold an entry, bool (Q,).

    Returns:
        A scalar, at least 0; 0, with a gradient of 0, where no weight is left.

    >>> weights, filled = torch.tensor([[0.5, 0.25, 0.0]]), torch.tensor([True, True, False])
    >>> round(consensus_contrast(torch.zeros(1, 3), weights, filled).item(), 4)  # 0.75 ln 2
    0.5199
    """
    hidden = ~filled & filled.any()  # an empty queue hides nothing, so that there is a softmax
    normaliser = torch.logsumexp(scores.masked_fill(hidden, -float("inf")), dim=1, keepdim=True)
    return (weights * (normaliser - scores)).sum()


def kept_similarity(logits: Tensor, values: Tensor, columns: Tensor) -> Tensor:
    """Return inner products of logits with rows of which only some columns were kept, without a dense copy of these.

    Args:
        logits: Dense rows (B, C).
        values: What was kept of every other row (Q, k).
        columns: Where it stood, int64 (Q, k) in [0, C).

    Returns:
        (B, Q); the columns that were not kept count as 0. The gradient reaches the logits alone.

    >>> kept_similarity(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[10.0, 100.0]]), torch.tensor([[2, 0]])).item()
    140.0
    """
    # a bag per queue row: its columns, weighed; no tensor of B · Q · k elements
    return F.embedding_bag(columns, logits.T.contiguous(), mode="sum", per_sample_weights=values).T


def class_spread(points: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the mean of every class (C, D), as it is, and the population variance of its items' distances to it (C,).

    Departure: a class whose variance is below 1e-6, as it is in any class of fewer than 3 items (two are equally far
    from their mean), has no spread worth dividing by; it takes the mean variance of the others, or 1e-6 without any.

    Args:
        points: Rows (N, D).
        labels: Class of every row, int64 (N,).
        num_classes: C.

    >>> _, variances = class_spread(torch.tensor([[0.0], [0.0], [6.0]]), torch.zeros(3, dtype=torch.int64), 1)
    >>> round(variances.item(), 4)  # of 2, 2 and 4
    0.8889
    """
    centres, _ = segment_mean(points, labels, num_classes)
    size = max(1, ELEMENTS // max(points.shape[1], 1))
    pairs = zip(torch.split(points, size), torch.split(labels, size), strict=True)
    distances = torch.cat([(rows - centres[own]).norm(dim=1, keepdim=True) for rows, own in pairs])
    means, _ = segment_mean(distances, labels, num_classes)
    squared, _ = segment_mean((distances - means[labels]).square(), labels, num_classes)
    variances = squared[:, 0]
    measured = variances >= SMALLEST_VARIANCE
    others = (variances * measured).sum() / measured.sum().clamp_min(1)
    return centres, torch.where(measured, variances, others.clamp_min(SMALLEST_VARIANCE))


def assignment_entropy(points: Tensor, centres: Tensor, variances: Tensor) -> Tensor:
    """Return the entropy of p_k = softmax_k(−‖z − o_k‖ / var_k), over all classes, of every row.

    The paper's filter. The public script takes the softmax over the own class alone, so its entropy is always 0.

    Args:
        points: Rows z (N, D); taken in blocks, so that N × C distances never stand in memory at once.
        centres: Class means o (C, D).
        variances: Variance of every class's distances (C,), above 0.

    Returns:
        Nats (N,), in [0, ln C].

    >>> entropy = assignment_entropy(torch.zeros(1, 2), torch.eye(2), torch.ones(2))
    >>> round(entropy.item(), 4)  # ln 2
    0.6931
    """
    blocks = torch.split(points, max(1, ELEMENTS // max(centres.shape)))
    return torch.cat([_block_entropy(rows, centres, variances) for rows in blocks])


def _block_entropy(rows: Tensor, centres: Tensor, variances: Tensor) -> Tensor:
    scores = torch.cdist(rows, centres).div_(-variances)
    entropy: Tensor = torch.special.entr(torch.softmax(scores, dim=1)).sum(dim=1)
    return entropy


def entropy_limit(num_classes: int) -> float:
    """Return ln(C)/2, the largest entropy of a credible embedding in nats.

    >>> round(entropy_limit(5), 4)
    0.8047
    """
    return math.log(num_classes) / 2


def low_entropy_rows(points: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Mark the rows that the classes' spread assigns clearly to some class: entropy of at most ln(C)/2.

    Args:
        points: Unit rows (N, D). Departure: the paper's are as the model gives them, of any length.
        labels: Class of every row, int64 (N,).
        num_classes: C; classes without a row have no centre and do not count.

    Returns:
        bool (N,). It costs N × C distances.
    """
    present = torch.bincount(labels, minlength=num_classes) > 0
    centres, variances = class_spread(points, labels, num_classes)
    entropy = assignment_entropy(points, centres[present], variances[present])
    return entropy <= entropy_limit(int(present.sum()))
