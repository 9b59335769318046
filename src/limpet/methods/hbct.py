"""HBCT: new points in the entailment cones of old points, weighted by their certainty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from limpet.errors import refuse
from limpet.geometry import lorentz
from limpet.geometry.lorentz import Curvature, exterior_angle, half_aperture, paired_distance
from limpet.losses.alignment import selected_mean
from limpet.methods.base import CompatibilityMethod, Read, Step, View
from limpet.support.ranges import NonNegative, Positive


class HBCT(CompatibilityMethod):
    r"""Hyperbolic backward-compatible training (Bui et al., ICML 2025, arXiv:2506.05826, Eq. 13).

    Points are in hyperbolic space, where the distance from the origin measures how certain a model is. A new point must
    stay inside the entailment cone of the old point of the same item, which is wider for a less certain old point
    (section 4.2). It must also be closer to that point than to the batch's other old points, in a contrast that pulls
    less if the old point is uncertain and far away (section 4.3). Both models need the Lorentz space; the points of the
    new one may be farther from the origin.

    Train for tens of epochs: the uncertainty tells unseen classes only then, and entailment costs less. A larger ζ of
    both models, which clips few vectors, gained compatibility on photographs
    (`benchmarks/results/hyperbolic_photographs.md`).

    Loss:
        L = L_\text{task} + \lambda (\lambda_e E + C)
        E = \frac{1}{B} \sum_i \max(0, \text{ext}(h_i^\text{old}, h_i) - \text{aper}(h_i^\text{old}))
        C = \frac{1}{B} \sum_i \frac{1}{u_i} [ - e^{u_i s_{ii}} + ( \beta \sum_j e^{s_{ij}} )^{u_i} ], \quad
            s_{ij} = - d(h_i, h_j^\text{old}) / \tau

    Args:
        weight: λ, the factor of both terms.
        entail_weight: Factor of the entailment within them; 0 leaves it out.
        temperature: τ; similarities are divided by it before anything else (Eq. 12 does not show it).
        beta: β > 0, the weight of the negatives in "rince".
        min_radius: ε of the cone's aperture (Eq. 11).
        contrast: "rince", whose exponent is the old point's uncertainty; "infonce", which trusts all alike; or
            "mean_distortion", the mean distance of new points to their old ones, without τ and negatives.
        similarity: "geodesic", minus the distance; "squared_lorentz", minus the squared Lorentz distance; or "inner",
            the Lorentz inner product (table 5).
        same_class_negatives: Contrast with all old points of the batch, as Eq. 12 is printed; otherwise those of the
            own class are left out, all but the own one.

    Paper settings:
        weight: 0.3
        entail_weight: 1
        temperature: 0.5
        beta: 0.01
        min_radius: 0.1
        contrast: rince
        similarity: geodesic

    Departures:
        Similarities are divided by τ, which the paper lists and Eq. 12 does not show. The uncertainty u is the share
        that the text defines; Eq. 10 prints it for K = 1. As an exponent it is at least 0.001. A pair closer
        than 1e-4 costs no entailment, since its angle has no limit.
    """

    spaces = frozenset({"lorentz"})
    old_view = "same"
    space_reason = "it lives on cones, and on the distance from the origin, of hyperbolic space"
    without_classes: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        weight: NonNegative = 0.3,
        entail_weight: NonNegative = 1.0,
        temperature: Positive = 0.5,
        beta: Positive = 0.01,
        min_radius: Positive = 0.1,
        contrast: Literal["rince", "infonce", "mean_distortion"] = "rince",
        similarity: Literal["geodesic", "squared_lorentz", "inner"] = "geodesic",
        same_class_negatives: bool = True,
    ) -> None:
        super().__init__()
        refuse(contrast == "mean_distortion" and similarity == "inner",
               "hbct was given contrast='mean_distortion' with similarity='inner'", "a distance: 'geodesic' or "
               "'squared_lorentz'")  # fmt: skip
        self.weight, self.entail_weight, self.temperature = weight, entail_weight, temperature
        self.beta, self.min_radius, self.contrast = beta, min_radius, contrast
        self.similarity, self.same_class_negatives = similarity, same_class_negatives

    @property
    def reads(self) -> frozenset[Read]:
        """The old view, and which rows are one item where others of the class are left out."""
        return frozenset({"old"} if self.same_class_negatives else {"old", "index"})

    def scores(self, new: View, old: Tensor, *, paired: bool = False) -> Tensor:
        """Return similarities of new points to old ones (G, D), larger is closer: (B, G), or (B,) of paired rows."""
        # by name, pairwise and paired; the distances are computed from differences, close points included
        tables = {
            "geodesic": (lorentz.distance, lorentz.paired_distance, -1.0),
            "squared_lorentz": (lorentz.squared_distance, lorentz.paired_squared_distance, -1.0),
            "inner": (lorentz.inner, lorentz.paired_inner, 1.0),
        }
        pairwise, rows, sign = tables[self.similarity]
        return sign * (rows if paired else pairwise)(new.points, old, curvature=new.space.live_curvature)

    def alignment(self, step: Step) -> Tensor:
        """Return the contrast of the batch, a scalar."""
        new, old = step.new, step.predecessor.points
        positive = self.scores(new, old, paired=True)
        if self.contrast == "mean_distortion":
            return -positive.sum() / max(len(positive), 1)
        scores = self.scores(new, old) / self.temperature
        if not self.same_class_negatives:
            same, own = step.labels[:, None] == step.labels, step.index[:, None] == step.index
            scores = scores.masked_fill(same & ~own, -torch.inf)
        positive = positive / self.temperature
        if self.contrast == "infonce":
            return info_nce(positive, scores)
        uncertainty = lorentz.uncertainty(old, curvature=new.space.live_curvature).detach()
        return robust_contrast(positive, scores, uncertainty, self.beta)

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Return the task loss, the weighted contrast and, unless it is left out, the weighted entailment."""
        terms = {"task": step.head.loss(step.new, step.labels), "contrast": self.weight * self.alignment(step)}
        if self.entail_weight > 0:
            cone = entailment(
                step.new.points,
                step.predecessor.points,
                curvature=step.new.space.live_curvature,
                min_radius=self.min_radius,
            )
            terms["entailment"] = self.weight * self.entail_weight * cone
        return terms


