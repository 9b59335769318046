"""The last stage of all encoders: the projection to the embedding, and the lift for spaces with lengths."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from limpet.errors import DataError, unknown_name
from limpet.geometry.hypersphere import normalise
from limpet.models.specs import EmbeddingSpec
from limpet.support.steps import Affine, ExportStep, Gelu, Normalise, Relu, Scale, Shorten, Steps, Sum

_AS_WIDE = ("residual", "none")  # projections whose number of features equals the embedding dimension


class EmbeddingNetwork(nn.Module):
    """A network from inputs to raw embeddings (B, D), or to tangent vectors if the spec has a ζ.

    Args:
        spec: Specification of the network; the attribute rebuilds this network.
        width: Number of input features of the projection.
    """

    def __init__(self, spec: EmbeddingSpec, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.projection = build_projection(spec.projection, width, spec.dim)

    def released(self, folder: Path) -> EmbeddingNetwork:
        """Return the network that a release of this one holds, after writing its files to the folder.

        Args:
            folder: Folder of the release; created if missing.
        """
        return self

    @property
    def pretrained(self) -> nn.Module | None:
        """The part before the projection, which may have pretrained weights; None if there is only a projection."""
        found = getattr(self, "backbone", None)
        return found if isinstance(found, nn.Module) else None

    def as_steps(self) -> Steps | None:
        """Return the computation of `forward` in evaluation mode as plain steps; None if that is not possible."""
        return None

    def embedding_as_steps(self) -> Steps:
        """Return the computation of `embed` in evaluation mode as plain steps."""
        projection, zeta = layer_steps(self.projection), self.spec.zeta
        if zeta is None:
            return projection
        if self.spec.lifts_directions:
            return (*projection, Normalise(), Scale(zeta))
        return (*projection, Scale(1 / math.sqrt(self.spec.dim)), Shorten(zeta))

    def embed(self, features: Tensor) -> Tensor:
        """Return the embeddings (B, D) of features (B, width)."""
        embeddings: Tensor = self.projection(features)
        if self.spec.zeta is None:
            return embeddings
        with torch.autocast(embeddings.device.type, enabled=False):  # lengths and hyperbolic points need float32
            return tangent_vectors(embeddings, self.spec.zeta, directions=self.spec.lifts_directions)


def build_projection(name: str, width: int, dim: int) -> nn.Module:
    """Build the projection from features (B, width) to embeddings (B, dim); for names see `EmbeddingSpec`.

    Raises:
        ConfigError: The projection is unknown.
        DataError: Without a projection, the widths differ.
    """
    layers: dict[str, Callable[[], nn.Module]] = {
        "linear": lambda: nn.Linear(width, dim),
        "linear-bn": lambda: nn.Sequential(nn.Linear(width, dim, bias=False), nn.BatchNorm1d(dim)),
        "mlp": lambda: nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, dim)),
        "residual": lambda: Residual(width),
        "none": lambda: nn.Identity(),
    }
    if name not in layers:
        raise unknown_name("projection", name, layers)
    if name in _AS_WIDE and width != dim:
        raise DataError(
            f"There are {width} features and the embedding has {dim} values.",
            expected=f"--dim {width}, or another projection than '{name}'",
        )
    return layers[name]()


class Residual(nn.Module):
    """Residual projection x + √F · MLP(x / √F) of features (B, F) of length √F; it starts as the identity.

    Args:
        width: Number of features F, which is also the width of the hidden layer.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.length = math.sqrt(width)
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.zeros_(self.outer.weight), nn.init.zeros_(self.outer.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Return the projected features (B, F)."""
        moved: Tensor = self.outer(nn.functional.gelu(self.inner(features / self.length)))
        return features + self.length * moved


def layer_steps(module: nn.Module) -> Steps:
    """Return the computation of `build_projection` layers in evaluation mode as plain steps, in float32.

    Batch normalisation is folded into the linear layer before it.
    """
    if isinstance(module, Residual):
        around = Scale(1 / module.length), Scale(module.length)
        branch = (around[0], *layer_steps(module.inner), Gelu(), *layer_steps(module.outer), around[1])
        return (Sum(((Scale(1.0),), branch)),)
    steps: list[ExportStep] = []
    for layer in module if isinstance(module, nn.Sequential) else [module]:
        state = {name: values.double().numpy() for name, values in layer.state_dict().items()}
        if isinstance(layer, nn.Linear):
            steps.append(Affine(state["weight"].T, state.get("bias", np.zeros(layer.out_features))))
        elif isinstance(layer, nn.BatchNorm1d) and isinstance(before := steps.pop(), Affine):
            factors = state["weight"] / np.sqrt(state["running_var"] + layer.eps)
            offset = (before.offset - state["running_mean"]) * factors + state["bias"]
            steps.append(Affine(before.weights * factors, offset))
        else:
            steps += {nn.ReLU: [Relu()], nn.Identity: []}[type(layer)]
    return tuple(
        Affine(step.weights.astype(np.float32), step.offset.astype(np.float32)) if isinstance(step, Affine) else step
        for step in steps
    )


def tangent_vectors(embeddings: Tensor, zeta: float, *, directions: bool = False) -> Tensor:
    """Scale and clip embeddings (..., D) to tangent vectors at the origin of the Lorentz space (HBCT, section 5.1).

    u = z / √D, clipped to the length ζ; at least float32. The paper rescales "by √D"; dividing is our reading, since
    multiplied vectors would all be clipped.

    Args:
        embeddings: Raw embeddings z (..., D).
        zeta: Clipping length ζ > 0.
        directions: Whether to set all lengths to ζ instead; zero stays zero.

    >>> tangent_vectors(torch.tensor([[3.0, 4.0]]), 1.0).norm().item()  # 5 / √2 is longer than 1
    1.0
    """
    wide = embeddings.float() if embeddings.dtype in (torch.float16, torch.bfloat16) else embeddings
    if directions:
        return zeta * normalise(wide)
    scaled = wide / math.sqrt(wide.shape[-1])
    largest = scaled.detach().abs().amax(dim=-1, keepdim=True).clamp_min(zeta)  # squares of more could overflow
    lengths = torch.linalg.vector_norm(scaled / largest, dim=-1, keepdim=True) * largest
    clipped: Tensor = scaled * (zeta / lengths.clamp_min(zeta))
    return clipped
