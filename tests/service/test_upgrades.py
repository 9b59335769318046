"""Steps of an upgrade as jobs, of a gallery and of a table that an application owns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from limpet.data.text_set import TextSet
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.galleries import Gallery
from limpet.upgrade.vector_sources import TextItems, vectors_of_texts
from service.services import Served, served

TEXTS = {f"t{number}": f"item number {number} of the {colour} shelf" for number, colour in
         enumerate(["red", "blue", "green", "white"] * 15)}  # fmt: skip


def text_set() -> TextSet:
    return TextSet(StringArray.of(TEXTS.values()), None, (), StringArray.of(TEXTS))


def table_of_texts(address: str, table: str, model: Any) -> str:
    """Make a table of the texts, with vectors of 64 numbers by a model, and return its URL."""
    old = np.asarray(model.embed(text_set(), role="document").vectors)
    with psycopg.connect(address.partition("&")[0]) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(f"CREATE TABLE {table} (id text PRIMARY KEY, title text, embedding vector(64))")
        with connection.cursor() as cursor:
            rows = [(name, text, str(vector.tolist())) for (name, text), vector in zip(TEXTS.items(), old, strict=True)]
            cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s, %s)", rows)
    return f"{address}&table={table}&id=id&text=title&vector=embedding"


@pytest.fixture
def texts_url(tmp_path: Path, words: Any) -> str:
    """A gallery of sixty texts, embedded by the smaller model."""
    url = f"memory:{tmp_path / 'texts'}"
    made: EmbeddingSet = words[0][1](()).embed(text_set(), role="document")
    with Gallery.create(url, fingerprint=made.fingerprint, space=made.space) as gallery:
        gallery.add(made)
    return url


@pytest.fixture
def client(texts_url: str, words: Any) -> Iterator[Served]:
    with served(texts_url, models=words, texts=partial(TextItems, text_set())) as opened:
        yield opened.until_it_writes()


def top(client: Served, **more: Any) -> dict[str, Any]:
    return dict(client.post("/v1/search", json={"texts": [TEXTS["t7"]], "k": 3, **more}).json())


def test_a_whole_upgrade_of_a_gallery(texts_url: str, client: Served) -> None:
    epochs = [client.get("/v1/upgrade").headers["etag"]]
    assert client.take("start", model="words-256")["result"] == {"generation": "g2"}
    assert client.post("/v1/upgrade/backfill?dry_run=true").json()["plan"]["items"] == 60
    assert client.take("backfill", budget=20, batch=10)["result"]["stopped"] == "budget"
    assert client.get("/v1/upgrade").json()["lacking"] == {"old": 0, "new": 40}
    filled = client.take("backfill")
    assert (filled["status"], filled["result"]["lacking"], filled["progress"]["done"]) == ("done", 0, 40)
    epochs.append(client.get("/v1/upgrade").headers["etag"])
    assert top(client)["active"] == "g1"
    table = client.get("/v1/upgrade/thresholds").json()
    middle = table["rows"][25]
    [row] = client.get("/v1/upgrade/thresholds", params={"threshold": middle["old"]}).json()["rows"]
    assert row == middle and table["kept"] == "number" and table["queries"] == 60
    assert client.get("/v1/upgrade/thresholds", params={"threshold": 7}).json()["type"] == "limpet:DataError"
    assert client.take("swap", headers={"If-Match": epochs[1]})["status"] == "done"
    found = top(client)
    assert found["active"] == "g2" and [hits[0]["id"] for hits in found["hits"]] == ["t7"]
    assert {hit["generation"] for hit in found["hits"][0]} == {"g2"} and f'"{found["epoch"]}"' not in epochs
    assert client.take("rollback")["status"] == "done" and client.take("swap")["status"] == "done"
    assert client.take("verify")["result"]["passed"] is True
    assert client.take("finish")["status"] == "done" and client.take("gc")["status"] == "done"
    assert client.take("doctor", sample=5)["result"]["healthy"] is True
    state = client.get("/v1").json()
    assert [one["name"] for one in state["generations"]] == ["g2"] and state["phase"] == "steady"
    events = client.get("/v1/upgrade/journal", params={"last": 100}).json()
    jobs = {job["id"]: job["step"] for job in client.get("/v1/jobs").json()}
    assert {jobs[one["job"]] for one in events if "job" in one} >= {"start", "backfill", "swap", "rollback", "finish"}


def test_texts_that_were_embedded_before_a_swap_are_embedded_again(texts_url: str, words: Any) -> None:
    old, new = (opened(()) for _, opened in words)
    with Gallery.open(texts_url) as gallery:
        gallery.start(new.fingerprint, new.space)
        gallery.backfill(vectors_of_texts(new, TextItems(text_set())))

    class Swapping:
        """The old model; the swap comes while it embeds."""

        fingerprint = old.fingerprint

        def embed(self, texts: TextSet, **settings: Any) -> EmbeddingSet:
            with Gallery.open(texts_url) as gallery:
                gallery.swap()
            return old.embed(texts, **settings)

    with served(texts_url, models=(("old", lambda known: Swapping()), words[1])) as client:
        found = top(client)
        assert (found["active"], found["model"]) == ("g2", new.fingerprint)
        assert {hit["generation"] for hit in found["hits"][0]} == {"g2"}


def test_steps_are_refused_at_another_epoch_and_where_they_are_not_possible(client: Served) -> None:
    before = client.get("/v1/upgrade").headers["etag"]
    assert client.post("/v1/upgrade/swap", json={}).status_code == 409
    assert client.post("/v1/upgrade/swap?dry_run=true").json()["type"] == "limpet:UpgradeStateError"
    assert client.post("/v1/upgrade/leap", json={}).status_code == 422
    assert client.post("/v1/upgrade/start", json={"modell": "words-256"}).status_code == 422
    assert client.take("start", headers={"If-Match": before}, model="words-256")["status"] == "done"
    stale = client.post("/v1/upgrade/cancel", headers={"If-Match": before})
    assert stale.status_code == 412 and "epoch" in stale.json()["title"]
    assert client.post("/v1/upgrade/swap?dry_run=true").json()["type"] == "limpet:GalleryError"
    assert client.post("/v1/upgrade/swap?dry_run=true", json={"force": "a reason"}).json()["possible"] is True
    failed = client.take("swap")
    assert failed["status"] == "failed" and failed["problem"]["type"] == "limpet:GalleryError"
    assert client.take("swap", older_than=3.0)["problem"]["status"] == 422
    assert client.take("cancel")["status"] == "done"


def test_a_step_with_a_key_is_taken_once_and_by_the_next_service_too(texts_url: str, client: Served) -> None:
    key = {"Idempotency-Key": "begin"}
    first = client.take("start", headers=key, model="words-256")
    assert client.post("/v1/upgrade/start", headers=key, json={"model": "words-256"}).json() == first
    assert client.post("/v1/upgrade/start", headers=key, json={"model": "words-64"}).status_code == 422
    assert client.take("cancel")["status"] == "done"
    client.server.should_exit = True
    client.thread.join()
    with served(texts_url) as again:
        job = again.until_it_writes().post("/v1/upgrade/start", headers=key, json={"model": "words-256"}).json()
        assert (job["id"], job["status"]) == (first["id"], "done")
        assert again.get("/v1").json()["phase"] == "steady"


def test_a_backfill_is_stopped_and_an_interrupted_job_goes_on(texts_url: str, tmp_path: Path, words: Any) -> None:
    options: dict[str, Any] = {"models": words, "texts": partial(TextItems, text_set()), "folder": tmp_path / "run"}
    (tmp_path / "run").mkdir()
    with served(texts_url, **options) as client:
        client.until_it_writes().take("start", model="words-256")
        slow = client.post("/v1/upgrade/backfill", json={"batch": 1, "rate": 20}).json()
        while not client.get(f"/v1/jobs/{slow['id']}").json()["progress"]:
            pass
        assert client.delete(f"/v1/jobs/{slow['id']}").status_code == 200
        assert client.wait(slow)["status"] == "cancelled"
        lost = client.post("/v1/upgrade/backfill", json={"batch": 1, "rate": 20}).json()
        while client.get(f"/v1/jobs/{lost['id']}").json()["status"] != "running":
            pass
    path = tmp_path / "run" / "jobs" / f"{lost['id']}.json"
    left = json.loads(path.read_bytes())
    assert left["status"] == "interrupted"
    path.write_text(json.dumps({**left, "status": "running", "options": {}}))  # as a process that was killed leaves it
    with served(texts_url, **options) as client:
        assert client.until_it_writes().wait(lost)["result"]["lacking"] == 0


def test_a_start_of_a_table_that_was_interrupted_is_known_to_be_taken(
    postgres_server: Any, tmp_path: Path, words: Any
) -> None:
    model = words[0][1](())
    url = table_of_texts(postgres_server.url(), "started_texts", model)
    options = {"models": words, "folder": tmp_path}
    with served(url, **options) as client:
        job = client.take("start", model="words-256", old=model.fingerprint)
    path = tmp_path / "jobs" / f"{job['id']}.json"
    path.write_text(json.dumps({**job, "status": "running"}))  # as a process that was killed leaves it
    with served(url, **options) as client:
        again = client.wait(job)
        assert again["status"] == "done" and "before the service" in again["result"]["notes"][0]


def test_a_whole_upgrade_of_a_table(postgres_server: Any, words: Any) -> None:
    model = words[0][1](())
    url = table_of_texts(postgres_server.url(), "served_texts", model)
    with served(url, models=words) as client:
        plan = client.post("/v1/upgrade/start?dry_run=true", json={"model": "words-256", "old": model.fingerprint})
        assert plan.status_code == 200 and "swap" in plan.json()["steps"]
        assert client.take("start", model="words-256", old=model.fingerprint)["status"] == "done"
        first = client.get("/v1/upgrade")
        assert first.json()["phase"] == "started" and client.take("backfill")["result"]["lacking"] == 0
        assert client.take("index")["status"] == "done"
        assert client.take("swap", writes="new", headers={"If-Match": "*"})["status"] == "done"
        assert client.get("/v1/upgrade").headers["etag"] != first.headers["etag"]
        refused = client.post("/v1/search", json={"vectors": [[1.0]]})
        assert refused.status_code == 404 and refused.json()["type"] == "limpet:ServiceError"
        assert client.take("finish")["status"] == "done"
    with psycopg.connect(postgres_server.url().partition("&")[0]) as connection:
        [(width,)] = connection.execute("SELECT vector_dims(embedding) FROM served_texts LIMIT 1").fetchall()
    assert width == 256
