"""Embedding a set of items with a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.data.image_set import ImageSet
from holdfast.data.loading import encoding_loader
from holdfast.embeddings import EmbeddingSet, Form, Role, StringArray, storage
from holdfast.errors import DataError
from holdfast.geometry import Space
from holdfast.methods.base import Batch
from holdfast.models.release import Release


def encode_features(
    model: nn.Module,
    loader: Iterable[Batch],
    *,
    device: torch.device | None = None,
    on_batch: Callable[[int], object] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return raw features (N, D) in float32 and labels (N,), both on the CPU, in the order of the loader.

    The model is in evaluation mode meanwhile and in its former mode afterwards; no gradient is kept.

    Args:
        model: Maps a batch's inputs to features (B, D).
        loader: Yields batches, un-augmented, in dataset order.
        device: Where the model is; the CPU when left out.
        on_batch: Told the number of items of every finished batch.
    """
    was_training = model.training
    model.eval()
    features, labels = [], []
    with torch.no_grad():
        for batch in loader:
            features.append(model(batch.inputs.to(device)).float().cpu())
            labels.append(batch.labels.cpu())
            if on_batch is not None:
                on_batch(len(batch.labels))
    model.train(was_training)
    if not features:
        raise DataError("There is nothing to encode.", expected="at least one item")
    return torch.cat(features), torch.cat(labels)


def encode(
    model: nn.Module,
    loader: Iterable[Batch],
    space: Space,
    *,
    ids: Sequence[str],
    fingerprint: str,
    class_names: Sequence[str] | None = None,
    role: Role = "both",
    form: Form = "points",
    device: torch.device | None = None,
    on_batch: Callable[[int], object] | None = None,
) -> EmbeddingSet:
    """Embed every item of a loader.

    Args:
        model: Maps a batch's inputs to features (B, D), such as the encoder of a release.
        loader: Yields batches, un-augmented, in dataset order.
        space: What the features are projected onto.
        ids: One text per item, in the loader's order.
        fingerprint: Identity of the model: that of its release.
        class_names: Names of the classes that the labels count.
        role: What the items are to the model.
        form: "points" for galleries and queries, "features" for training caches.
        device: Where the model is; the CPU when left out.
        on_batch: Told the number of items of every finished batch.

    Raises:
        DataError: There is nothing to encode, or a vector is not finite.
    """
    features, labels = encode_features(model, loader, device=device, on_batch=on_batch)
    vectors = features if form == "features" else space.project(features)
    return EmbeddingSet(
        ids=StringArray.of(ids),
        vectors=np.ascontiguousarray(vectors.numpy(), np.float32),
        fingerprint=fingerprint,
        space=space,
        role=role,
        form=form,
        labels=labels.numpy().astype(np.int64),
        class_names=None if class_names is None else StringArray.of(class_names),
    )


def cached_embeddings(release: Release, images: ImageSet, cache: Path, **settings: Any) -> EmbeddingSet:
    """Embed images as raw features once; a file in ``cache`` for this release and these images is opened instead."""
    digest = images.digest()
    path = cache / f"features-{release.fingerprint.split(':')[1][:16]}-{digest[:16]}.safetensors"
    if path.exists():
        return storage.load(path)
    storage.save(embed_images(release, images, form="features", **settings), path)
    return storage.load(path)


def embed_images(
    release: Release,
    images: ImageSet,
    *,
    form: Form = "points",
    role: Role = "both",
    batch_size: int = 512,
    workers: int = 0,
    device: torch.device | None = None,
    on_batch: Callable[[int], object] | None = None,
) -> EmbeddingSet:
    """Embed a set of images with a release; rows, ids and classes are those of the images.

    Args:
        release: The model.
        images: What to embed.
        form: "points" for queries and galleries, "features" for training caches.
        role: What the images are to the model.
        batch_size: Images at a time.
        workers: Processes that read images.
        device: Where to compute; the CPU when left out.
        on_batch: Told the number of images of every finished batch.
    """
    encoder = release.encoder if device is None else release.encoder.to(device)
    return encode(
        encoder,
        encoding_loader(images, batch_size=batch_size, workers=workers),
        release.space,
        ids=images.ids,
        fingerprint=release.fingerprint,
        class_names=images.class_names,
        role=role,
        form=form,
        device=device,
        on_batch=on_batch,
    )
