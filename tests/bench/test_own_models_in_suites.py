"""A suite whose models start from a network of one's own: trained, embedded, scored, drawn and continued."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limpet import open_release
from limpet.errors import ConfigError
from limpet.models.release import load_record
from limpet_bench.cli import main

from .writing import suite_of, write_suite

FILE = """
import torch
from torch import nn
import limpet

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8))

    def forward(self, pixels):
        return self.layers(pixels)

def own():
    return limpet.Release.from_module(Own(), image_size=16, mean=[0.5], std=[0.5])
"""
RECIPE = {"epochs": 1, "batch_size": 16, "accelerator": "cpu"}
IMAGES = {"image_size": 16}
UPGRADES = {
    "name": "own", "title": "Own", "data": {"photos": IMAGES}, "scenarios": {"extended-class": {"old_fraction": 0.5}},
    "methods": {"p2s": {}}, "model": {"dim": 8}, "starts_from": "encoder.py:own", "recipe": RECIPE, "accuracy": True,
    "metrics": ["recall@1"], "gate_metric": "recall@1",
    "figures": {"plane": {"kind": "embedding", "part": "training", "classes": 2}},
}  # fmt: skip
SESSIONS = {
    "name": "own", "title": "Own", "track": "sessions", "data": {"photos": IMAGES}, "test_images": 2,
    "plans": {"disjoint": {"sessions": 2, "validation": 1}}, "methods": {"bct": {}}, "budget": 8, "model": {"dim": 8},
    "starts_from": "encoder.py:own", "recipe": RECIPE,
}  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        for label in range(4):
            pattern = np.random.default_rng(label).integers(0, 256, (4, 4, 3))
            folder = tmp_path / "photos" / part / f"kind {label}"
            folder.mkdir(parents=True)
            for number in range(8):
                noisy = np.clip(pattern + rng.normal(0, 40, pattern.shape), 0, 255).astype(np.uint8)
                Image.fromarray(noisy).resize((16, 16)).save(folder / f"{number}.png")
    (tmp_path / "encoder.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(shop: Path) -> list[Path]:
    return [path.parent for path in sorted((shop / "runs/bench/cells").rglob("config.json"))]


@pytest.mark.parametrize(
    "suite", [pytest.param(UPGRADES, marks=pytest.mark.slow), SESSIONS], ids=["upgrades", "sessions"]
)
def test_a_suite_starts_from_it_and_runs_nothing_twice(
    suite: dict[str, object], shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_suite(shop / "suite.py", suite)
    words = ["run", "suite.py", "--processes", "1", "--out", "out"]
    assert main(words) == 0, capsys.readouterr().err
    start = open_release("encoder.py:own")
    records = [load_record(folder) for folder in trained(shop)]
    assert start.fingerprint in {record.initial_weights for record in records}
    assert all(record.encoder.needs_module for record in records) and len(records) >= 2
    assert re.search(r"0 of \d+ steps", capsys.readouterr().err)
    assert main(words) == 0
    assert not re.search(r"of \d+ step", capsys.readouterr().err)
    (shop / "encoder.py").write_text(FILE.replace("manual_seed(0)", "manual_seed(1)"))
    assert main(words) == 0, capsys.readouterr().err
    assert len(trained(shop)) == 2 * len(records)  # all of them anew: another model


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"backbone": "resnet18"}}, "starts_from='encoder.py:own' with backbone"),
        ({"weights": "resnet-18"}, "starts_from='encoder.py:own' with weights"),
    ],
)
def test_what_the_model_says_itself_is_refused(changes: dict[str, object], said: str, shop: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        suite_of({**UPGRADES, **changes})


def test_the_old_model_may_start_from_nothing(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = {"starts_from": "", "model": {"backbone": "convnet", "backbone_options": {"filters": 4}, "image_size": 16}}
    suite = {**UPGRADES, "old": old, "figures": {}, "accuracy": False}
    write_suite(shop / "suite.py", suite)
    assert main(["run", "suite.py", "--processes", "1", "--out", "out"]) == 0, capsys.readouterr().err
    records = [load_record(folder) for folder in trained(shop)]
    assert {record.encoder.name for record in records} == {"convnet", "file encoder.py:own"}
