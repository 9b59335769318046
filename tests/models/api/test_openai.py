"""A model behind an API as a text model: batches, cache, identity, and changes behind its name."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_server import DIM, Answer, ApiServer, vector_of
from limpet.errors import ApiError, BudgetError, ConfigError
from limpet.models.api.probe import PROBES
from limpet.models.api.settings import ApiSettings
from limpet.models.names import ModelName
from limpet.models.text_encoders import TextEncoder, open_text_encoder

TEXTS = [f"shoes of size {size} and colour {colour}" for size in range(5) for colour in "abc"]
Build = Callable[..., ApiSettings]


def opened(server: ApiServer, settings: ApiSettings, **options: Any) -> TextEncoder:
    return open_text_encoder(server.name, api=settings, **options)


def expected(texts: list[str] = TEXTS) -> np.ndarray:
    return np.stack([vector_of(text, "words-1") for text in texts]).astype(np.float32)


def test_texts_go_in_batches_with_a_probe_and_come_back_in_order(server: ApiServer, settings: Build) -> None:
    encoder = opened(server, settings())
    assert server.texts == [list(PROBES)] and encoder.dim == DIM
    np.testing.assert_array_equal(encoder.encode(TEXTS, batch_size=4), expected())
    assert [len(texts) for texts in server.texts[1:]] == [5, 5, 5, 4]
    assert all(texts[-1] == PROBES[0] for texts in server.texts[1:])


def test_requests_hold_so_many_characters(server: ApiServer, settings: Build) -> None:
    encoder = opened(server, settings(characters=60))
    texts = ["a" * 100, "b" * 30, "c" * 30, "d" * 30, "e"]
    np.testing.assert_array_equal(encoder.encode(texts), expected(texts))
    assert [texts[:-1] for texts in server.texts[1:]] == [["a" * 100], ["b" * 30, "c" * 30], ["d" * 30, "e"]]


def test_a_request_too_large_is_halved(server: ApiServer, settings: Build) -> None:
    server.most = 5
    encoder = opened(server, settings())
    np.testing.assert_array_equal(encoder.encode(TEXTS), expected())
    assert sorted(map(len, server.texts[1:])) == [4, 5, 5, 5, 8, 9, 16], "15 texts, in halves, each with the probe"
    done = len(server.requests)
    encoder.encode(TEXTS)
    assert [len(texts) for texts in server.texts[done:]] == [4, 4, 4, 4, 4], "as many as it took before"
    server.most = 1
    with pytest.raises(ApiError, match="request too large"):
        opened(server, settings()).encode(["x"])


def test_prefixes_stand_before_texts_and_are_part_of_what_is_cached(
    server: ApiServer, settings: Build, tmp_path: Path
) -> None:
    encoder = opened(server, settings(cache=tmp_path / "c"), query_prefix="find: ", document_prefix="")
    np.testing.assert_array_equal(encoder.encode(["hat"], role="query"), expected(["find: hat"]))
    np.testing.assert_array_equal(encoder.encode(["hat"], role="document"), expected(["hat"]))
    with pytest.raises(ConfigError, match="these texts are both"):
        encoder.prefix("both")
    assert [texts[0] for texts in server.texts[1:]] == ["find: hat", "hat"]


def test_nothing_is_paid_twice(server: ApiServer, settings: Build, tmp_path: Path) -> None:
    first = settings(cache=tmp_path / "c")
    opened(server, first).encode([*TEXTS[:6], *TEXTS[:6]])
    assert server.texts[1:] == [[*sorted(TEXTS[:6], key=lambda text: -len(text)), PROBES[0]]], "each text once"
    second = settings(cache=tmp_path / "c")
    np.testing.assert_array_equal(opened(server, second).encode(TEXTS), expected())
    assert set(server.texts[3]) == {*TEXTS[6:], PROBES[0]}
    assert (second.meter.texts, second.meter.cached) == (15, 6) and "6 of 15 texts were in the cache" in str(
        second.meter
    )
    asked = len(server.requests)
    opened(server, settings(cache=tmp_path / "c")).encode(TEXTS)
    assert len(server.requests) == asked + 1, "only the probe"


def test_a_budget_stops_and_the_same_call_goes_on(server: ApiServer, settings: Build, tmp_path: Path) -> None:
    encoder = opened(server, settings(cache=tmp_path / "c", max_tokens=120))
    with pytest.raises(BudgetError, match="the same command goes on from there"):
        encoder.encode(TEXTS, batch_size=4)
    assert encoder.network.settings.meter.tokens <= 120
    done = len(server.requests)
    assert 1 < done < 5
    again = opened(server, settings(cache=tmp_path / "c"))
    np.testing.assert_array_equal(again.encode(TEXTS, batch_size=4), expected())
    assert len(server.requests) - done - 1 == 5 - done, "what the first paid for is not asked again"


def test_threads_share_a_model(server: ApiServer, settings: Build, tmp_path: Path) -> None:
    found = settings(cache=tmp_path / "c")
    encoder = opened(server, found)
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda text: encoder.encode([text]), TEXTS))
    np.testing.assert_array_equal(np.concatenate(made), expected())
    assert found.meter.requests == 16 and found.meter.tokens == sum(
        len(text.split()) for texts in server.texts for text in texts
    )


# --- identity


@pytest.mark.parametrize("cached", [True, False])
def test_noise_does_not_make_another_model(server: ApiServer, settings: Build, tmp_path: Path, cached: bool) -> None:
    """The noise is about ten times that of hosted models."""
    server.noise = 0.005
    kept = {"cache": tmp_path / "c"} if cached else {}
    first = opened(server, settings(**kept))
    for _ in range(6):
        known = [] if cached else ["declared:x", first.fingerprint]
        assert opened(server, settings(**kept), known=known).fingerprint == first.fingerprint


def test_what_decides_vectors_is_in_the_fingerprint(server: ApiServer, settings: Build) -> None:
    found = {opened(server, settings()).fingerprint, opened(server, settings(), truncate_dim=7).fingerprint}
    server.weights = "words-2"
    found.add(opened(server, settings()).fingerprint)
    server.weights, server.model = "words-1", "words-1-large"
    found.add(opened(server, settings()).fingerprint)
    server.model = "words-1"
    assert len(found) == 4 and opened(server, settings()).fingerprint in found
    assert all(len(fingerprint) == 4 + 64 for fingerprint in found)


@pytest.mark.parametrize("through", ["cache", "known"])
def test_a_model_that_changed_behind_its_name_is_noticed(
    server: ApiServer, settings: Build, tmp_path: Path, through: str
) -> None:
    kept: dict[str, Any] = {"cache": tmp_path / "c"} if through == "cache" else {}
    before = opened(server, settings(**kept))
    before.encode(TEXTS)
    known = [before.fingerprint] if through == "known" else []
    server.weights = "words-2"
    with pytest.raises(ApiError, match=r"is not the model that it was.*cosine of -?0\.\d+") as caught:
        opened(server, settings(**kept), known=known)
    assert "--api.accept-change" in str(caught.value)
    after = opened(server, settings(**kept, accept_change=True), known=known)
    assert after.fingerprint != before.fingerprint
    np.testing.assert_array_equal(
        after.encode(TEXTS[:1]), vector_of(TEXTS[0], "words-2").astype(np.float32)[None], "nothing of the former model"
    )
    if kept:
        assert opened(server, settings(**kept)).fingerprint == after.fingerprint, "it is known now"
    server.weights = "words-1"
    assert opened(server, settings(**kept), known=known).fingerprint == before.fingerprint


def test_a_model_that_changes_while_it_is_asked_is_noticed(server: ApiServer, settings: Build, tmp_path: Path) -> None:
    encoder = opened(server, settings(cache=tmp_path / "c"))
    encoder.encode(TEXTS[:4])
    server.weights = "words-2"
    with pytest.raises(ApiError, match="agree with those of a moment ago by a cosine of"):
        encoder.encode(TEXTS)
    server.weights = "words-1"
    np.testing.assert_array_equal(opened(server, settings(cache=tmp_path / "c")).encode(TEXTS), expected())


# --- what people write


def test_names_of_folders_and_wrong_words(server: ApiServer, settings: Build) -> None:
    assert ModelName(server.name).short == "words-1"
    with pytest.raises(ConfigError, match="does not say at which server"):
        open_text_encoder("openai:text-embedding-3-small")
    with pytest.raises(ConfigError, match="max-length, for a model behind an API"):
        opened(server, settings(), max_length=8)
    with pytest.raises(ConfigError, match="openai:MODEL@URL"):
        open_text_encoder("openia:m@https://example.org")
    server.answers = [Answer(change=lambda good: {"data": [{"index": n, "embedding": [0.0]} for n in range(3)]})]
    with pytest.raises(ApiError, match="a vector of zeros"):
        opened(server, settings())


def test_the_key_is_in_nothing_that_is_written(
    server: ApiServer, settings: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.key = "sk-very-secret-1234"
    monkeypatch.setenv("OPENAI_API_KEY", server.key)
    encoder = opened(server, settings(cache=tmp_path / "c"))
    encoder.encode(TEXTS)
    assert server.key.encode() not in (tmp_path / "c").read_bytes()
    assert server.key not in repr(encoder) + encoder.fingerprint + repr(vars(encoder.network))
