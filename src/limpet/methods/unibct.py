"""Unified backward-compatible training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from limpet.errors import refuse
from limpet.geometry import Space
from limpet.geometry.hypersphere import normalise
from limpet.losses.influence import mean_cross_entropy
from limpet.losses.margin import with_margin
from limpet.losses.perturbation import mean_angle
from limpet.methods.base import CompatibilityMethod, Epoch, Head, OldModel, Read, Step
from limpet.methods.predecessor import class_prototypes, labelled_features, require_old, source_set
from limpet.support.ranges import NonNegative, Positive


class UniBCT(CompatibilityMethod):
    r"""Unified backward-compatible training (Zhang et al., IJCAI 2022, arXiv:2203.01583).

    A classifier of the old model's class means, refined twice by the new model's similarities within a class, must also
    classify new embeddings, with an angular margin. Until the first refinement, only the task is trained.

    Loss:
        L = L_\text{task} + \lambda C
        C = - \frac{1}{B} \sum_i \log \frac{\exp(s \cos(\theta_{i y_i} + m))}
            {\exp(s \cos(\theta_{i y_i} + m)) + \sum_{c \ne y_i} \exp(s \cos \theta_{ic})}
        \theta_{ic} = \angle(z_i, \hat p_c), \quad \hat p_c = \frac{1}{n_c} 1^\top (1 - \rho) (I - \rho E_c)^{-1} V_c

    Args:
        weight: Factor of the compatibility term.
        scale: Factor of its cosines.
        margin: Angular margin at the target, in radians.
        refine: Refine the class means; otherwise, the term is used from the first step.
        classes: Classes of the means: "new", all classes of the new training set under the old model; "old", those of
            the old model's own training set, not refined, and items of other classes are ignored.
        propagation: Share of every item's old embedding that comes from similar items (lambda), below 1.
        temperature: Divisor of the cosines between items of a class.

    Paper settings:
        scale: 30; 1 in MixBCT's comparison
        margin: 0.3; 0 in MixBCT's comparison
        refine: True; False in AdvBCT's comparison
        propagation: 0.9
        temperature: 0.05

    Departures:
        Refinements run at the start of epochs round(2E/7) and round(4E/7) of E, 10 and 20 of 35 in MixBCT's comparison.
        The public copy of the refinement normalises similarities along columns, which undoes it; here rows are
        normalised, on unit vectors. AdvBCT's comparison omits the refinement, and classes that the old model has not
        seen: `refine` false, `classes` "old". MixBCT's comparison uses plain cosines: `scale` 1, `margin` 0.
    """

    prototypes: Tensor
    rows: Tensor

    def __init__(
        self,
        weight: NonNegative = 1.0,
        scale: Positive = 30.0,
        margin: NonNegative = 0.3,
        refine: bool = True,
        classes: Literal["new", "old"] = "new",
        propagation: Annotated[float, Ge(0), Lt(1)] = 0.9,
        temperature: Positive = 0.05,
    ) -> None:
        super().__init__()
        self.weight, self.scale, self.margin = weight, scale, margin
        refuse(refine and classes == "old", "unibct was given classes='old' and refine=True",
               "refine=False, or classes='new': what is refined are the old embeddings of the new data")  # fmt: skip
        self.refine, self.propagation, self.temperature = refine, propagation, temperature
        self.classes = classes

    @property
    def reads(self) -> frozenset[Read]:
        """The old embeddings of the set that classes are measured on, and what refining them takes."""
        refining: set[Read] = {"epoch", "new_embeddings"} if self.refine else set()
        return frozenset(refining | ({"old_embeddings"} if self.classes == "new" else set()))

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Average the old embeddings by class."""
        (self.old, rows), self.space = source_set(require_old(old, "unibct"), self.classes, "unibct"), space
        prototypes, _ = class_prototypes(self.old, space)
        self.register_buffer("prototypes", prototypes)
        self.register_buffer("rows", rows)

    def on_epoch_start(self, epoch: Epoch) -> Mapping[str, float] | None:
        """Refine the prototypes where it is time; log by how many degrees they turned."""
        if not self.refine or epoch.index not in refinement_epochs(epoch.total):
            return None
        features, labels, classes = labelled_features(self.old)
        old, new = self.space.project(features).to(self.prototypes), epoch.new_embeddings().points.to(self.prototypes)
        refined = refined_prototypes(
            new, old, labels.to(new.device), classes, propagation=self.propagation, temperature=self.temperature
        )
        before, self.prototypes = self.prototypes, self.space.project(refined)
        return {"degrees moved": mean_angle(before, self.prototypes)}

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and the weighted compatibility, 0 until the prototypes are refined."""
        points = step.new.features
        compatibility = points.new_zeros(())
        if not self.refine or step.epoch >= min(refinement_epochs(step.epochs)):
            prototypes = self.prototypes.to(points.dtype)
            targets = self.rows[step.labels]
            compatibility = prototype_margin(points, targets, prototypes, scale=self.scale, margin=self.margin)
        return {"task": step.head.loss(step.new, step.labels), "compatibility": self.weight * compatibility}


def refinement_epochs(epochs: int) -> tuple[int, int]:
    """Return the epochs, from 0, at whose start prototypes are refined.

    >>> refinement_epochs(35), refinement_epochs(8)
    ((10, 20), (2, 5))
    """
    return round(2 * epochs / 7), round(4 * epochs / 7)


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


def prototype_margin(points: Tensor, labels: Tensor, prototypes: Tensor, *, scale: float, margin: float) -> Tensor:
    """Classify embeddings by scaled cosines to class prototypes, with an angular margin at the target (UniBCT).

    Args:
        points: Embeddings (B, D) of any length.
        labels: Row of the prototypes for every embedding, int64 (B,); -1 leaves one out.
        prototypes: One unit vector per class (C, D).
        scale: s > 0, multiplies the cosines.
        margin: m in radians, added to the target's angle; no guard beyond pi - m.

    Returns:
        A scalar, at least 0; 0 where no row qualifies.

    >>> p = torch.eye(2)
    >>> round(prototype_margin(p[:1], torch.tensor([0]), p, scale=1.0, margin=0.0).item(), 4)  # ln(1 + exp(-1))
    0.3133
    """
    scaled, rows = scale * normalise(points), labels.clamp_min(0)
    logits = scaled @ prototypes.T
    target = (scaled * prototypes[rows]).sum(dim=1, keepdim=True)
    logits.scatter_add_(1, rows[:, None], scale * with_margin(target / scale, margin, guard=False) - target)
    return mean_cross_entropy(logits, labels)
