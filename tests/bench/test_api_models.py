"""A suite whose frozen models answer behind an API: they are asked once, and within what may be spent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from api_server import ApiServer, serving
from limpet.data.text_set import TextData
from limpet.data.texts import TEXT_DATASETS, Dataset
from limpet.models.api.probe import PROBES
from limpet.models.api.settings import ApiSettings
from limpet_bench.cache import TaskCache
from limpet_bench.cli import main
from limpet_bench.executor import run_tasks
from limpet_bench.tasks import Task
from tiny_text_model import some_texts

from .writing import write_suite

SUITE = {
    "title": "Behind an API", "track": "features", "seeds": [0, 1],
    "recipe": {"epochs": 1, "batch_size": 16}, "methods": {"independent": {}, "p2s": {}}, "gate_metric": "map",
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A server of every model, and suite.py with two of them over 60 texts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of_the_user"))
    monkeypatch.chdir(tmp_path)

    def thirds(folder: Path) -> TextData:
        train, query, gallery = (some_texts(20, seed) for seed in (1, 2, 3))
        return TextData("own", train, query, gallery, "a third each")

    monkeypatch.setitem(TEXT_DATASETS, "own", Dataset(thirds, "own texts", "."))
    with serving() as old, serving(model="words-2") as new:
        frozen = {"old": old.name, "new": new.name}
        write_suite(tmp_path / "suite.py", {**SUITE, "data": {"own": {}}, "frozen": frozen})
        old.others = new  # type: ignore[attr-defined]
        monkeypatch.setenv("LIMPET_API_HOSTS", "127.0.0.1")
        monkeypatch.setenv("LIMPET_DATA", ".")
        yield old


def texts_of(*servers: ApiServer) -> list[str]:
    return [text for server in servers for asked in server.requests for text in asked["input"]]


def test_models_of_a_suite_are_asked_once(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    new: ApiServer = server.others  # type: ignore[attr-defined]
    run = ["run", "suite.py", "--report", "none", "--processes", "1", "--json"]
    assert main([*run, "--api.max-tokens", "40"]) == 2
    said = capsys.readouterr().err
    assert "--api.max-tokens" in said and "Traceback" not in said
    assert main([*run, "--cache", "one", "--api.price", "1000"]) == 0
    printed = capsys.readouterr()
    board = json.loads(printed.out)
    assert {row["label"] for row in board["rows"]} == {"independent", "p2s"} and "tokens" in printed.err
    asked = texts_of(server, new)
    assert len(asked) >= 120
    assert main([*run, "--cache", "two", "--out", "again"]) == 0  # other steps, the same cache of the API
    again = texts_of(server, new)[len(asked) :]  # whether it is still the same model
    assert set(PROBES) <= set(again) and len(again) <= 4 * len(PROBES)


def test_limits_hold_for_all_steps_together(server: ApiServer, tmp_path: Path) -> None:
    """Steps that ask an API are run here, however many processes there are for the others."""
    settings = ApiSettings(cache=tmp_path / "api.sqlite")
    data = {"name": "own", "options": {}}
    tasks = [
        Task("texts", {"data": data, "model": one.name}, asks_api=True)
        for one in (server, server.others)  # type: ignore[attr-defined]
    ]
    cache = TaskCache(tmp_path / "steps")
    run_tasks(tasks, cache, root=tmp_path, processes=2, api=settings)
    assert [cache.failure(task) for task in tasks] == [None, None] and settings.meter.texts >= 120
