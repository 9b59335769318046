"""A set of small images in folders, and suites that run over it in a second or two."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from limpet_bench.datasets.ijbc import TEMPLATE
from limpet_bench.leaderboard import BenchRuns
from limpet_bench.suite import Suite

from .writing import suite_of

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
        return suite_of(content(**parts))

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


@pytest.fixture(scope="session")
def write_official() -> Callable[..., Path]:
    """Write ROxford, RParis, GLDv2, IJB-C and Market-1501 in their official layouts, with a handful of images."""
    return _write_official


def _write_official(root: Path, *, landmarks: int = 24, images: int = 1) -> Path:
    for folder, truth in (("roxford5k", "gnd_roxford5k"), ("rparis6k", "gnd_rparis6k")):
        asked = {"bbx": [0, 0, 9, 9], "easy": [0, 3], "hard": [1], "junk": []}
        for name in "abcdq":
            _paint(root / folder / "jpg" / f"{name}.jpg")
        known = {"imlist": ["a", "b", "c", "d"], "qimlist": ["q"], "gnd": [asked]}
        (root / folder / f"{truth}.json").write_text(json.dumps(known))
    _write_landmarks(root / "gldv2", landmarks, images)
    _write_faces(root / "IJBC")
    _write_people(root / "Market-1501-v15.09.15", landmarks, images)
    return root


def _write_landmarks(folder: Path, landmarks: int, images: int) -> None:
    """Write so many images of every landmark to train on, three to search among, and three queries."""
    numbers = {"train": range(landmarks * images), "index": range(0x100, 0x103), "test": range(0x200, 0x203)}
    ids = {part: [f"{number:016x}" for number in own] for part, own in numbers.items()}
    for names in [(part, name) for part, own in ids.items() for name in own]:
        _paint(folder / names[0] / "0" / "0" / "0" / f"{names[1]}.jpg")
    answer, queries = ids["index"][0], zip(ids["test"], ("Private", "Public", "Private"), strict=True)
    lists = {
        "train_clean.csv": [
            "landmark_id,images",
            *(f"{row},{' '.join(ids['train'][row::landmarks])}" for row in range(landmarks)),
        ],
        "index.csv": ["id", *ids["index"]],
        "retrieval_solution_v2.1.csv": ["id,images,Usage", *(f"{name},{answer},{usage}" for name, usage in queries)],
    }
    for name, lines in lists.items():
        (folder / name).write_text("\n".join(lines) + "\n")


def _write_faces(folder: Path) -> None:
    """Write three faces, each a template of its own, and who is compared with whom."""
    points = " ".join(f"{value:.1f}" for value in TEMPLATE.ravel())
    lists = {
        "ijbc_face_tid_mid.txt": [f"{number}.jpg {number} {number}" for number in "123"],
        "ijbc_name_5pts_score.txt": [f"{number}.jpg {points} 0.9" for number in "123"],
        "ijbc_template_pair_label.txt": ["1 2 1", "1 3 0"],
        **{f"ijbc_1N_gallery_{part}.csv": ["TEMPLATE_ID,SUBJECT_ID", "1,1"] for part in ("G1", "G2")},
        "ijbc_1N_probe_mixed.csv": ["TEMPLATE_ID,SUBJECT_ID", "2,1", "3,2"],
    }
    for number in "123":
        _paint(folder / "loose_crop" / f"{number}.jpg")
    (folder / "meta").mkdir()
    for name, lines in lists.items():
        (folder / "meta" / name).write_text("\n".join(lines) + "\n")


def _write_people(folder: Path, people: int, images: int) -> None:
    """Write so many images of every person to train on, and two others by two cameras, with junk and a distractor."""
    trained = [f"{100 + person:04d}_c{1 + number % 6}s1_{number:06d}_01.jpg" for person in range(people)
               for number in range(images)]  # fmt: skip
    parts = {
        "bounding_box_train": trained,
        "query": ["0001_c1s1_000001_00.jpg", "0002_c2s1_000001_00.jpg"],
        "bounding_box_test": ["-1_c1s1_000001_01.jpg", "0000_c4s1_000001_01.jpg"]
        + [f"{person}_c{camera}s1_000002_01.jpg" for person in ("0001", "0002") for camera in (1, 2, 3)],
    }
    for part, names in parts.items():
        for name in names:
            _paint(folder / part / name)


def _paint(path: Path) -> None:
    """Write an image whose name is its noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(sum(path.stem.encode()))
    Image.fromarray(rng.integers(0, 256, (10, 12, 3)).astype(np.uint8)).save(path)
