"""With the real LangChain and LlamaIndex: vector stores over a service, whose model changes behind them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("llama_index.core")

from langchain_core.embeddings import FakeEmbeddings
from langchain_core.vectorstores import VectorStore
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQuery

from documented import run_example
from limpet import Client, Gallery
from limpet.data.text_set import TextSet
from limpet.embeddings import StringArray
from limpet.errors import ConfigError
from limpet.integrations import langchain, llama_index
from service.services import served

TEXTS = ["a red hat of wool", "leather shoes", "the parcel is late", "my card was declined"]


@pytest.fixture
def client(tmp_path: Path, words: Any) -> Iterator[Client]:
    """A client of a service with two models, of which the gallery has the first."""
    model, url = words[0][1](()), f"memory:{tmp_path / 'live'}"
    columns = {"text": "text", "metadata": "json"}
    with Gallery.create(url, fingerprint=model.fingerprint, space=model.space, columns=columns):
        pass
    with served(url, models=words) as service, Client(str(service.base_url)) as opened:
        service.until_it_writes()
        yield opened


def test_a_langchain_store_goes_on_through_an_upgrade(client: Client, words: Any) -> None:
    store = langchain.ServedVectorStore.from_texts(
        TEXTS, metadatas=[{"shelf": number, "of": {"x": [1]}} for number in range(4)], ids=list("abcd"), client=client
    )
    assert isinstance(store, VectorStore)
    for step in ({}, {"start": {"model": words[1][0]}, "backfill": {}, "swap": {"force": "a test"}}):
        for name, options in step.items():
            client.take_step(name, **options)
        [(first, score)] = store.similarity_search_with_score("a warm woollen hat", 1)
        assert (first.id, first.page_content, first.metadata) == ("a", TEXTS[0], {"shelf": 0, "of": {"x": [1]}})
        assert 0 < score < 1
        [second] = store.similarity_search("a warm woollen hat", 1, filter="metadata.shelf>0 AND metadata.shelf<2")
        assert second.id == "b"
    assert store.similarity_search_with_relevance_scores(TEXTS[2], 1)[0][0].id == "c"
    new = words[1][1](())
    [vector] = new.embed(TextSet(StringArray.of([TEXTS[3]]), None, (), StringArray.of(["q"])), role="query").vectors
    [found] = store.similarity_search_by_vector(vector.tolist(), 1, model=new.fingerprint)
    assert found.id == "d"
    [named] = store.add_texts(["a blue scarf"])
    assert [one.page_content for one in store.get_by_ids([named, "nobody"])] == ["a blue scarf"]
    assert store.delete([named]) and not store.delete([named]) and store.get_by_ids([named]) == []


def test_a_langchain_store_refuses_an_embedding_of_its_own(client: Client) -> None:
    with pytest.raises(ConfigError, match="embedding=None"):
        langchain.ServedVectorStore.from_texts(TEXTS, FakeEmbeddings(size=3), client=client)
    with pytest.raises(ConfigError, match=r"limpet\.Client"):
        langchain.ServedVectorStore.from_texts(TEXTS)


def test_examples(client: Client) -> None:
    url = {"http://127.0.0.1:8520": str(client.http.base_url)}
    run_example(langchain.ServedVectorStore, url)
    client.delete([hit.id for hit in client.search(["hat"], 5).hits[0]])
    llama_index.ServedVectorStore(client).add([TextNode(text=TEXTS[0]), TextNode(text=TEXTS[1])])
    run_example(llama_index.ServedVectorStore, url)


def nodes() -> list[TextNode]:
    """One node for each text, by two of a document, whose names have a quote."""
    return [
        TextNode(id_=name, text=text, metadata={"shelf": number}, relationships={
            NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"it's {number // 2}")
        })
        for number, (name, text) in enumerate(zip("abcd", TEXTS, strict=True))
    ]  # fmt: skip


def test_a_llama_index_store_finds_and_deletes_nodes(client: Client) -> None:
    store = llama_index.ServedVectorStore(client)
    assert store.add(nodes()) == list("abcd")
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(1))
    [found] = index.as_retriever(similarity_top_k=1).retrieve("a warm woollen hat")
    assert found.node == nodes()[0] and 0 < found.score < 1
    assert store.get_nodes(["c"]) == [nodes()[2]]
    store.delete("it's 0")
    assert {node.node_id for node in store.get_nodes(list("abcd"))} == {"c", "d"}
    store.delete_nodes(["c"])
    assert store.query(VectorStoreQuery(query_str=TEXTS[2], similarity_top_k=5)).ids == ["d"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("shelf", FilterOperator.GT, 0), ("shelf", FilterOperator.LTE, 2)], "bc"),
        ([("shelf", FilterOperator.IN, [0, 3])], "ad"),
        ([("shelf", FilterOperator.NIN, [0, 3]), ("ref_doc_id", FilterOperator.EQ, "it's 1")], "c"),
        ([("shelf", FilterOperator.EQ, 0), ("shelf", FilterOperator.EQ, 1), FilterCondition.OR], "ab"),
        ([("shelf", FilterOperator.LT, 2), FilterCondition.NOT], "cd"),
    ],
)
def test_filters_of_llama_index(client: Client, filters: list[Any], expected: str) -> None:
    store = llama_index.ServedVectorStore(client)
    store.add(nodes())
    condition = filters.pop() if isinstance(filters[-1], FilterCondition) else FilterCondition.AND
    inner = [MetadataFilter(key=key, operator=operator, value=value) for key, operator, value in filters]
    asked = MetadataFilters(filters=[MetadataFilters(filters=inner, condition=condition)])
    found = store.query(VectorStoreQuery(query_str="anything", similarity_top_k=9, filters=asked))
    assert "".join(sorted(found.ids)) == expected


def test_what_a_llama_index_store_cannot_do_is_refused(client: Client) -> None:
    store = llama_index.ServedVectorStore(client)
    contains = MetadataFilters(filters=[MetadataFilter(key="a", operator=FilterOperator.CONTAINS, value="b")])
    for refused in (
        lambda: store.query(VectorStoreQuery(query_embedding=[1.0])),
        lambda: store.query(VectorStoreQuery(query_str="a", filters=contains)),
        lambda: store.get_nodes(filters=contains),
        lambda: store.delete_nodes(filters=contains),
    ):
        with pytest.raises(ConfigError):
            refused()
