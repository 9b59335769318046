"""What a release says of itself."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from limpet.models.own_modules import ModuleSpec
from limpet.models.specs import EncoderSpec, FeatureSpec

FORMAT_VERSION = 1


class FrozenModel(TypedDict, total=False):
    """How a frozen model of text, over which a head was trained, is opened again.

    Args:
        model: What people call it: a folder, or a name.
        query_prefix: What stands before every query.
        document_prefix: What stands before every document.
        max_length: Tokens that are read of a text.
        truncate_dim: How many components of its vectors are kept.
        on_long: What becomes of texts that are longer than it reads, where that decides vectors: "chunk-mean".
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
        format_version: Version of the folder's layout.
        fingerprint: Identity of the encoder; rows of a gallery carry it.
        space: What its embeddings are points of.
        compatible_with: Fingerprint of the release whose gallery this one was trained to search, if any.
        padded_from: Dimension of that release, where it has fewer: its embeddings count as padded with zeros, so
            that a query is compared by its first values only; None where both have one dimension.
        method: Name of the compatibility method, and its options.
        method_options: See ``method``.
        head: Name of the classifier, and its options; None where it was not kept.
        head_options: See ``head``.
        head_digest: sha256 of the classifier's weights.
        recipe: Settings of the training run.
        old_view: Whether the predecessor saw clean items ("cached") or the same augmented ones ("same").
        initial_weights: Name and digest of the published weights that the backbone started from; None for none.
        frozen_backbone: Whether only the projection was trained.
        lift: How features were lifted onto the space, where it has such a setting: the clipping length "zeta".
        curvature_start: Where the curvature of the space started that was learned with the model and is settled now;
            None where it was not learned.
        frozen_model: How a frozen model of text, over which this is a head, is opened again: what people call it, the
            prefixes, and the settings that decide its vectors; None for others. That it is the same model is proven
            by its fingerprint.
        lifted_from: Fingerprint of the release whose very weights these are, laid onto another space; see
            `limpet.models.lifting`.
        probe: Some values of what the encoder makes of fixed images, by which a module of one's own is known again;
            None for networks that limpet builds.
        data: Name and digest of the training set.
        seed: Seed of the run.
        code: Digest of the code that trained it; None where limpet did not train it.
        trained_on: sha256 of the record of the items that it was trained on; None where that is not known.
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
        """Leave out what most releases do not have, so that they keep their digest."""
        values: dict[str, Any] = to_values(self)
        optional = ("lifted_from", "curvature_start", "frozen_model", "code", "probe", "padded_from", "trained_on")
        unused = {name for name in optional if getattr(self, name) is None}
        return {name: value for name, value in values.items() if name not in unused}
