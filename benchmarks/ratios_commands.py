"""What `ratios.py` times of commands: processes of their own, whose modules another one has compiled before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from limpet.embeddings.storage import save
from ratios_metrics import sides

Timed = Callable[[], object]


def status(engine: str) -> Callable[[Any, int], Timed]:
    """Ask where a gallery stands."""

    def prepare(scene: Any, size: int) -> Timed:
        return _command("gallery", "status", scene.filled(engine, size).store.url)

    return prepare


def evaluation(queries: int, *options: str) -> Callable[[Any, int], Timed]:
    """Evaluate two models on so many queries, and write the page."""

    def prepare(scene: Any, size: int) -> Timed:
        folders = [str(_model(scene, name, noise, size, queries)) for name, noise in (("old", 2.3), ("new", 1.8))]
        out = str(scene.folder / scene.name())
        return _command("evaluate", "--old", folders[0], "--new", folders[1], *options, "--out", out)

    return prepare


def adaptation(scene: Any, size: int) -> Timed:
    """Choose and fit an adapter on so many items without labels."""
    folders = [_model(scene, name, noise, size, 1) for name, noise in (("old", 1.0), ("new", 1.2))]
    old, new = (str(folder / "gallery.safetensors") for folder in folders)
    return lambda: _command("adapt", "--old", old, "--new", new, "--out", str(scene.folder / scene.name()))()


def _model(scene: Any, name: str, noise: float, size: int, queries: int) -> Path:
    """Write what a model made of queries and of a gallery, and return the folder."""
    folder: Path = scene.folder / scene.name() / name
    folder.mkdir(parents=True)
    for part, made in zip(("query", "gallery"), sides(size, 20, noise, queries, f"declared:{name}"), strict=True):
        save(made if queries > 1 else made.replace(labels=None), folder / f"{part}.safetensors")
    return folder


def _command(*words: str) -> Timed:
    def run() -> int:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        done = subprocess.run([sys.executable, "-m", "limpet", *words], env=environment, capture_output=True)
        if done.returncode not in (0, 1, 3):  # a verdict
            raise RuntimeError(done.stderr.decode())
        return done.returncode

    return run
