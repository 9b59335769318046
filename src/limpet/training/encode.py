"""Embed a set of items with a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.support.extras import importing
from limpet.support.progress import Progress, Told, listener, showing

with importing(__name__):
    import torch
    from torch import Tensor, nn

from limpet.data.image_set import ImageSet
from limpet.data.items import LabelledItems
from limpet.data.loading import encoding_loader
from limpet.data.resident import moved
from limpet.embeddings import EmbeddingSet, Form, Role, StringArray, storage
from limpet.embeddings.embedding_set import with_uncertainty
from limpet.errors import DataError, ReleaseError, refuse
from limpet.geometry import Space
from limpet.geometry.segments import add_by_class
from limpet.methods.base import Batch
from limpet.models.release import Release
from limpet.models.specs import FeatureSpec
from limpet.training.layout import laid_out

ROWS_AT_ONCE = 16_384


class MirrorSum(nn.Module):
    """Encoder that adds the features of the mirrored images to those of the images, in at least float32.

    Args:
        encoder: Module from images (B, channels, height, width) to features (B, D); the last axis is mirrored.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.training = encoder.training

    def forward(self, images: Tensor) -> Tensor:
        """Return features (B, D)."""
        features: Tensor = self.encoder(images).float() + self.encoder(images.flip(-1)).float()
        return features


