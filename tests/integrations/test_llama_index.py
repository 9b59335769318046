"""With the real LlamaIndex: an index of the old model's vectors, asked by the new model."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_index.core")

from llama_index.core.base.embeddings.base import BaseEmbedding

from documented import run_example
from limpet.adapters.storage import load_adapter
from limpet.errors import ConfigError
from limpet.integrations.llama_index import LinkedEmbedding
from limpet.models.text_encoders import open_text_encoder

from .conftest import QUERY, TEXTS, Links, new_vectors, old_vectors


class Words(BaseEmbedding):
    """The new model, with a prefix before queries."""

    def _get_query_embedding(self, query: str) -> list[float]:
        return new_vectors([query], "find ")[0].tolist()

    def _get_text_embedding(self, text: str) -> list[float]:
        return new_vectors([text])[0].tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        raise NotImplementedError


def test_it_is_an_embedding_of_llama_index(links: Links) -> None:
    linked = LinkedEmbedding(Words(model_name="words"), links.named, model="new", embed_batch_size=5)
    adapter, documents = load_adapter(links.named), new_vectors(TEXTS)
    assert isinstance(linked, BaseEmbedding) and linked.embed_batch_size == 5
    np.testing.assert_allclose(linked.get_text_embedding_batch(TEXTS), adapter.map(documents), atol=1e-6)
    np.testing.assert_allclose(linked.get_text_embedding(TEXTS[0]), adapter.map(documents[:1])[0], atol=1e-6)
    query = linked.get_query_embedding(QUERY)
    np.testing.assert_allclose(query, adapter.map(new_vectors([QUERY], "find "))[0], atol=1e-6)
    assert asyncio.run(linked.aget_query_embedding(QUERY)) == query
    assert asyncio.run(linked.aget_text_embedding(QUERY)) == linked.get_text_embedding(QUERY)
    assert linked.class_name() == "LimpetLinkedEmbedding" and linked.model_name == "words through named"


def test_an_index_of_old_vectors_is_searched_by_the_new_model(links: Links) -> None:
    from llama_index.core import VectorStoreIndex
    from llama_index.core.schema import TextNode

    nodes = [TextNode(text=text, embedding=row.tolist()) for text, row in zip(TEXTS, old_vectors(TEXTS), strict=True)]
    linked = LinkedEmbedding(Words(), links.named, model="new")
    (found,) = (
        VectorStoreIndex(nodes, embed_model=linked).as_retriever(similarity_top_k=1).retrieve("a red hat of wool")
    )
    assert found.text == "a red hat of wool"


def test_another_model_is_refused(links: Links, api: Any) -> None:
    with pytest.raises(ConfigError, match="does not say what it is"):
        LinkedEmbedding(Words(), links.named)
    assert LinkedEmbedding(open_text_encoder(api.name), links.proven).get_query_embedding(QUERY)


def test_the_documented_example(links: Links) -> None:
    run_example(LinkedEmbedding, {"runs/link/adapter": str(links.named)}, new_model=Words())
