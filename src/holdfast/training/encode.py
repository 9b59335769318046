"""Embedding a set of items with a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.data.items import LabelledItems
from holdfast.data.loading import encoding_loader
from holdfast.embeddings import EmbeddingSet, Form, Role, StringArray, storage
from holdfast.embeddings.uncertainty import with_uncertainty
from holdfast.errors import DataError
from holdfast.geometry import Space
from holdfast.geometry.segments import add_by_class
from holdfast.methods.base import Batch
from holdfast.models.release import Release


def encoded_batches(
    model: nn.Module, loader: Iterable[Batch], *, device: torch.device | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield raw features (B, D) in at least float32, where the model is, and labels (B,), batch by batch.

    The model is in evaluation mode meanwhile and in its former mode afterwards; no gradient is kept.

    Args:
        model: Maps a batch's inputs to features (B, D).
        loader: Yields batches, un-augmented, in dataset order.
        device: Where the model is; the CPU when left out.
    """
    was_training = model.training
    model.eval()
    try:
        for batch in loader:
            with torch.no_grad():
                features = model(batch.inputs.to(device)).float()
            yield features, batch.labels.to(device)
    finally:
        model.train(was_training)


def encode_features(
    model: nn.Module,
    loader: Iterable[Batch],
    *,
    device: torch.device | None = None,
    on_batch: Callable[[int], object] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return raw features (N, D) in float32 and labels (N,), both on the CPU, in the order of the loader.

    Args:
        model: Maps a batch's inputs to features (B, D).
        loader: Yields batches, un-augmented, in dataset order.
        device: Where the model is; the CPU when left out.
        on_batch: Told the number of items of every finished batch.
    """
    features, labels = [], []
    for found, classes in encoded_batches(model, loader, device=device):
        features.append(found.cpu())
        labels.append(classes.cpu())
        if on_batch is not None:
            on_batch(len(classes))
    if not features:
        raise DataError("There is nothing to encode.", expected="at least one item")
    return torch.cat(features), torch.cat(labels)


def encode_prototypes(
    model: nn.Module,
    loader: Iterable[Batch],
    space: Space,
    num_classes: int,
    *,
    device: torch.device | None = None,
) -> Tensor:
    """Return the mean point of every class (C, D) under a model, in one pass that keeps nothing else.

    Args:
        model: Maps a batch's inputs to features (B, D).
        loader: Yields batches, un-augmented.
        space: Whose points are averaged.
        num_classes: C; an absent class has no mean and is zero.
        device: Where the model is; the CPU when left out.
    """
    sums = torch.zeros(num_classes, space.summed_dim, device=device)
    counts = torch.zeros(num_classes, device=device)
    for features, labels in encoded_batches(model, loader, device=device):
        add_by_class(sums, counts, space.summed(space.project(features)), labels)
    return space.centre(sums, counts)


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

    Returns:
        The embeddings, in the loader's order; where the space knows one, with a column "uncertainty".
    """
    features, labels = encode_features(model, loader, device=device, on_batch=on_batch)
    vectors = features if form == "features" else space.project(features)
    return with_uncertainty(
        EmbeddingSet(
            ids=StringArray.of(ids),
            vectors=np.ascontiguousarray(vectors.numpy(), np.float32),
            fingerprint=fingerprint,
            space=space,
            role=role,
            form=form,
            labels=labels.numpy().astype(np.int64),
            class_names=None if class_names is None else StringArray.of(class_names),
        )
    )


def cached_embeddings(release: Release, images: LabelledItems, cache: Path, **settings: Any) -> EmbeddingSet:
    """Embed images as raw features once; a file in ``cache`` for this release and these images is opened instead."""
    digest = images.digest()
    path = cache / f"features-{release.fingerprint.split(':')[1][:16]}-{digest[:16]}.safetensors"
    if path.exists():
        return storage.load(path)
    storage.save(embed_images(release, images, form="features", **settings), path)
    return storage.load(path)


def embed_images(
    release: Release,
    images: LabelledItems,
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
