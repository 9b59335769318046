"""The script that runs a part of the GPU kit, on the processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

KIT = Path(__file__).parents[2] / "benchmarks" / "gpu"
TOY = """
from limpet import EncoderSpec, Recipe
from limpet_bench.suite import Data, Run, Suite, Training

def toy() -> Suite:
    network = EncoderSpec(dim=4, channels=1, image_size=8, backbone_options={"filters": 2})
    training = Training(model=network, recipe=Recipe(epochs=1, batch_size=8))
    return Suite(title="toy", description="toy", runs=(Run("p2s", Data("IMAGES"), training=training),))
"""


def run_part(*part: str, **settings: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "PYTHON": sys.executable, "DEVICE": "cpu", "PACK": "/none", **settings}
    return subprocess.run(
        ["sh", str(KIT / "run.sh"), *part], env=surroundings, capture_output=True, text=True, check=False
    )


def test_gpu_kit_names_its_parts() -> None:
    refused = run_part()
    assert refused.returncode == 2
    assert {"hbct_objectives", "cvs_general", "throughput", "tests"} <= set(refused.stderr.split())


@pytest.mark.slow
def test_gpu_kit_measures_throughput(tmp_path: Path) -> None:
    told = run_part("throughput", OUT=str(tmp_path), SPEED="--networks convnet --batch 4 --steps 1 --rounds 1")
    assert told.returncode == 0, told.stderr
    assert {row["network"] for row in json.loads((tmp_path / "training_speed.json").read_text())["rows"]} == {"convnet"}


@pytest.mark.slow
def test_gpu_kit_brings_a_suite_back_as_one_file(tmp_path: Path) -> None:
    images, labels = tmp_path / "images.npz", np.repeat(np.arange(8), 6)
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), 8, 8), dtype=np.uint8)
    np.savez(images, images=pixels, labels=labels)
    (tmp_path / "toy.py").write_text(TOY.replace("IMAGES", str(images)))
    folders = {"OUT": str(tmp_path / "out"), "CELLS": str(tmp_path / "cells"), "SUITES": str(tmp_path / "toy.py")}
    told = run_part("toy", **folders)
    assert told.returncode == 0, told.stderr
    with tarfile.open(tmp_path / "out" / "toy.tar.gz") as brought:
        names = {Path(name).name for name in brought.getnames()}
    assert {"results.json", "cell.json"} <= names
    assert not any(name.endswith(".safetensors") for name in names)
