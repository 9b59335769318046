"""Backbones, heads, releases and text models; the names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.support.lazy import on_first_use

if TYPE_CHECKING:
    from limpet.models.api.settings import ApiSettings
    from limpet.models.backbones import BACKBONES
    from limpet.models.heads import HEADS, build_head
    from limpet.models.lifting import lift_embeddings
    from limpet.models.named_models import needs_module
    from limpet.models.names import ModelName
    from limpet.models.published_weights import PUBLISHED
    from limpet.models.release import load_record
    from limpet.models.seeding import seeded
    from limpet.models.specs import encoder_spec
    from limpet.models.text_encoders import embed_texts, is_service, open_text_encoder, refuse_named_in
    from limpet.models.text_folders import find_model

__all__ = [
    "BACKBONES", "HEADS", "PUBLISHED", "ApiSettings", "ModelName", "build_head", "embed_texts", "encoder_spec",
    "find_model", "is_service", "lift_embeddings", "load_record", "needs_module", "open_text_encoder",
    "refuse_named_in", "seeded",
]  # fmt: skip

__getattr__, __dir__ = on_first_use(__name__)
