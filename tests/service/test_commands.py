"""`limpet upgrade` over HTTP: the steps of a service's gallery and of its table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limpet.cli import main
from limpet.galleries import Gallery
from service.services import Served, served
from service.test_keys import line
from service.test_upgrades import client, texts_url  # noqa: F401 - fixtures

Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command of ``limpet upgrade`` with --json, and return its exit code, document and errors."""

    def command(*words: object) -> tuple[int, Any, str]:
        code = main(["upgrade", *map(str, words), "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out.strip() else None, said.err

    return command


def test_a_whole_upgrade_over_http(texts_url: str, client: Served, run: Run) -> None:  # noqa: F811
    url = str(client.base_url)
    code, status, _ = run("status", url)
    assert (code, status["phase"], status["items"]) == (0, "steady", 60)
    assert status["next"][0]["command"] == f"limpet upgrade start {url} --model MODEL"
    assert run("start", url, "--model", "words-256")[0] == 0
    code, filled, _ = run("backfill", url, "--budget", "20", "--batch", "10")
    assert (code, filled["done"]["stopped"], filled["lacking"]["new"]) == (0, "budget", 40)
    assert run("backfill", url)[1]["done"]["written"] == 40
    assert run("index", url)[0] == 0
    assert run("swap", url)[1]["serving"] == "new"
    assert run("verify", url)[1]["passed"]
    assert run("rollback", url)[1]["serving"] == "old"
    assert run("swap", url)[1]["phase"] == "swapped"
    assert run("finish", url)[0] == 0
    code, told, _ = run("log", url, "--last", "3")
    assert [event["kind"] for event in told["log"]][-1] == "finish" and len(told["log"]) == 3
    with Gallery.open(texts_url) as gallery:
        assert gallery.state.phase == "steady" and gallery.state.active == "g2"


def test_what_a_service_does_not_do_is_refused(client: Served, run: Run) -> None:  # noqa: F811
    url = str(client.base_url)
    for words, told in (
        (("plan", url, "--model", "words-256"), "does not work over HTTP"),
        (("backfill", url, "--of", "old"), "--of with a service"),
        (("start", url, "--model", "words-256", "--dry-run"), "--dry-run with a service"),
        (("start", url, "--model", "st:nothing"), "has not loaded the model"),
        (("swap", url), "swap"),
        (("status", "http://127.0.0.1:9"), "does not answer"),
    ):
        code, _, error = run(*words)
        assert code == 2 and told in error, words


def test_the_key_comes_from_the_environment(
    texts_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    keys = tmp_path / "keys"
    keys.write_text(line("ops", "upgrade", "s3cret"))
    with served(texts_url, keys=keys) as service:
        url = str(service.base_url)
        monkeypatch.delenv("LIMPET_KEY", raising=False)
        code, _, error = run("status", url)
        assert code == 2 and "key" in error
        monkeypatch.setenv("LIMPET_KEY", "s3cret")
        assert run("status", url)[0] == 0
