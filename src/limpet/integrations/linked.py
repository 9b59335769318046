"""A new model's vectors, brought to where the old model's are searched; what every framework here is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.geometry import Hypersphere, Space
from limpet.models.api.probe import AGREEMENT, KIND, PROBES, agreement, sketch, sketch_in
from limpet.models.text_encoders import TextEncoder

InputRole = Literal["query", "document"]
Embed = Callable[[Sequence[str], InputRole], Any]
"""From texts, and what they are, to one vector for each: lists of numbers, or an array (N, D)."""

_NEXT = "pass the model that it was fitted for, or fit another: `limpet adapt`."


@dataclass(frozen=True)
class OpenedLink:
    """What a folder of `limpet adapt` holds, seen from the new model.

    Args:
        model: Fingerprint of the new model that it was fitted for.
        dim: Dimension of that model's vectors.
        map: Brings them there: an adapter of new vectors, a head, or nothing, where the old gallery was mapped instead.
    """

    folder: Path
    model: str
    dim: int
    space: Space
    map: Callable[[EmbeddingSet], EmbeddingSet]

    @classmethod
    def open(cls, folder: str | Path) -> OpenedLink:
        """Open an adapter or a compatible head.

        Raises:
            ReleaseError: There is neither, or it was altered.
            SpaceMismatchError: It leads to a space that stores of other programs cannot search.
        """
        from limpet.adapters.storage import ADAPTER_FILE, load_adapter

        folder = Path(folder)
        if not (folder / ADAPTER_FILE).exists():
            return cls._of_head(folder)
        adapter = load_adapter(folder)
        fitted = adapter.fitted
        if adapter.direction == "new_to_old":
            return cls(folder, fitted.source, fitted.source_space.dim, fitted.target_space, adapter.apply)
        return cls(folder, fitted.target, fitted.target_space.dim, fitted.target_space, lambda embeddings: embeddings)

    @classmethod
    def _of_head(cls, folder: Path) -> OpenedLink:
        from limpet.models.specs import FeatureSpec
        from limpet.training.compatible_head import load_head

        head = load_head(folder)
        spec = head.release.record.encoder
        if not isinstance(spec, FeatureSpec):
            raise ConfigError(
                f"The release '{folder}' takes {spec.input_words}, no vectors of a frozen model.",
                expected="an adapter or a head that `limpet adapt` saved",
            )
        if not isinstance(head.release.space, Hypersphere):
            raise SpaceMismatchError(
                f"The head '{folder}' leads to the {head.release.space}.",
                expected="the hypersphere, whose vectors every store compares by their cosine",
                to_do="search it in a gallery: `limpet gallery`; or train a head on the hypersphere.",
            )
        return cls(folder, spec.frozen, spec.width, head.release.space, head.query)


class LinkedModel:
    """A new model whose queries and documents are mapped to the space of the stored vectors.

    With an adapter for new vectors, or a head, the store stays as it is. With an adapter for old vectors, the store
    holds the output of `limpet embed stored`; the new model's vectors only need normalising to length one.

    Args:
        link: Folder of an adapter or head that `limpet adapt` saved.
        model: Name or fingerprint of a new model that does not identify itself; the name is that of its vectors when
            the link was fitted (``--new-name``). Leave it out for limpet's own encoders, and for links that were fitted
            for a model behind an API, whose answers identify it.

    Raises:
        ConfigError: The model is not the one that the link was fitted for, or is not identified.
        ReleaseError: The folder holds no link, or was altered.
        SpaceMismatchError: The model's vectors have another dimension.

    >>> linked = LinkedModel(embed, "runs/link/adapter", model="new")  # doctest: +SKIP
    >>> linked.queries(["a warm hat"]).shape  # doctest: +SKIP
    (1, 32)
    """

    def __init__(self, embed: Embed | TextEncoder, link: str | Path, *, model: str | None = None) -> None:
        self.fitted = OpenedLink.open(link)
        self._embed: Embed = _of_encoder(embed) if isinstance(embed, TextEncoder) else embed
        if isinstance(embed, TextEncoder):
            self._check_name(embed.fingerprint)
        elif model is not None:
            self._check_name(model if model == self.fitted.model else f"declared:{model}")
        else:
            self._check_answers()

    @property
    def dim(self) -> int:
        """Dimension of what it returns."""
        return self.fitted.space.dim

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return what is asked with (N, `dim`), unit rows."""
        return self.embed(texts, "query")

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return what is stored (N, `dim`), unit rows."""
        return self.embed(texts, "document")

    def embed(self, texts: Sequence[str], side: InputRole) -> NDArray[np.float32]:
        """Return the vectors (N, `dim`) of texts on one side, unit rows.

        Raises:
            DataError: The model gave something else than one finite vector with a direction for every text.
            SpaceMismatchError: Its vectors have another dimension.
        """
        if not texts:
            return np.empty((0, self.dim), np.float32)
        return self.mapped(self._embed(list(texts), side), len(texts), side)

    def mapped(self, vectors: Any, count: int, side: InputRole) -> NDArray[np.float32]:
        """Map vectors of the new model (``count``, D), each of any length, to unit vectors of the searched space.

        Raises:
            DataError: The vectors are not ``count`` finite vectors with a direction.
            SpaceMismatchError: The vectors have another dimension.
        """
        points = EmbeddingSet(
            ids=StringArray.of(str(row) for row in range(count)),
            vectors=self._directions(vectors, count),
            fingerprint=self.fitted.model,
            space=Hypersphere(self.fitted.dim),
            role=side,
        )
        return np.array(self.fitted.map(points).vectors)

    def _directions(self, vectors: Any, count: int) -> NDArray[np.float32]:
        try:
            rows = np.asarray(vectors)
        except ValueError as error:  # of different lengths
            raise self._odd("vectors of different lengths") from error
        if rows.ndim != 2 or len(rows) != count or rows.dtype.kind not in "fi":
            raise self._odd(f"an array of shape {rows.shape} and type {rows.dtype} for {count} texts")
        if rows.shape[1] != self.fitted.dim:
            raise SpaceMismatchError(
                f"The model gives vectors of {rows.shape[1]} dimensions.",
                expected=f"{self.fitted.dim}: '{self.fitted.folder}' was fitted for {self.fitted.model}",
                to_do=_NEXT,
                intact="Nothing was embedded.",
            )
        exact = rows.astype(np.float64)
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
        wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
        if len(wrong):
            raise self._odd(f"a vector without a direction, that of text {wrong[0]}")
        directions: NDArray[np.float32] = (exact / lengths).astype(np.float32)
        return directions

    def _odd(self, what: str) -> DataError:
        return DataError(
            f"The model gave {what}.",
            expected=f"one vector of {self.fitted.dim} finite numbers for every text, not all of them zero",
            to_do="look at the text and at the model; nothing was stored.",
        )

    def _check_name(self, claimed: str) -> None:
        if claimed != self.fitted.model:
            raise ConfigError(
                f"The model is {claimed}; '{self.fitted.folder}' was fitted for {self.fitted.model}.",
                expected="the very model that it was fitted for",
                to_do=_NEXT,
                intact="Nothing was embedded.",
            )

    def _check_answers(self) -> None:
        """Prove by its answers that it is the model behind an API that the link was fitted for."""
        known = sketch_in(self.fitted.model) if self.fitted.model.startswith(KIND) else None
        if known is None:
            name = self.fitted.model.removeprefix("declared:")
            encoder = "its encoder, as open_text_encoder returns it"
            own = encoder if ":" in name else f"model={name!r}"
            raise ConfigError(
                f"'{self.fitted.folder}' was fitted for {self.fitted.model}, and this model does not say what it is.",
                expected="a model that can be told to be that one",
                to_do=f"where it is, say so: pass {own}, or model= with that fingerprint.",
                intact="Nothing was embedded.",
            )
        found = agreement(known, sketch(self._directions(self._embed(list(PROBES), "document"), len(PROBES))))
        if found < AGREEMENT:
            raise ConfigError(
                f"The model's answers to fixed sentences agree with those of {self.fitted.model} by a cosine of "
                f"{found:.3f}; '{self.fitted.folder}' was fitted for that one.",
                expected=f"at least {AGREEMENT}, as one and the same model has",
                to_do=_NEXT,
                intact="Nothing was embedded.",
            )


def _of_encoder(encoder: TextEncoder) -> Embed:
    return lambda texts, side: encoder.encode(texts, role=side)
