"""Specifications of encoders, without weights and without torch: settings that users write and releases store."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from limpet.data.image_size import SMALLEST, ImageSize, sides, written
from limpet.errors import ConfigError, nearest
from limpet.support.ranges import Positive, PositiveInt, wanted

if TYPE_CHECKING:
    from torch import nn

Spec = TypeVar("Spec", bound="EncoderSpec")

LARGEST_IMAGE = 2**14


class EmbeddingSpec(BaseModel, ABC):
    """Specification of an encoder without its weights; part of its fingerprint.

    Attributes:
        dim: Dimension D of the embeddings.
        projection: Layers from features to embedding: "linear", "linear-bn" (no bias, then batch normalisation, as in
            AdvBCT), "mlp" (two layers, as in NDPP), or, for D features, "residual" (two layers, added to them) or
            "none". On the Lorentz space choose "linear-bn": models with a plain layer score lower after the same
            training (`benchmarks/lorentz_projection.py`).
        zeta: Length ζ > 0 at which the embeddings, divided by √D, are clipped: tangent vectors of the Lorentz space
            (HBCT, section 5.1); None does not clip.
        lifts_directions: Rescale every embedding to the length ζ instead, to lift a model on the hypersphere, where
            only directions matter, to the Lorentz space.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    TOLD_WHEN_SET: ClassVar[tuple[str, ...]] = ("zeta", "lifts_directions")
    """Fields that are omitted at their default, so that fingerprints stay the same across versions."""
    LAYERS_RATE: ClassVar[float] = 1.0
    """Default learning rate of layers with pretrained weights, as a multiple of the base rate."""
    LORA_RATE: ClassVar[float] = 1.0
    """Default learning rate of low-rank additions to these layers, as a multiple of the base rate."""

    dim: PositiveInt = 128
    projection: Literal["linear", "linear-bn", "mlp", "residual", "none"] = "linear"
    zeta: Positive | None = None
    lifts_directions: bool = False

    @model_serializer(mode="wrap")
    def _without_what_is_not_set(self, to_values: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = to_values(self)
        unset = {name for name in self.TOLD_WHEN_SET if getattr(self, name) == type(self).model_fields[name].default}
        return {name: value for name, value in values.items() if name not in unset}

    def contract(self) -> dict[str, JsonValue]:
        """Return the plain values that determine embeddings, apart from the weights."""
        return self.model_dump(mode="json")

    def identity(self) -> dict[str, JsonValue]:
        """Return the values known about an encoder before training, as plain values; None for unknown ones."""
        return self.model_dump(mode="json")

    @property
    def starts_from(self) -> str | None:
        """Fingerprint of the model whose weights `build_network` reads; None if it draws random ones."""
        return None

    def probe(self, encoder: nn.Module) -> tuple[float, ...] | None:
        """Return the output of the network for fixed inputs, if neither weights nor contract prove it; else None."""
        return None

    def left_out(self, name: str) -> bool:
        """Return whether a release leaves a weight out, because it is read from elsewhere."""
        return False

    def defined_by(self) -> list[object]:
        """Return the classes and functions whose packages, besides limpet, determine the output of the network."""
        return []

    @property
    def is_plan(self) -> bool:
        """Whether the network is built from these values alone: by library code, without reading weights."""
        return True

    @property
    def needs_module(self) -> bool:
        """Whether a module of the user is needed to build it."""
        return False

    @property
    def brings_weights(self) -> bool:
        """Whether the network comes with weights, which a specification alone does not contain."""
        return False

    @property
    @abstractmethod
    def name(self) -> str:
        """Display name, such as the name of its backbone."""

    @property
    @abstractmethod
    def input_words(self) -> str:
        """Describe its input, for the card of a release."""

    task: ClassVar[str] = "image-feature-extraction"
    """Task name of such a model on the hub."""


class EncoderSpec(EmbeddingSpec):
    """Specification of an image encoder without its weights; see `EmbeddingSpec` for the shared fields.

    Attributes:
        backbone: A key of `limpet.models.backbones.BACKBONES`.
        channels: Channels of the images.
        image_size: Height and width in pixels, or one number for both, from 8 to 16,384; other sizes are resized on
            entry.
        fit: How images were resized before: "crop" keeps the aspect ratio and crops the centre, "squash" does not; the
            suffix "-bicubic" is allowed.
        mean: Mean to subtract from each channel after scaling pixels to [0, 1]; one value applies to all channels.
        std: Divisor of each channel, above 0.
        backbone_options: Further arguments of the backbone.
        centre_crop: Height and width, or one number for both, of the centre crop that the backbone sees, such as 224 of
            256; None for no crop. Images of this size, such as random crops in training, are not cropped.
    """

    TOLD_WHEN_SET: ClassVar = (*EmbeddingSpec.TOLD_WHEN_SET, "centre_crop")

    backbone: str = "convnet"
    channels: PositiveInt = 3
    image_size: ImageSize = 32
    fit: Literal["crop", "squash", "crop-bicubic", "squash-bicubic"] = "crop"
    mean: tuple[FiniteFloat, ...] = (0.5,)
    std: tuple[FiniteFloat, ...] = (0.5,)
    backbone_options: dict[str, Any] = Field(default_factory=dict)
    centre_crop: ImageSize | None = None

    @field_validator("image_size", "centre_crop")
    @classmethod
    def _of_a_size_that_backbones_take(cls, size: ImageSize | None, info: ValidationInfo) -> ImageSize | None:
        if size is not None and not all(SMALLEST <= side <= LARGEST_IMAGE for side in sides(size)):
            raise ValueError(f"from {SMALLEST} to {LARGEST_IMAGE:,} pixels per side")
        whole = info.data.get("image_size") if info.field_name == "centre_crop" else None
        if size is not None and whole is not None and any(map(operator.gt, sides(size), sides(whole))):
            raise ValueError(f"at most the image_size, {written(whole)}: it is the middle of an image of that size")
        return size

    @field_validator("mean", "std")
    @classmethod
    def _one_or_per_channel(cls, values: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        channels = info.data.get("channels", len(values))
        if len(values) not in (1, channels):
            raise ValueError(f"one value, or {channels}: one per channel")
        return values

    @field_validator("std")
    @classmethod
    def _above_zero(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if min(values) <= 0:
            raise ValueError("values above 0: they divide the pixels")
        return values

    def defined_by(self) -> list[object]:
        """Return the function that builds the backbone."""
        from limpet.models.backbones import BACKBONES

        return [BACKBONES[self.backbone]]

    @property
    def name(self) -> str:
        """The name of the backbone."""
        return self.backbone

    @property
    def input_words(self) -> str:
        """The shape of the images."""
        height, width = sides(self.image_size)
        seen = "" if self.centre_crop is None else ", of which the middle {} × {} are seen".format(*self.seen_sides)
        return f"{self.channels} × {height} × {width} pixels{seen}"

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width to read images at."""
        return self.channels, *sides(self.image_size)

    def going_on(self, *, dim: int, projection: str = "linear", zeta: float | None = None) -> Self:
        """Return the spec of a network that starts from this one's backbone, with a projection of its own."""
        values = {"dim": dim, "projection": projection, "zeta": zeta, "lifts_directions": False}
        return _checked(type(self), {**self.model_dump(), **values})

    @property
    def seen_sides(self) -> tuple[int, int]:
        """Height and width that the backbone sees."""
        return sides(self.image_size if self.centre_crop is None else self.centre_crop)


def encoder_spec(**values: Any) -> EncoderSpec:
    """Build a spec from plain values, as in a settings file.

    Raises:
        ConfigError: A field is unknown, or its value is of another type or out of range.

    >>> encoder_spec(dim=0)
    Traceback (most recent call last):
    ...
    limpet.errors.ConfigError: The option 'dim' of the encoder is 0.
    Expected: at least 1
    """
    for name in values:
        if name not in EncoderSpec.model_fields:
            raise ConfigError(
                f"The encoder has no option '{name}'.{nearest(name, EncoderSpec.model_fields)}",
                expected=f"one of {', '.join(EncoderSpec.model_fields)}",
            )
    return _checked(EncoderSpec, values)


def _checked(kind: type[Spec], values: dict[str, Any]) -> Spec:
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise ConfigError(f"The option '{name}' of the encoder is {values[name]!r}.", wanted([first])) from error


class FeatureSpec(EmbeddingSpec):
    """Specification of a network over a frozen model, without its weights; see `EmbeddingSpec` for the rest.

    Attributes:
        frozen: Fingerprint of the frozen model; embeddings of other models are refused.
        width: Dimension of its embeddings.
    """

    task = "feature-extraction"

    frozen: str
    width: PositiveInt

    @property
    def name(self) -> str:
        """Projection and frozen model."""
        return f"{self.projection} over {self.frozen[:20]}"

    @property
    def input_words(self) -> str:
        """The model whose embeddings it takes."""
        return f"embeddings of {self.width} dimensions by the frozen model {self.frozen}"


class TextSpec(FeatureSpec):
    """A fine-tuned text model with its projection; its release is a network over the fine-tuned model.

    Attributes:
        frozen: Fingerprint of the text model that training starts from.
        width: Dimension of its embeddings.
        place: Folder or name of the model.
        max_length: Maximum number of tokens per text; longer texts are truncated. Default: that of the model.
        truncate_dim: Number of dimensions to truncate its vectors to (Matryoshka models). Default: all.
        query_prefix: Text prepended to every query.
        document_prefix: Text prepended to every document.
    """

    LAYERS_RATE = 0.05
    LORA_RATE = 0.5

    place: str
    max_length: int | None = None
    truncate_dim: int | None = None
    query_prefix: str = ""
    document_prefix: str = ""

    def identity(self) -> dict[str, JsonValue]:
        """Return the values known before training, without the fingerprint of the fine-tuned model."""
        released = FeatureSpec(**self.model_dump(include=set(FeatureSpec.model_fields)))
        return {**released.model_dump(mode="json"), "frozen": None}

    @property
    def starts_from(self) -> str:
        """Fingerprint of the text model."""
        return self.frozen
