"""A new model for a LangChain vector store that holds the old model's vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from limpet.errors import ConfigError
from limpet.integrations.linked import Embed, InputRole, LinkedModel
from limpet.models.text_encoders import TextEncoder

try:
    from langchain_core.embeddings import Embeddings
except ImportError as error:
    raise ConfigError(
        "limpet.integrations.langchain needs LangChain, which is not installed.", to_do="pip install langchain-core"
    ) from error


class LinkedEmbeddings(Embeddings):
    """LangChain embeddings of a new model, through an adapter or head, for a store of the old model's vectors.

    Args:
        embeddings: The new model: LangChain's embeddings of any kind, or an encoder of limpet.
        link: Folder of an adapter or head that `limpet adapt` saved.
        model: What people call the new model; see `LinkedModel`.

    Raises:
        ConfigError: It is not the model that the link was fitted for, or nobody says what it is.
        ReleaseError: The folder holds no link, or was altered.
        SpaceMismatchError: Its vectors have another dimension.

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
