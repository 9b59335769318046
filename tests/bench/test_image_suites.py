"""The suites of frozen image models in benchmarks: what they plan, and that every row of them runs."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from limpet.data.datasets import DATASETS
from limpet_bench.cache import TaskCache
from limpet_bench.run import Bench
from limpet_bench.suite import Data, Run, Suite
from limpet_bench.suites import suite_named
from limpet_bench.tasks import Planner, in_order

from .test_toy_runs import stand_in
from .writing import with_runs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NAMES = ("image-upgrade", "image-chain")
SUITES = {name: suite_named(f"{BENCHMARKS}/suites.py:{name.replace('-', '_')}") for name in NAMES}
STAND_IN = """
import torch
from torch import nn
import limpet

def opened(name, side):
    torch.manual_seed(sum(map(ord, name)))
    width = 4 + 4 * int(name[-1])
    module = nn.Sequential(nn.Conv2d(3, width, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                           nn.Linear(width * 16, 16))
    return limpet.Release.from_module(module, image_size=min(side, 64), mean=[0.5], std=[0.5])
"""


@pytest.fixture
def encoders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks in place of the packages, behind the very functions that the suites name."""
    functions = (BENCHMARKS / "image_encoders.py").read_text(encoding="utf-8").partition("def lite0_at_64")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "image_encoders.py").write_text(
        STAND_IN + "from limpet import Release\n" + "".join(functions[1:]), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)


def one_seed(name: str) -> Suite:
    return replace(SUITES[name], seeds=(0,))


@pytest.mark.parametrize(("name", "heads", "embedded"), [("image-upgrade", 20 * 2, 2), ("image-chain", 12 * 2, 3)])
def test_suites_of_images_plan_what_they_say(name: str, heads: int, embedded: int, encoders: None) -> None:
    root = Path(os.environ.get("LIMPET_DATA", ""))
    if not (root / "tiny-imagenet-32").is_dir():
        pytest.skip("no folder 'tiny-imagenet-32' in LIMPET_DATA")
    suite = one_seed(name)
    tasks = in_order(row.score for row in Planner(suite, root).rows())
    wholes = [task for task in tasks if task.kind == "frozen-images" and not task.needs]
    assert len(wholes) == embedded
    assert {task.work for task in wholes} == {60 * (30 + 50)}  # images of sixty classes
    assert Counter(task.kind for task in tasks)["head"] == heads
    assert Counter(task.kind for task in tasks)["adapter"] == 2 * sum(bool(row.adapter) for row in suite.rows.values())
    assert Counter(task.kind for task in tasks)["score"] == len(suite.rows) * len(suite.conditions)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_row_of_them_runs(name: str, encoders: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "tiny-imagenet-32", stand_in("tiny-imagenet-32", 3, seen=True))
    fast = {"epochs": 1, "batch_size": 16, "accelerator": "cpu"}

    def smaller(run: Run) -> Run:
        training, reference = run.training.but(recipe=fast), run.reference.but(recipe=fast)
        return replace(run, data=Data("tiny-imagenet-32"), training=training, independent=reference)

    suite = with_runs(one_seed(name), smaller)
    found = Bench(TaskCache(tmp_path / "cells")).run(suite)
    assert not {row.failure for row in found.rows if row.failure}
    assert {(row.scenario, row.label) for row in found.rows} == {
        (scenario, label) for scenario in suite.conditions for label in suite.rows
    }