_NEAREST = 1e-4  # distance below which the direction from one point to the other is rounding


def entailment(new: Tensor, old: Tensor, *, curvature: Curvature = 1.0, min_radius: float = 0.1) -> Tensor:
    """Average how far new points lie outside the cones of their old ones (HBCT, section 4.2, after Eq. 11).

    mean_i max(0, ext(o_i, n_i) − aper(o_i)), from the `exterior_angle` and the `half_aperture` at the old point.
    Departure: a pair closer than 1e-4 costs nothing; an apex entails itself, and the angle has no limit there.

    Args:
        new: Space components of new points (B, D).
        old: Those of the same items' old points (B, D), detached.
        curvature: K > 0, of both.
        min_radius: ε of the aperture; the paper's 0.1.

    Returns:
        A scalar in [0, π), in radians; 0, with a gradient of 0, for an empty batch and inside the cones.

    >>> import torch
    >>> behind, before = torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, 0.5]])
    >>> old = torch.tensor([[0.0, 1.0]])
    >>> entailment(behind, old).item(), round(entailment(before, old).item(), 2)  # 0 and π − asin 0.2
    (0.0, 2.94)
    """
    angles = exterior_angle(old, new, curvature=curvature)
    excess = F.relu(angles - half_aperture(old, curvature=curvature, min_radius=min_radius))
    return selected_mean(excess.masked_fill(paired_distance(new.detach(), old, curvature=curvature) < _NEAREST, 0.0))


LEAST_EXPONENT = 1e-3  # smaller q count as this one, where all but terms of its size has become the limit q = 0


def robust_contrast(positive: Tensor, scores: Tensor, uncertainty: Tensor, beta: float) -> Tensor:
    """Return the RINCE loss with an exponent of its own for every row (HBCT, Eq. 12; Chuang et al., CVPR 2022).

    mean_i [ −exp(q_i s_ii) + (β Σ_j exp(s_ij))^q_i ] / q_i. A large q_i, an uncertain old embedding, lowers the pull of
    pairs that are far apart; for q_i towards 0 a row becomes that of `info_nce`, plus log β. Departures: the similarity
    is divided by a temperature before it comes here (the paper lists τ, but leaves it out of Eq. 12), and there is no
    factor 2τ as in RINCE's public MoCo variant.

    Args:
        positive: Similarity s_ii of every new embedding to its own old one (B,), over the temperature.
        scores: Similarities s_ij to all old embeddings, the own one among them (B, G), over the temperature; −inf where
            one is left out. No row may be left out whole.
        uncertainty: q of every old embedding (B,), detached; held within [0.001, 1].
        beta: β > 0, the weight of the sum.

    Returns:
        A scalar; 0 for an empty batch.

    >>> s = torch.zeros(1, 1)
    >>> robust_contrast(s[0], s, torch.ones(1), beta=0.5).item()  # −1 + 0.5
    -0.5
    """
    exponents = uncertainty.clamp(LEAST_EXPONENT, 1.0)
    crowd = math.log(beta) + torch.logsumexp(scores, dim=1)
    # expm1 for exp: the ones cancel in the difference, and would leave few digits of it for a small exponent
    rows = (torch.expm1(exponents * crowd) - torch.expm1(exponents * positive)) / exponents
    return rows.sum() / max(len(rows), 1)


def info_nce(positive: Tensor, scores: Tensor) -> Tensor:
    """Return mean_i [ −s_ii + log Σ_j exp(s_ij) ] (van den Oord et al., arXiv:1807.03748); see `robust_contrast`.

    Args:
        positive: s_ii (B,).
        scores: s_ij (B, G), s_ii among them, −inf where one is left out.

    Returns:
        A scalar, at least 0; 0 for an empty batch.

    >>> round(info_nce(torch.zeros(1), torch.zeros(1, 4)).item(), 4)  # ln 4
    1.3863
    """
    return (torch.logsumexp(scores, dim=1) - positive).sum() / max(len(positive), 1)
