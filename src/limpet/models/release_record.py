"""The record of a release."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from limpet.models.own_modules import ModuleSpec
from limpet.models.specs import EncoderSpec, FeatureSpec

FORMAT_VERSION = 1


class FrozenModel(TypedDict, total=False):
    """Settings to reopen the frozen text model that a head was trained over.

    Args:
        model: Folder or name of the model.
        query_prefix: Text before every query.
        document_prefix: Text before every document.
        max_length: Maximum number of tokens per text.
        truncate_dim: Number of dimensions that vectors are truncated to.
        on_long: Treatment of texts with too many tokens, if it affects vectors: "chunk-mean".
    """

    model: str
    query_prefix: str | None
    document_prefix: str | None
    max_length: int | None
    truncate_dim: int | None
    on_long: str


class ReleaseRecord(BaseModel):
    """The contents of ``config.json``.

    Args:
        format_version: Version of the folder layout.
        fingerprint: Fingerprint of the encoder, which gallery rows store.
        space: Space of its embeddings.
        compatible_with: Fingerprint of the release whose gallery this one was trained to search, if any.
        padded_from: Dimension of that release if it is smaller: its embeddings are padded with zeros, so that only the
            first values of a query count; None if both dimensions are equal.
        method: Name of the compatibility method.
        method_options: Options of the method.
        head: Name of the classifier; None if it was not kept.
        head_options: Options of the classifier.
        head_digest: sha256 of the classifier's weights.
        recipe: Settings of the training run.
        old_view: Whether the predecessor saw clean items ("cached") or the same augmented ones ("same").
        initial_weights: Name and digest of the published weights that the backbone started from; None for none.
        frozen_backbone: Whether only the projection was trained.
        lift: Setting of the lift of features to the space, if it has one: the clipping length "zeta".
        curvature_start: Initial curvature of the space, if it was learned with the model; else None.
        frozen_model: Settings to reopen the frozen text model below a head: its name, prefixes, and settings that
            determine vectors; else None. Its fingerprint verifies that it is the same model.
        lifted_from: Fingerprint of the release with the same weights that was lifted to this space; see
            `limpet.models.lifting`.
        probe: Output values of the encoder for fixed images, which identify a user-defined module; None for networks
            that limpet builds.
        data: Name and digest of the training set.
        seed: Seed of the run.
        code: Digest of the training code; None if limpet did not train it.
        trained_on: sha256 of the record of training items; None if unknown.
        versions: Versions of limpet, torch and Python.
        digest: sha256 of all values above and of the class names.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: int = Field(default=FORMAT_VERSION, ge=1)
    fingerprint: str
    encoder: ModuleSpec | EncoderSpec | FeatureSpec
    space: dict[str, Any]
    compatible_with: str | None = None
    padded_from: int | None = None
    method: str = "independent"
    method_options: dict[str, Any] = {}
    head: str | None = None
    head_options: dict[str, Any] = {}
    head_digest: str | None = None
    recipe: dict[str, Any] = {}
    old_view: Literal["cached", "same"] | None = None
    initial_weights: str | None = None
    frozen_backbone: bool = False
    lift: dict[str, float] = {}
    curvature_start: float | None = None
    frozen_model: dict[str, Any] | None = None
    lifted_from: str | None = None
    probe: tuple[float, ...] | None = None
    data: dict[str, str] = {}
    seed: int | None = None
    code: str | None = None
    trained_on: str | None = None
    versions: dict[str, str] = {}
    digest: str = ""

    @model_serializer(mode="wrap")
    def _without_origin(self, to_values: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit fields that most releases do not have, so that their digests stay the same."""
        values: dict[str, Any] = to_values(self)
        optional = ("lifted_from", "curvature_start", "frozen_model", "code", "probe", "padded_from", "trained_on")
        unused = {name for name in optional if getattr(self, name) is None}
        return {name: value for name, value in values.items() if name not in unused}
