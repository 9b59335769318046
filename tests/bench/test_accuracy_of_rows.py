"""Accuracy as a further metric of a suite: what every number is of, held against slow loops over images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from limpet.data.image_set import ImageSet
from limpet.data.loading import encoding_loader
from limpet.errors import ConfigError
from limpet.evaluation.compatibility import PMetrics, SelfAndCross
from limpet.methods.base import View
from limpet.models.release import Release, load_release
from limpet_bench.cache import TaskCache
from limpet_bench.run import Bench
from limpet_bench.sources import open_images, open_setting
from limpet_bench.suite import Suite
from limpet_bench.tasks import VALIDATION, Planner, in_order

from .conftest import SIDE, draw_images

Small = Callable[..., Suite]
OPTIONS = {"image_size": SIDE, "channels": 1}
RECIPE = {"epochs": 12, "batch_size": 8, "learning_rate": 0.05}
SESSIONS: dict[str, Any] = {
    "track": "sessions", "plans": {"disjoint": {"sessions": 2, "validation": 1}}, "test_images": 1, "recipe": RECIPE,
}  # fmt: skip


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Images of which queries and gallery are of every third class of training, and of two others."""
    folder = draw_images(tmp_path / "closed", per_class=12)
    for part in ("query", "gallery"):
        for place in (folder / part).iterdir():
            for number, path in enumerate(sorted(place.iterdir())):
                path.rename(path.with_name(f"{number}, of {part}.png"))
            place.rename(place.with_name(f"of {place.name}"))
        for label in (0, 3, 6, 9):
            other = folder / part / f"of cross {18 + label // 3:02d}"
            for path in other.iterdir():
                path.unlink()
            for path in sorted((folder / "train" / f"cross {label:02d}").iterdir())[:: 2 if part == "query" else 3]:
                path.rename(other / path.name)
            other.rename(folder / part / f"cross {label:02d}")
    return folder


def slow_accuracy(reads: Release, embeds: Release, *parts: ImageSet) -> float:
    """Return how often a classifier names the class of an image by the features of a model, one after the other."""
    right = count = 0
    assert reads.head is not None
    for images in parts:
        for batch in encoding_loader(images, batch_size=1):
            with torch.no_grad():
                (logits,) = reads.head.logits(View.of(embeds.encoder(batch.inputs), reads.space)).tolist()
            right += reads.classes[logits.index(max(logits))] == images.class_names[int(batch.labels)]
            count += 1
    return right / count


def test_numbers_of_rows_are_what_classifiers_name(small: Small, closed: Path, tmp_path: Path) -> None:
    cache = TaskCache(tmp_path / "tasks")
    scenarios = {"extended-class": {"old_fraction": 0.75, "order": "first"}}
    methods = {"bct": {}, "l2": {}}
    suite = small(
        data={str(closed): OPTIONS},
        methods=methods,
        scenarios=scenarios,
        accuracy=True,
        recipe=RECIPE,
        head="softmax",
        seeds=(2,),
    )
    runs = Bench(cache).run(suite).rows
    pictures = open_images({"name": str(closed), "options": OPTIONS}, None)
    everything = (pictures.query, pictures.gallery)
    values: dict[str, set[float]] = {}
    for row, run in zip(Planner(suite, None).rows(), runs, strict=True):
        old, new, independent = (
            load_release(cache.folder(row.score.needs[role].needs["model"]) / "release")
            for role in ("old", "new", "independent")
        )
        expected = {
            "self_old": slow_accuracy(old, old, *everything),
            "self_independent": slow_accuracy(independent, independent, *everything),
            "self_new": slow_accuracy(new, new, *everything),
            "cross": slow_accuracy(old, new, *everything),
        }
        found = run.measured["accuracy"]
        assert {name: found[name] for name in expected} == pytest.approx(expected)
        values |= {name: {*values.get(name, ()), value} for name, value in expected.items()}
        p = PMetrics.of(SelfAndCross(*expected.values()))
        assert found["p_comp"] == pytest.approx(p.p_comp["raw"]) and found["p_up"] == pytest.approx(p.p_up["raw"])
        assert set(run.measured) == {"recall@1", "map", "accuracy"} and run.metric == "map"
    assert max(values["cross"]) > 0, "numbers that tell one classifier from another"
    assert len(set().union(*values.values())) > 2


def test_a_learner_is_measured_after_the_last_session(small: Small, tmp_path: Path) -> None:
    cache = TaskCache(tmp_path / "tasks")
    suite = small(**SESSIONS, methods={"finetune": {}}, accuracy=True)
    (run,) = Bench(cache).run(suite).rows
    (row,) = Planner(suite, None).rows()
    release = load_release(cache.folder(row.score) / "run" / "learner" / "session-2")
    setting = open_setting(row.score.settings, None)
    expected = slow_accuracy(release, release, setting.queries(1))
    assert run.measured["accuracy"] == {"learner": pytest.approx(expected)} and expected > 0
    assert len(setting.queries(1)) == 12, "of all classes, those of the first session too"


@pytest.mark.parametrize("parts", [{"methods": {"p2s": {}}}, {**SESSIONS, "methods": {"finetune": {}}}])
def test_tasks_that_were_there_without_it_stay(parts: dict[str, Any], small: Small, closed: Path) -> None:
    data = {str(closed): OPTIONS}
    without, beside = ([*Planner(small(data=data, accuracy=one, **parts), None).rows()] for one in (False, True))
    assert [row.score.address for row in without] == [row.score.address for row in beside]
    assert not any(row.further for row in without) and all(len(row.further) == 1 for row in beside)
    own = {task.address for task in in_order(row.score for row in beside)}
    (further,) = beside[0].further
    models = [task for task in in_order([further]) if task.kind in ("train", "sessions", "first-session")]
    assert {task.address for task in models} <= own, "nothing is trained for it"
    trials = Planner(small(data=data, accuracy=True, **parts), None, VALIDATION)
    assert not any(row.further for row in trials.rows())


def test_images_of_other_classes_are_refused_before_anything_is_run(small: Small) -> None:
    with pytest.raises(ConfigError, match="no class that models are trained on"):
        list(Planner(small(accuracy=True), None).rows())
