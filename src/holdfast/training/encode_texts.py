"""Embedding a set of texts with a frozen model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.text_set import TextSet
from holdfast.embeddings import EmbeddingSet, Form, Role, StringArray, storage
from holdfast.errors import DataError
from holdfast.geometry import Hypersphere
from holdfast.models.text_encoders import BATCH_SIZE, TextEncoder


def embed_texts(
    encoder: TextEncoder,
    texts: TextSet,
    *,
    role: Role = "both",
    form: Form = "points",
    batch_size: int = BATCH_SIZE,
    cache: Path | None = None,
    on_batch: Callable[[int], object] | None = None,
) -> EmbeddingSet:
    """Embed a set of texts; rows, ids, labels and classes are those of the texts.

    Args:
        encoder: The model.
        texts: What to embed.
        role: What they are to the model, which decides the text it puts before each.
        form: "points" of the hypersphere for queries and galleries, "features" as the model returned them.
        batch_size: Texts at a time.
        cache: Folder that keeps the features; what it has of this model, role, prefix and these texts is opened
            instead of embedding anything.
        on_batch: Told the number of texts of every finished batch; not called for what is in the cache.

    Raises:
        ConfigError: The texts are both query and document, and the model has different prefixes for the two.
        DataError: There are no texts, or a vector is zero or not finite.
    """
    if len(texts) == 0:
        raise DataError("There is nothing to encode.", expected="at least one text")
    path = None if cache is None else cache / _cache_name(encoder, texts, role)
    if path is not None and path.exists():
        features = storage.load(path)
    else:
        vectors = encoder.encode(texts.texts, role=role, batch_size=batch_size, on_batch=on_batch)
        features = _with_identity(vectors, encoder, texts, role)
        if path is not None:
            storage.save(features, path)
    return features if form == "features" else _as_points(features)


def _with_identity(vectors: NDArray[np.float32], encoder: TextEncoder, texts: TextSet, role: Role) -> EmbeddingSet:
    return EmbeddingSet(
        ids=texts.ids,
        vectors=vectors,
        fingerprint=encoder.fingerprint,
        space=Hypersphere(encoder.dim),
        role=role,
        form="features",
        labels=texts.labels,
        class_names=None if texts.labels is None else StringArray.of(texts.class_names),
        prefix=encoder.prefix(role),
    )


def _as_points(features: EmbeddingSet) -> EmbeddingSet:
    points = features.space.project(torch.from_numpy(np.array(features.vectors)))
    return features.replace(vectors=points.numpy(), form="points")


def _cache_name(encoder: TextEncoder, texts: TextSet, role: Role) -> str:
    """Return a name that no other model, role, prefix or texts share."""
    asked = hashlib.sha256(repr((role, encoder.prefix(role))).encode()).hexdigest()
    parts = (encoder.fingerprint.split(":")[1], asked, texts.digest())
    return f"texts-{'-'.join(part[:16] for part in parts)}.safetensors"
