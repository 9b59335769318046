"""Every suite that comes along, cut to seconds: it gives all rows of its table and the shape of all its figures.

Landmarks, faces and people are read from their official layouts. Other images to train on are patterns that tell their
classes; the readers of their data sets, which have tests of their own, are not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.data.datasets import DATASETS, Dataset
from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.data.retrieval_data import RetrievalData
from limpet.embeddings import StringArray
from limpet_bench.cache import TaskCache
from limpet_bench.figure_values import BarChart, Lines, Matrices, NumberTable
from limpet_bench.leaderboard import Leaderboard
from limpet_bench.ranking import leaderboard_of
from limpet_bench.run import Bench
from limpet_bench.suite import Suite, suite_from
from limpet_bench.suites import SUITES

from .shipped import EVERY

SIDE, CLASSES, IMAGES = 16, 12, 5
OFFICIAL = ("gldv2", "roxford", "rparis", "ijbc", "market-1501")
"""Data sets that are read from their official layouts."""
OF_SIZE = ("epochs", "batch_size", "precision", "channels_last", "milestones", "items_per_class", "augmentation")
NETWORK = ("backbone", "backbone_options", "dim", "image_size", "centre_crop", "mean", "std")
PLANS: Mapping[str, dict[str, Any]] = {
    "disjoint": {"sessions": 2},
    "blurry": {"sessions": 2, "minor_share": 0.3},
    "general-incremental": {"first_classes": 6, "new_classes": 4, "old_share": 0.3, "sessions": 2},
}


def pictures(labels: NDArray[np.int64], part: str, channels: int) -> ImageSet:
    """Return noisy crosses whose centre tells the class."""
    rng = np.random.default_rng(len(part))
    pixels = rng.integers(0, 60, (len(labels), channels, SIDE, SIDE))
    for row, label in enumerate(labels.tolist()):
        pixels[row, :, 1 + label // 4 * 4] += 110
        pixels[row, :, :, 1 + label % 4 * 4] += 80
    names = [f"{part} {label:02d}" for label in range(int(labels.max()) + 1)]
    ids = StringArray.of(f"{part} {row}" for row in range(len(labels)))
    return ImageSet(ArrayImages(pixels.astype(np.uint8)), labels, tuple(names), ids)


def stand_in(name: str, channels: int, *, seen: bool) -> Dataset[RetrievalData]:
    """Return a data set of a few patterns under the name of another one, searched for classes that were seen or not."""

    def read() -> RetrievalData:
        labels, few = np.repeat(np.arange(CLASSES), IMAGES), np.repeat(np.arange(4), 3)
        train = pictures(labels, "train", channels)
        evaluation = (
            replace(train, ids=StringArray.of(f"again {row}" for row in range(len(train))))
            if seen
            else pictures(few, "evaluation", channels)
        )
        validation = pictures(few, "validation", channels)
        return RetrievalData.of_one_set(
            name=name, train=train, evaluation=evaluation, validation=validation, description="patterns"
        )

    return Dataset(read, "patterns")


def toy(suite: Suite, patch: pytest.MonkeyPatch) -> Suite:
    """Return a suite with all rows, conditions, test sets and figures of another one, which runs in seconds.

    Args:
        suite: At any size.
        patch: Puts patterns in the place of the data sets that are trained on.
    """
    channels = int(suite.model.get("channels", 3))
    for name in suite.data:
        if name not in OFFICIAL:
            patch.setitem(DATASETS, name, stand_in(name, channels, seen=suite.track == "sessions" or suite.accuracy))
    content = suite.model_dump(exclude_unset=True)
    first = next(iter(suite.data))
    size = toy_size(suite.model)
    content["data"] = {first: {"image_size": size} if first in OFFICIAL else {}}
    content["by_data"] = {name: cut(values) for name, values in content.get("by_data", {}).items() if name == first}
    content |= {"seeds": [0], "published": [], "weights": None, "classes": None}
    content |= cut({name: content.get(name, {}) for name in ("model", "recipe")}, size=size)
    content["old"] = cut(content.get("old", {}))
    content["methods"] = {name: row_of(values) for name, values in content["methods"].items()}
    content["by_scenario"] = {
        name: {**cut(values), "old": cut(values.get("old", {}))}
        for name, values in content.get("by_scenario", {}).items()
    }
    content["test_sets"] = {
        name: {**values, "data": values.get("data") or name, "options": searched_options(values, size)}
        for name, values in content.get("test_sets", {}).items()
    }
    content["scenarios"] = {
        name: {option: few(value) for option, value in values.items()}
        for name, values in content.get("scenarios", {}).items()
    }
    if suite.track == "sessions":
        content["plans"] = {name: {**PLANS[name], "validation": 1} for name in suite.plans}
        content |= {"test_images": None, "budget": 20 if suite.budget else None}
    if suite.tuning is not None:
        content["tuning"] = {**content["tuning"], "budget": 2, "data_options": {}, "seeds": [0]}
    for figure in content.get("figures", {}).values():
        figure["data"] = [name for name in figure.get("data", ()) if name in (first, *suite.test_sets)]
        if figure.get("method") == "hyperboloid":  # whose package compiles itself for half a minute
            figure["method"] = "tsne"
    return suite_from({name: value for name, value in content.items() if value is not None}, "the test")


def toy_size(model: Mapping[str, Any]) -> int | list[int]:
    """Return a small size of images of the same shape: square, or higher than wide."""
    return [SIDE, SIDE // 2] if isinstance(model.get("image_size"), list) else SIDE


def cut(values: Mapping[str, Any], *, size: int | list[int] | None = None) -> dict[str, Any]:
    """Return settings with the size taken out; with ``size``, that of images, a small one in its place."""
    kept = {name: value for name, value in values.items() if name not in ("weights", "model", "recipe")}
    model = {name: value for name, value in values.get("model", {}).items() if name not in NETWORK}
    recipe = {name: value for name, value in values.get("recipe", {}).items() if name not in OF_SIZE}
    recipe.pop("freeze_batch_norm", None)
    if recipe.get("schedule") == "steps":
        recipe["schedule"] = "cosine"
    if size is not None:
        model |= {"backbone": "convnet", "backbone_options": {"filters": 4}, "dim": 8, "image_size": size}
        recipe |= {"epochs": 1, "batch_size": 16, "augmentation": {"flip": True}}
    return {**kept, **({"model": model} if model else {}), **({"recipe": recipe} if recipe else {})}


def few(value: Any) -> Any:
    """Return a share of the classes that leaves two of them at least: 0.09 of 81,313 would be one of twelve."""
    return max(value, 0.2) if isinstance(value, float) and value < 0.2 else value


def row_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the size taken out, its budget and what it varies of it too."""
    row = cut(values)
    if row.get("budget") is not None:
        row["budget"] = 10
    return row


