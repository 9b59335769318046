"""The client of the package openai, one of its interface alone, and limpet's own encoder behind the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from api_server import Answer, ApiServer
from documented import run_example
from limpet.adapters.storage import load_adapter
from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.integrations.openai import LinkedClient
from limpet.models.text_encoders import open_text_encoder

from .conftest import TEXTS, Links, new_vectors


class Embedding(BaseModel):
    """As the package declares it."""

    embedding: list[float]
    index: int
    object: str = "embedding"


class CreateEmbeddingResponse(BaseModel):
    """As the package declares it."""

    data: list[Embedding]
    model: str
    usage: dict[str, int]


class Client:
    """A client that answers in backward order."""

    def __init__(self) -> None:
        self.embeddings, self.asked, self.change = self, [], lambda rows: rows  # type: ignore[var-annotated]

    def create(self, *, input: list[str], model: str, **options: Any) -> CreateEmbeddingResponse:
        self.asked.append((input, model, options))
        rows = self.change(new_vectors(input))
        data = [Embedding(embedding=row.tolist(), index=index) for index, row in enumerate(rows)]
        return CreateEmbeddingResponse(data=data[::-1], model=model, usage={"total_tokens": 3})


def test_answers_are_the_clients_with_mapped_vectors(links: Links) -> None:
    client = Client()
    linked = LinkedClient(client, links.named, side="document", name="words-1", model="new")
    answer = linked.embeddings.create(input=TEXTS[:3], model="words-1", user="me")
    assert isinstance(answer, CreateEmbeddingResponse) and answer.usage == {"total_tokens": 3}
    assert client.asked == [(TEXTS[:3], "words-1", {"user": "me"})]
    expected = load_adapter(links.named).map(new_vectors(TEXTS[:3]))
    assert [one.index for one in answer.data] == [2, 1, 0]
    for one in answer.data:
        np.testing.assert_allclose(one.embedding, expected[one.index], atol=1e-6)
    (alone,) = linked.embeddings.create(input=TEXTS[0], model="words-1").data
    np.testing.assert_allclose(alone.embedding, expected[0], atol=1e-6)


def test_a_prefix_for_one_side(links: Links) -> None:
    client = Client()
    LinkedClient(client, links.named, side="query", name="m", prefix="find: ", model="new").embeddings.create(
        input="hat", model="m"
    )
    assert client.asked[0][0] == ["find: hat"]


def test_it_is_checked_by_its_answers_without_a_prefix(links: Links) -> None:
    client = Client()
    assert LinkedClient(client, links.proven, side="query", name="m", prefix="find: ")
    client.change = lambda rows: rows[:, ::-1]
    with pytest.raises(ConfigError, match="by a cosine of"):
        LinkedClient(client, links.proven, side="query", name="m")


def test_an_encoder_of_ones_own(links: Links, api: ApiServer) -> None:
    linked = LinkedClient(open_text_encoder(api.name), links.proven, side="query")
    answer = linked.embeddings.create(input=TEXTS[:2], model=api.name)
    expected = load_adapter(links.proven).map(new_vectors(TEXTS[:2]))
    np.testing.assert_allclose([one.embedding for one in answer.data], expected, atol=1e-6)
    assert answer.model == api.name and [one.index for one in answer.data] == [0, 1]


def test_the_package_itself(links: Links, api: ApiServer) -> None:
    """OpenAI's own client, its answers packed as it asks for them, checked by its answers and linked."""
    import openai  # takes a second, which not every worker needs to wait

    with openai.OpenAI(base_url=api.url, api_key="none", max_retries=0) as client:
        linked = LinkedClient(client, links.proven, side="document", name=api.model)
        answer = linked.embeddings.create(input=TEXTS[:3], model=api.model, user="me")
        assert isinstance(answer, openai.types.CreateEmbeddingResponse) and answer.usage.total_tokens == 15
        assert api.requests[-1]["user"] == "me" and api.requests[-1]["encoding_format"] == "base64"
        expected = load_adapter(links.proven).map(new_vectors(TEXTS[:3]))
        np.testing.assert_allclose([one.embedding for one in answer.data], expected, atol=1e-6)
        (plain,) = client.embeddings.create(input=TEXTS[:1], model=api.model).data
        np.testing.assert_allclose(plain.embedding, new_vectors(TEXTS[:1])[0], rtol=1e-5)
        with pytest.raises(openai.BadRequestError):
            api.answers.append(Answer(status=400, body={"error": {"message": "no"}}))
            linked.embeddings.create(input="x", model=api.model)


def test_a_client_that_answers_later_is_refused(links: Links, api: ApiServer) -> None:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=api.url, api_key="none")
    with pytest.raises(ConfigError, match="answers later"):
        LinkedClient(client, links.proven, side="query", name=api.model)


def test_what_is_refused(links: Links, api: ApiServer) -> None:
    client = Client()
    with pytest.raises(ConfigError, match="without the name of its model"):
        LinkedClient(client, links.named, side="query", model="new")
    with pytest.raises(ConfigError, match="for an encoder of limpet"):
        LinkedClient(open_text_encoder(api.name), links.proven, side="query", prefix="x")
    linked = LinkedClient(client, links.named, side="query", name="m", model="new")
    with pytest.raises(ConfigError, match=r"model='other'"):
        linked.embeddings.create(input="x", model="other")
    with pytest.raises(ConfigError, match="encoding_format='base64'"):
        linked.embeddings.create(input="x", model="m", encoding_format="base64")
    for given in ([], [[1, 2]], [1, 2]):
        with pytest.raises(DataError, match="tokens are not taken"):
            linked.embeddings.create(input=given, model="m")
    client.change = lambda rows: rows[:, :3]
    with pytest.raises(SpaceMismatchError, match="3 dimensions"):
        linked.embeddings.create(input="x", model="m")
    client.change = lambda rows: rows[:1]
    with pytest.raises(DataError, match="for 2 texts"):
        linked.embeddings.create(input=["x", "y"], model="m")
    with pytest.raises(AttributeError):
        linked.chat  # noqa: B018 - nothing slips past the link


def test_the_documented_example(links: Links, api: ApiServer) -> None:
    run_example(
        LinkedClient,
        {"runs/link/adapter": str(links.named), "http://127.0.0.1:8000/v1": api.url},
    )
