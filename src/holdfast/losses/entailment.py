"""Entailment cones: new points should lie behind the old ones, as seen from the origin."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from holdfast.geometry.lorentz import Curvature, exterior_angle, half_aperture, paired_distance
from holdfast.losses.alignment import selected_mean

NEAREST = 1e-4  # distance below which the direction from one point to the other is rounding


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
    return selected_mean(excess.masked_fill(paired_distance(new.detach(), old, curvature=curvature) < NEAREST, 0.0))
