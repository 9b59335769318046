"""Class prototypes refined by how a new model groups the items of a class (UniBCT)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

ELEMENTS = 2**25  # of a group of classes computed together: 128 MiB in float32


def refined_prototypes(
    new: Tensor,
    old: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    propagation: float,
    temperature: float,
    tolerance: float = 1e-9,
) -> Tensor:
    """Average the old embeddings of every class after spreading them along the new model's similarities.

    Within a class, E = softmax over each row of <new_i, new_j>/τ with the diagonal left out, and the prototype is the
    mean over the rows of (1 − λ)(I − λE)⁻¹ · old. An item that many others resemble so weighs more than an outlier.

    Only the mean of the rows is needed, so the series (1 − λ) Σ_k λᵏ (Eᵀ)ᵏ · 1/n is summed for one weight per item,
    until what is left out is below the tolerance: n² operations a term, no inverse. Rows, not columns, are normalised:
    with columns every weight is 1/n, and the result the plain class mean.

    Args:
        new: Unit rows (N, D') under the new model.
        old: Unit rows (N, D) of the same items under the old one.
        labels: Class of every row, int64 (N,), in any order.
        num_classes: C.
        propagation: λ in [0, 1); 0 gives the class means.
        temperature: τ > 0 of the cosines.
        tolerance: Share of the weight that the series may leave out.

    Returns:
        (C, D), not normalised. A class of one item is that item; an absent class is zero.

    >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> refined = refined_prototypes(rows, rows, torch.tensor([0, 0]), 1, propagation=0.9, temperature=0.05)
    >>> [round(value, 3) for value in refined[0].tolist()]
    [0.5, 0.5]
    """
    terms = 0 if propagation == 0 else math.ceil(math.log(tolerance) / math.log(propagation))
    order = torch.argsort(labels, stable=True)
    counts = torch.bincount(labels, minlength=num_classes)
    starts = counts.cumsum(0) - counts
    prototypes = old.new_zeros(num_classes, old.shape[1])
    for classes in _groups(counts, max(new.shape[1], old.shape[1])):
        sizes = counts[classes]
        places = torch.arange(int(sizes.max()), device=labels.device)
        valid = places < sizes[:, None]
        rows = order[(starts[classes, None] + places).clamp_max(len(order) - 1)]
        affinity = _affinity(new[rows], valid, temperature)
        term = weights = valid.to(old.dtype) / sizes[:, None]
        for _ in range(terms):
            term = propagation * (term[:, None] @ affinity)[:, 0]
            weights = weights + term
        prototypes[classes] = (1 - propagation) * (weights[:, None] @ old[rows])[:, 0]
    return prototypes


def _affinity(points: Tensor, valid: Tensor, temperature: float) -> Tensor:
    """Return E (G, n, n) of padded classes: rows sum to 1 over the other items of their class."""
    similarities = points @ points.transpose(1, 2) / temperature
    itself = torch.eye(points.shape[1], dtype=torch.bool, device=points.device)
    alone = valid.sum(dim=1) == 1  # a single item resembles only itself
    similarities = similarities.masked_fill(~valid[:, None] | (itself & ~alone[:, None, None]), -torch.inf)
    return similarities.softmax(dim=2)


def _groups(counts: Tensor, dim: int) -> Iterator[Tensor]:
    """Split the classes that have items into groups of like size that fit into memory together."""
    by_size = torch.argsort(counts, stable=True)
    by_size = by_size[counts[by_size] > 0]
    start, sizes = 0, counts[by_size].tolist()
    for stop in range(1, len(sizes) + 1):
        if stop == len(sizes) or (stop + 1 - start) * sizes[stop] * max(sizes[stop], dim) > ELEMENTS:
            yield by_size[start:stop]
            start = stop
