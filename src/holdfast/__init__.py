"""Upgrade an embedding model without re-indexing.

Train a new model whose queries search the gallery the old model embedded, and prove it on your own data.
The names below load on first use, so that ``import holdfast`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.version import __version__ as __version__

if TYPE_CHECKING:
    from holdfast.adapters import ADAPTERS, Adapter
    from holdfast.adapters.adapt import adapt, open_link
    from holdfast.data.datasets import load_dataset
    from holdfast.embeddings import EmbeddingSet
    from holdfast.embeddings.storage import load as load_embeddings
    from holdfast.embeddings.storage import save as save_embeddings
    from holdfast.errors import HoldfastError
    from holdfast.evaluation.evaluate import evaluate
    from holdfast.experiment import Experiment, Recipe
    from holdfast.galleries import Gallery
    from holdfast.geometry import Hypersphere, Space
    from holdfast.methods import METHODS
    from holdfast.methods.base import CompatibilityMethod
    from holdfast.models.named_models import open_release
    from holdfast.models.release import Release, load_release, save_release
    from holdfast.training.compatibility_loss import CompatibilityLoss
    from holdfast.training.encode import embed_images, encode
    from holdfast.training.loop import fit
    from holdfast.training.train import train_release

_HOMES = {
    "ADAPTERS": "holdfast.adapters",
    "METHODS": "holdfast.methods",
    "Adapter": "holdfast.adapters",
    "CompatibilityLoss": "holdfast.training.compatibility_loss",
    "CompatibilityMethod": "holdfast.methods.base",
    "EmbeddingSet": "holdfast.embeddings",
    "Experiment": "holdfast.experiment",
    "Gallery": "holdfast.galleries",
    "HoldfastError": "holdfast.errors",
    "Hypersphere": "holdfast.geometry",
    "Recipe": "holdfast.experiment",
    "Release": "holdfast.models.release",
    "Space": "holdfast.geometry",
    "adapt": "holdfast.adapters.adapt",
    "embed_images": "holdfast.training.encode",
    "encode": "holdfast.training.encode",
    "evaluate": "holdfast.evaluation.evaluate",
    "fit": "holdfast.training.loop",
    "load_dataset": "holdfast.data.datasets",
    "load_embeddings": "holdfast.embeddings.storage:load",
    "load_release": "holdfast.models.release",
    "open_link": "holdfast.adapters.adapt",
    "open_release": "holdfast.models.named_models",
    "save_embeddings": "holdfast.embeddings.storage:save",
    "save_release": "holdfast.models.release",
    "train_release": "holdfast.training.train",
}

__all__ = [
    "ADAPTERS",
    "METHODS",
    "Adapter",
    "CompatibilityLoss",
    "CompatibilityMethod",
    "EmbeddingSet",
    "Experiment",
    "Gallery",
    "HoldfastError",
    "Hypersphere",
    "Recipe",
    "Release",
    "Space",
    "adapt",
    "embed_images",
    "encode",
    "evaluate",
    "fit",
    "load_dataset",
    "load_embeddings",
    "load_release",
    "open_link",
    "open_release",
    "save_embeddings",
    "save_release",
    "train_release",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute '{name}'")
    module, _, attribute = _HOMES[name].partition(":")
    from holdfast.extras import needing

    with needing(f"holdfast.{name}"):
        return getattr(import_module(module), attribute or name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
