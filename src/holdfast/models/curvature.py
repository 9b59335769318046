"""A Lorentz space whose curvature is learned with the model, and then settled."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from holdfast.geometry import Lorentz, Space


class LearnedCurvature(nn.Module):
    """K > 0 as a parameter, held within a factor of ten of its start (MERU; HBCT, table 3).

    The parameter is log(K / K₀), so that weight decay draws K to its start, not to 1.

    Args:
        start: K₀, the first value.
    """

    def __init__(self, start: float) -> None:
        super().__init__()
        self.start = start
        self.log_ratio = nn.Parameter(torch.tensor(0.0))

    def forward(self) -> Tensor:
        """Return K in [K₀ / 10, 10 K₀], a scalar."""
        return self.start * self.log_ratio.clamp(-math.log(10.0), math.log(10.0)).exp()


class LearnedLorentz(Lorentz):
    """The Lorentz space while its curvature is learned; points of it belong to one moment of the training.

    Features of any curvature can be used on it, because tangent vectors at the origin do not depend on the curvature:
    they are lifted again at every step (the ablation of HBCT, appendix A).

    Args:
        dim: D.
        curvature: K₀, the first value.
    """

    def __init__(self, dim: int, curvature: float = 1.0) -> None:
        object.__setattr__(self, "learned", LearnedCurvature(curvature))  # before anything asks for the live value
        super().__init__(dim, curvature)

    learned: LearnedCurvature

    @property
    def live_curvature(self) -> Tensor:
        """K as it is now, a scalar that receives a gradient."""
        value: Tensor = self.learned()
        return value

    @property
    def _reach(self) -> float:
        return math.sqrt(10 * self.learned.start)

    def takes_features_of(self, other: Space) -> bool:
        """Return whether the other space is a Lorentz space of this dimension, of whatever curvature."""
        return isinstance(other, Lorentz) and other.dim == self.dim

    def parameters_of(self) -> nn.Module:
        """Return the module that holds the curvature."""
        return self.learned

    def settled(self) -> Lorentz:
        """Return the Lorentz space of the curvature reached."""
        return Lorentz(self.dim, float(self.live_curvature.detach()))