def searched_options(values: Mapping[str, Any], size: int | list[int]) -> dict[str, Any]:
    """Return the options of a test set at a small size."""
    options = {name: value for name, value in values.get("options", {}).items() if name not in ("image_size", "fit")}
    return options | {"image_size": size}


NAMES = [name for name in SUITES if EVERY[name].track != "features"]
"""Heads over frozen models of texts are run by tests of their own."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> TaskCache:
    """Where all suites keep what they compute: what several tables have in common is trained once."""
    return TaskCache(tmp_path_factory.mktemp("tasks"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_suite_runs_and_gives_all_rows_and_figures(
    name: str,
    cache: TaskCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_official: Callable[..., Path],
) -> None:
    whole = EVERY[name]
    suite = toy(whole, monkeypatch)
    root = write_official(tmp_path / "data", landmarks=12, images=4)
    found = Bench(cache, root).run(suite)
    failures = {run.failure for run in found.rows if run.failure}
    assert not failures
    data = [*whole.test_sets] or [next(iter(suite.data))]
    expected = {(one, scenario, label) for one in data for scenario in whole.conditions for label in whole.rows}
    assert {(run.data, run.scenario, run.label) for run in found.rows} == expected
    board = leaderboard_of(found, command=f"limpet-bench run {name}", wall_seconds=1.0)
    assert set(board.figures) == set(whole.figures), board.figure_notes
    assert not board.figure_notes
    check_shapes(board, suite)
    assert Leaderboard.load(board.save(tmp_path / "board")).figures == board.figures


def check_shapes(board: Leaderboard, suite: Suite) -> None:
    """Assert that figures have as many lines, bars, rows and generations as the suite asks for."""
    for name, value in board.figures.items():
        spec = suite.figures[name]
        places = len(list(spec.places(suite)))
        if isinstance(value, NumberTable):
            blocks = len(spec.scenarios or suite.conditions)
            assert len(value.rows) == blocks * len((*spec.references, *spec.labels(suite))) and value.columns, name
            assert any(cell is not None for row in value.rows for cell in row.values), name
        elif isinstance(value, Lines):
            assert len(value.panels) == places and any(panel.lines for panel in value.panels), name
        elif isinstance(value, BarChart):
            assert all(panel.series and panel.groups for panel in value.panels), name
        elif isinstance(value, Matrices):
            assert all(len(panel.values) == value.generations for panel in value.panels), name
