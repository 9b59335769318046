"""LlamaIndex: a new model for an index of the old model's vectors, and a vector store over `limpet serve`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from limpet.errors import ConfigError
from limpet.integrations.linked import Embed, InputRole, LinkedModel
from limpet.integrations.served import ServedTexts, quoted
from limpet.models.text_encoders import TextEncoder

if TYPE_CHECKING:
    from limpet.service.client import Client

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.schema import BaseNode, MetadataMode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
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
        model: Name of the new model; see `LinkedModel`.
        **options: LlamaIndex's own options, such as ``embed_batch_size``.

    Raises:
        ConfigError: The model is not the one that the link was fitted for, or is not identified.
        ReleaseError: The folder holds no link, or was altered.
        SpaceMismatchError: The model's vectors have another dimension.

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


class ServedVectorStore(BasePydanticVectorStore):  # type: ignore[misc]  # of no known type to mypy
    """A LlamaIndex vector store over `limpet serve`, which embeds queries and nodes by its active model.

    The application goes on unchanged while the gallery changes its model: it never names one. Embeddings that
    LlamaIndex made of nodes are not used; `add` of this store needs none.

    Args:
        client: Of the service, a `limpet.Client`.
        text: Column of the gallery with the texts.
        metadata: Column with the metadata, of the type json.

    >>> from limpet import Client
    >>> from llama_index.core import MockEmbedding, VectorStoreIndex
    >>> client = Client("http://127.0.0.1:8520")
    >>> store = ServedVectorStore(client)
    >>> index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(1))  # doctest: +SKIP
    >>> index.as_retriever().retrieve("a warm hat")[0].text  # doctest: +SKIP
    'a red hat of wool'
    >>> client.close()
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    _texts: ServedTexts = PrivateAttr()

    def __init__(self, client: Client, *, text: str = "text", metadata: str = "metadata") -> None:
        super().__init__()
        self._texts = ServedTexts(client, text, metadata)

    @property
    def client(self) -> Client:
        """The client of the service."""
        return self._texts.client

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Write nodes durably, and return their ids."""
        ids = [str(node.node_id) for node in nodes]
        texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
        self._texts.write(ids, texts, [node_to_metadata_dict(node) for node in nodes])
        return ids

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete all nodes of a document."""
        where = f"{self._texts.path('ref_doc_id')}={quoted(ref_doc_id)}"
        while found := self._texts.search("any", _DELETED_AT_ONCE, where=where):
            self.client.delete([one.id for one in found])

    def delete_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any) -> None:
        """Delete nodes by their ids.

        Raises:
            ConfigError: Filters were given.
        """
        if filters is not None:
            raise ConfigError("A service deletes nodes by their ids.", to_do="leave filters out.")
        self.client.delete(node_ids or [])

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return nodes by their ids.

        Raises:
            ConfigError: Filters were given.
        """
        if filters is not None:
            raise ConfigError("A service returns nodes by their ids.", to_do="leave filters out, or query.")
        return [metadata_dict_to_node(found.metadata) for found in self._texts.fetch(node_ids or [])]

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        """Return the nodes nearest to the text of a query.

        Raises:
            ConfigError: The query has no text.
        """
        if query.query_str is None:
            raise ConfigError("A query without a text.", to_do="set query_str: the service embeds it.")
        where = None if query.filters is None else self._where(query.filters)
        found = self._texts.search(query.query_str, query.similarity_top_k, where=where)
        nodes = [metadata_dict_to_node(one.metadata) for one in found]
        return VectorStoreQueryResult(nodes, [one.score for one in found], [one.id for one in found])

    def _where(self, filters: MetadataFilters) -> str:
        parts = [
            f"({self._where(one) if isinstance(one, MetadataFilters) else self._condition(one)})"
            for one in filters.filters
        ]
        if filters.condition == "not":
            return " AND ".join(f"NOT {part}" for part in parts)
        return f" {(filters.condition or 'and').upper()} ".join(parts)

    def _condition(self, one: MetadataFilter) -> str:
        path = self._texts.path(one.key)
        if one.operator in (FilterOperator.IN, FilterOperator.NIN) and isinstance(one.value, list):
            values = ", ".join(map(quoted, one.value))
            return f"{path} {'NOT ' if one.operator == FilterOperator.NIN else ''}IN ({values})"
        sign = _SIGNS.get(one.operator)
        if sign is None:
            raise ConfigError(f"The filter operator '{one.operator.value}'.",
                              expected=f"one of {', '.join(known.value for known in _SIGNS)}, in, nin")  # fmt: skip
        return f"{path}{sign}{quoted(one.value)}"


_DELETED_AT_ONCE = 100
_SIGNS = {
    FilterOperator.EQ: "=", FilterOperator.NE: "!=", FilterOperator.LT: "<", FilterOperator.LTE: "<=",
    FilterOperator.GT: ">", FilterOperator.GTE: ">=",
}  # fmt: skip
