"""Training of models and heads; the names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.support.lazy import on_first_use

if TYPE_CHECKING:
    from limpet.training.code import code_of, standing_of
    from limpet.training.compatible_head import train_head
    from limpet.training.encode import cached_embeddings, encoded_batches
    from limpet.training.events import TrainingStep
    from limpet.training.experiment import settings
    from limpet.training.record import trained
    from limpet.training.run_state import load_history
    from limpet.training.train import OnStep, network_of
    from limpet.training.warm_start import WarmStart, load_carried, save_carried

__all__ = [
    "OnStep", "TrainingStep", "WarmStart", "cached_embeddings", "code_of", "encoded_batches", "load_carried",
    "load_history", "network_of", "save_carried", "settings", "standing_of", "train_head", "trained",
]  # fmt: skip

__getattr__, __dir__ = on_first_use(__name__)
