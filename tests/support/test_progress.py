"""Bars by Rich and by tqdm, on a real terminal's width, and functions in their place."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from tqdm.auto import tqdm

from limpet.embeddings import EmbeddingSet
from limpet.embeddings.storage import save
from limpet.errors import ConfigError, MissingExtraError
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from limpet.support.progress import Progress, Told, listener, showing, shown

ROWS = 60


@showing("reading", unit="rows")
def read(rows: int, *, progress: Progress[Told] = None) -> int:
    for row in range(rows):
        listener(progress)({"step": "first pass", "done": row + 1, "total": rows})
    return rows


def test_a_function_is_called_with_every_event_and_none_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[Told] = []
    assert read(3, progress=told.append) == read(3) == 3
    assert [event["done"] for event in told] == [1, 2, 3]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("bar", ["rich", "tqdm"])
def test_a_bar_ends_with_what_was_told(bar: Progress[Told], capsys: pytest.CaptureFixture[str]) -> None:
    assert read(40, progress=bar) == 40
    out, err = capsys.readouterr()
    last = re.split(r"[\r\n]+", err.strip())[-1]
    assert not out and re.search(r"reading\b.* 40/40 ", last) and "first pass" in last, last


@pytest.mark.parametrize("bar", ["rich", "tqdm"])
def test_training_that_begins_again_begins_the_bar_again(
    bar: Progress[dict[str, object]], capsys: pytest.CaptureFixture[str]
) -> None:
    with shown(bar, "training", unit="steps") as told:
        for steps in (5, 3):
            for step in range(steps):
                listener(told)({"done": step + 1, "total": steps, "epoch": 0, "epochs": 1, "images": 8,
                                "terms": {"task": np.float32(0.5)}})  # fmt: skip
    last = re.split(r"[\r\n]+", capsys.readouterr().err.strip())[-1]
    assert re.search(r"training\b.* 3/3 ", last) and "epoch 1/1  task 0.500" in last, last


@pytest.mark.parametrize("bar", ["rich", "tqdm"])
def test_an_error_closes_the_bar(bar: Progress[Told], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), shown(bar, "reading") as told:
        listener(told)({"done": 1, "total": 0})
        _ = 1 / 0
    assert not tqdm._instances
    assert read(2, progress=bar) == 2  # Rich allows one live display at a time
    assert "2/2" in capsys.readouterr().err


def test_what_a_store_out_of_reach_shows(capsys: pytest.CaptureFixture[str]) -> None:
    with shown("rich", "backfill") as told:
        listener(told)({"done": 1, "total": 2, "waiting": 8.0})
    assert "out of reach, trying again in 8 s" in " ".join(capsys.readouterr().err.split())


def test_an_unknown_bar_and_a_missing_package_are_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="progress='bars' is unknown") as refused:
        read(0, progress="bars")  # type: ignore[arg-type]
    assert refused.value.expected == "'rich', 'tqdm', a function that takes events, or None"
    with pytest.raises(ConfigError, match="progress=True is unknown"):
        read(0, progress=True)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(MissingExtraError, match="progress='tqdm' needs tqdm, which is not installed") as missing:
        read(0, progress="tqdm")
    assert "pip install '.[progress]'" in missing.value.to_do
    assert read(1, progress="rich") == 1


def test_a_gallery_is_filled_and_backfilled_with_a_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from limpet.upgrade.vector_sources import FileVectors

    ids = [f"{row:03}" for row in range(ROWS)]
    points = np.eye(4, dtype=np.float32)[np.arange(ROWS) % 4]
    old, new = (EmbeddingSet(points, ids, f"declared:{name}", Hypersphere(4)) for name in ("old", "new"))
    with Gallery.create("memory://", fingerprint="declared:old", space=Hypersphere(4)) as gallery:
        gallery.add(old, progress="tqdm")
        assert f"{ROWS}/{ROWS}" in capsys.readouterr().err
        gallery.start("declared:new", Hypersphere(4))
        save(new, tmp_path / "new.safetensors")
        source = FileVectors([tmp_path / "new.safetensors"])
        with pytest.raises(ConfigError, match="progress='bars'"):
            gallery.backfill(source, progress="bars")  # type: ignore[arg-type]
        assert gallery.backfill(source, batch=20, progress="tqdm").written == ROWS
    assert re.search(rf"backfill: 100%.* {ROWS}/{ROWS} ", capsys.readouterr().err)
