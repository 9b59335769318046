"""With the real LangChain: a vector store of the old model's vectors, asked by the new model."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

pytest.importorskip("langchain_core")

from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from documented import run_example
from limpet.adapters.storage import load_adapter
from limpet.errors import ConfigError, SpaceMismatchError
from limpet.integrations.langchain import LinkedEmbeddings
from limpet.models.text_encoders import open_text_encoder

from .conftest import QUERY, TEXTS, Links, new_vectors, old_vectors


class Words(Embeddings):
    """The new model, with a prefix before queries."""

    dim = 24

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return new_vectors(texts)[:, : self.dim].tolist()

    def embed_query(self, text: str) -> list[float]:
        return new_vectors([text], "find ")[0].tolist()


class Old(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return old_vectors(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError


def test_it_is_an_embeddings_of_langchain(links: Links) -> None:
    linked = LinkedEmbeddings(Words(), links.named, model="new")
    assert isinstance(linked, Embeddings)
    adapter = load_adapter(links.named)
    np.testing.assert_allclose(linked.embed_documents(TEXTS), adapter.map(new_vectors(TEXTS)), atol=1e-6)
    query = linked.embed_query(QUERY)
    np.testing.assert_allclose(query, adapter.map(new_vectors([QUERY], "find "))[0], atol=1e-6)
    assert all(type(number) is float for number in query)
    assert asyncio.run(linked.aembed_query(QUERY)) == query
    assert asyncio.run(linked.aembed_documents(TEXTS[:2])) == linked.embed_documents(TEXTS[:2])
    assert linked.embed_documents([]) == []


def test_a_store_of_old_vectors_is_searched_by_the_new_model(links: Links) -> None:
    store = InMemoryVectorStore(Old())
    store.add_texts(TEXTS)
    store.embedding = LinkedEmbeddings(Words(), links.named, model="new")
    (found,) = store.similarity_search("a red hat of wool", k=1)
    assert found.page_content == "a red hat of wool"
    store.add_texts(["a yellow hat of wool"])
    (found,) = store.similarity_search("a yellow hat of wool", k=1)
    assert found.page_content == "a yellow hat of wool", "new items lie in the same space"


def test_another_model_is_refused(links: Links, api: Any) -> None:
    with pytest.raises(ConfigError, match="does not say what it is"):
        LinkedEmbeddings(Words(), links.named)
    narrow = Words()
    narrow.dim = 7
    with pytest.raises(SpaceMismatchError, match="7 dimensions"):
        LinkedEmbeddings(narrow, links.proven)
    assert LinkedEmbeddings(Words(), links.proven).embed_documents(TEXTS[:1]), "documents have no prefix here"
    assert LinkedEmbeddings(open_text_encoder(api.name), links.proven).embed_query(QUERY)


def test_the_documented_example(links: Links) -> None:
    run_example(LinkedEmbeddings, {"runs/link/adapter": str(links.named)}, new_model=Words())
