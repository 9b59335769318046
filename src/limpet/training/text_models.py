"""Text models by name: frozen models, heads and adapters over them, and heads and adapters alone as vector maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limpet.adapters.storage import load_adapter
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, ReleaseError, refuse
from limpet.geometry import Hypersphere, Space
from limpet.models.api.settings import ApiSettings
from limpet.models.names import OF_IMAGES, OF_TEXTS, ModelName
from limpet.models.text_encoders import (
    TextEncoder,
    TextSettings,
    embed_texts,
    open_text_encoder,
    recorded_model,
    refuse_another,
)

if TYPE_CHECKING:
    import torch

    from limpet.adapters import Adapter
    from limpet.data.text_set import TextSet
    from limpet.models.release import Release


@dataclass(frozen=True, eq=False)
class VectorMap:
    """A head, an adapter or a lifted release as a map from the vectors of one model to another space.

    Args:
        source: Fingerprint of the model of the input vectors.
        fingerprint: Fingerprint of the mapped vectors.
        space: Space of the mapped vectors.
    """

    name: str
    source: str
    fingerprint: str
    space: Space
    apply: Callable[[EmbeddingSet], EmbeddingSet]

    @classmethod
    def of_adapter(cls, adapter: Adapter, name: str = "adapter") -> VectorMap:
        """Return the map of an adapter."""
        fitted = adapter.fitted
        return cls(name, fitted.source, adapter.mapped_fingerprint, fitted.target_space, adapter.apply)

    @classmethod
    def of_release(cls, release: Release, name: str = "release") -> VectorMap:
        """Return the map of a head over a frozen model, or of a release that was lifted to another space.

        Raises:
            ReleaseError: The release does not take vectors.
        """
        from limpet.models.lifting import lift_embeddings
        from limpet.models.specs import FeatureSpec
        from limpet.training.encode import embed_features

        spec, lifted = release.record.encoder, release.record.lifted_from
        if lifted is not None:
            return cls(name, lifted, release.fingerprint, release.space, lambda rows: lift_embeddings(rows, release))
        if not isinstance(spec, FeatureSpec):
            raise ReleaseError(
                f"'{name}' takes {spec.input_words}, no embeddings.",
                expected="a head over a frozen model, as `limpet adapt` trains it, a release that training wrote as "
                "old-lifted, or an adapter",
                to_do="with this release embed images: `limpet embed images`.",
            )
        return cls(name, spec.frozen, release.fingerprint, release.space, lambda rows: embed_features(release, rows))


def open_map(name: str | ModelName) -> VectorMap:
    """Open a head, an adapter, or a release saved as old-lifted by training.

    Raises:
        ConfigError: The name is of something else.
        ReleaseError: The release does not take vectors, or a folder was altered.
    """
    named = ModelName.of(name)
    named.refuse_unless("adapter", "release", what="stored vectors")
    if named.scheme == "adapter":
        return VectorMap.of_adapter(load_adapter(named.place), str(named))
    from limpet.models.release import load_release

    return VectorMap.of_release(load_release(named.place), str(named))


@dataclass(frozen=True, eq=False)
class TextModel:
    """A text model, optionally with a head or an adapter.

    Args:
        encoder: The frozen or fine-tuned model that reads the texts.
        through: The head or adapter applied to its vectors; None for a model alone.
    """

    name: ModelName
    encoder: TextEncoder
    through: VectorMap | None = None

    @property
    def fingerprint(self) -> str:
        """Fingerprint of its vectors."""
        return self.encoder.fingerprint if self.through is None else self.through.fingerprint

    @property
    def space(self) -> Space:
        """Space of its vectors."""
        return Hypersphere(self.encoder.dim) if self.through is None else self.through.space

    def embed(self, texts: TextSet, **settings: Any) -> EmbeddingSet:
        """Embed a set of texts; for the settings see `limpet.models.text_encoders.embed_texts`."""
        made = embed_texts(self.encoder, texts, **settings)
        return made if self.through is None else self.through.apply(made)


def open_text_model(
    name: str | ModelName,
    over: str | ModelName | None = None,
    *,
    settings: TextSettings | None = None,
    device: torch.device | str = "cpu",
    api: ApiSettings | None = None,
    known: Iterable[str] = (),
) -> TextModel:
    """Open a text model by name.

    Args:
        name: st:PLACE, package:NAME or openai:MODEL@URL, a frozen model; release:FOLDER, a head or a fine-tuned model;
            or adapter:FOLDER.
        over: The frozen model below a head or an adapter. Default for a head: the recorded one; an adapter records
            none.
        settings: Embedding settings of the frozen model; others are as recorded with a head.
        device: Device to compute on.
        api: Request settings for a model behind an API.
        known: Fingerprints that such a model may already have.

    Raises:
        ConfigError: The model does not exist, or ``over`` is missing or not allowed.
        ReleaseError: The release does not take texts, was altered, or is a head over another model.
    """
    named, settings = ModelName.of(name), settings or TextSettings()
    below = None if over is None else ModelName.of(over)
    named.refuse_unless(*OF_TEXTS, "release", "adapter", what="texts")
    if named.scheme == "adapter":
        through = open_map(named)
        if below is None:
            raise ConfigError(
                f"The adapter '{named.place}' maps vectors, and nothing says which model embeds the texts.",
                expected=f"the model {through.source}",
                to_do="--over MODEL.",
            )
        encoder = open_text_encoder(below, **asdict(settings), device=device, api=api, known=[through.source, *known])
        refuse(
            encoder.fingerprint != through.source,
            f"The text model '{below}' has the fingerprint {encoder.fingerprint}; the adapter '{named.place}' maps "
            f"{through.source}.",
            "the very model whose embeddings the adapter maps",
        )
        return TextModel(named, encoder, through)
    if named.scheme == "release":
        return _of_release(named, below, settings, device, api)
    refuse(
        below is not None, f"--over {below} with '{named}', which reads texts itself.", "--over for heads and adapters"
    )
    return TextModel(named, open_text_encoder(named, **asdict(settings), device=device, api=api, known=known))


def _of_release(
    named: ModelName,
    below: ModelName | None,
    settings: TextSettings,
    device: torch.device | str,
    api: ApiSettings | None,
) -> TextModel:
    """Open a head and its text model; the folder of a fine-tuned model contains both."""
    from limpet.models.named_models import open_release
    from limpet.models.specs import FeatureSpec

    release = open_release(named)
    recorded, spec = dict(release.record.frozen_model or {}), release.record.encoder
    if not isinstance(spec, FeatureSpec):
        raise ReleaseError(
            f"The release '{named.place}' takes {spec.input_words}, no texts.",
            expected="a head over a text model, as `limpet adapt` trains it, or a fine-tuned one",
            to_do="with this release give images: --data DATA, or --image FILE to search with.",
        )
    on_record = recorded.pop("model", None)
    if below is None and on_record is None:
        raise ReleaseError(
            f"The release '{named.place}' does not say over which text model it is a head.",
            expected="one that `limpet adapt --texts TEXTS --new MODEL` trained",
            to_do="pass --over MODEL; or embed the texts with that model, and give these embeddings instead.",
        )
    folder = Path(named.place)
    model = recorded_model(folder, str(on_record)) if below is None else below
    given = {name: value for name, value in asdict(settings).items() if value is not None}
    settings = replace(TextSettings(**{name: recorded[name] for name in vars(settings) if name in recorded}), **given)
    refuse_another(model, spec.frozen, spec.width, settings.truncate_dim, folder)
    try:
        encoder = open_text_encoder(model, **asdict(settings), device=device, api=api, known=[spec.frozen])
    except ConfigError as error:
        raise ReleaseError(
            f"The text model of the head '{folder}' cannot be opened: {error.given}",
            expected=error.expected,
            to_do="pass --over with the place where that model is now.",
            intact="Nothing was written.",
        ) from error
    if encoder.fingerprint != spec.frozen:
        raise ReleaseError(
            f"The text model '{model}' has the fingerprint {encoder.fingerprint}; '{folder}' is a head over "
            f"{spec.frozen}.",
            expected="the very model that the head was trained over, with the same max-length and truncate-dim",
            to_do="pass --over with the folder of that model.",
            intact="Nothing was written.",
        )
    return TextModel(named, encoder, VectorMap.of_release(release, str(named)))


def identify(
    name: str | ModelName,
    *,
    settings: TextSettings | None = None,
    device: torch.device | str = "cpu",
    api: ApiSettings | None = None,
) -> tuple[str, Space]:
    """Return the fingerprint and the space of the vectors of a model, opening as little as possible."""
    named = ModelName.of(name)
    if named.scheme == "adapter":
        through = open_map(named)
        return through.fingerprint, through.space
    if named.scheme in OF_IMAGES:  # text models need no torch
        from limpet.models.installed_encoders import ENCODERS
        from limpet.models.named_models import known_of

        if named.scheme != "package" or named.place in ENCODERS:
            known = known_of(named)
            return known.fingerprint, known.space
    model = open_text_model(named, settings=settings, device=device, api=api)
    return model.fingerprint, model.space
