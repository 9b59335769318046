"""Suites of heads over frozen models of images: embedded once, divided by seed, scored, and linked into chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet import embed_images, evaluate, load_dataset, open_release
from limpet.errors import ConfigError
from limpet.training.compatible_head import load_head
from limpet_bench.cache import TaskCache
from limpet_bench.run import Bench
from limpet_bench.sources import protocol_of
from limpet_bench.steps import read_sides
from limpet_bench.suite import Suite
from limpet_bench.tasks import VALIDATION, Planner, Row, in_order

from .writing import suite_of

FILE = """
import torch
from torch import nn
import limpet

def network(seed, width, channels=1):
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Conv2d(channels, width, 4, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(width * 25, 16))
    return limpet.Release.from_module(module, image_size=12, channels=channels, mean=[0.5], std=[0.5])

def old():
    return network(0, 2)

def middle():
    return network(1, 8)

def new():
    return network(2, 32)

def colour():
    return network(0, 2, channels=3)
"""
RECIPE = {"epochs": 2, "batch_size": 16, "optimizer": "adamw", "learning_rate": 0.01, "accelerator": "cpu"}
CHAIN = {
    "1-to-2": {"frozen": {"new": "models.py:middle"}},
    "2-to-3": {"predecessor": "1-to-2", "gallery": "1-to-2"},
    "1-to-3": {"predecessor": "1-to-2"},
}

Build = Callable[..., Suite]


@pytest.fixture
def build(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Build a suite over three networks; what is given replaces its parts."""
    (tmp_path / "models.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)

    def of(**parts: Any) -> Suite:
        values = {
            "name": "frozen", "title": "Frozen", "track": "features",
            "data": {str(images): {"image_size": 12, "channels": 1}},
            "scenarios": {"seen": {}, "half unseen": {"unseen_share": 0.5}},
            "frozen": {"old": "models.py:old", "new": "models.py:new"}, "methods": {"p2s": {}, "l2": {}},
            "seeds": [0, 1], "recipe": RECIPE, "metrics": ["recall@1", "map"],
        }  # fmt: skip
        return suite_of({**values, **parts})

    return of


def planned(suite: Suite, **parts: Any) -> list[Row]:
    return list(Planner(suite, None, **parts).rows())


def run(suite: Suite, folder: Path) -> list[dict[str, dict[str, float]]]:
    """Run a suite, and return what its rows scored by metric and system."""
    found = Bench(TaskCache(folder / "cells")).run(suite)
    assert not [row.failure for row in found.rows if row.failure]
    return [row.measured for row in found.rows]


def test_images_are_embedded_once_by_each_model(build: Build) -> None:
    rows = planned(build())
    tasks = in_order(row.score for row in rows)
    assert len(rows) == 2 * 2 * 2
    wholes = [task for task in tasks if task.kind == "frozen-images" and not task.needs]
    assert sorted(task.settings["model"] for task in wholes) == ["models.py:new", "models.py:old"]
    assert Counter(task.kind for task in tasks) == {"frozen-images": 2 + 2 * 4, "head": 8, "score": 8}


def test_half_of_the_classes_are_left_out_of_training_by_the_seed(build: Build) -> None:
    digests = {}
    for row in planned(build(methods={"p2s": {}})):
        (head,) = [task for task in in_order([row.score]) if task.kind == "head"]
        digests[row.scenario, row.seed] = head.settings["data"]["digest"]
        # images to train on times epochs: six images each of twelve classes, or of six
        assert head.work == {"seen": 72 * 2, "half unseen": 36 * 2}[row.scenario]
    assert digests["seen", 0] == digests["seen", 1]
    assert digests["half unseen", 0]["train"] != digests["half unseen", 1]["train"]
    assert len({digest["query"] for digest in digests.values()}) == 1


def test_scores_are_those_of_the_models_themselves(build: Build, images: Path, tmp_path: Path) -> None:
    (row,) = run(build(seeds=[0], methods={"p2s": {}}, scenarios={"seen": {}}), tmp_path)
    assert len(list((tmp_path / "cells" / "shared").glob("features-*"))) == 2 * 3  # which other code finds there, too
    data = load_dataset(images, image_size=12, channels=1)
    old, new = (open_release(f"models.py:{name}") for name in ("old", "new"))
    sides = [embed_images(release, part) for release in (old, new) for part in (data.query, data.gallery)]
    expected = evaluate(sides[:2], sides[2:], metrics=["map"], curve=False, resamples=50)
    assert row["map"]["self_old"] == pytest.approx(expected.self_old["map"])
    assert row["map"]["self_independent"] == pytest.approx(expected.self_new["map"])
    assert row["map"]["cross"] > expected.cross["map"] + 0.05  # without a head there is no link


def test_images_that_search_one_another_leave_themselves_out(build: Build, own_images: Path, tmp_path: Path) -> None:
    (own_images / "query").rename(own_images / "test")
    (own_images / "gallery").rename(tmp_path / "gallery")
    data = {str(own_images): {"image_size": 12, "channels": 1}}
    suite = build(data=data, seeds=[0], methods={"p2s": {}}, scenarios={"seen": {}})
    (planned_row,) = planned(suite)
    assert planned_row.score.settings["protocol"]["leave_one_out"]
    (row,) = run(suite, tmp_path)
    images = load_dataset(own_images, image_size=12, channels=1).query
    found = embed_images(open_release("models.py:old"), images)
    similarity = found.vectors @ found.vectors.T
    np.fill_diagonal(similarity, -2)
    first = np.asarray(found.labels)[similarity.argmax(1)]
    assert row["recall@1"]["self_old"] == pytest.approx(float((first == found.labels).mean()))


def test_another_model_in_the_file_is_embedded_anew(build: Build, tmp_path: Path) -> None:
    before = {row.score.address for row in planned(build())}
    assert {row.score.address for row in planned(build())} == before
    (tmp_path / "models.py").write_text(FILE.replace("network(2, 32)", "network(3, 32)"))
    assert not {row.score.address for row in planned(build())} & before


def test_a_trial_searches_classes_to_train_on(build: Build, images: Path) -> None:
    (row,) = planned(build(seeds=[0], methods={"p2s": {}}, scenarios={"seen": {}}), part=VALIDATION)
    head = row.score.needs["new"]
    assert row.score.settings["protocol"]["leave_one_out"]
    assert head.work == 2 * 60  # a fifth of twelve classes is searched
    assert head.settings["data"]["digest"]["query"] == head.settings["data"]["digest"]["gallery"]
    assert head.settings["data"]["part"] == VALIDATION


@pytest.fixture
def chain(build: Build) -> Suite:
    scenarios: dict[str, Any] = {name: {} for name in CHAIN}
    return build(seeds=[0], methods={"p2s": {}}, scenarios=scenarios, links=CHAIN)


def test_heads_of_a_chain_succeed_one_another(chain: Suite) -> None:
    rows = {row.scenario: row.score for row in planned(chain)}
    first, last = rows["1-to-2"].needs["new"], rows["2-to-3"].needs["new"]
    assert last.needs["old"].address == first.address
    assert rows["2-to-3"].needs["searched"].address == rows["2-to-3"].needs["old"].address == first.address
    assert rows["1-to-3"].needs["new"].address == last.address
    assert rows["1-to-3"].needs["searched"].settings["model"] == "models.py:old"
    assert first.needs["new"].settings["model"] == rows["1-to-2"].needs["independent"].settings["model"]
    assert first.needs["new"].settings["model"] == "models.py:middle"
    assert [chain.generations(name) for name in CHAIN] == [(2, 1), (3, 2), (3, 1)]


def test_a_chain_runs(chain: Suite, tmp_path: Path) -> None:
    scores = dict(zip(CHAIN, (row["map"] for row in run(chain, tmp_path)), strict=True))
    assert scores["2-to-3"]["self_old"] == scores["1-to-2"]["self_new"]
    assert scores["2-to-3"]["self_new"] == scores["1-to-3"]["self_new"]
    assert scores["1-to-3"]["self_old"] == scores["1-to-2"]["self_old"]
    assert scores["2-to-3"]["cross"] != scores["1-to-3"]["cross"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": {"banking77": {}, "omniglot": {}}}, r"texts \(banking77\) and images, and its frozen models"),
        ({"old": {"recipe": {"epochs": 3}}}, "no use for 'old' of the row"),
        ({"frozen": {"new": "models.py:new"}}, "The frozen models was given old="),
        (
            {"links": {"half unseen": {"predecessor": "seen"}}, "methods": {"keep": {}}},
            "The row 'keep' maps queries or gallery, or lays the gallery onto another space, and 'half unseen'",
        ),
        (
            {"links": {"half unseen": {"predecessor": "seen"}}, "methods": {"hbct": {}}},
            "The row 'hbct' maps queries or gallery, or lays",
        ),
        (
            {"links": {"half unseen": {"predecessor": "seen"}}, "methods": {"map": {"adapter": "ridge"}}},
            "The row 'map' maps queries or gallery",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str, build: Build) -> None:
    with pytest.raises(ConfigError, match=said):
        build(**changes)


def test_a_model_of_other_channels_is_refused_before_anything_runs(build: Build) -> None:
    with pytest.raises(ConfigError, match=r"1 channel, and the model 'models.py:colour' takes 3"):
        planned(build(frozen={"old": "models.py:old", "new": "models.py:colour"}))


@pytest.fixture
def unseen(build: Build) -> Suite:
    """Half of the classes are not trained on; in the second scenario their images are shown without a label."""
    scenarios = {"hidden": {"unseen_share": 0.5}, "shown": {"unlabelled_share": 0.5}}
    methods = {name: {"method": name, "model": {"projection": "residual"}} for name in ("keep", "both_sides")}
    return build(seeds=[0], scenarios=scenarios, methods={**methods, "p2s": {}})


def test_images_without_a_label_reach_what_learns_from_them(unseen: Suite, tmp_path: Path) -> None:
    found = Bench(TaskCache(tmp_path / "cells")).run(unseen)
    assert not [row.failure for row in found.rows if row.failure]
    scores = {(row.scenario, row.label): row.measured["map"] for row in found.rows}
    assert scores["hidden", "p2s"] == scores["shown", "p2s"]
    assert scores["hidden", "keep"]["self_new"] != scores["shown", "keep"]["self_new"]
    assert scores["hidden", "both_sides"]["self_new"] != scores["shown", "both_sides"]["self_new"]


def test_a_head_that_stays_is_searched_with_the_mapped_gallery(unseen: Suite, tmp_path: Path) -> None:
    suite = replace(unseen, runs=[run for run in unseen.runs if run.place[1:] == ("shown", "keep")])
    (row,), cache = planned(suite), TaskCache(tmp_path / "cells")
    (found,) = Bench(cache).run(suite).rows
    head, old = (cache.folder(row.score.needs[role]) for role in ("new", "old"))
    gallery = load_head(head / "release").gallery(read_sides(old)[1])
    protocol = protocol_of({}, row.score.settings["protocol"], None, leave_one_out=False)
    expected = protocol.measure(read_sides(head)[0], gallery, ["map"])["map"]
    assert found.measured["map"]["cross"] == pytest.approx(float(np.nanmean(expected)))
