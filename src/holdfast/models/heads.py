"""Classifiers that train an encoder, each usable with every method."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import ConfigError, unknown_name
from holdfast.geometry.hypersphere import normalise
from holdfast.losses.influence import mean_cross_entropy
from holdfast.losses.margin import arcface_logits
from holdfast.methods.base import Head, View
from holdfast.options import bound


def _initial_weight(classes: int, dim: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(classes, dim).uniform_(-1, 1) / math.sqrt(dim))


class SoftmaxHead(Head):
    """A linear classifier over raw features: logits are inner products, plus a bias if asked for.

    Args:
        classes: Number of classes C.
        dim: Dimension D of the features.
        bias: Learn one offset per class.
    """

    def __init__(self, classes: int, dim: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = _initial_weight(classes, dim)
        self.bias = nn.Parameter(torch.zeros(classes)) if bias else None

    def logits(self, view: View) -> Tensor:
        """Return inner products (B, C)."""
        return nn.functional.linear(view.features, self.weight, self.bias)


class NormalisedHead(Head):
    """Cosines to class directions, divided by a temperature.

    Args:
        classes: Number of classes C.
        dim: Dimension D of the features.
        temperature: Divides the cosines.
    """

    normalised = True

    def __init__(self, classes: int, dim: int, temperature: float = 0.05) -> None:
        super().__init__()
        if temperature <= 0:
            raise ConfigError(f"A head with temperature {temperature}.", expected="a temperature above 0")
        self.weight = _initial_weight(classes, dim)
        self.scale = 1 / temperature

    def logits(self, view: View) -> Tensor:
        """Return cosines over the temperature (B, C)."""
        return self.scale * (normalise(view.features) @ normalise(self.weight).T)


class ArcFaceHead(Head):
    """Cosines with an angular margin at the target class (ArcFace, Deng et al., CVPR 2019, Eq. 3).

    Args:
        classes: Number of classes C.
        dim: Dimension D of the features.
        scale: Multiplies the cosines (s).
        margin: Added to the target's angle in training, in radians (m).
        guard: Keep the target's logit falling beyond π − m, as insightface does.
    """

    normalised = True

    def __init__(self, classes: int, dim: int, scale: float = 64.0, margin: float = 0.5, guard: bool = True) -> None:
        super().__init__()
        self.weight = _initial_weight(classes, dim)
        self.scale, self.margin, self.guard = scale, margin, guard

    def _cosines(self, view: View) -> Tensor:
        return normalise(view.features) @ normalise(self.weight).T

    def logits(self, view: View) -> Tensor:
        """Return scaled cosines without margin (B, C)."""
        return self.scale * self._cosines(view)

    def loss(self, view: View, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy with the margin at the targets."""
        logits = arcface_logits(self._cosines(view), labels, scale=self.scale, margin=self.margin, guard=self.guard)
        return mean_cross_entropy(logits, labels)


HEADS: dict[str, Callable[..., Head]] = {
    "softmax": SoftmaxHead,
    "normalised": NormalisedHead,
    "arcface": ArcFaceHead,
}


def build_head(name: str, classes: int, dim: int, options: dict[str, Any]) -> Head:
    """Build a classifier by name.

    Raises:
        ConfigError: The name or an option is unknown.
    """
    if name not in HEADS:
        raise unknown_name("head", name, HEADS)
    return HEADS[name](classes, dim, **bound(HEADS[name], options, f"head '{name}'"))
