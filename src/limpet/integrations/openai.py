"""An OpenAI-compatible client whose ``embeddings.create`` answers vectors for a store of the old model's."""

from __future__ import annotations

import copy
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limpet.errors import ConfigError, DataError, brief
from limpet.integrations.linked import InputRole, LinkedModel
from limpet.models.text_encoders import TextEncoder


@dataclass
class Vector:
    """One vector of an answer.

    Args:
        index: Which of the texts it is of.
    """

    index: int
    embedding: list[float]
    object: str = "embedding"


@dataclass
class Answer:
    """What `LinkedEmbeddings.create` answers for an encoder of limpet.

    Args:
        data: One vector for every text.
        model: What the encoder is called.
    """

    data: list[Vector]
    model: str
    object: str = "list"


class LinkedClient:
    """A client like that of the package ``openai``, whose vectors are mapped to the space of the stored vectors.

    ``client.embeddings.create(input=…, model=…)`` answers as the client itself does, but with unit vectors of the old
    model's space. No other attribute exists, so no vector bypasses the link.

    Args:
        client: The new model: anything with ``embeddings.create(input=…, model=…)``; or an encoder of limpet.
        link: Folder of an adapter or head that `limpet adapt` saved.
        name: Name of the new model on the server; the encoder's own name when left out.
        side: Whether the texts are queries or documents, which OpenAI's interface does not say.
        prefix: Prefix for every text, if a client's model needs one on this side.
        model: Name of the new model; see `LinkedModel`.

    Raises:
        ConfigError: The model is not the one that the link was fitted for, or is not identified.
        ReleaseError: The folder holds no link, or was altered.
        SpaceMismatchError: The model's vectors have another dimension.

    >>> from openai import OpenAI
    >>> client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
    >>> linked = LinkedClient(client, "runs/link/adapter", side="query", name="words-1", model="new")  # doctest: +SKIP
    >>> answer = linked.embeddings.create(input="a warm hat", model="words-1")  # doctest: +SKIP
    >>> len(answer.data[0].embedding)  # doctest: +SKIP
    32
    """

    def __init__(
        self,
        client: Any,
        link: str | Path,
        *,
        side: InputRole,
        name: str | None = None,
        prefix: str = "",
        model: str | None = None,
    ) -> None:
        own = isinstance(client, TextEncoder)
        if not own and name is None:
            raise ConfigError(
                "A client without the name of its model.", expected="what the server calls it", to_do="name='MODEL'."
            )
        if own and prefix:
            raise ConfigError(
                f"prefix='{prefix}', for an encoder of limpet.",
                expected="none: it has one of its own for each side",
                to_do=f"open_text_encoder(…, {side}_prefix='{prefix}').",
            )
        asked = _OfEncoder(client, side) if own else client.embeddings
        self.embeddings = LinkedEmbeddings(asked, link, str(name or client.name), prefix, side, model, client)

    def __repr__(self) -> str:
        return f"LinkedClient('{self.embeddings.name}' through '{self.embeddings.linked.fitted.folder}')"


class LinkedEmbeddings:
    """What `LinkedClient.embeddings` is; see there."""

    def __init__(
        self, embeddings: Any, link: str | Path, name: str, prefix: str, side: InputRole, model: str | None, client: Any
    ) -> None:
        self._embeddings, self.name, self.prefix, self.side = embeddings, name, prefix, side
        encoder = client if isinstance(client, TextEncoder) else self._plain
        self.linked = LinkedModel(encoder, link, model=model)

    def create(self, *, input: str | Sequence[str], model: str, **options: Any) -> Any:
        """Answer as the client does, every vector brought to where the old model's are searched.

        Raises:
            ConfigError: It is another model, or vectors were asked for as text.
            DataError: There is no text, or the client did not answer one finite vector for every text.
        """
        if model != self.name:
            raise ConfigError(
                f"model='{model}'.",
                expected=f"'{self.name}', for which '{self.linked.fitted.folder}' was checked",
                to_do="make another LinkedClient for another model, with a link of its own.",
            )
        if options.get("encoding_format", "float") != "float":
            raise ConfigError(
                f"encoding_format={options['encoding_format']!r}.", expected="float: vectors are computed with"
            )
        texts = [input] if isinstance(input, str) else list(input)
        if not texts or not all(isinstance(text, str) for text in texts):
            raise DataError(f"input={brief(input)}.", expected="a text, or a list of texts; tokens are not taken")
        answer = self._asked(input=[self.prefix + text for text in texts], model=model, **options)
        mapped = self.linked.mapped([one.embedding for one in answer.data], len(texts), self.side)
        found = copy.copy(answer)
        found.data = [copy.copy(one) for one in answer.data]
        for one, vector in zip(found.data, mapped, strict=True):
            one.embedding = vector.tolist()
        return found

    def _asked(self, **asked: Any) -> Any:
        """Return what the client answers; refuse one that only promises to."""
        answer = self._embeddings.create(**asked)
        if isinstance(answer, Coroutine):
            answer.close()
            raise ConfigError(
                "A client that answers later, such as AsyncOpenAI.",
                expected="one that answers at once, such as OpenAI",
                to_do="give that one, and call it in a thread of its own: asyncio.to_thread.",
            )
        return answer

    def _plain(self, texts: Sequence[str], _: InputRole) -> list[list[float]]:
        """Return the client's own vectors, to see which model it is."""
        answer = self._asked(input=list(texts), model=self.name)
        return [one.embedding for one in sorted(answer.data, key=lambda one: one.index)]


class _OfEncoder:
    """An encoder of limpet behind OpenAI's interface."""

    def __init__(self, encoder: TextEncoder, side: InputRole) -> None:
        self.encoder, self.side = encoder, side

    def create(self, *, input: list[str], model: str) -> Answer:
        vectors = self.encoder.encode(input, role=self.side).tolist()
        return Answer([Vector(row, vector) for row, vector in enumerate(vectors)], model)
