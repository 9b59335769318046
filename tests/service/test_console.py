"""The console over HTTP: what its pages say and refuse, for people with and without keys."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.data.text_set import TextSet
from limpet.embeddings import StringArray
from limpet.galleries import Gallery
from limpet.service.console import HEADERS
from limpet.upgrade.vector_sources import ImageItems, TextItems
from service.services import Served, served
from service.test_keys import line

SCRIPT = '"><script>alert(1)</script>'
TEXTS = {f"{SCRIPT} {number}": f"{SCRIPT} number {number}" for number in range(12)}
PAGES = ("", "upgrade", "compare", "doctor", "journal", "jobs", "keys")


@pytest.fixture
def client(tmp_path: Path, words: Any) -> Iterator[Served]:
    """A service of a gallery whose folder, model, ids, labels and texts have script in them."""
    url, texts = (
        f"memory:{tmp_path / '<script>alert(1)'}",
        TextSet(StringArray.of(TEXTS.values()), None, (), StringArray.of(TEXTS)),
    )
    made = words[0][1](()).embed(texts, role="document")
    with Gallery.create(
        url, fingerprint=made.fingerprint, space=made.space, columns={"label": "text"}, note=SCRIPT
    ) as it:
        it.add(made, metadata={"label": [SCRIPT] * len(TEXTS)})
    with served(url, models=words, texts=partial(TextItems, texts)) as opened:
        opened.follow_redirects = True
        yield opened.until_it_writes()


def hidden(page: httpx.Response) -> dict[str, str]:
    """Return the hidden fields of the last form of a page."""
    form = page.text[page.text.rindex("<form") :]
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))


def text(page: httpx.Response) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", " ", page.text)).split())


def test_pages_show_script_as_text_and_load_nothing_from_elsewhere(client: Served) -> None:
    item = next(iter(TEXTS))
    assert client.take("start", model="words-256")["status"] == "done"
    assert client.take("doctor", model="words-64", sample=5)["status"] == "done"
    paths = [*PAGES, f"compare?q={SCRIPT}", f"upgrade/swap?force={SCRIPT}", f"jobs/{SCRIPT}"]
    pages = {path: client.get(f"/console/{path}") for path in paths}
    pages["item"] = client.get("/console/compare", params={"item": item})
    for path, page in pages.items():
        assert page.status_code == (404 if path.startswith("jobs/") else 200), page.text
        assert page.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
        bare = re.sub(r'<script src="/console/static/[\w.-]+" defer></script>', "", page.text)
        assert "<script" not in bare and "style=" not in bare and " on" + "click" not in bare
        assert set(re.findall(r'(?:src|href|action)="(?!/|#)[^"]*"', page.text)) == set(), path
    assert text(pages["item"]).count(TEXTS[item]) >= 2 and f"label {SCRIPT}" in text(pages["item"])
    assert SCRIPT in text(pages[""]) and "12 of 12 items could be found" in text(pages["item"])


def test_a_step_is_taken_after_its_dry_run_and_with_its_name_typed(client: Served) -> None:
    assert client.get("/").url.path == client.get("/console").url.path == "/console/"
    check = client.get("/console/upgrade/start", params={"model": "words-256"})
    posted = {**hidden(check), "model": "words-256"}
    assert "Nothing was changed." in text(client.get("/console/upgrade/start", params={"model": "unknown"}))
    job = client.post("/console/upgrade/start", data=posted)
    assert job.url.path.startswith("/console/jobs/") and "event: over" in client.get(f"{job.url.path}/events").text
    assert "g2" in text(client.get(job.url.path))
    assert client.post("/console/upgrade/start", data=posted).url == job.url  # once, however often it is posted
    assert "0 items have vectors of g1 and of g2" in text(client.get("/console/thresholds?threshold="))
    plan = client.get("/console/upgrade/backfill", params={"budget": ""})
    assert "items to embed 12 of 12" in text(plan)
    slow = client.post("/v1/upgrade/backfill", json={"batch": 1, "rate": 2}).json()
    while not client.get(f"/v1/jobs/{slow['id']}").json()["progress"]:
        pass
    page = client.get(f"/console/jobs/{slow['id']}")
    client.post(f"{page.url.path}/cancel", data=hidden(page))
    assert client.wait(slow)["status"] == "cancelled"
    assert client.get("/console/jobs/0000/events").status_code == 404
    stale = hidden(client.get("/console/upgrade/cancel"))
    assert "budget: Input should be a valid integer" in text(client.get("/console/upgrade/backfill?budget=many"))
    untyped = client.post("/console/upgrade/cancel", data={**stale, "typed": "swap"})
    assert untyped.status_code == 422 and "'swap' was typed." in text(untyped)
    assert client.post("/console/upgrade/swap", data={**stale, "once": "x", "force": "a reason"}).status_code == 422
    wrong = client.post("/console/upgrade/cancel", data={**stale, "epoch": "0123456789abcdef", "typed": "cancel"})
    assert wrong.status_code == 412 and "The upgrade is at the epoch" in text(wrong)
    done = client.post("/console/upgrade/cancel", data={**stale, "typed": "cancel"})
    client.get(f"{done.url.path}/events")
    assert client.get("/v1").json()["phase"] == "steady"


def test_posts_of_other_sites_are_refused(client: Served) -> None:
    form = hidden(client.get("/console/upgrade/start?model=words-256"))
    for headers, data in (
        ({}, {**form, "token": "0" * 64}), ({"Sec-Fetch-Site": "cross-site"}, form), ({}, {"model": "words-256"}),
        ({}, {**form, "token": "é"}),
    ):  # fmt: skip
        refused = client.post("/console/upgrade/start", data={"model": "words-256", **data}, headers=headers)
        assert refused.status_code == 403 and "not one of this session" in text(refused)
    assert client.get("/v1/jobs").json() == []


def test_a_key_signs_in_and_its_right_counts(url: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text(line("app", "read", "r3ad") + line("ops", "upgrade", "0ps"))
    with served(url, keys=keys) as client:
        away = client.get("/console/journal")
        assert (away.status_code, away.headers["location"]) == (303, "/console/login?next=%2Fconsole%2Fjournal")
        login = client.get(away.headers["location"])
        assert client.post("/console/login", data={**hidden(login), "key": "wrong"}).status_code == 401
        entered = client.post("/console/login", data={**hidden(login), "key": "r3ad"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/console/journal")
        cookie = entered.headers["set-cookie"]
        assert "httponly; samesite=strict" in cookie and "path=/console" in cookie and "r3ad" not in cookie
        for page in PAGES:
            assert client.get(f"/console/{page}").status_code == 200
        assert "app may read" in text(client.get("/console/keys")) and "0ps" not in client.get("/console/keys").text
        check = client.get("/console/upgrade/verify")
        assert "takes one that may upgrade" in text(check) and "Verify now" not in text(check)
        assert client.post("/console/upgrade/verify", data=hidden(check)).status_code == 403
        assert client.get("/v1").status_code == 401  # a session is none of the API
        outside = client.post("/console/login", data={**hidden(login), "key": "0ps", "next": "//evil.example"})
        assert outside.status_code == 403  # the form was made before this session
        out = client.post("/console/logout", data={"token": hidden(client.get("/console/keys"))["token"]})
        assert out.status_code == 303 and client.get("/console/").status_code == 303
        login = client.get("/console/login")
        outside = client.post("/console/login", data={**hidden(login), "key": "0ps", "next": "//evil.example"})
        assert outside.headers["location"] == "/console/"
        keys.write_text(line("app", "read", "r3ad"))
        client.cookies.set("limpet", "forged", path="/console")
        assert client.get("/console/").status_code == 303


def test_pictures_of_items_are_shown_beside_hits(url: str) -> None:
    pixels = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
    images = ImageSet(ArrayImages(pixels), np.zeros(2, np.int64), ("a",), StringArray.of(["0", "1"]))
    with served(url, images=partial(ImageItems, images)) as client:
        client.until_it_writes()
        page = client.get("/console/compare?item=1").text
        assert 'src="/console/picture?item=1" alt="1"' in page
        shown = Image.open(io.BytesIO(client.get("/console/picture?item=1").content))
        assert (np.moveaxis(np.asarray(shown), -1, 0) == pixels[1]).all()
        assert client.get("/console/picture?item=39").status_code == 404
