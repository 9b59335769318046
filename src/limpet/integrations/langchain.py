"""LangChain: a new model for a store of the old model's vectors, and a vector store over `limpet serve`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from limpet.errors import ConfigError
from limpet.integrations.linked import Embed, InputRole, LinkedModel
from limpet.integrations.served import FoundText, ServedTexts
from limpet.models.text_encoders import TextEncoder

if TYPE_CHECKING:
    from limpet.service.client import Client

try:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore
except ImportError as error:
    raise ConfigError(
        "limpet.integrations.langchain needs LangChain, which is not installed.", to_do="pip install langchain-core"
    ) from error


class LinkedEmbeddings(Embeddings):
    """LangChain embeddings of a new model, through an adapter or head, for a store of the old model's vectors.

    Args:
        embeddings: The new model: LangChain's embeddings of any kind, or an encoder of limpet.
        link: Folder of an adapter or head that `limpet adapt` saved.
        model: Name of the new model; see `LinkedModel`.

    Raises:
        ConfigError: The model is not the one that the link was fitted for, or is not identified.
        ReleaseError: The folder holds no link, or was altered.
        SpaceMismatchError: The model's vectors have another dimension.

    >>> from langchain_core.vectorstores import InMemoryVectorStore
    >>> linked = LinkedEmbeddings(new_model, "runs/link/adapter", model="new")  # doctest: +SKIP
    >>> store = InMemoryVectorStore(linked)  # doctest: +SKIP
    >>> len(store.add_texts(["a red hat of wool"]))  # doctest: +SKIP
    1
    >>> store.similarity_search("a warm hat")[0].page_content  # doctest: +SKIP
    'a red hat of wool'
    """

    def __init__(self, embeddings: Embeddings | TextEncoder, link: str | Path, *, model: str | None = None) -> None:
        self.linked = LinkedModel(
            embeddings if isinstance(embeddings, TextEncoder) else _sides(embeddings), link, model=model
        )

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector for every text to be stored."""
        vectors: list[list[float]] = self.linked.documents(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a text to search with."""
        vector: list[float] = self.linked.queries([text])[0].tolist()
        return vector


def _sides(embeddings: Embeddings) -> Embed:
    def embed(texts: Sequence[str], side: InputRole) -> list[list[float]]:
        if side == "query":
            return [embeddings.embed_query(text) for text in texts]
        return embeddings.embed_documents(list(texts))

    return embed


class ServedVectorStore(VectorStore):
    """A LangChain vector store over `limpet serve`, which embeds queries and documents by its active model.

    The application goes on unchanged while the gallery changes its model: it never names one.

    Args:
        client: Of the service, a `limpet.Client`.
        text: Column of the gallery with the texts.
        metadata: Column with the metadata, of the type json.

    >>> from limpet import Client
    >>> client = Client("http://127.0.0.1:8520")
    >>> store = ServedVectorStore(client)
    >>> len(store.add_texts(["a red hat of wool"], [{"shelf": 3}]))  # doctest: +SKIP
    1
    >>> store.similarity_search("a warm hat", filter="metadata.shelf=3")[0].page_content  # doctest: +SKIP
    'a red hat of wool'
    >>> client.close()
    """

    def __init__(self, client: Client, *, text: str = "text", metadata: str = "metadata") -> None:
        self._texts = ServedTexts(client, text, metadata)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        client: Client | None = None,
        **columns: str,
    ) -> Self:
        """Write texts, and return the store.

        Args:
            texts: To write.
            embedding: None: the service has the models.
            metadatas: One for each text.
            ids: One for each text; new ones when left out.
            client: Of the service.
            **columns: `text` and `metadata`.

        Raises:
            ConfigError: There is no client, or an embedding.
        """
        if client is None or embedding is not None:
            raise ConfigError("A vector store over a service needs its client, and no embedding.",
                              to_do="pass client=limpet.Client(URL) and embedding=None.")  # fmt: skip
        store = cls(client, **columns)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **_: Any,
    ) -> list[str]:
        """Write texts durably, and return their ids."""
        given = list(texts)
        names = ids or [uuid.uuid4().hex for _ in given]
        self._texts.write(names, given, metadatas or [{} for _ in given])
        return names

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool:
        """Delete documents, and say whether all of them were there."""
        return self._texts.client.delete(ids or []) == len(ids or [])

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return those documents that there are."""
        return [_document(found) for found in self._texts.fetch(ids)]

    def similarity_search(self, query: str, k: int = 4, *, filter: str | None = None, **_: Any) -> list[Document]:
        """Return the documents nearest to a text; a filter is one of `limpet gallery search --where`."""
        return [document for document, _ in self.similarity_search_with_score(query, k, filter=filter)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, *, filter: str | None = None, **_: Any
    ) -> list[tuple[Document, float]]:
        """Return the documents nearest to a text with their similarities."""
        return [(_document(found), found.score) for found in self._texts.search(query, k, where=filter)]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, *, filter: str | None = None, model: str | None = None, **_: Any
    ) -> list[Document]:
        """Return the documents nearest to a vector of a model, which need not be named if the gallery has one only."""
        return [_document(found) for found in self._texts.search(embedding, k, where=filter, model=model)]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda score: min(1.0, max(0.0, score))


def _document(found: FoundText) -> Document:
    return Document(id=found.id, page_content=found.text, metadata=found.metadata)
