"""Clients find and write what `Gallery` does, raise its errors, and send again what could not be answered."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from limpet import AsyncClient, Client, EmbeddingSet, Gallery
from limpet.errors import (
    ConfigError,
    DataError,
    ServiceError,
    SpaceMismatchError,
    UnknownModelError,
    UpgradeStateError,
)
from service.services import Served, drawn, served


@pytest.fixture
def limpet_client(client: Served) -> Any:
    with Client(str(client.base_url)) as opened:
        yield opened


def test_a_search_returns_the_reply_of_the_gallery(url: str, limpet_client: Client) -> None:
    queries = drawn(3, seed=1)
    with Gallery.open(url) as gallery:
        expected = gallery.search(queries, 4, where="price<30")
    assert limpet_client.search(queries, 4, where="price<30") == expected
    assert limpet_client.search(EmbeddingSet(queries, model="old"), 4, where="price<30") == expected
    assert limpet_client.search(queries[0], 1).hits[0][0].id == expected.hits[0][0].id


def test_writes_and_steps(url: str, limpet_client: Client) -> None:
    new = EmbeddingSet(drawn(2, seed=9), ["a", "b"], model="old")
    assert limpet_client.upsert(new, metadata={"price": [7, None]}) == 2
    [a, b] = limpet_client.fetch(["a", "b", "c"], vectors=True)
    assert (a["metadata"], b["metadata"]) == ({"price": 7}, {})
    np.testing.assert_allclose(b["vectors"]["g1"], new.vectors[1], rtol=1e-6)
    assert limpet_client.delete(["a", "c"]) == 1
    assert limpet_client.take_step("gc")["status"] == "done"
    started = limpet_client.take_step("start", model="declared:new", dim=4, epoch=limpet_client.status()["epoch"])
    assert started["result"] == {"generation": "g2"} and limpet_client.status()["phase"] == "started"
    assert limpet_client.take_step("cancel", wait=False)["status"] in ("queued", "running", "done")


def test_errors_are_those_of_the_gallery(limpet_client: Client) -> None:
    with pytest.raises(UnknownModelError, match="declared:newer") as unknown:
        limpet_client.search(drawn(1), fingerprint="declared:newer")
    assert "upgrade start" in unknown.value.to_do
    one = EmbeddingSet(drawn(1), ["a"], model="old")
    for error, call in (
        (SpaceMismatchError, partial(limpet_client.search, drawn(1, dim=7))),
        (ConfigError, partial(limpet_client.search, drawn(1), where="prise<3")),
        (DataError, partial(limpet_client.upsert, one, metadata={"price": ["dear"]})),
        (UpgradeStateError, partial(limpet_client.take_step, "swap")),
        (ServiceError, partial(limpet_client.search, drawn(1), 5000)),
        (ServiceError, partial(limpet_client.search, ["a text"])),
        (ConfigError, limpet_client.upsert),
    ):
        with pytest.raises(error):
            call()
    with pytest.raises(ConfigError, match="http://HOST"):
        Client("live")
    with pytest.raises(ServiceError, match="does not answer"):
        Client("http://127.0.0.1:9", retries=1).status()


def test_an_async_client_does_the_same(url: str, client: Served) -> None:
    queries = drawn(2, seed=3)

    async def asked() -> Any:
        async with AsyncClient(str(client.base_url)) as opened:
            replies = await asyncio.gather(*(opened.search(queries, 3) for _ in range(5)))
            with pytest.raises(SpaceMismatchError):
                await opened.search(drawn(1, dim=3))
            return replies

    with Gallery.open(url) as gallery:
        assert asyncio.run(asked()) == [gallery.search(queries, 3)] * 5


def test_a_write_is_sent_again_until_the_service_writes_and_is_done_once(url: str) -> None:
    one = EmbeddingSet(drawn(1), ["a"], model="old")
    with served(url) as first, served(url) as second:
        writer, reader = sorted((first, second), key=lambda served: served.get("/v1").json()["writer"], reverse=True)
        with Client(str(reader.base_url), retries=50) as client, ThreadPoolExecutor(1) as pool:
            written = pool.submit(client.upsert, one, key="mine")
            while not reader.get("/v1").json()["writer"].startswith("This service only reads"):
                pass
            writer.server.should_exit = True
            writer.thread.join()
            assert written.result() == 1 and client.upsert(one, key="mine") == 1
    with Gallery.open(url) as gallery:
        assert [entry.event["kind"] for entry in gallery.store.journal(after=2)] == ["upsert"]
