"""A small folder of images, and releases and embeddings made from it once, through the command line itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limpet.cli import main
from limpet.embeddings import storage
from limpet_bench.cli import main as bench

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
    releases = [f"release:{root / 'runs' / name}" for name in ("old", "independent", "bct")]
    words = ["embed", "images", photos, "--model", *releases, "--out", str(root / "embedded")]
    assert main(words) == 0
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
        typed = [str(word) for word in words]
        assert (bench(typed[1:]) if typed[0] == "limpet-bench" else main(typed)) == 2
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return " ".join(captured.err.split())

    return run


@pytest.fixture(scope="session")
def planted() -> Callable[..., Path]:
    """Write old.npz (12 dimensions, with labels) and new.npz (16) of the same items by two models below a folder.

    Both see the class and a nuisance; where ``damped``, the new model sees less of it. ``wrong`` is the share of pairs
    whose partners are exchanged. Every seed draws other items for the same two models.
    """

    def write(folder: Path, items: int = 300, *, seed: int = 1, damped: bool = True, wrong: float = 0.0) -> Path:
        model, rng = np.random.default_rng(5), np.random.default_rng(seed)
        labels = np.arange(items) % 10
        classes, *views = (model.normal(size=size) for size in ((10, 8), (16, 12), (16, 16)))
        causes = np.hstack([classes[labels] + 0.3 * rng.normal(size=(items, 8)), rng.normal(size=(items, 8))])
        partner, moved = np.arange(items), rng.permutation(items)[: round(wrong * items)]
        partner[moved] = np.roll(partner[moved], 1)
        seen = causes * np.repeat([1, 0.3 if damped else 1], 8)
        old = (causes + 0.6 * rng.normal(size=causes.shape)) @ views[0]
        new = (seen + 0.2 * rng.normal(size=causes.shape))[partner] @ views[1]
        ids = np.array([f"{seed}-{row}" for row in range(items)])
        folder.mkdir(parents=True, exist_ok=True)
        for name, vectors, more in (("old", old, {"labels": labels}), ("new", new, {})):
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            np.savez(folder / f"{name}.npz", ids=ids, vectors=vectors.astype(np.float32), **more)
        return folder

    return write


REQUESTS = {
    "money": ["my bank balance", "my savings account", "the last payment"],
    "music": ["a rock song", "that guitar band", "some piano jazz"],
    "weather": ["rain tomorrow", "snow this week", "the sun today"],
    "travel": ["a flight to Paris", "train tickets", "a cheap hotel"],
    "food": ["a pizza recipe", "a vegan dinner", "fresh bread"],
    "health": ["a dentist", "cough medicine", "my blood pressure"],
}
VERBS = ["show me", "what about", "tell me", "find", "I need", "please check", "do you know", "any news on", "explain",
         "where is", "how do I get", "can you look up", "give me", "remind me of", "I forgot", "who has"]  # fmt: skip


@pytest.fixture(scope="session")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """requests.csv, 288 texts of six intents, and old.npz, what an old model made of them; never changed by a test.

    The old model is wordllama in 32 dimensions, turned and with noise.
    """
    root = tmp_path_factory.mktemp("requests")
    rows = [f"{verb} {thing},{intent}" for intent, things in REQUESTS.items() for thing in things for verb in VERBS]
    (root / "requests.csv").write_text("\n".join(["text,intent", *rows]))
    model = ["--model", "package:wordllama", "--model-options.truncate-dim", "32"]
    words = ["embed", "texts", root / "requests.csv", *model]
    assert main([str(word) for word in (*words, "--out", root)]) == 0
    new, rng = storage.load(root / "wordllama" / "embeddings.safetensors"), np.random.default_rng(0)
    turned = new.vectors @ np.linalg.qr(rng.normal(size=(32, 32)))[0] + 0.3 * rng.normal(size=new.vectors.shape)
    np.savez(root / "old.npz", vectors=turned.astype(np.float32), ids=np.array(list(new.ids)))
    return root
