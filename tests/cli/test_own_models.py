"""Every command that takes the folder of a release takes models by name; what is wrong with them is said in words."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limpet import Release, load_embeddings, load_release, open_release, save_release
from limpet.cli import main
from limpet.export.exportable import open_exportable
from limpet.models.release import load_record
from limpet_bench.cli import main as bench

FILE = """
import torch
from torch import nn
import limpet

class Own(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.last = nn.Linear(64, 8)

    def forward(self, pixels):
        return self.last(self.layers(pixels))

def old():
    return limpet.Release.from_module(Own(0), image_size=16, mean=[0.5], std=[0.5])

def new():
    return limpet.Release.from_module(Own(1), image_size=16, mean=[0.5], std=[0.5])
"""
LAST = "--recipe.trainable.last 1"
QUICK = "--recipe.epochs 1 --recipe.accelerator cpu --recipe.batch-size 16"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos of four classes, and a file with two models."""
    rng = np.random.default_rng(0)
    for label in range(4):
        pattern = rng.integers(0, 256, (4, 4, 3))
        (tmp_path / "photos" / f"kind {label}").mkdir(parents=True)
        for number in range(8):
            noisy = np.clip(pattern + rng.normal(0, 40, pattern.shape), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).resize((24, 20)).save(tmp_path / "photos" / f"kind {label}" / f"{number}.png")
    (tmp_path / "encoder.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_upgrade_from_one_module_to_another(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(words: str) -> None:
        assert main(words.split()) == 0, capsys.readouterr().err

    run(f"train --data photos --old encoder.py:old --model encoder.py:new --dim 8 {QUICK} {LAST} --out runs/new")
    models = "encoder.py:old release:runs/new --over encoder.py:new"
    run(f"embed images photos --part all --model {models} --out runs/embedded")
    sets = {name: load_embeddings(shop / f"runs/embedded/{name}/embeddings.safetensors") for name in ("old", "new")}
    assert sets["old"].fingerprint == open_release("encoder.py:old").fingerprint
    assert sets["new"].fingerprint == load_release("runs/new", module=open_release("encoder.py:new")).fingerprint
    old, new = "runs/embedded/old", "runs/embedded/new"
    assert main(f"evaluate --old {old} --new {new} --report none "
                "--out runs/report".split()) in (0, 1)  # fmt: skip
    run("gallery create live --model encoder.py:old")
    run(f"gallery import live --embeddings {old}")
    run("upgrade start live --model release:runs/new")
    run("upgrade backfill live --model release:runs/new --over encoder.py:new --data photos")
    capsys.readouterr()
    for words in ("encoder.py:old", "release:runs/new --over encoder.py:new"):
        assert main(["gallery", "search", "live", "--image", "photos/kind 1/1.png", "--k", "1", "--json",
                     "--model", *words.split()]) == 0  # fmt: skip
        found = json.loads(capsys.readouterr().out)
        assert found["queries"][0]["hits"][0]["id"] == "kind 1/1.png"


def test_a_release_may_be_what_training_starts_from(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = save_release(open_release("encoder.py:new"), shop / "first")
    words = f"train --data photos --method independent --model release:first --dim 6 {QUICK} --out runs/a"
    lora = ["--recipe.trainable.lora", "2"]
    assert main([*words.split(), *lora, "--over", "encoder.py:old"]) == 0, capsys.readouterr().err
    made = load_release("runs/a", module=open_release("encoder.py:old"))
    assert made.space.dim == 6 and made.record.initial_weights == Release.fingerprint.fget(
        load_release(first, module=open_release("encoder.py:new"))
    )
    assert made.record.recipe["trainable"] == {"last": None, "lora": 2}
    before, after = (one.encoder.state_dict() for one in (open_release("encoder.py:new"), made))
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert set(before) - same == {"backbone.body.last.weight"}, "low-rank additions to the linear layer alone"


def test_a_release_of_a_module_is_exported(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_release(open_release("encoder.py:old"), shop / "own")
    assert main(["export", "release:own", "--over", "encoder.py:old", "--to", "onnx", "--out", "served"]) == 0, (
        capsys.readouterr().err
    )
    assert any(file.suffix == ".onnx" for file in (shop / "served").rglob("*"))
    named, saved = open_exportable("encoder.py:old"), load_record("own")
    assert named.fingerprint == saved.fingerprint, "a name does as well as a folder"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("export release:own --to onnx --out served", "pass --over encoder.py:old"),
        ("embed images photos --model encoder.py:big --out o", "no function 'big'"),
        ("embed images photos --model nothing.py:big --out o", "There is no file 'nothing.py'"),
        ("embed images photos --model encoder.py --out o", "'encoder.py' names stored vectors.*FILE.py:FUNCTION"),
        ("embed images photos --model hf: --out o", "'hf:' names nothing.*hf:FOLDER"),
        ("embed images photos --model hf:nothing --out o", "There is no folder 'nothing'"),
        (
            "embed images photos --model encoder.py:old --over encoder.py:old --out o",
            "none of .* was made of a mod",
        ),
        ("embed images photos --model release:own --out o", "pass --over encoder.py:old"),
        ("embed images photos --model release:own --over encoder.py:none --out o", "no function 'none'"),
        ("embed texts x.csv --model encoder.py:old --out o", "names no model of texts"),
        ("train --data photos --old release:own --out o", "pass --over encoder.py:old"),
        ("train --data photos --old encoder.py:old --over encoder.py:old --dim 8 --out o", "no release needs it"),
        ("train --data photos --model encoder.py:new --backbone vit_s --method independent --out o", "with --backbone"),
        ("train --data photos --old encoder.py:old --model encoder.py:new --out o", "--dim 8"),
        ("train --data photos --model encoder.py:new --dim 0 --method independent --out o", "dim"),
        ("train --data photos --method independent --recipe.trainable.last 1 --out o", "would stay random"),
        (
            "train --data photos --method independent --model encoder.py:new --recipe.trainable.last 9 --out o",
            "at most",
        ),
        (
            "train --data photos --method independent --model encoder.py:new --recipe.trainable.lora 0 --out o",
            "at least 1",
        ),
        ("gallery create g --model hf:nothing", "There is no folder 'nothing'"),
        ("gallery create g --model st:nothing", "no text model 'st:nothing'"),
    ],
)
def test_what_is_wrong_is_said_in_words(words: str, message: str, shop: Path, fails: Callable[..., str]) -> None:
    save_release(open_release("encoder.py:old"), shop / "own")
    (shop / "x.csv").write_text("id,text\n1,one\n")
    said = fails(*words.split())
    assert re.search(message, " ".join(said.split())), said


def test_a_broken_file_is_named_with_its_line(shop: Path, fails: Callable[..., str]) -> None:
    (shop / "encoder.py").write_text("import torch\n\nraise OSError('no weights here')\n")
    said = fails("embed", "images", "photos", "--model", "encoder.py:old", "--out", "o")
    assert "'encoder.py', line 3, raised OSError: no weights here." in said


def test_every_model_of_a_scenario_starts_from_it_and_a_stopped_run_goes_on(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"train --data photos --scenario extended-class --scenario-options.old-fraction 0.5 --dim 8 {QUICK} {LAST}"
    own = "--model encoder.py:new"
    assert main(f"{words} {own} --method p2s --out runs/all".split()) == 0, capsys.readouterr().err
    start, records = open_release("encoder.py:new"), {}
    for name in ("old", "independent", "p2s"):
        records[name] = load_record(shop / "runs/all" / name)
        assert records[name].initial_weights == start.fingerprint
        kept = load_release(shop / "runs/all" / name, module=start).encoder.backbone.body
        assert np.array_equal(kept.layers[0].weight.detach(), start.encoder.backbone.body.layers[0].weight.detach())
    assert records["p2s"].compatible_with == records["old"].fingerprint
    shutil.rmtree(shop / "runs/all/p2s")
    assert main(f"{words} {own} --method p2s --out runs/all".split()) == 0
    assert load_record(shop / "runs/all/p2s").fingerprint == records["p2s"].fingerprint
    capsys.readouterr()
    assert main(f"{words} --model encoder.py:old --method p2s --out runs/all".split()) == 2
    assert "initial_weights" in capsys.readouterr().err
    assert main(f"{words} {own} --method p2s --old-backbone convnet --out runs/other".split()) == 0
    assert load_record(shop / "runs/other/old").encoder.backbone == "convnet"
    assert load_record(shop / "runs/other/p2s").initial_weights == start.fingerprint


def test_sessions_start_from_it_and_go_on(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (f"sessions disjoint --data photos --plan-options.sessions 2 --plan-options.validation 1 --budget 8 "
             f"--dim 8 --report none {QUICK} {LAST} --method cvs ewc bct --out runs/sessions "
             "--model encoder.py:")  # fmt: skip
    assert bench(f"{words}new".split()) == 0, capsys.readouterr().err
    place = shop / "runs/sessions"
    results = (place / "results.json").read_text()
    first, last = load_record(place / "session-1"), load_record(place / "bct/session-2")
    assert first.initial_weights == open_release("encoder.py:new").fingerprint
    assert last.initial_weights == first.fingerprint
    shutil.rmtree(place / "bct/session-2")
    assert bench(f"{words}new".split()) == 0
    assert load_record(place / "bct/session-2").fingerprint == last.fingerprint
    assert json.loads(results)["title"] == json.loads((place / "results.json").read_text())["title"]
    capsys.readouterr()
    (shop / "encoder.py").write_text(FILE.replace("Own(1)", "Own(2)"))
    assert bench(f"{words}new".split()) == 2
    said = capsys.readouterr().err
    assert "initial weights" in said and "model" in said
    assert bench(f"{words}new --backbone convnet".split()) == 2
    assert "--model encoder.py:new with --backbone" in capsys.readouterr().err
