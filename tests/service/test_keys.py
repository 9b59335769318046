"""Keys: who may do what, what is kept of them, and how often they may ask."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet.errors import ConfigError, ServiceError
from limpet.galleries import Gallery
from limpet.service.keys import AccessControl, digest_of, read_keys
from limpet.service.settings import RequestLimits, ServiceSettings
from service.services import Served, drawn, served


def line(name: str, right: str, key: str) -> str:
    return f"{name} {right} {hashlib.sha256(key.encode()).hexdigest()}\n"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def guarded(url: str, tmp_path: Path) -> Iterator[Served]:
    keys = tmp_path / "keys.txt"
    keys.write_text(line("app", "read", "r3ad") + line("loader", "write", "wr1te") + line("ops", "upgrade", "0ps"))
    with served(url, keys=keys) as client:
        client.headers.update(bearer("0ps"))
        yield client.until_it_writes()


def test_each_right_includes_those_before_it(guarded: Served) -> None:
    asked = {
        "read": lambda key: guarded.get("/v1/upgrade", headers=bearer(key)),
        "write": lambda key: guarded.delete("/v1/items", params={"id": "nobody"}, headers=bearer(key)),
        "upgrade": lambda key: guarded.post("/v1/upgrade/gc", json={}, headers=bearer(key)),
    }
    codes = {key: [ask(key).status_code for ask in asked.values()] for key in ("r3ad", "wr1te", "0ps", "n0ne")}
    assert codes == {
        "r3ad": [200, 403, 403], "wr1te": [200, 200, 403], "0ps": [200, 200, 202], "n0ne": [401] * 3,
    }  # fmt: skip
    assert guarded.get("/v1", headers=bearer("n0ne")).headers["www-authenticate"] == "Bearer"
    del guarded.headers["Authorization"]
    assert guarded.get("/v1").json()["title"] == "No key was given."


def test_the_journal_names_who(guarded: Served, url: str) -> None:
    body = {"ids": ["a"], "vectors": {"g1": drawn(1).tolist()}}
    assert guarded.post("/v1/items", json=body, headers=bearer("wr1te")).status_code == 200
    assert guarded.take("gc")["who"] == "ops"
    with Gallery.open(url) as gallery:
        upsert, gc = [entry.event for entry in gallery.store.journal(after=2)][:2]
    assert upsert["requests"] == [{"who": "loader", "items": 1}] and gc["who"] == "ops"


def test_a_key_is_replaced_while_the_service_runs(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(line("app", "read", "first"))
    gate = AccessControl(path)
    assert gate.enter(digest_of("first"), "read").name == "app"
    path.write_text(line("app", "read", "first") + line("app", "read", "second"))
    os.utime(path, ns=(1, 1))
    gate._looked = 0.0
    assert gate.enter(digest_of("second"), "read").name == gate.enter(digest_of("first"), "read").name == "app"
    path.write_text(line("app", "read", "second"))
    gate._looked = 0.0
    with pytest.raises(ServiceError) as refused:
        gate.enter(digest_of("first"), "read")
    assert refused.value.status == 401


@pytest.mark.parametrize("text", ["", "app read", "app rule " + "0" * 64, "app read " + "0" * 63, "app read 0 " * 3])
def test_a_line_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        read_keys(text, "keys.txt")
    with pytest.raises(ConfigError, match="at most two"):
        read_keys("".join(line("app", "read", str(number)) for number in range(3)), "keys.txt")


def test_too_many_requests_of_one_name_are_refused(url: str) -> None:
    gate = AccessControl(line("app", "read", "a") + line("other", "read", "b"), rate=3)
    for _ in range(3):
        gate.enter(digest_of("a"), "read")
    with pytest.raises(ServiceError) as refused:
        gate.enter(digest_of("a"), "read")
    assert refused.value.status == 429 and 0 < float(refused.value.retry_after or 0) <= 0.34
    assert gate.enter(digest_of("b"), "read").name == "other"
    with served(url, limits=RequestLimits(rate=2)) as client:
        answers = [client.get("/v1") for _ in range(8)]
    assert 429 in {one.status_code for one in answers}
    assert all(int(one.headers["retry-after"]) >= 1 for one in answers if one.status_code == 429)


def test_a_service_that_others_reach_needs_keys(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without keys"):
        ServiceSettings(url, tmp_path, host="0.0.0.0")
    assert ServiceSettings(url, tmp_path, host="0.0.0.0", keys=line("app", "read", "a")).local is False
