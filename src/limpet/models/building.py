"""Building networks from encoder specifications."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path
from typing import Any

from limpet.support.extras import importing

with importing(__name__):
    from torch import nn

from limpet.errors import refuse
from limpet.models.embedding_network import EmbeddingNetwork
from limpet.models.encoder import Encoder
from limpet.models.feature_encoder import FeatureEncoder
from limpet.models.module_origin import Preprocess
from limpet.models.own_modules import ModuleSpec
from limpet.models.specs import EmbeddingSpec, EncoderSpec, FeatureSpec, TextSpec


def build_network(
    spec: EmbeddingSpec, weights: Path | None = None, *, freeze_backbone: bool = False, freeze_batch_norm: bool = False
) -> Any:
    """Build the network that a spec defines, with random weights except for those in the folder `weights`.

    Args:
        spec: Specification of the network: an `EncoderSpec` gives an `Encoder`, a `FeatureSpec` a `FeatureEncoder`, a
            `TextSpec` a `TextTower`.
        weights: Local folder of published backbone weights; None for random weights.
        freeze_backbone: Whether to train the projection only.
        freeze_batch_norm: Whether to freeze the running statistics of the backbone's batch normalisation.

    Raises:
        ConfigError: Weights or a part to freeze were given for a network that has none, or a text model differs from
            the one in the spec.
    """
    return _built(spec, weights, freeze_backbone, freeze_batch_norm)


def rebuild_network(
    spec: EmbeddingSpec, module: nn.Module | None = None, preprocess: Preprocess | None = None
) -> EmbeddingNetwork:
    """Build the network of a release, before its weights are loaded.

    Raises:
        ConfigError: A module was given for a network that needs none, or the module is not the one of the release.
    """
    if isinstance(spec, ModuleSpec):
        return spec.rebuilt(module, preprocess)
    given = module is not None or preprocess is not None
    refuse(given, f"A module for a {spec.name}.", "none: limpet builds this network itself")
    network: EmbeddingNetwork = build_network(spec)
    return network


@singledispatch
def _built(spec: EmbeddingSpec, weights: Path | None, freeze_backbone: bool, freeze_batch_norm: bool) -> Any:
    raise TypeError(f"{type(spec).__name__} defines no network.")


@_built.register
def _(spec: EncoderSpec, weights: Path | None, freeze_backbone: bool, freeze_batch_norm: bool) -> Encoder:
    return Encoder(spec, weights, freeze_backbone, freeze_batch_norm)


@_built.register
def _(spec: ModuleSpec, weights: Path | None, freeze_backbone: bool, freeze_batch_norm: bool) -> Encoder:
    return spec.build(weights, freeze_backbone, freeze_batch_norm)


@_built.register
def _(spec: FeatureSpec, weights: Path | None, freeze_backbone: bool, freeze_batch_norm: bool) -> FeatureEncoder:
    asked = weights is not None or freeze_backbone or freeze_batch_norm
    refuse(asked, "A backbone for a network over a frozen model.", "neither")
    return FeatureEncoder(spec)


@_built.register
def _(spec: TextSpec, weights: Path | None, freeze_backbone: bool, freeze_batch_norm: bool) -> EmbeddingNetwork:
    from limpet.models.text_tower import open_text_tower  # here: needs the extra "text"

    asked = weights is not None or freeze_backbone or freeze_batch_norm
    refuse(asked, "Weights for a text model, or a part of it to freeze.", "neither; --recipe.trainable says it")
    return open_text_tower(spec)