def encoded_batches(
    model: nn.Module, loader: Iterable[Batch], *, device: torch.device | None = None, channels_last: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield raw features (B, D) in at least float32, on the model's device, and labels (B,), batch by batch.

    The model runs in evaluation mode and then returns to its previous mode; no gradient is kept.

    Args:
        model: Maps a batch's inputs to features (B, D).
        loader: Yields batches, un-augmented, in dataset order.
        device: Device of the model. Default: the CPU.
        channels_last: Memory format of images; see `fit`.
    """
    was_training = model.training
    model.eval()
    try:
        for batch in loader:
            with torch.no_grad():
                features = model(laid_out(moved(batch.inputs, device), channels_last)).float()
            yield features, moved(batch.labels, device)
    finally:
        model.train(was_training)


@showing("embed")
def encode_features(
    model: nn.Module,
    loader: Iterable[Batch],
    *,
    device: torch.device | None = None,
    channels_last: bool = False,
    progress: Progress[Told] = None,
) -> tuple[Tensor, Tensor]:
    """Return raw features (N, D) in float32 and labels (N,), both on the CPU, in the order of the loader.

    Args:
        model: Maps a batch's inputs to features (B, D).
        loader: Yields batches, un-augmented, in dataset order.
        device: Device of the model. Default: the CPU.
        channels_last: Memory format of images; see `fit`.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total" items.
    """
    features, labels, done = [], [], 0
    items = getattr(loader, "dataset", None)
    total = len(items) if isinstance(items, Sized) else None
    for found, classes in encoded_batches(model, loader, device=device, channels_last=channels_last):
        features.append(found.cpu())
        labels.append(classes.cpu())
        done += len(classes)
        listener(progress)({"done": done, "total": total})
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
    channels_last: bool = False,
) -> Tensor:
    """Return the mean point of every class (C, D) under a model, in one pass with constant memory.

    Args:
        model: Maps a batch's inputs to features (B, D).
        loader: Yields batches, un-augmented.
        space: Space of the averaged points.
        num_classes: C; the mean of an absent class is zero.
        device: Device of the model. Default: the CPU.
        channels_last: Memory format of images; see `fit`.
    """
    sums = torch.zeros(num_classes, space.summed_dim, device=device)
    counts = torch.zeros(num_classes, device=device)
    for features, labels in encoded_batches(model, loader, device=device, channels_last=channels_last):
        add_by_class(sums, counts, space.summed(space.project(features)), labels)
    return space.centre(sums, counts)


@showing("embed")
def encode(
    model: nn.Module,
    loader: Iterable[Batch],
    space: Space,
    *,
    ids: Sequence[str],
    fingerprint: str,
    class_names: Sequence[str] | None = None,
    columns: Mapping[str, NDArray[Any]] | None = None,
    role: Role = "both",
    form: Form = "points",
    device: torch.device | None = None,
    progress: Progress[Told] = None,
) -> EmbeddingSet:
    """Embed every item of a loader.

    Args:
        model: Maps a batch's inputs to features (B, D), such as the encoder of a release.
        loader: Yields batches, un-augmented, in dataset order.
        space: Space that the features are projected onto.
        ids: One text per item, in the loader's order.
        fingerprint: Fingerprint of the model, from its release.
        class_names: Class names, indexed by the labels.
        columns: Further values per item, in the loader's order.
        role: Role of the items for the model: "query", "document" or "both".
        form: "points" for galleries and queries, "features" for training caches.
        device: Device of the model. Default: the CPU.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total" items.

    Raises:
        DataError: The loader is empty, or a vector is not finite.

    Returns:
        The embeddings, in the loader's order; points have a column "uncertainty" if the space defines one.
    """
    features, labels = encode_features(model, loader, device=device, progress=progress)
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
            columns=columns or {},
        )
    )


def cached_embeddings(release: Release, images: LabelledItems, cache: Path, **settings: Any) -> EmbeddingSet:
    """Embed images as raw features once; later calls open the file in ``cache`` for this release and these images."""
    digest = images.digest()
    path = cache / f"features-{release.fingerprint.split(':')[1][:16]}-{digest[:16]}.safetensors"
    if path.exists():
        return storage.load(path)
    storage.save(embed_images(release, images, form="features", **settings), path)
    return storage.load(path)


@showing("embed")
def embed_images(
    release: Release,
    images: LabelledItems,
    *,
    form: Form = "points",
    flip: bool = False,
    labelled: bool = True,
    role: Role = "both",
    batch_size: int = 512,
    workers: int = 0,
    device: torch.device | None = None,
    progress: Progress[Told] = None,
) -> EmbeddingSet:
    """Embed a set of images with a release; row order, ids, classes and columns are kept.

    Args:
        release: The model.
        images: Images to embed.
        form: "points" for queries and galleries, "features" for training caches and for pooling into templates.
        flip: Add the features of the mirrored image to those of the image, before normalisation (the usual protocol of
            face recognition).
        labelled: Whether the labels are meaningful; otherwise, the embeddings have none.
        role: Role of the images for the model.
        batch_size: Number of images per batch.
        workers: Number of processes that read images.
        device: Device to compute on. Default: the CPU.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total" images.

    Raises:
        ConfigError: `flip` is set for items that are not images.
    """
    refuse(flip and images.kind != "images", f"flip of {images.kind}.", "images: nothing else can be mirrored")
    encoder = release.encoder if device is None else release.encoder.to(device)
    pinned = device is not None and device.type == "cuda"
    found = encode(
        MirrorSum(encoder) if flip else encoder,
        encoding_loader(images, batch_size=batch_size, workers=workers, pin_memory=pinned),
        release.space,
        ids=images.ids,
        fingerprint=release.fingerprint,
        class_names=images.class_names,
        columns=images.columns if isinstance(images, ImageSet) else None,
        role=role,
        form=form,
        device=device,
        progress=progress,
    ).replace(contents=images.digests())
    found = found if release.trained_on is None else release.trained_on.marked(found)
    return found if labelled else found.replace(labels=None, class_names=None)


def embed_features(release: Release, embeddings: EmbeddingSet, *, form: Form = "points") -> EmbeddingSet:
    """Apply a head to embeddings of its frozen model; ids, labels, role and columns are kept.

    Args:
        release: A head over a frozen model, such as `train_head` returns.
        embeddings: Embeddings of that model, as features or as points.
        form: "points" for queries and galleries, "features" for training caches.

    Raises:
        ReleaseError: The release is not a head, or is a head over another model.
    """
    spec = release.encoder.spec
    if not isinstance(spec, FeatureSpec) or spec.frozen != embeddings.fingerprint:
        over = f"a head over {spec.frozen}" if isinstance(spec, FeatureSpec) else f"a {spec.name} that reads items"
        raise ReleaseError(
            f"Embeddings of {embeddings.fingerprint} for {over}.",
            expected="a head over a frozen model, and embeddings of that very model",
            to_do="embed the items with the model that the head was trained over.",
            intact="Nothing was changed.",
        )
    vectors = np.empty((len(embeddings), release.space.dim), np.float32)
    with torch.no_grad():
        for start in range(0, len(vectors), ROWS_AT_ONCE):
            rows = torch.from_numpy(np.array(embeddings.vectors[start : start + ROWS_AT_ONCE]))
            features = release.encoder(rows).float()
            vectors[start : start + ROWS_AT_ONCE] = features if form == "features" else release.space.project(features)
    columns = {name: values for name, values in embeddings.columns.items() if name != "uncertainty"}
    marked = embeddings if release.trained_on is None else release.trained_on.marked(embeddings)
    return with_uncertainty(
        marked.replace(
            vectors=vectors, fingerprint=release.fingerprint, space=release.space, form=form, columns=columns
        )
    )
