"""A small folder of images, and releases and embeddings made from it once, through the command line itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.cli import main

FAST = ["--recipe.epochs", "4", "--recipe.batch-size", "32", "--backbone-options.filters", "8", "--dim", "16"]


def draw(folder: Path, classes: int = 6, images: int = 10) -> Path:
    rng = np.random.default_rng(0)
    for label in range(classes):
        pattern = rng.integers(0, 256, (4, 4, 3))
        place = folder / f"kind{label}"
        place.mkdir(parents=True)
        for number in range(images):
            pixels = np.clip(pattern + rng.normal(0, 25, pattern.shape), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).resize((32, 32)).save(place / f"{number}.png")
    return folder


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/, runs/{old,independent,bct}, embedded/{old,independent,bct}; never changed by a test."""
    root = tmp_path_factory.mktemp("made")
    photos = str(draw(root / "photos"))
    train = ["train", "--data", photos, "--scenario", "extended-class", "--scenario-options.old-fraction", "0.5"]
    assert main([*train, "--method", "bct", "--out", str(root / "runs"), *FAST]) == 0
    releases = [str(root / "runs" / name) for name in ("old", "independent", "bct")]
    assert main(["embed", "--data", photos, "--release", *releases, "--out", str(root / "embedded")]) == 0
    return root


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """The same, for tests that change something."""
    return Path(shutil.copytree(made, tmp_path / "copied"))


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must end with exit code 2 and return what it said, on one line."""

    def run(*words: object) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return " ".join(captured.err.split())

    return run
