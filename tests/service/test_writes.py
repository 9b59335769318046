"""Writes over HTTP are durable, gathered into few commits, and done once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.errors import DataError, StoreError
from limpet.galleries import Gallery
from limpet.service.writer import GalleryWriter, Upsertion, Written
from service.services import Served, drawn, served

KEY = {"Idempotency-Key": "order-17"}


def items(*ids: str, seed: int = 5, **more: object) -> dict[str, object]:
    return {"ids": list(ids), "vectors": {"g1": drawn(len(ids), seed=seed).tolist()}, **more}


def test_an_upsert_and_a_delete_are_there_when_they_are_answered(url: str, client: Served) -> None:
    answer = client.post("/v1/items", json=items("new", "7", metadata={"price": [3, None]})).json()
    with Gallery.open(url) as gallery:
        assert answer == {"items": 2, "commit": gallery.store.pointer().sequence}
        assert gallery.store.fetch(["7", "new"]).metadata == [{}, {"price": 3}] and len(gallery) == 41
        np.testing.assert_allclose(gallery.store.vectors("g1", ["new"])[1], drawn(2, seed=5)[:1], rtol=1e-6)
        assert client.delete("/v1/items", params={"id": ["7", "nobody"]}).json()["items"] == 1
        assert len(gallery) == 40 and not gallery.store.fetch(["7"]).ids


def test_requests_of_a_moment_share_commits_and_each_hears_of_its_own(url: str, client: Served) -> None:
    def write(number: int) -> int:
        price = "dear" if number == 13 else number
        body = items(f"n{number}", seed=number, metadata={"price": [price]})
        return client.post("/v1/items", json=body).status_code

    with ThreadPoolExecutor(32) as pool:
        codes = list(pool.map(write, range(64)))
    assert codes == [422 if number == 13 else 200 for number in range(64)]
    with Gallery.open(url) as gallery:
        assert len(gallery) == 40 + 63
        assert gallery.store.pointer().sequence < 2 + 40  # fewer than the requests


def test_requests_of_one_commit_keep_their_own_vectors_and_values(url: str) -> None:
    def of(*ids: str, vectors: int, **metadata: list[int]) -> Upsertion:
        return Upsertion(list(ids), {"g1": drawn(vectors, seed=len(ids[0]))}, metadata or None)

    async def sent(gallery: Gallery, *asked: Upsertion) -> list[bool]:
        writer = GalleryWriter(gallery, room=100)
        await writer.settled.wait()
        answers = await asyncio.gather(*(writer.write(one, b"") for one in asked), return_exceptions=True)
        await writer.close()
        return [isinstance(one, DataError) for one in answers]

    good = of("dd", vectors=1, price=[4]), of("eee", vectors=1, price=[5])
    with Gallery.open(url) as gallery:
        vectors = asyncio.run(
            sent(gallery, of("a", vectors=2, price=[1]), of("b", "c", vectors=1, price=[2, 3]), *good)
        )
        values = asyncio.run(sent(gallery, of("a", vectors=1, price=[6, 7]), of("b", vectors=1, price=[]), *good))
        assert vectors == values == [True, True, False, False]
        written = gallery.store.fetch(["a", "b", "c", "dd", "eee"])
        assert (written.ids, written.metadata) == (["dd", "eee"], [{"price": 4}, {"price": 5}])
        assert len(set(written.versions)) == 1, "one commit"
        expected = np.concatenate([drawn(1, seed=2), drawn(1, seed=3)])
        np.testing.assert_allclose(gallery.store.vectors("g1", ["dd", "eee"])[1], expected, rtol=1e-6)


def test_a_request_that_failed_may_be_sent_again_with_its_key(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sent_twice(gallery: Gallery) -> int:
        writer, delete = GalleryWriter(gallery, room=100), gallery.delete
        await writer.settled.wait()
        monkeypatch.setattr(gallery, "delete", no_room)
        with pytest.raises(OSError, match="no room"):
            await writer.write(["7"], b"body", key="order-17")
        monkeypatch.setattr(gallery, "delete", delete)
        again = await writer.write(["7"], b"body", key="order-17")
        await writer.close()
        return again.items

    def no_room(*given: object, **options: object) -> int:
        raise OSError("no room")

    with Gallery.open(url) as gallery:
        assert asyncio.run(sent_twice(gallery)) == 1 and not gallery.store.fetch(["7"]).ids


@pytest.mark.parametrize("reached", [True, False], ids=["found at once", "found when it is repeated"])
def test_what_was_committed_although_the_answer_was_lost_is_done_once(
    url: str, reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sent(gallery: Gallery) -> list[object]:
        writer, upsert = GalleryWriter(gallery, room=100), gallery.upsert_batches
        await writer.settled.wait()

        def lost(*given: Any, **options: Any) -> None:
            upsert(*given, **options)
            raise StoreError("the reply was lost")

        def gone(*given: object, **options: object) -> None:
            raise StoreError("the place is gone")

        with monkeypatch.context() as broken:
            broken.setattr(gallery, "upsert_batches", lost)
            if not reached:
                broken.setattr(gallery.store, "journal", gone)
            first = await asyncio.gather(*map(ask, [writer] * 2, "ab"), return_exceptions=True)
        assert [isinstance(one, StoreError) for one in first] == [not reached] * 2
        await ask(writer, "c")
        again = [await ask(writer, name) for name in "ab"]
        await writer.close()
        return again

    async def ask(writer: GalleryWriter, name: str) -> Written:
        return await writer.write(Upsertion([name], {"g1": drawn(1)}, None), b"body", key=name)

    with Gallery.open(url) as gallery:
        answers = asyncio.run(sent(gallery))
        listed = {
            entry.sequence: [one["key"] for one in entry.event["requests"]]
            for entry in gallery.store.journal()
            if "requests" in entry.event
        }
    assert answers == [Written(1, 3)] * 2 and listed == {3: ["a", "b"], 4: ["c"]}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_request_with_a_key_is_done_once(url: str, tmp_path: Path, restarted: bool) -> None:
    body = items("a", "b")
    with served(url) as client:
        first = client.until_it_writes().post("/v1/items", json=body, headers=KEY)
        gone = client.delete("/v1/items", params={"id": "a"}, headers={"Idempotency-Key": "delete"})
        assert (first.status_code, gone.json()["items"]) == (200, 1)
        if not restarted:
            _repeated(client, body, first.json(), gone.json())
    if restarted:
        with served(url) as client:
            _repeated(client.until_it_writes(), body, first.json(), gone.json())
    with Gallery.open(url) as gallery:
        assert gallery.store.pointer().sequence == 4 and not gallery.store.fetch(["a"]).ids


def _repeated(client: Served, body: dict[str, object], first: object, gone: object) -> None:
    assert client.post("/v1/items", json=body, headers=KEY).json() == first
    assert client.delete("/v1/items", params={"id": "a"}, headers={"Idempotency-Key": "delete"}).json() == gone
    other = client.post("/v1/items", json=items("c"), headers=KEY)
    assert other.status_code == 422 and "another request" in other.json()["title"]


def test_a_request_that_failed_may_be_repeated_with_its_key(client: Served) -> None:
    wrong = items("a", metadata={"price": ["dear"]})
    assert client.post("/v1/items", json=wrong, headers=KEY).status_code == 422
    assert client.post("/v1/items", json=items("a"), headers=KEY).status_code == 200


def test_a_second_service_reads_and_says_so_until_the_first_ends(url: str) -> None:
    with served(url) as first, served(url) as second:
        services = {one.get("/v1").json()["writer"]: one for one in (first, second)}
        [(notice, reader), (here, writer)] = sorted(services.items())
        assert "only reads" in notice and here == "here"
        refused = reader.post("/v1/items", json=items("a"))
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
        assert reader.take("gc")["problem"]["status"] == 503
        assert reader.post("/v1/search", json={"vectors": drawn(1).tolist()}).status_code == 200
        assert writer.post("/v1/items", json=items("a")).status_code == 200
        writer.server.should_exit = True
        writer.thread.join()
        assert reader.until_it_writes().post("/v1/items", json=items("b")).status_code == 200


def test_wrong_writes_change_nothing(url: str, client: Served) -> None:
    wrong = {
        "ids": [], "vectors": {}, "one": items("a", "a"), "two": {**items("a"), "ids": ["a", "b"]},
        "model": {"ids": ["a"], "vectors": {"declared:newer": [[1.0] * 8]}}, "both": items("a", texts=["a"]),
        "texts": {"ids": ["a"], "texts": ["a"]}, "column": items("a", metadata={"colour": ["red"]}),
    }  # fmt: skip
    codes = {name: client.post("/v1/items", json=body).status_code for name, body in wrong.items()}
    assert codes == {name: 409 if name in ("model", "texts") else 422 for name in wrong}
    many = {"ids": [str(n) for n in range(1001)], "vectors": {"g1": drawn(1001).tolist()}}
    assert client.post("/v1/items", json=many).status_code == 413
    with Gallery.open(url) as gallery:
        assert gallery.store.pointer().sequence == 2
