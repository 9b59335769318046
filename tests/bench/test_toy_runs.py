"""Every suite that comes along, cut to seconds: it gives all rows of its table and the shape of all its figures.

Landmarks, faces and people are read from their official layouts. Other images to train on are patterns that tell their
classes; the readers of their data sets, which have tests of their own, are not asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
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
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Recipe
from limpet_bench.cache import TaskCache
from limpet_bench.figure_values import BarChart, Lines, Matrices, NumberTable
from limpet_bench.leaderboard import Leaderboard
from limpet_bench.ranking import leaderboard_of
from limpet_bench.run import Bench
from limpet_bench.suite import Data, EvaluationSet, Run, Scenario, Suite, Training, check_suite
from limpet_bench.suites import SUITES, suite_named

from .shipped import EVERY
from .writing import with_runs

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
    model = suite.runs[0].training.model
    for name in suite.data:
        if name not in OFFICIAL:
            seen = suite.track == "sessions" or suite.accuracy
            patch.setitem(DATASETS, name, stand_in(name, model.channels, seen=seen))
    first = suite.data[0]
    size = (SIDE, SIDE // 2) if isinstance(model.image_size, tuple) else SIDE
    data = Data(first, {"image_size": size} if first in OFFICIAL else {})

    def smaller(run: Run) -> Run:
        kind, search = run.scenario.kind, run.search
        options = {name: few(value) for name, value in run.scenario.options.items()}
        if suite.track == "sessions":
            options = {**PLANS[kind], "validation": 1}
        return replace(
            run,
            data=data,
            scenario=Scenario(kind, options, run.scenario.name),
            training=cut(run.training, size),
            old=None if run.old is None else cut(run.old, size),
            independent=None if run.independent is None else cut(run.independent, size),
            budget=None if run.budget is None else 10 if run.varied else 20,
            search=None if search is None else replace(search, budget=2, seeds=(0,)),
        )

    figures = {}
    for name, figure in suite.figures.items():
        changes: dict[str, Any] = {"data": tuple(one for one in figure.data if one in (first, *suite.test_sets))}
        if getattr(figure, "method", None) == "hyperboloid":  # whose package compiles itself for half a minute
            changes["method"] = "tsne"
        figures[name] = figure.model_copy(update=changes)
    found = replace(
        suite,
        runs=[run for run in suite.runs if run.data.name == first],
        seeds=(0,),
        published=[],
        classes=None,
        test_images=None,
        figures=figures,
        test_sets={name: smaller_test(name, test, size) for name, test in suite.test_sets.items()},
    )
    found = with_runs(found, smaller)
    check_suite(found)
    return found


def cut(training: Training, size: int | tuple[int, int]) -> Training:
    """Return a training of a small network on images of that size."""
    model, recipe = training.model, training.recipe
    kept = {name: getattr(model, name) for name in type(model).model_fields if name not in NETWORK}
    network = {"backbone": "convnet", "backbone_options": {"filters": 4}, "dim": 8, "image_size": size}
    named = {one.name: getattr(recipe, one.name) for one in fields(recipe) if one.name not in OF_SIZE}
    named |= {"epochs": 1, "batch_size": 16, "augmentation": {"flip": True}, "freeze_batch_norm": False}
    if recipe.schedule == "steps":
        named["schedule"] = "cosine"
    return replace(training, model=EncoderSpec(**kept, **network), recipe=Recipe(**named), weights=None)


def few(value: Any) -> Any:
    """Return a share of the classes that leaves two of them at least: 0.09 of 81,313 would be one of twelve."""
    return max(value, 0.2) if isinstance(value, float) and value < 0.2 else value


def smaller_test(name: str, test: EvaluationSet, size: int | tuple[int, int]) -> EvaluationSet:
    """Return a test set at a small size."""
    options = {option: value for option, value in test.options.items() if option not in ("image_size", "fit")}
    return replace(test, data=test.data or name, options=options | {"image_size": size})


NAMES = [name for name in SUITES if EVERY[name].track != "features"]
"""Heads over frozen models of texts are run by tests of their own."""
GPU_KIT = Path(__file__).parents[2] / "benchmarks" / "gpu"
GPU_PARTS = re.findall(r"^def (\w+)\(\) -> Suite:", (GPU_KIT / "suites.py").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> TaskCache:
    """Where all suites keep what they compute: what several tables have in common is trained once."""
    return TaskCache(tmp_path_factory.mktemp("tasks"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *(f"{GPU_KIT / 'suites.py'}:{part}" for part in GPU_PARTS)])
def test_a_suite_runs_and_gives_all_rows_and_figures(
    name: str,
    cache: TaskCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_official: Callable[..., Path],
) -> None:
    whole = suite_named(name)
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
