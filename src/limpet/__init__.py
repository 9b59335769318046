"""Upgrade an embedding model without re-indexing.

Train a new model whose queries search the gallery the old model embedded, and prove it on your own data.
The names below load on first use, so that ``import limpet`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from limpet.support.reporting import register_loader
from limpet.version import __version__ as __version__

if TYPE_CHECKING:
    from limpet.adapters import ADAPTERS, Adapter
    from limpet.data.datasets import load_dataset
    from limpet.embeddings import EmbeddingSet
    from limpet.embeddings.storage import save as save_embeddings
    from limpet.engines.reading import load_embeddings
    from limpet.errors import LimpetError
    from limpet.evaluation.evaluate import evaluate
    from limpet.galleries import Gallery
    from limpet.geometry import Hypersphere, Space
    from limpet.linking.adapt import adapt, open_link
    from limpet.methods import METHODS
    from limpet.methods.base import CompatibilityMethod
    from limpet.models.named_models import open_release
    from limpet.models.release import Release, load_release, save_release
    from limpet.models.specs import EncoderSpec
    from limpet.training.compatibility_loss import CompatibilityLoss
    from limpet.training.encode import embed_images, encode
    from limpet.training.experiment import Experiment, Geometry, Recipe
    from limpet.training.loop import fit
    from limpet.training.text_models import open_text_model
    from limpet.training.train import train_release

_HOMES = {
    "ADAPTERS": "limpet.adapters",
    "METHODS": "limpet.methods",
    "Adapter": "limpet.adapters",
    "CompatibilityLoss": "limpet.training.compatibility_loss",
    "CompatibilityMethod": "limpet.methods.base",
    "EmbeddingSet": "limpet.embeddings",
    "EncoderSpec": "limpet.models.specs",
    "Experiment": "limpet.training.experiment",
    "Gallery": "limpet.galleries",
    "Geometry": "limpet.training.experiment",
    "LimpetError": "limpet.errors",
    "Hypersphere": "limpet.geometry",
    "Recipe": "limpet.training.experiment",
    "Release": "limpet.models.release",
    "Space": "limpet.geometry",
    "adapt": "limpet.linking.adapt",
    "embed_images": "limpet.training.encode",
    "encode": "limpet.training.encode",
    "evaluate": "limpet.evaluation.evaluate",
    "fit": "limpet.training.loop",
    "load_dataset": "limpet.data.datasets",
    "load_embeddings": "limpet.engines.reading",
    "load_release": "limpet.models.release",
    "open_link": "limpet.linking.adapt",
    "open_release": "limpet.models.named_models",
    "open_text_model": "limpet.training.text_models",
    "save_embeddings": "limpet.embeddings.storage:save",
    "save_release": "limpet.models.release",
    "train_release": "limpet.training.train",
}

__all__ = [
    "ADAPTERS",
    "METHODS",
    "Adapter",
    "CompatibilityLoss",
    "CompatibilityMethod",
    "EmbeddingSet",
    "EncoderSpec",
    "Experiment",
    "Gallery",
    "Geometry",
    "Hypersphere",
    "LimpetError",
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
    "open_text_model",
    "save_embeddings",
    "save_release",
    "train_release",
]


def _load_reports() -> None:
    import limpet.reports.registration  # noqa: F401


register_loader(_load_reports)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'limpet' has no attribute '{name}'")
    module, _, attribute = _HOMES[name].partition(":")
    from limpet.support.extras import needing

    with needing(f"limpet.{name}"):
        return getattr(import_module(module), attribute or name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
