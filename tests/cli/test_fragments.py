"""A backfill by workers from the command line, with its exit codes and what to type next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet import EmbeddingSet
from limpet.cli import main
from limpet.embeddings import storage
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere

SPHERE, IDS = Hypersphere(3), [f"i{row}" for row in range(5)]


def points(name: str) -> EmbeddingSet:
    made = np.random.default_rng(len(name)).normal(size=(len(IDS), 3)).astype(np.float32)
    vectors = made / np.linalg.norm(made, axis=1, keepdims=True)
    return EmbeddingSet(ids=IDS, vectors=vectors, fingerprint=f"declared:{name}", space=SPHERE)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    with Gallery.create("memory:live", fingerprint="declared:old", space=SPHERE) as gallery:
        gallery.add(points("old"))
        gallery.start("declared:newer", SPHERE)
    storage.save(points("newer"), "newer.safetensors")
    return "memory:live"


def said(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> Any:
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_backfill_by_workers(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = said(capsys, 0, "fragments", "plan", url, "work", "--items", "2")
    assert (plan["shards"], plan["items"], plan["generation"]) == (["000000", "000001", "000002"], 5, "g2")
    make = ["fragments", "make", "work", "--model", "newer.safetensors"]
    assert said(capsys, 0, *make, "--shard", "000001") == {"shards": ["000001"]}
    first = said(capsys, 0, "fragments", "accept", url, "work")
    assert (first["written"], first["waiting"], first["lacking"]) == (2, ["000000", "000002"], 3)
    said(capsys, 0, *make)
    for file in Path("work/fragments").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    second = said(capsys, 1, "fragments", "accept", url, "work")
    assert sorted(second["refused"]) == ["000000", "000002"] and second["written"] == 0
    said(capsys, 0, *make)
    assert main(["fragments", "accept", url, "work"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "3 of 3 shards are accepted. 3 items got a vector now; 0 of the gallery have none." in told
    assert told.endswith("Next: limpet upgrade status memory:live")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["plan", "memory:live", "work"], "work"),
        (["make", "work", "--model", "newer.safetensors", "--shard", "x"], "no shard 'x'"),
        (["make", "work"], "Nothing to embed with"),
        (["make", "nowhere", "--model", "newer.safetensors"], "fragments plan"),
        (["accept", "memory:live", "nowhere"], "fragments plan"),
        (["plan", "memory:live", "other", "--items", "0"], "items"),
    ],
)
def test_wrong_use_says_what_to_type(url: str, words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fragments", "plan", url, "work"]) == 0
    capsys.readouterr()
    assert main(["fragments", *words]) == 2
    told = capsys.readouterr().err
    assert why in told and "Traceback" not in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--engine", "ray"], "--workers, too"),
        (["--engine", "processes", "--workers", "2", "--gpus", "1"], "--engine ray; else --device"),
        (["--engine", "processes", "--workers", "2", "--model", "openai:m@http://127.0.0.1:9/v1"], "behind an API"),
    ],
)
def test_workers_that_cannot_be_are_refused(
    url: str, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = [] if "--model" in options else ["--model", "newer.safetensors"]
    assert main(["upgrade", "backfill", url, *model, *options]) == 2
    assert told in capsys.readouterr().err
    assert said(capsys, 0, "upgrade", "status", url)["lacking"]["new"] == 5


def test_processes_backfill_what_one_does(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = said(
        capsys, 0, "upgrade", "backfill", url, "--model", "newer.safetensors", "--engine", "processes", "--workers", "2"
    )
    assert (done["done"]["written"], done["lacking"]["new"]) == (5, 0)
    with Gallery.open(url) as gallery:
        ids, vectors = gallery.store.vectors("g2", IDS)
    assert list(ids) == IDS
    np.testing.assert_allclose(vectors, points("newer").vectors, rtol=1e-6)  # lengths are made 1 again


@pytest.mark.parametrize("options", [["--machines", "2"], ["--items", "1.5"], ["--items", "1e6", "--machines", "0"]])
def test_plans_of_other_sizes_that_make_no_sense_are_refused(
    url: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upgrade", "plan", url, "--model", "newer.safetensors", *options]) == 2
    assert "Expected: " in capsys.readouterr().err
