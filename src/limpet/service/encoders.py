"""The models of a service; texts, or images, of several requests are embedded in one batch."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from limpet.errors import DataError, ServiceError
from limpet.service import metrics
from limpet.service.documents import Kind
from limpet.service.gathering import Gathering
from limpet.service.settings import ServiceSettings

if TYPE_CHECKING:
    from limpet.embeddings import EmbeddingSet, Role
    from limpet.models.release import Release
    from limpet.training.text_models import TextModel

Items: TypeAlias = Sequence[str] | Sequence[bytes]
_AT_ONCE, _SECONDS = 64, 0.005
_MOST_PIXELS = 50_000_000  # per image: a small file may expand to many


class ImageModel:
    """A model for encoded images that clients send.

    Args:
        release: The model.
    """

    def __init__(self, release: Release) -> None:
        self.release, self.fingerprint, self.space = release, release.fingerprint, release.space

    def embed(self, images: Sequence[bytes], role: Role) -> EmbeddingSet:
        """Embed images, after resizing them for the model.

        Raises:
            DataError: An image cannot be read, or is too large.
        """
        from limpet.data.decoding import decode, opened
        from limpet.data.image_set import ImageSet
        from limpet.data.images import ArrayImages
        from limpet.embeddings import StringArray
        from limpet.models.named_models import image_spec
        from limpet.training.encode import embed_images

        spec = image_spec(self.release, self.fingerprint)
        for number, image in enumerate(images):
            with opened(io.BytesIO(image), f"image {number}") as header:
                if header.width * header.height > _MOST_PIXELS:
                    raise DataError(f"Image {number} has {header.width} x {header.height} pixels.",
                                    expected=f"at most {_MOST_PIXELS:,}", to_do="send it smaller.")  # fmt: skip
        pixels = np.stack([
            decode(io.BytesIO(image), spec.input_shape, spec.fit, f"image {number}")
            for number, image in enumerate(images)
        ])  # fmt: skip
        ids = StringArray.of([str(number) for number in range(len(images))])
        found = ImageSet(ArrayImages(pixels), np.zeros(len(images), np.int64), ("",), ids)
        return embed_images(self.release, found, labelled=False, role=role)


class Encoders:
    """Loaded models, by fingerprint; created inside the event loop.

    Args:
        settings: Settings of the service.
        known: Fingerprints that a model behind an API may already have.
    """

    def __init__(self, settings: ServiceSettings, known: Sequence[str]) -> None:
        self.models: dict[str, TextModel | ImageModel] = {}
        self.named: dict[str, TextModel | ImageModel] = {}
        for name, opened in settings.models:
            model = opened(known)
            self.models[model.fingerprint] = self.named[name] = model
        self._gatherings = {
            fingerprint: Gathering(
                _Embedder(model), what=kind_of(model), most=_AT_ONCE, seconds=_SECONDS, room=settings.limits.waiting
            )
            for fingerprint, model in self.models.items()
        }

    async def embed(self, items: Items, fingerprint: str, role: Role, kind: Kind) -> EmbeddingSet:
        """Embed texts or images with a model.

        Raises:
            ServiceError: The model is not loaded, embeds something else, or too many items wait.
        """
        if fingerprint not in self._gatherings:
            raise self.not_loaded(fingerprint)
        gathering = self._gatherings[fingerprint]
        if gathering.what != kind:
            raise ServiceError(422, f"The model {fingerprint} embeds {gathering.what}, no {kind}.",
                               expected=f'"{gathering.what}"', intact="Nothing was changed.")  # fmt: skip
        return await gathering.ask((items, role), len(items), role)

    def model(self, name: str) -> TextModel | ImageModel:
        """Return a model by fingerprint, or by its name in the settings.

        Raises:
            ServiceError: The model is not loaded.
        """
        found = self.named.get(name) or self.models.get(name)
        if found is None:
            raise self.not_loaded(name)
        return found

    def not_loaded(self, fingerprint: str) -> ServiceError:
        """Build the error for a model that is not loaded."""
        return ServiceError(
            409, f"The service has not loaded the model {fingerprint}.",
            expected=f"one of {', '.join(self.models)}" if self.models else "vectors, since no model is loaded",
            to_do="send vectors; or start the service with --model SCHEME:PLACE.", intact="Nothing was changed.",
        )  # fmt: skip

    async def close(self) -> None:
        """Answer waiting requests."""
        for one in self._gatherings.values():
            await one.close()


def kind_of(model: TextModel | ImageModel) -> Kind:
    """Return the kind of items that a model embeds."""
    return "images" if isinstance(model, ImageModel) else "texts"


class _Embedder:
    """Embeds the items of several requests in one batch, all queries or all documents."""

    def __init__(self, model: TextModel | ImageModel) -> None:
        self._model = model

    def __call__(self, asked: list[tuple[Items, Role]]) -> list[EmbeddingSet]:
        with metrics.timed(metrics.SECONDS, "embed"):
            made = self._of([item for items, _ in asked for item in items], asked[0][1])
        parts, start = [], 0
        for items, _ in asked:
            parts.append(made[start : start + len(items)])
            start += len(items)
        return parts

    def _of(self, items: Any, role: Role) -> EmbeddingSet:
        from limpet.data.text_set import TextSet
        from limpet.embeddings import StringArray

        if isinstance(self._model, ImageModel):
            return self._model.embed(items, role)
        ids = StringArray.of([str(number) for number in range(len(items))])
        return self._model.embed(TextSet(StringArray.of(items), None, (), ids), role=role)
