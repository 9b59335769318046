"""Keeping the features of a batch distributed as the last model had them."""

from __future__ import annotations

from torch import Tensor, nn

from limpet.geometry import Space
from limpet.losses.alignment import all_distances
from limpet.losses.distillation import softened_cross_entropy
from limpet.methods.base import EVERY_SPACE, CompatibilityMethod, Head, OldModel, Read, Step
from limpet.methods.predecessor import OldScores, require_old
from limpet.support.ranges import NonNegative, Positive


class MMD(CompatibilityMethod):
    r"""Maximum mean discrepancy with distillation (Chen et al., BMVC 2020, arXiv:2010.08020), as in CVS's comparison.

    The features of a batch, including their lengths, must have the same distribution as the last model's features of
    the same items. On items of classes that the last model has not seen, the classifier must also score the old classes
    as the last one did; if every class is old, as with blurry sessions, that term is 0. It uses no replay.

    Loss:
        L = L_\text{task} + \lambda [ k(x, x) + k(x^\text{old}, x^\text{old}) - 2 k(x, x^\text{old}) ]
            + \lambda_d L_\text{LwF}
        k(a, b) = \frac{1}{B^2} \sum_{i, j} \exp(- \lVert a_i - b_j \rVert^2 / h)

    Args:
        weight: Factor of the discrepancy.
        distillation_weight: Factor of the distillation; 0 omits it, and no old classifier is then needed.
        temperature: Divisor of the scores of both models.
        bandwidth: Bandwidth of the kernel exp(−‖x − y‖² / bandwidth). Default: D².

    Paper settings:
        weight: 1 (CVS's comparison)
        distillation_weight: 1 (CVS's comparison)
        bandwidth: D² (CVS's comparison)

    Departures:
        The paper does not specify kernel and bandwidth; they are those of CVS's public comparison.
    """

    spaces = EVERY_SPACE
    keeps_points = True
    sessions_only = True
    old_view = "same"

    scores: OldScores

    def __init__(
        self,
        weight: NonNegative = 1.0,
        distillation_weight: NonNegative = 1.0,
        temperature: Positive = 2.0,
        bandwidth: Positive | None = None,
    ) -> None:
        super().__init__()
        self.weight, self.distillation_weight = weight, distillation_weight
        self.temperature, self.bandwidth = temperature, bandwidth

    @property
    def reads(self) -> frozenset[Read]:
        """The old view, and the classifier for the distillation."""
        return frozenset({"head", "old"} if self.distillation_weight else {"old"})

    def prepare(self, old: OldModel | None, model: nn.Module, head: Head, space: Space) -> None:
        """Freeze the old classifier and find its classes in the new one, unless the distillation is left out."""
        old = require_old(old, "mmd")
        if self.distillation_weight:
            self.scores = OldScores(old, "mmd", ("distillation_weight", 0))

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss, the weighted discrepancy and, unless it is left out, the weighted distillation."""
        discrepancy = mean_discrepancy(step.new.features, step.predecessor.features, self.bandwidth)
        terms = {"task": step.head.loss(step.new, step.labels), "discrepancy": self.weight * discrepancy}
        if self.distillation_weight:
            new, old = self.scores(step)
            kept = softened_cross_entropy(new, old, self.temperature, selected=step.old_labels < 0)
            terms["distillation"] = self.distillation_weight * kept
        return terms


def mean_discrepancy(new: Tensor, old: Tensor, bandwidth: float | None = None) -> Tensor:
    """Return the squared maximum mean discrepancy, mean k(z, z') + mean k(o, o') − 2 mean k(z, o).

    With the kernel k(x, y) = exp(−‖x − y‖² / h). All pairs count, an item's with itself too, so the estimate is biased
    upwards and at least 0. Departure from the paper, which leaves kernel and bandwidth open: those of CVS's public
    comparison.

    Args:
        new: Features z (B, D), as the model gives them, of any length.
        old: Features o of the frozen model (G, D), detached.
        bandwidth: h > 0; D² when left out, so wide for long vectors that mostly the means are compared.

    Returns:
        A scalar in [0, 2], up to rounding; 0, with a gradient of 0, where one side is empty. It holds
        B² + G² + B·G distances.

    >>> import torch
    >>> z, o = torch.tensor([[0.0]]), torch.tensor([[2.0]])
    >>> round(mean_discrepancy(z, o, bandwidth=4.0).item(), 4)  # 2 − 2/e
    1.2642
    """
    if not len(new) or not len(old):
        return new.sum() * 0
    width = new.shape[1] ** 2 if bandwidth is None else bandwidth
    within, frozen, across = (_kernel_mean(x, y, width) for x, y in ((new, new), (old, old), (new, old)))
    return within + frozen - 2 * across


def _kernel_mean(x: Tensor, y: Tensor, bandwidth: float) -> Tensor:
    return (-all_distances(x, y).square() / bandwidth).exp().mean()
