"""Classification by signed distances to hyperplanes of hyperbolic space."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.geometry.hypersphere import normalise
from holdfast.geometry.lorentz import LARGEST_ANGLE, Curvature, time


def hyperplane_logits(points: Tensor, normals: Tensor, offsets: Tensor, *, curvature: Curvature = 1.0) -> Tensor:
    """Return the logits of Lorentz multinomial logistic regression (Bdeir et al., ICLR 2024, arXiv:2303.15919).

    A class is a hyperplane, shifted by a along the direction of z ∈ R^D at the origin (the parametrisation of Mishne et
    al., arXiv:2211.00181); its logit is |z| times the signed distance to it. With ẑ = z / |z| and k = √K,

        logit = |z| asinh(k (cosh(k a) ẑ·s − sinh(k a) t)) / k,

    the paper's β asinh(k α / β) / k, whose β = √(cosh²(k a) |z|² − sinh²(k a) |z|²) is |z|.

    Args:
        points: Space components s (N, D).
        normals: z (C, D); a zero vector gives the logit 0, with a gradient of 0.
        offsets: a (C,); beyond k |a| ≈ 11.1, where sinh would leave the range of points, they act as that bound.
        curvature: K > 0.

    Returns:
        Logits (N, C).

    >>> logits = hyperplane_logits(torch.tensor([[0.75]]), torch.tensor([[2.0]]), torch.zeros(1))
    >>> round(logits.item(), 4)  # the point lies asinh(3/4) = ln 2 from the origin, which is on the plane
    1.3863
    """
    root: Curvature = curvature**0.5
    lengths: Tensor = torch.linalg.vector_norm(normals, dim=1)
    angles = (offsets * root).clamp(-LARGEST_ANGLE, LARGEST_ANGLE)
    boosted = normalise(normals) * angles.cosh()[:, None]
    sides = points @ boosted.T - time(points, curvature=curvature)[:, None] * angles.sinh()
    return lengths * (sides * root).asinh() / root
