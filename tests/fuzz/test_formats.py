"""A short version of benchmarks/fuzz_formats.py, and the harness itself: it counts what it is there to find."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz import trials
from fuzz.formats import FORMATS, Format
from limpet.errors import DataError

TRIALS = {"release": 40, "adapter": 40, "parquet into a gallery": 60, "settings": 60, "suite": 60}


@pytest.mark.parametrize("name", FORMATS)
def test_altered_files_are_refused_or_read(name: str) -> None:
    counts = trials.run(name, TRIALS.get(name, 200), seed=1)
    assert counts.sound, counts.faults
    assert counts.mutations == TRIALS.get(name, 200) == counts.refused + counts.accepted
    assert counts.refused > counts.mutations // 3


def refuse() -> None:
    raise DataError("no")


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise KeyError("x")


def take() -> None:
    with mmap.mmap(-1, 2 * trials.MEMORY_BOUND) as memory:
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place] = 1


def hang() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("does", "outcome"),
    [(refuse, "refused"), (end, "crashes"), (fail, "tracebacks"), (take, "over_memory"), (hang, "hangs")],
)
def test_what_readers_do_wrong_is_counted(does: Callable[[], None], outcome: str, monkeypatch) -> None:
    def read(folder: Path) -> None:
        if (folder / "a").read_bytes() != b"as it was":
            does()

    planted = Format(lambda folder: (folder / "a").write_bytes(b"as it was"), read)
    monkeypatch.setattr(trials, "FORMATS", {"planted": planted})
    monkeypatch.setattr(trials, "CPU_SECONDS", 0.3)
    monkeypatch.setattr(trials, "MEMORY_BOUND", 2**24)
    counts = trials.run("planted", 3, seed=0)
    assert counts.mutations == 3 and getattr(counts, outcome) >= 1
    assert counts.sound == (outcome == "refused")
    assert all(fault.startswith(outcome) for fault in counts.faults)
