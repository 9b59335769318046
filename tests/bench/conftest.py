"""A set of small images in folders, and suites that run over it in a second or two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from holdfast.bench.leaderboard import BenchRuns
from holdfast.bench.suite import Suite, suite_from

SIDE = 12
PARTS = {"train": range(12), "val": range(12, 18), "query": range(18, 24), "gallery": range(18, 24)}
CROSSES = [(row, column) for row in range(0, SIDE, 2) for column in range(0, SIDE, 2)]


def draw_images(folder: Path, *, per_class: int = 6, seed: int = 0) -> Path:
    """Write noisy crosses whose centre tells the class, each part with classes of its own but query and gallery."""
    generator = np.random.default_rng(seed)
    for part, classes in PARTS.items():
        for label in classes:
            place = folder / part / f"cross {label:02d}"
            place.mkdir(parents=True)
            row, column = CROSSES[label]
            for number in range(per_class):
                pixels = generator.integers(0, 60, (SIDE, SIDE))
                pixels[row : row + 2] += 110
                pixels[:, column : column + 2] += 80
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{part} {number}.png")
    return folder


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images; do not change it."""
    return draw_images(tmp_path_factory.mktemp("bench") / "crosses")


@pytest.fixture
def own_images(tmp_path: Path) -> Path:
    """A folder of images that a test may change."""
    return draw_images(tmp_path / "crosses")


@pytest.fixture(scope="session")
def content(images: Path) -> Callable[..., dict[str, Any]]:
    """Build the values of a small suite; what is given replaces its parts."""

    def build(folder: Path = images, **parts: Any) -> dict[str, Any]:
        values: dict[str, Any] = {
            "name": "small",
            "title": "Small",
            "data": {str(folder): {"image_size": SIDE, "channels": 1}},
            "methods": {"p2s": {}, "l2": {}},
            "model": {"dim": 8, "channels": 1, "image_size": SIDE, "backbone_options": {"filters": 4}},
            "recipe": {"epochs": 1, "batch_size": 8, "learning_rate": 0.05},
        }
        return {**values, **parts}

    return build


@pytest.fixture(scope="session")
def small(content: Callable[..., dict[str, Any]]) -> Callable[..., Suite]:
    """Build a small suite; what is given replaces its parts."""

    def build(**parts: Any) -> Suite:
        return suite_from(content(**parts), "the test")

    return build


@pytest.fixture(scope="session")
def comparable() -> Callable[[BenchRuns], dict[str, Any]]:
    """Leave out of what was run what is of the machine: its words, and how fast it was."""
    fast = {"seconds", "images_per_second", "waiting"}

    def of(found: BenchRuns) -> dict[str, Any]:
        document = found.to_dict()
        rows = [{name: value for name, value in row.items() if name not in fast} for row in document["rows"]]
        return {**{name: value for name, value in document.items() if name != "machine"}, "rows": rows}

    return of
