"""Old class centres as directions of the new classifier, with a bound on how far embeddings stray from them."""

from __future__ import annotations

from typing import Annotated, Literal

import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor, nn

from limpet.geometry import Space
from limpet.geometry.hypersphere import mean_direction, normalise
from limpet.losses.alignment import selected_mean
from limpet.losses.boundary import class_boundaries
from limpet.methods.base import CompatibilityMethod, Head, OldModel, Read, Step
from limpet.methods.predecessor import class_source, require_old, select_known
from limpet.support.ranges import NonNegative


class LCE(CompatibilityMethod):
    r"""Learning compatible embeddings (Meng et al., ICCV 2021, arXiv:2108.01958), without a transformation (K = 0).

    The new classifier's weight of every class must point to the old model's class centre, and every new embedding
    must stay as close to that centre as the class's old embeddings are.

    Loss:
        L = L_\text{task} + \frac{\lambda}{B} \sum_i [ (1 - \cos(w_{y_i}, p_{y_i}))
            + \max(0, \angle(z_i, p_{y_i}) - \theta_{y_i}) ]

    Args:
        form: "angle", as in AdvBCT's benchmark: 1 − cos between weight and centre, averaged over the batch, and the
            excess over the class's largest angle. "cosine", the authors' re-identification code: the mean squared
            difference of unit weights and unit centres over all classes that have a centre, and the shortfall of the
            class's smallest cosine.
        weight: Factor of both compatibility terms.
        alignment_weight: Factor of the alignment of centres, multiplied by `weight`. Default: 1 for "angle" and 100 for
            "cosine", as in the two codes.
        boundary_weight: Factor of the boundary term, multiplied by `weight`.
        classes: Source of centres and boundaries: "new", all classes of the new training set under the old model;
            "old", the old model's own training set (AdvBCT's benchmark), so that new classes have none.
        iqr: Outlier rule for boundaries, in interquartile ranges of a class's angles. Default: 1.5 for "angle" and
            infinity, no rule, for "cosine", as in the two codes.

    Paper settings:
        alignment_weight: 1 (AdvBCT's benchmark), 100 (authors' code)
        iqr: 1.5 (AdvBCT's benchmark), no rule (authors' code)

    Departures:
        A class with at most one kept item has no boundary, and its rows are ignored; the authors' code requires a
        cosine of 1 for them.
    """

    centres: Tensor
    limits: Tensor
    valid: Tensor
    known: Tensor

    def __init__(
        self,
        form: Literal["angle", "cosine"] = "angle",
        weight: NonNegative = 1.0,
        alignment_weight: NonNegative | None = None,
        boundary_weight: NonNegative = 1.0,
        classes: Literal["new", "old"] = "new",
        iqr: Annotated[float, Ge(0)] | None = None,
    ) -> None:
        super().__init__()
        alignment_weight = {"angle": 1.0, "cosine": 100.0}[form] if alignment_weight is None else alignment_weight
        iqr = {"angle": 1.5, "cosine": float("inf")}[form] if iqr is None else iqr
        self.form, self.classes, self.iqr = form, classes, iqr
        self.alignment_weight, self.boundary_weight = weight * alignment_weight, weight * boundary_weight

    @property
    def reads(self) -> frozenset[Read]:
        """The classifier, whose weights it turns, and the old embeddings where the centres come from them."""
        return frozenset({"head", "old_embeddings"} if self.classes == "new" else {"head"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Measure the unit centre (C, D) of every class, and its largest angle or smallest cosine (C,)."""
        features, labels, classes, rows = class_source(require_old(old, "lce"), self.classes, "lce")
        centres, counts = mean_direction(features, labels, classes)
        cosines = (normalise(features) * centres[labels]).sum(dim=1).clamp(-1, 1)
        angles, kept = class_boundaries(cosines.acos(), labels, classes, self.iqr)
        self.register_buffer("centres", select_known(centres, rows))
        self.register_buffer("limits", select_known(angles if self.form == "angle" else angles.cos(), rows))
        self.register_buffer("valid", select_known(kept, rows) > 1)
        self.register_buffer("known", select_known(counts, rows) > 0)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss and both weighted terms, each 0 where no row of the batch has a boundary."""
        centres = self.centres.to(step.new.points.dtype)
        own, limits, valid = centres[step.labels], self.limits[step.labels], self.valid[step.labels]
        if self.form == "angle":
            boundary = angle_excess(step.new.points, own, limits, valid)
            alignment = direction_gap(normalise(step.head.weight[step.labels]), own, valid)
        else:
            boundary = cosine_shortfall(step.new.points, own, limits, valid)
            alignment = squared_alignment(normalise(step.head.weight), centres, self.known)
        return {
            "task": step.head.loss(step.new, step.labels),
            "alignment": self.alignment_weight * alignment,
            "boundary": self.boundary_weight * boundary,
        }


LARGEST_COSINE = 1 - 1e-6  # the slope of acos is infinite at ±1; this is an angle of 0.0014


def angle_excess(points: Tensor, centres: Tensor, angles: Tensor, valid: Tensor) -> Tensor:
    """Average max(0, ∠(z, o) − θ) over the valid rows (boundary loss of LCE, as AdvBCT's benchmark has it).

    Cosines are kept within ±(1 − 1e-6), beyond which no gradient flows.

    Args:
        points: Unit rows (B, D).
        centres: The unit centre of each row's class (B, D).
        angles: The largest angle θ of each row's class in radians (B,).
        valid: Whether the row's class has a boundary, bool (B,).

    Returns:
        A scalar in [0, π]; 0 where no row is valid.

    >>> import torch
    >>> z, o = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> round(angle_excess(z, o, torch.tensor([0.5, 0.5]), torch.tensor([True, True])).item(), 4)  # (π/2 − 0.5) / 2
    0.5354
    """
    cosines = (points * centres).sum(dim=1).clamp(-LARGEST_COSINE, LARGEST_COSINE)
    return selected_mean(F.relu(cosines.acos() - angles), valid)


def cosine_shortfall(points: Tensor, centres: Tensor, cosines: Tensor, valid: Tensor) -> Tensor:
    """Average max(0, c − cos(z, o)) over the valid rows (boundary loss of LCE, the authors' re-identification code).

    Args:
        points: Unit rows (B, D).
        centres: The unit centre of each row's class (B, D).
        cosines: The smallest cosine c of each row's class to its centre (B,).
        valid: Whether the row's class has a boundary, bool (B,).

    Returns:
        A scalar in [0, 2]; 0 where no row is valid.

    >>> import torch
    >>> z, o = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> cosine_shortfall(z, o, torch.tensor([0.5, 0.5]), torch.tensor([True, True])).item()
    0.25
    """
    return selected_mean(F.relu(cosines - (points * centres).sum(dim=1)), valid)


def direction_gap(weights: Tensor, centres: Tensor, valid: Tensor) -> Tensor:
    """Average 1 − cos(W, o) over the valid rows (centre alignment of LCE, as AdvBCT's benchmark has it).

    Args:
        weights: The unit classifier weight of each row's class (B, D).
        centres: The unit centre of each row's class (B, D).
        valid: Whether the row's class has a boundary, bool (B,).

    Returns:
        A scalar in [0, 2]; 0 where no row is valid.

    >>> import torch
    >>> w = torch.tensor([[0.6, 0.8]])
    >>> round(direction_gap(w, torch.tensor([[1.0, 0.0]]), torch.tensor([True])).item(), 4)
    0.4
    """
    return selected_mean(1 - (weights * centres).sum(dim=1), valid)


def squared_alignment(new: Tensor, old: Tensor, selected: Tensor | None = None) -> Tensor:
    """Return the mean squared difference over all elements of unit rows (B, D): ‖new − old‖² / D on average.

    The form of OpenCompatible's benchmark. A scalar in [0, 4 / D]. Only the rows ``selected``, bool (B,), count,
    or all when it is left out.

    >>> import torch
    >>> squared_alignment(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])).item()
    1.0
    """
    return selected_mean((new - old).square().mean(dim=1), selected)
