"""Texts in a gallery behind `limpet serve`, which embeds them: what vector stores of frameworks have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from limpet.service.client import Client


@dataclass(frozen=True)
class FoundText:
    """A text that was found.

    Args:
        score: Similarity to the query.
    """

    id: str
    text: str
    metadata: dict[str, Any]
    score: float


@dataclass(frozen=True)
class ServedTexts:
    """Texts with metadata, in two columns of a gallery that the service embeds by its active model.

    Args:
        client: Of the service.
        text: Column of the texts.
        metadata: Column of the rest, of the type json.
    """

    client: Client
    text: str = "text"
    metadata: str = "metadata"

    def write(self, ids: Sequence[str], texts: Sequence[str], metadata: Sequence[Mapping[str, Any]]) -> None:
        """Embed texts, and write them durably in place of what the ids had."""
        if ids:
            columns: dict[str, Sequence[Any]] = {self.text: list(texts), self.metadata: [dict(one) for one in metadata]}
            self.client.upsert(items=dict(zip(ids, texts, strict=True)), metadata=columns)

    def search(
        self, query: str | Sequence[float], k: int, *, where: str | None = None, model: str | None = None
    ) -> list[FoundText]:
        """Return the texts nearest to a text, or to a vector of a model."""
        asked: list[str] | NDArray[np.float32]
        asked = [query] if isinstance(query, str) else np.asarray([query], np.float32)
        [hits] = self.client.search(asked, k, fingerprint=model, where=where).hits
        return [self._found(hit.id, hit.metadata, hit.score) for hit in hits]

    def fetch(self, ids: Sequence[str]) -> list[FoundText]:
        """Return those of the texts that there are."""
        return [self._found(item["id"], item["metadata"], 0.0) for item in self.client.fetch(ids)]

    def _found(self, identifier: str, values: Mapping[str, Any], score: float) -> FoundText:
        return FoundText(identifier, values.get(self.text) or "", dict(values.get(self.metadata) or {}), score)

    def path(self, key: str) -> str:
        """Return what filters call a key of the metadata."""
        escaped = key.replace("\\", "\\\\").replace('"', '\\"')
        return f'{self.metadata}."{escaped}"'


def quoted(value: Any) -> str:
    """Return a value as filters have it.

    >>> quoted("rock 'n' roll"), quoted(True), quoted(1.5)
    ("'rock ''n'' roll'", 'true', '1.5')
    """
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)
