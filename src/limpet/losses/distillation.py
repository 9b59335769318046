"""What a new model may keep of its teacher: logits, embeddings, distances, angles or orders within a batch.

The losses that CVS compares its model coherence with (Wan et al., CVPR 2022, Tables C.3 and C.4), and LwF's. Rows are
embeddings of the same items under the model in training and under the frozen one; CVS gives them unit length. Pairs and
triples are counted as the public code of relational distillation does: all of them, those of an item with itself, which
cost nothing, among the number that is divided by.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from limpet.losses.alignment import selected_mean


def dark_knowledge(new: Tensor, old: Tensor, temperature: float = 2.0, selected: Tensor | None = None) -> Tensor:
    """Return the mean divergence KL(p ‖ q) of class probabilities p = softmax(old/T), q = softmax(new/T).

    Hinton et al., arXiv:1503.02531. Departure: without their factor T², which the weight of the loss takes in; CVS's
    public code has none either.

    Args:
        new: Logits of the model in training (B, C), the columns of the old classes alone.
        old: Logits of the frozen model (B, C), detached.
        temperature: T > 0, on top of what the logits were already divided by.
        selected: Rows that count, bool (B,); all when left out.

    Returns:
        Nats, a scalar of at least 0; 0, with a gradient of 0, where no row counts.

    >>> import torch
    >>> old = torch.tensor([[0.0, 0.0]])
    >>> new = torch.tensor([[0.0, 3.0]]).log1p()  # probabilities 1/5 and 4/5
    >>> round(dark_knowledge(new, old, temperature=1.0).item(), 4)  # (ln 5/2 + ln 5/8) / 2
    0.2231
    """
    teacher = F.log_softmax(old / temperature, dim=1)
    excess = teacher - F.log_softmax(new / temperature, dim=1)
    return selected_mean((teacher.exp() * excess).sum(dim=1), selected)


def softened_cross_entropy(
    new: Tensor, old: Tensor, temperature: float = 2.0, selected: Tensor | None = None
) -> Tensor:
    """Return mean_i [ −Σ_k p_ik log q_ik ], the distillation of LwF (Li and Hoiem, TPAMI 2018), for CVS's LwF and MMD.

    p and q as in `dark_knowledge`, to which this adds the entropy of p: the gradient is the same, the value does not
    reach 0.

    Args:
        new: Logits (B, C), of a copy of the old head that trains along (LwF) or the old columns of the head (MMD).
        old: Logits of the frozen model (B, C), detached.
        temperature: T > 0, on top of what the logits were already divided by; 2 in LwF.
        selected: Rows that count, bool (B,); all when left out.

    Returns:
        Nats, a scalar of at least 0; 0, with a gradient of 0, where no row counts.

    >>> import torch
    >>> old = torch.tensor([[0.0, 0.0]])
    >>> round(softened_cross_entropy(old, old).item(), 4)  # ln 2
    0.6931
    """
    rows = -(F.softmax(old / temperature, dim=1) * F.log_softmax(new / temperature, dim=1)).sum(dim=1)
    return selected_mean(rows, selected)
