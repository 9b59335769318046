"""Requests, retries and refusals, against a real server that fails on request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from api_server import DIM, Answer, ApiServer, vector_of
from limpet.errors import ApiError, BudgetError, ConfigError, DataError, LimpetError
from limpet.models.api.client import ApiClient
from limpet.models.api.settings import ApiSettings, Endpoint

TEXTS = ["red shoes", "blue shoes", "a hat"]
Build = Callable[..., ApiSettings]


def client(server: ApiServer, settings: ApiSettings, **options: Any) -> ApiClient:
    return ApiClient(Endpoint(server.model, server.url), settings, **options)


def expected(texts: list[str] = TEXTS) -> np.ndarray:
    return np.stack([vector_of(text, "words-1") for text in texts]).astype(np.float32)


def changed(**values: Any) -> Answer:
    """Change the second vector of a good answer."""

    def change(good: dict[str, Any]) -> dict[str, Any]:
        good["data"][1].update(values)
        return good

    return Answer(change=change)


def test_a_request_is_that_of_openai(server: ApiServer, settings: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " key-1 ")
    vectors = client(server, settings()).embed(TEXTS)
    np.testing.assert_array_equal(vectors, expected())
    assert vectors.dtype == np.float32
    (asked,) = server.requests
    assert (asked["model"], asked["input"], asked["encoding_format"]) == ("words-1", TEXTS, "float")
    assert asked["headers"]["Authorization"] == "Bearer key-1" and "dimensions" not in asked


def test_shorter_vectors_are_asked_for(server: ApiServer, settings: Build) -> None:
    vectors = client(server, settings(), dimensions=5).embed(TEXTS)
    assert server.requests[0]["dimensions"] == 5 and vectors.shape == (3, 5)


def test_no_key_no_header_and_another_variable(
    server: ApiServer, settings: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    client(server, settings()).embed(TEXTS)
    assert "Authorization" not in server.requests[0]["headers"]
    monkeypatch.setenv("OPENAI_API_KEY", "one")
    monkeypatch.setenv("MY_KEY", "other")
    client(server, settings(key_variable="MY_KEY")).embed(TEXTS)
    assert server.requests[1]["headers"]["Authorization"] == "Bearer other"


def test_vectors_go_where_their_index_says(server: ApiServer, settings: Build) -> None:
    server.answers = [Answer(change=lambda good: {**good, "data": good["data"][::-1]})]
    np.testing.assert_array_equal(client(server, settings()).embed(TEXTS), expected())


@pytest.mark.parametrize(
    ("answer", "pause"),
    [
        (Answer(429, {"Retry-After": "7"}), 7),
        (Answer(429, {"Retry-After": "Thu, 01 Jan 1970 00:16:52 GMT"}), 12),  # the test begins 1,000 s after 1970
        (Answer(503, {"Retry-After": "soon"}), 0.5),
        (Answer(500), 0.5),
        (Answer(408), 0.5),
    ],
)
def test_what_may_pass_is_tried_again(
    server: ApiServer, settings: Build, hours: Any, answer: Answer, pause: float
) -> None:
    server.answers = [answer]
    np.testing.assert_array_equal(client(server, settings()).embed(TEXTS), expected())
    assert hours.slept == [pause] and len(server.requests) == 2


def test_pauses_grow_and_end_with_what_to_do(
    server: ApiServer, settings: Build, hours: Any, logged: Callable[..., Any]
) -> None:
    server.answers = [Answer(500) for _ in range(9)]
    with logged(logging.WARNING, "limpet") as log, pytest.raises(ApiError) as caught:
        client(server, settings(retries=8)).embed(TEXTS)
    assert hours.slept == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert "answered with status 500, 9 times in a row" in str(caught.value) and "--api.retries" in str(caught.value)
    assert "trying again in 0.5 s" in log.text


def test_a_server_that_asks_for_an_hour_is_not_waited_for(server: ApiServer, settings: Build, hours: Any) -> None:
    server.answers = [Answer(429, {"Retry-After": "3600"})]
    with pytest.raises(ApiError, match=r"status 429 and asks to wait for 3,600 seconds"):
        client(server, settings()).embed(TEXTS)
    assert hours.slept == [] and len(server.requests) == 1


def test_a_timeout_is_tried_again_and_charged(server: ApiServer, settings: Build) -> None:
    held = threading.Event()
    server.answers = [Answer(held=held)]
    found = settings(timeout=0.5)  # in which the second answer comes
    np.testing.assert_array_equal(client(server, found).embed(TEXTS), expected())
    held.set()
    assert found.meter.tokens == 8 + 6, "22 characters were perhaps computed; then six words were"


def test_a_budget_stops_before_a_request(server: ApiServer, settings: Build, tmp_path: Any) -> None:
    found = settings(max_tokens=15, cache=tmp_path / "kept", price=1000, max_cost=1)
    asking = client(server, found)
    asking.embed(TEXTS)
    asking.embed(TEXTS)
    with pytest.raises(BudgetError) as caught:
        asking.embed(TEXTS)
    assert len(server.requests) == 2 and found.meter.tokens == 12
    said = str(caught.value)
    assert "15 tokens allows no further request: 12 are spent, which cost 0.012" in said
    assert f"kept in '{tmp_path / 'kept'}': the same command goes on" in said


def test_limits_of_speed_space_requests(server: ApiServer, settings: Build, hours: Any) -> None:
    asking = client(server, settings(requests_per_minute=60))
    for _ in range(3):
        asking.embed(TEXTS)
    assert hours.slept == [1, 1]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(404, body={"error": {"message": "no such model"}}), "no model 'words-1'.*no such model"),
        (Answer(400, body={"error": {"message": "too long"}}), "refuses these texts.*400.*: too long"),
        (Answer(422, body={"detail": "too\nlong"}), "422.*too long"),
        (Answer(413, body={"error": "too many"}), "request too large .*: too many"),
        (Answer(429, body={"error": {"code": "insufficient_quota"}}), "has nothing left"),
        (Answer(403), "refuses access .*No key was sent"),
        (Answer(302, {"Location": "https://elsewhere.example/v1"}), "leads to elsewhere.example"),
        (Answer(307, {"Location": "/v2/embeddings"}), "leads to another path"),
        (Answer(body=b"<html>hello</html>"), "is no JSON"),
        (Answer(body=b""), "is no JSON"),
        (Answer(body=b"[" * 100_000), "is no JSON"),
        (Answer(headers={"Content-Encoding": "gzip"}, body=b"no gzip"), "cannot be unpacked"),
        (Answer(body=[1]), "has no list 'data'"),
        (Answer(body={"data": [1, 2, 3]}), "has no list 'data'"),
        (Answer(change=lambda good: {"data": good["data"][:2]}), "2 vectors for 3 texts"),
        (Answer(change=lambda good: {"data": []}), "0 vectors for 3 texts"),
        (changed(index=0), "by 'index'"),
        (changed(index=None), "by 'index'"),
        (changed(index=True), "by 'index'"),
        (changed(embedding=[float("nan")] * DIM), "that of text 1 of the request, that is not all finite"),
        (changed(embedding=[float("inf")] * DIM), "finite"),
        (changed(embedding=[1e300] * DIM), "finite"),
        (changed(embedding=["1"] * DIM), "finite numbers"),
        (changed(embedding=[None] * DIM), "finite numbers"),
        (changed(embedding=[True] * DIM), "finite numbers"),
        (changed(embedding=[[1.0]] * DIM), "finite numbers"),
        (changed(embedding=[*[[1.0]] * (DIM - 1), [1.0, 2.0]]), "finite numbers"),
        (changed(embedding=[1.0]), "vectors of 1 and 24 dimensions"),
        (changed(embedding="AAAA"), "no list of numbers"),
        (changed(embedding=[]), "no list of numbers"),
    ],
)
def test_what_is_refused_at_once(server: ApiServer, settings: Build, hours: Any, answer: Answer, said: str) -> None:
    server.answers = [answer]
    with pytest.raises(ApiError, match=f"(?s){said}") as caught:
        client(server, settings()).embed(TEXTS)
    assert hours.slept == [] and len(server.requests) == 1
    assert "No vector of this call is kept" in caught.value.to_do or "Nothing was sent there" in caught.value.intact


def test_a_text_that_utf_8_cannot_write_is_not_sent(server: ApiServer, settings: Build) -> None:
    with pytest.raises(DataError, match="half of a pair of characters"):
        client(server, settings()).embed(["a shoe", "a \ud83d shoe"])
    assert server.requests == []


def test_another_dimension_than_before(server: ApiServer, settings: Build) -> None:
    asking = client(server, settings())
    asking.embed(TEXTS)
    server.answers = [Answer(change=lambda good: {"data": [{"index": 0, "embedding": [1.0, 2.0]}]})]
    with pytest.raises(ApiError, match="vectors of 2 dimensions, not of 24"):
        asking.embed(["x"])
    with pytest.raises(ApiError, match=r"not of 7, which were asked for \(truncate-dim\)"):
        server.answers = [Answer(change=lambda good: {"data": [{"index": 0, "embedding": [1.0, 2.0]}]})]
        client(server, settings(), dimensions=7).embed(["x"])


def test_nobody_answers(server: ApiServer, settings: Build, hours: Any) -> None:
    with pytest.raises(ApiError, match=r"Nothing answers at http://127.0.0.1:9/v1"):
        ApiClient(Endpoint("m", "http://127.0.0.1:9/v1"), settings()).embed(TEXTS)
    assert hours.slept == [], "a wrong URL is not tried again"


@pytest.mark.parametrize("status", [401, 404, 400, 500])
def test_the_key_is_in_no_message_no_log_and_no_repr(
    server: ApiServer, settings: Build, status: int, monkeypatch: pytest.MonkeyPatch, logged: Callable[..., Any]
) -> None:
    secret = "sk-very-secret-1234"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    said = {"error": {"message": f"Incorrect key provided: {secret}, ask for another"}}
    server.answers = [Answer(status, body=said), Answer(status, body=said)]
    asking = client(server, settings(retries=1))
    with logged(logging.DEBUG) as log, pytest.raises(LimpetError) as caught:
        asking.embed(TEXTS)
    error: BaseException | None = caught.value
    while error is not None:
        assert secret not in str(error) + repr(error) + repr(vars(error))
        error = error.__cause__ or error.__context__
    assert secret not in log.text + repr(asking) + repr(asking.settings)


@pytest.mark.parametrize("key", ["two words", "ключ", "a\nb"])
def test_a_key_that_no_header_holds_is_not_repeated(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY holds more than a key") as caught:
        ApiSettings().key()
    assert key not in str(caught.value)


def test_the_key_itself_in_place_of_its_variable_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="no name of an environment variable") as caught:
        ApiSettings(key_variable="sk-proj-1234")
    assert "1234" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"that --api\.key-variable names is not set") as caught:
        ApiSettings(key_variable="abcd1234").key()
    assert "abcd1234" not in str(caught.value)
