"""Vectors for a backfill that models make: releases of images, frozen models of text, heads and adapters over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet, Role, StringArray
from holdfast.embeddings.embedding_set import shown
from holdfast.errors import DataError, ReleaseError, refuse
from holdfast.galleries.item_sources import ItemSource
from holdfast.galleries.sources import ROLE, Carried, VectorSource, joined_points, nothing_of

if TYPE_CHECKING:
    import torch

    from holdfast.adapters import Adapter
    from holdfast.models.release import Release
    from holdfast.models.text_encoders import TextEncoder


class ReleaseVectors:
    """Vectors that a release makes of images.

    Args:
        release: Trained on images.
        items: Reads pixels as the release takes them: uint8 (n, channels, height, width), or a list of such images.
        batch_size: Images read and encoded at a time.
        device: Where to compute; the CPU when left out.

    Raises:
        ReleaseError: The release takes no images.
    """

    def __init__(
        self,
        release: Release,
        items: ItemSource[NDArray[np.uint8] | list[Any]],
        *,
        batch_size: int = 512,
        device: torch.device | None = None,
    ) -> None:
        from holdfast.models.encoder import EncoderSpec

        refuse(batch_size < 1, f"batch_size={batch_size}", "at least 1")
        spec = release.record.encoder
        if not isinstance(spec, EncoderSpec):
            raise ReleaseError(
                f"A release that takes {spec.input_words}, no images.",
                expected="a release that was trained on images",
                to_do="give the embeddings, or the texts, that it takes.",
            )
        self.release, self.items, self.batch_size, self.device = release, items, batch_size, device
        self.fingerprint, self.space = release.fingerprint, release.space
        self.shape = (spec.channels, spec.image_size, spec.image_size)

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return what the release makes of those of the images that are there."""
        parts = [self._embed(ids[start : start + self.batch_size]) for start in range(0, len(ids), self.batch_size)]
        return joined_points(self, parts)

    def _embed(self, ids: Sequence[str]) -> EmbeddingSet:
        from holdfast.data import ArrayImages, ImageSet
        from holdfast.training.encode import embed_images

        known, pixels = self.items.read(ids)
        if not known:
            return nothing_of(self)
        images = ImageSet(ArrayImages(self._pixels(known, pixels)), np.zeros(len(known), np.int64), ("",), known)  # type: ignore[arg-type]
        return embed_images(self.release, images, batch_size=self.batch_size, device=self.device)

    def _pixels(self, ids: list[str], images: NDArray[np.uint8] | list[Any]) -> NDArray[np.uint8]:
        wrong = [
            identifier
            for identifier, image in zip(ids, images, strict=True)
            if getattr(image, "shape", None) != self.shape or image.dtype != np.uint8
        ]
        if wrong:
            raise DataError(
                f"{len(wrong)} images are not as the release takes them: {shown(wrong)}.",
                expected=f"uint8 of shape {self.shape} (channels, height, width)",
                to_do="read them as in training; `holdfast embed` does so by itself.",
            )
        return np.stack(list(images))


class TextVectors:
    """Vectors that a frozen model makes of texts.

    Args:
        encoder: The model.
        items: Reads texts.
        role: What the items are to the model, which decides the text it puts before each.
        batch_size: Texts at a time.

    Raises:
        ConfigError: The model has different prefixes for queries and documents, and the role is "both".
    """

    def __init__(
        self, encoder: TextEncoder, items: ItemSource[list[str]], *, role: Role = ROLE, batch_size: int = 64
    ) -> None:
        from holdfast.geometry import Hypersphere

        encoder.prefix(role)
        self.encoder, self.items, self.role, self.batch_size = encoder, items, role, batch_size
        self.fingerprint, self.space = encoder.fingerprint, Hypersphere(encoder.dim)

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return what the model makes of those of the texts that are there."""
        from holdfast.data import TextSet
        from holdfast.training.encode import embed_texts

        known, texts = self.items.read(ids)
        if not known:
            return nothing_of(self)
        found = TextSet(StringArray.of(texts), None, (), StringArray.of(known))
        return embed_texts(self.encoder, found, role=self.role, batch_size=self.batch_size)


def through_head(source: VectorSource, release: Release) -> Carried:
    """Carry vectors of a frozen model over with a head that was trained over it.

    Raises:
        ReleaseError: The release is no head over the model of the source.
    """
    from holdfast.training.encode import embed_features

    embed_features(release, nothing_of(source))  # refuses another model now
    return Carried(source, lambda found: embed_features(release, found), release.fingerprint, release.space)


def through_adapter(source: VectorSource, adapter: Adapter) -> Carried:
    """Carry vectors of a model over with an adapter that maps it.

    Raises:
        ConfigError: The adapter maps another model.
    """
    refuse(
        adapter.fitted.source != source.fingerprint,
        f"Vectors of {source.fingerprint} for an adapter that maps {adapter.fitted.source}.",
        "the very model that the adapter maps",
    )
    return Carried(source, adapter.apply, adapter.mapped_fingerprint, adapter.fitted.target_space)
