"""Whoever reads a log is told every half minute what goes on; terminals have bars instead."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from limpet.cli import console as screen
from limpet.cli import main
from limpet.cli.console import counting_progress, heartbeat, progress_bar, training_progress

Until = Callable[[str], str]


@pytest.fixture
def until(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Until:
    """Lines come every hundredth of a second, by a clock that stands; wait for one that begins so, and return it."""
    monkeypatch.setattr(screen, "EVERY", 0.01)
    monkeypatch.setattr(screen, "time", SimpleNamespace(monotonic=lambda: 1000.0))

    def wait(begins: str) -> str:
        last = time.monotonic() + 120
        said: list[str] = []
        while time.monotonic() < last:
            said += capsys.readouterr().err.splitlines()
            for line in said:
                if line.startswith(begins):
                    return line
            time.sleep(0.005)
        raise AssertionError(said)

    return wait


@contextmanager
def epochs() -> Iterator[Callable[[int], None]]:
    with training_progress("p2s") as tell:
        yield lambda done: tell(
            {"images": 640, "terms": {"task": 1.5}, "epoch": 0, "epochs": 2, "done": done, "total": 100}
        )


@contextmanager
def rows() -> Iterator[Callable[[int], None]]:
    with progress_bar("importing", 100) as tell:
        yield lambda done: tell({"done": done, "state": "store out of reach"})


@pytest.mark.parametrize(
    ("work", "first", "then"),
    [
        (lambda: counting_progress("query", 100), "query, 0 seconds", "query, 0 seconds: 25 of 100, "),
        (rows, "importing, 0 seconds", "importing, 0 seconds: 25 of 100, "),
        (epochs, "p2s, 0 seconds", "p2s, 0 seconds: 25 of 100, epoch 1/2  task 1.500"),
    ],
)  # fmt: skip
def test_every_bar_tells_a_log(
    work: Callable[[], AbstractContextManager[Callable[[int], None]]], first: str, then: str, until: Until
) -> None:
    with heartbeat("limpet train"):
        assert until("limpet train") == "limpet train, 0 seconds"
        with work() as tell:
            assert until(first) == first
            tell(25)
            until(then)
        until("limpet train, ")


def test_what_has_no_bar_is_told_too(until: Until, capsys: pytest.CaptureFixture[str]) -> None:
    with heartbeat("limpet evaluate"):
        with screen.console.status("evaluating"):
            assert until("evaluating") == "evaluating, 0 seconds"
        until("limpet evaluate, ")
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_what_is_short_says_nothing_and_a_terminal_is_told_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with heartbeat("limpet data"), screen.console.status("reading"):
        time.sleep(0.05)
    assert capsys.readouterr().err == "" and screen.EVERY == 30
    monkeypatch.setattr(screen, "EVERY", 0.01)
    monkeypatch.setattr(screen, "console", Console(stderr=True, force_terminal=True))
    with heartbeat("limpet data"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_commands_tell(tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    from limpet.galleries import Gallery

    np.savez(tmp_path / "old.npz", ids=np.arange(4).astype(str), vectors=np.eye(4, dtype=np.float32))
    add, told = Gallery.add, []

    def slow(self: Gallery, *sets: Any, **options: Any) -> int:
        told.append(until("importing, "))
        return add(self, *sets, **options)

    monkeypatch.setattr(Gallery, "add", slow)
    words = [
        "gallery",
        "create",
        f"memory:{tmp_path / 'g'}",
        "--embeddings",
        str(tmp_path / "old.npz"),
        "--name",
        "v1",
    ]
    assert main(words) == 0
    assert told == ["importing, 0 seconds"]
