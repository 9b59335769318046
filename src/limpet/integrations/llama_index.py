"""A new model for a LlamaIndex index that holds the old model's vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from limpet.errors import ConfigError
from limpet.integrations.linked import Embed, InputRole, LinkedModel
from limpet.models.text_encoders import TextEncoder

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
except ImportError as error:
    raise ConfigError(
        "limpet.integrations.llama_index needs LlamaIndex, which is not installed.",
        to_do="pip install llama-index-core",
    ) from error


class LinkedEmbedding(BaseEmbedding):  # type: ignore[misc]  # of no known type to mypy
    """A LlamaIndex embedding of a new model, through an adapter or head, for an index of the old model's vectors.

    Args:
        embedding: The new model: LlamaIndex's embedding of any kind, or an encoder of limpet.
        link: Folder of an adapter or head that `limpet adapt` saved.
        model: What people call the new model; see `LinkedModel`.
        **options: Of LlamaIndex's own, such as ``embed_batch_size``.

    Raises:
        ConfigError: It is not the model that the link was fitted for, or nobody says what it is.
        ReleaseError: The folder holds no link, or was altered.
        SpaceMismatchError: Its vectors have another dimension.

    >>> from llama_index.core import Document, VectorStoreIndex
    >>> linked = LinkedEmbedding(new_model, "runs/link/adapter", model="new")  # doctest: +SKIP
    >>> documents = [Document(text="a red hat of wool")]
    >>> index = VectorStoreIndex.from_documents(documents, embed_model=linked)  # doctest: +SKIP
    >>> index.as_retriever().retrieve("a warm hat")[0].text  # doctest: +SKIP
    'a red hat of wool'
    """

    _linked: LinkedModel = PrivateAttr()

    def __init__(
        self, embedding: BaseEmbedding | TextEncoder, link: str | Path, *, model: str | None = None, **options: Any
    ) -> None:
        embed: Embed | TextEncoder
        if isinstance(embedding, TextEncoder):
            name, embed = embedding.name, embedding
        else:
            name, embed = embedding.model_name, _sides(embedding)
        linked = LinkedModel(embed, link, model=model)
        super().__init__(**{"model_name": f"{name} through {Path(link).name}", **options})
        self._linked = linked

    @classmethod
    def class_name(cls) -> str:
        """Return what LlamaIndex calls it."""
        return "LimpetLinkedEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        vector: list[float] = self._linked.queries([query])[0].tolist()
        return vector

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._linked.documents(texts).tolist()
        return vectors

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)


def _sides(embedding: BaseEmbedding) -> Embed:
    def embed(texts: Sequence[str], side: InputRole) -> list[list[float]]:
        if side == "query":
            return [embedding.get_query_embedding(text) for text in texts]
        vectors: list[list[float]] = embedding.get_text_embedding_batch(list(texts))
        return vectors

    return embed
