"""Prototype perturbation driven by neighbours."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from limpet.geometry import Space
from limpet.geometry.hypersphere import normalise
from limpet.losses.perturbation import block_size, mean_angle
from limpet.losses.prototypes import drawn_classes, prototype_contrast
from limpet.methods.base import CompatibilityMethod, Epoch, Head, OldModel, Read, Step
from limpet.methods.new_prototypes import NewPrototypes, PrototypeSource
from limpet.methods.predecessor import class_prototypes, require_old
from limpet.support.ranges import Count, NonNegative, Positive, PositiveInt

_NEGLIGIBLE = 1e-6  # a smaller sum of similarities has no direction to speak of


class NDPP(CompatibilityMethod):
    r"""Neighbour-driven prototype perturbation (Zhou et al., arXiv:2503.14824, Eqs. 4 to 8, Algorithm 1).

    As p2s, but every new embedding is attracted to a perturbed old prototype: it is pushed away from the most similar
    old prototypes once before training, and from the most similar new ones at the start of every epoch. This separates
    classes that the old model confuses. Negatives remain the unperturbed old prototypes. In the equations, N_c(q) are
    the K classes other than c whose prototypes are most similar to q.

    The log reports by how many degrees targets rotate. A third of a degree, as with the paper's alphas, has no effect;
    the gain grows from one degree to nine (0.3 with 10 neighbours) and vanishes at nineteen
    (`benchmarks/results/regimes.md`).

    Loss:
        L = L_\text{task} + \lambda C
        C = - \frac{1}{B} \sum_i \log \frac{\exp(z_i \cdot n(t_{y_i}) / \tau)}
            {\exp(z_i \cdot n(t_{y_i}) / \tau) + \sum_{c \ne y_i} \exp(z_i \cdot p_c / \tau)}
        t_c = t_c^0 + \alpha_2 r_c(t_c^0, P^\text{new}), \quad t_c^0 = p_c + \alpha_1 r_c(p_c, P^\text{old})
        r_c(q, P) = \frac{\sum_{k \in N_c(q)} \cos(q, P_k) (q - P_k)}{\sum_{k \in N_c(q)} \cos(q, P_k)}

    Args:
        weight: Factor of the contrast (the paper's lambda).
        temperature: Divisor of the cosines (the paper's tau).
        alpha_old: Length of the push from old neighbours (alpha 1).
        alpha_new: Length of the push from new neighbours (alpha 2); 0 ignores them.
        neighbours: Number of neighbours of either kind (K); all other classes if there are fewer.
        accumulate: Add each epoch's push to the target of the epoch before (Algorithm 1, line 13) instead of
            replacing it (Eq. 8).
        new_prototypes: "exact": one pass over the training set at the start of every epoch, a quarter to half of its
            time; "running": means of the last epoch's batches, nearly free, and none in the first epoch.
        new_start_epoch: First epoch, from 0, that uses new neighbours; the paper starts at once.
        negatives: Number of other classes in the contrast, redrawn at every step. Default: all, as in the paper.
        old_only: Ignore new neighbours: NDPP-old of the paper's Table V.

    Paper settings:
        weight: 1
        temperature: 0.07
        alpha_old: 0.01
        alpha_new: 0.01
        neighbours: 100
        accumulate: False (Eq. 8), True (Algorithm 1)
        new_start_epoch: 0
        negatives: all

    Departures:
        Eq. 8 starts from the old prototype in every epoch, the default; a class is not its own neighbour, or its target
        would move away from its own centre; similarities below 0 are set to 0.
    """

    prototypes: Tensor
    start: Tensor
    targets: Tensor

    def __init__(
        self,
        weight: NonNegative = 1.0,
        temperature: Positive = 0.07,
        alpha_old: NonNegative = 0.01,
        alpha_new: NonNegative = 0.01,
        neighbours: PositiveInt = 100,
        accumulate: bool = False,
        new_prototypes: PrototypeSource = "exact",
        new_start_epoch: Count = 0,
        negatives: PositiveInt | None = None,
        old_only: bool = False,
    ) -> None:
        super().__init__()
        self.weight, self.temperature, self.negatives = weight, temperature, negatives
        self.alpha_old, self.alpha_new, self.neighbours = alpha_old, alpha_new, neighbours
        self.accumulate, self.source, self.new_start_epoch = accumulate, new_prototypes, new_start_epoch
        self.old_only = old_only

    @property
    def reads(self) -> frozenset[Read]:
        """The old embeddings, and the new ones at the start of an epoch unless batches are to do."""
        without = self.old_only or not self.alpha_new or self.source == "running"
        return frozenset({"old_embeddings"} if without else {"old_embeddings", "new_embeddings"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Push every old prototype away from its old neighbours, once."""
        prototypes, _ = class_prototypes(require_old(old, "ndpp").embeddings, space)
        start = prototypes + self.alpha_old * self.push(prototypes, prototypes)
        self.register_buffer("prototypes", prototypes)
        self.register_buffer("start", start)
        self.register_buffer("targets", start.clone())
        self.new = NewPrototypes(self.source, len(prototypes), space)

    def push(self, origins: Tensor, prototypes: Tensor) -> Tensor:
        """Return the direction (C, D) away from every origin's nearest prototypes of other classes."""
        return neighbour_repulsion(origins, prototypes, *nearest_prototypes(origins, prototypes, self.neighbours))

    def on_epoch_start(self, epoch: Epoch) -> Mapping[str, float]:
        """Push the targets away from their new neighbours; log by how many degrees they have turned in all."""
        if self.old_only or not self.alpha_new or epoch.index < self.new_start_epoch:
            self.new.forget()
        else:
            origins = self.targets if self.accumulate else self.start
            new = self.new.collect(epoch).to(origins)
            self.targets = origins + self.alpha_new * self.push(origins, new)
        return {"degrees moved": mean_angle(self.prototypes, self.targets)}

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted contrast with perturbed positives."""
        self.new.add(step)
        points = step.new.features
        prototypes, targets = self.prototypes.to(points.dtype), self.targets.to(points.dtype)
        negatives = drawn_classes(self.negatives, len(prototypes), step.generator, points.device)
        contrast = prototype_contrast(points, step.labels, prototypes, self.temperature, targets, negatives)
        return {"task": step.head.loss(step.new, step.labels), "contrast": self.weight * contrast}


def nearest_prototypes(queries: Tensor, prototypes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find for every class the K most similar prototypes of *other* classes.

    Args:
        queries: One vector per class (C, D), of any length.
        prototypes: One vector per class (C, D), of any length; row c never is a neighbour of query c.
        count: K; at most C - 1 are returned.

    Returns:
        Classes, int64 (C, K'), nearest first, and their cosines (C, K') with K' = min(K, C - 1).

    >>> corners = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> nearest_prototypes(corners, corners, 1)[0].flatten().tolist()
    [2, 2, 1]
    """
    classes = len(prototypes)
    unit, count = normalise(prototypes), min(count, classes - 1)
    found = []
    for rows in torch.split(torch.arange(classes, device=prototypes.device), block_size(classes)):
        similarities = normalise(queries[rows]) @ unit.T
        similarities[torch.arange(len(rows)), rows] = -torch.inf
        found.append(similarities.topk(count))
    return torch.cat([best.indices for best in found]), torch.cat([best.values for best in found])


def neighbour_repulsion(origins: Tensor, prototypes: Tensor, neighbours: Tensor, similarities: Tensor) -> Tensor:
    """Return r = Σ s (o − p) / Σ s over every class's neighbours p: the way from them to its origin (NDPP, Eqs. 4, 7).

    Similarities below 0 count as 0, or a distant class would attract; where what is left sums to less than 1e-6 the
    direction is 0. Both never happen in the paper's setting, with K = 100 of thousands of classes.

    Args:
        origins: o, one vector per class (C, D).
        prototypes: p, one vector per class (C, D).
        neighbours: Classes, int64 (C, K), of `nearest_prototypes`.
        similarities: Their cosines (C, K).

    Returns:
        (C, D); K may be 0.

    >>> o, p = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> neighbour_repulsion(o, p, torch.tensor([[0]]), torch.tensor([[0.5]])).tolist()
    [[1.0, -1.0]]
    """
    if neighbours.shape[1] == 0:
        return torch.zeros_like(origins)
    weights = similarities.clamp_min(0)
    total = weights.sum(dim=1, keepdim=True)
    pull = F.embedding_bag(neighbours, prototypes, per_sample_weights=weights, mode="sum")
    return torch.where(total < _NEGLIGIBLE, 0.0, origins - pull / total.clamp_min(_NEGLIGIBLE))
