"""Upgrade the embedding model of a live vector index with zero downtime.

Evaluate whether the new model can search the old index, link the two models if it cannot, and migrate the index.
The names below load on first use, so that ``import limpet`` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.support.lazy import on_first_use
from limpet.support.reporting import register_loader
from limpet.version import __version__ as __version__

if TYPE_CHECKING:
    from limpet.adapters import ADAPTERS, Adapter
    from limpet.attached.opening import open_upgrade, start_upgrade
    from limpet.data.datasets import load_dataset
    from limpet.embeddings import EmbeddingSet
    from limpet.embeddings.storage import save as save_embeddings
    from limpet.engines.reading import load_embeddings, load_sides
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
    from limpet.service.client import AsyncClient, Client
    from limpet.training.compatibility_loss import CompatibilityLoss
    from limpet.training.encode import embed_images, encode
    from limpet.training.experiment import Experiment, Geometry, Recipe
    from limpet.training.loop import fit
    from limpet.training.text_models import open_text_model
    from limpet.training.train import train_release

__all__ = [
    "ADAPTERS",
    "METHODS",
    "Adapter",
    "AsyncClient",
    "Client",
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
    "load_sides",
    "open_link",
    "open_release",
    "open_text_model",
    "open_upgrade",
    "save_embeddings",
    "save_release",
    "start_upgrade",
    "train_release",
]


def _load_reports() -> None:
    import limpet.reports.registration  # noqa: F401


register_loader(_load_reports)


__getattr__, __dir__ = on_first_use(__name__)
