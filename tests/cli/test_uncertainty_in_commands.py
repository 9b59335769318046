"""Which classes the old model has seen reaches the report through the record beside its embeddings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from limpet.cli import main
from limpet.cli.embed import Made, table_of
from limpet.embeddings import EmbeddingSet, storage
from limpet.geometry import Lorentz
from limpet.models.release import load_release


@pytest.fixture
def embedded(made: Path, tmp_path: Path) -> Path:
    """old.safetensors, under the fingerprint of the release runs/old, and new.safetensors: hyperbolic, 6 kinds of 5."""
    rng, space, labels = np.random.default_rng(0), Lorentz(4), np.repeat(np.arange(6), 5)
    for name, fingerprint in (("old", load_release(made / "runs" / "old").fingerprint), ("new", "declared:new")):
        tangents = np.eye(6, 4)[labels] + 0.2 * rng.normal(size=(30, 4))
        points = space.project(torch.tensor(tangents, dtype=torch.float32))
        embeddings = EmbeddingSet(
            ids=[f"item{row}" for row in range(30)],
            vectors=points.numpy(),
            fingerprint=fingerprint,
            space=space,
            labels=labels,
            class_names=[f"kind{row}" for row in range(6)],
            columns={"uncertainty": space.uncertainty(points).numpy()},
        )
        storage.save(embeddings, tmp_path / f"{name}.safetensors")
    return tmp_path


def test_the_old_release_tells_which_classes_were_seen(made: Path, embedded: Path) -> None:
    sides = ["--old", embedded / "old.safetensors", "--new", embedded / "new.safetensors", "--resamples", "50"]
    seen = set(load_release(made / "runs" / "old").classes)
    assert 0 < len(seen) < 6
    said = f"[embed.images]\nmodel = ['release:{made / 'runs' / 'old'}']\n"
    (embedded / "embed-images.toml").write_text(said)
    words = ["evaluate", *sides, "--out", embedded / "with"]
    assert main([str(word) for word in words]) in (0, 1)
    (record,) = json.loads((embedded / "with" / "results.json").read_text())["evaluations"].values()
    groups = record["uncertainty"]["old"]["groups"]
    assert {name: group["items"] for name, group in groups.items()} == {
        "seen": 5 * len(seen),
        "unseen": 30 - 5 * len(seen),
    }
    page = (embedded / "with" / "report.html").read_text(encoding="utf-8")
    assert "Old and new embeddings of new" in page and "(not seen)" in page
    (embedded / "embed-images.toml").write_text(said.replace("/old'", "/bct'"))  # which made others
    words = ["evaluate", *sides, "--report", "none", "--out", embedded / "without"]
    assert main([str(word) for word in words]) in (0, 1)
    (record,) = json.loads((embedded / "without" / "results.json").read_text())["evaluations"].values()
    assert list(record["uncertainty"]["old"]["groups"]) == ["all"]


def test_embedding_says_how_uncertain_it_is(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by, file = "release:runs/old", Path("x.safetensors")
    certain, uncertain = (Made(by, file, 1200, 64, "declared:a", "both", "", known) for known in (None, 0.2384))
    columns, rows = table_of([uncertain, certain])
    assert columns == ["model", "file", "items", "dimension", "mean uncertainty"]
    assert [row[2:] for row in rows] == [["1,200", "64", "0.238"], ["1,200", "64", "–"]]
    assert table_of([certain])[0] == ["model", "file", "items", "dimension"]
    words = [
        "embed",
        "images",
        made / "photos",
        "--model",
        f"release:{made / 'runs' / 'old'}",
        "--out",
        tmp_path,
        "--json",
    ]
    assert main([str(word) for word in words]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["embeddings"][0]["mean_uncertainty"] is None
    assert "uncertainty" not in captured.err
