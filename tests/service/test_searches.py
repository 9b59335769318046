"""Searches over HTTP find what `Gallery.search` finds, and say as of when and by which model."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.galleries import Gallery
from service.services import Served, create, drawn, served

BINARY = {"Content-Type": "application/octet-stream"}


def found(answer: Any) -> list[list[tuple[str, float, str]]]:
    return [[(hit["id"], hit["score"], hit["generation"]) for hit in hits] for hits in answer.json()["hits"]]


def test_vectors_as_lists_base64_and_raw_bytes_find_what_the_gallery_finds(url: str, client: Served) -> None:
    queries = drawn(3, seed=1)
    with Gallery.open(url) as gallery:
        expected = gallery.search(queries, 4, where="price<30")
        bodies = [queries.tolist(), base64.b64encode(queries.tobytes()).decode()]
        answers = [client.post("/v1/search", json={"vectors": one, "k": 4, "where": "price<30"}) for one in bodies]
        query = {"k": 4, "where": "price<30"}
        answers.append(client.post("/v1/search", content=queries.tobytes(), params=query, headers=BINARY))
        for answer in answers:
            assert found(answer) == [[(hit.id, hit.score, hit.generation) for hit in hits] for hits in expected.hits]
            told = answer.json()
            assert told["hits"][0][0]["metadata"] == dict(expected.hits[0][0].metadata)
            assert (told["epoch"], told["commit"], told["model"]) == (gallery.state.epoch, 2, "declared:old")
            assert (told["covered"], told["items"], told["active"], told["cursor"]) == (40, 40, "g1", None)


def test_pages_are_of_one_commit(url: str, client: Served) -> None:
    query = drawn(1, seed=2)
    with Gallery.open(url) as gallery:
        whole = [hit.id for hit in gallery.search(query, 40).hits[0]]
        pages, cursor, commits = [], "", set()
        while cursor is not None:
            asked = {"vectors": query.tolist(), "k": 15, "cursor": cursor}
            answer = client.post("/v1/search", json=asked).json()
            pages += [hit["id"] for hit in answer["hits"][0]]
            commits.add(answer["commit"])
            cursor = answer["cursor"]
            assert client.delete("/v1/items", params={"id": whole[len(pages) - 1 :][:2]}).status_code == 200
        assert pages == whole and len(commits) == 1
        other = {"vectors": (-query).tolist(), "k": 15, "cursor": asked["cursor"]}
        assert client.post("/v1/search", json=other).status_code == 422
        made_up = {**asked, "cursor": asked["cursor"][:-6] + "AAAAA="}
        assert client.post("/v1/search", json=made_up).status_code == 422


def test_a_page_of_a_commit_that_is_gone_is_refused(postgres_url: str) -> None:
    query = drawn(1, seed=2).tolist()
    with served(create(postgres_url)) as client:
        client.until_it_writes()
        first = client.post("/v1/search", json={"vectors": query, "k": 5, "cursor": ""}).json()
        again = {"vectors": query, "k": 5, "cursor": first["cursor"]}
        assert client.post("/v1/search", json=again).status_code == 200
        assert client.delete("/v1/items", params={"id": ["0"]}).json()["items"] == 1
        answer = client.post("/v1/search", json=again)
        assert answer.status_code == 410 and answer.json()["type"] == "limpet:GoneError"


@pytest.mark.parametrize(
    ("asked", "status", "kind"),
    [
        ({"vectors": [[1.0] * 7]}, 422, "SpaceMismatchError"),
        ({"vectors": [[1.0] * 8], "model": "declared:newer"}, 409, "UnknownModelError"),
        ({"vectors": [[0.0] * 8]}, 422, "UnusableVectorsError"),
        ({"vectors": "no base64!"}, 422, "UnusableVectorsError"),
        ({"vectors": [[1.0] * 8], "where": "prise<3"}, 422, "ConfigError"),
        ({"vectors": [[1.0] * 8], "k": 0}, 422, "ServiceError"),
        ({"vectors": [[1.0] * 8], "k": 1001}, 413, "ServiceError"),
        ({"vectors": [[1.0] * 8], "kk": 3}, 422, "ServiceError"),
        ({"texts": ["a"]}, 409, "ServiceError"),
        ({}, 422, "ServiceError"),
    ],
)
def test_a_wrong_search_is_a_problem_that_says_what_to_do(
    shared: Served, asked: dict[str, Any], status: int, kind: str
) -> None:
    answer = shared.post("/v1/search", json=asked)
    told = answer.json()
    assert (answer.status_code, told["status"], told["type"]) == (status, status, f"limpet:{kind}"), told
    assert answer.headers["content-type"] == "application/problem+json"
    assert told["title"] and (told.get("expected") or told.get("to_do"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that no test writes to."""
    with served(create(f"memory:{tmp_path_factory.mktemp('shared') / 'live'}")) as client:
        yield client


def test_other_bodies_and_places_are_problems(shared: Served) -> None:
    answers = {
        415: shared.post("/v1/search", content=b"x", headers={"Content-Type": "text/plain"}),
        413: shared.post("/v1/search", content=b"x" * (17 << 20), headers=BINARY),
        404: shared.get("/v2"),
        405: shared.put("/v1/search"),
        422: shared.post("/v1/search", content=b"{", headers={"Content-Type": "application/json"}),
    }
    for status, answer in answers.items():
        assert answer.status_code == answer.json()["status"] == status, answer.text
    answer = shared.get("/v1", headers={"X-Request-ID": "mine-1"})
    assert (
        answer.headers["x-request-id"] == "mine-1" and "default-src 'none'" in answer.headers["content-security-policy"]
    )
    assert shared.get("/v1", headers={"Host": "evil.example"}).status_code == 400


def test_texts_of_several_requests_are_embedded_together(tmp_path: Path, words: Any) -> None:
    model = words[0][1](())
    texts = ["a red shoe", "a blue hat", "where is my parcel"]
    items = _embedded(model, texts)
    url = f"memory:{tmp_path / 'texts'}"
    Gallery.create(url, fingerprint=items.fingerprint, space=items.space).close()
    with served(url, models=words) as client, ThreadPoolExecutor(8) as pool:
        client.until_it_writes()
        assert client.post("/v1/items", json={"ids": ["s", "h", "p"], "texts": texts}).json()["items"] == 3
        asked = [texts[number % 3] for number in range(24)]
        answers = list(pool.map(lambda text: client.post("/v1/search", json={"texts": [text], "k": 1}), asked))
        assert [one.json()["hits"][0][0]["id"] for one in answers] == [["s", "h", "p"][n % 3] for n in range(24)]
        assert all(one.json()["hits"][0][0]["score"] > 0.999 for one in answers)
        assert client.get("/v1").json()["generations"][0]["loaded"] is True


def _embedded(model: Any, texts: list[str]) -> EmbeddingSet:
    from limpet.data.text_set import TextSet
    from limpet.embeddings import StringArray

    ids = StringArray.of([str(number) for number in range(len(texts))])
    made: EmbeddingSet = model.embed(TextSet(StringArray.of(texts), None, (), ids), role="document")
    return made


def test_items_are_returned_with_vectors(shared: Served) -> None:
    answer = shared.get("/v1/items", params={"id": ["3", "nobody"], "vectors": True}).json()
    [item] = answer["items"]
    assert answer["unknown"] == ["nobody"] and item["metadata"] == {"price": 3} and item["generations"] == ["g1"]
    np.testing.assert_allclose(item["vectors"]["g1"], drawn(40)[3], rtol=1e-6)
