"""Pictures of what models embed: every kind on a suite that was run, held against the embeddings of its tasks."""

from __future__ import annotations

import csv
import sys
from base64 import b64decode
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet_bench import picture_figures as pictures
from limpet_bench.cache import TaskCache
from limpet_bench.executor import Place
from limpet_bench.figure_values import ClassArrivals, Planes, Quantities, ResultStrips
from limpet_bench.leaderboard import Leaderboard
from limpet_bench.picture_figures import picture_tasks
from limpet_bench.pictures.histograms import angles
from limpet_bench.ranking import leaderboard_of
from limpet_bench.reports.leaderboard import leaderboard_text, render_leaderboard
from limpet_bench.reports.suite_figures import write_figures
from limpet_bench.run import Bench, final_rows
from limpet_bench.sessions.plans import disjoint
from limpet_bench.steps import laid_onto, read_sides, released
from limpet_bench.suite import Suite
from limpet_bench.tasks import Task

from ..reports.browser import BROWSER, started

IMAGES: dict[str, Any] = {
    "scenarios": {"extended-class": {"old_fraction": 0.5}},
    "figures": {
        "gallery": {"kind": "embedding", "classes": 3, "items": 4, "title": "Three classes"},
        "named": {"kind": "embedding", "classes": ["cross 20", "cross 18"], "rows": ["l2"], "apart": True},
        "training": {"kind": "embedding", "part": "training", "similar": 2, "examples": 2, "rows": ["p2s"],
                     "show": ["new", "old-prototypes"]},
        "noise": {"kind": "embedding", "part": "training", "nearest": 1, "show": ["old"], "credible": 0.3},
        "angles": {"kind": "histogram", "of": "angle", "rows": ["l2", "p2s"]},
        "seen": {"kind": "histogram", "of": "angle", "rows": ["p2s"], "part": "training", "split": "seen"},
        "hits": {"kind": "strips", "queries": 3, "hits": 2, "rows": ["p2s"]},
        "nothing": {"kind": "histogram", "of": "uncertainty"},
        "losses": {"kind": "loss-curve", "rows": ["p2s"], "terms": ["contrast", "contast"]},
    },
}  # fmt: skip
SESSIONS: dict[str, Any] = {
    "track": "sessions", "plans": {"disjoint": {"sessions": 2, "validation": 1}}, "test_images": 1, "seeds": [1, 0],
    "methods": {"finetune": {}, "cvs": {}}, "budget": 12,
    "figures": {
        "last": {"kind": "strips", "queries": 2, "hits": 3},
        "every": {"kind": "strips", "queries": 2, "hits": 3, "after": "every", "rows": ["cvs"]},
        "plans": {"kind": "class-distribution"},
    },
}  # fmt: skip


class Ran:
    """A suite that was run, its leaderboard, and its tasks."""

    def __init__(self, suite: Suite, cache: TaskCache) -> None:
        self.suite, self.cache = suite, cache
        self.board: Leaderboard = leaderboard_of(Bench(cache).run(suite), command="limpet-bench", wall_seconds=1.0)
        self.rows = final_rows(suite, [], None)

    @cached_property
    def page(self) -> str:
        return render_leaderboard(self.board)

    def task(self, figure: str) -> Task:
        (task,) = picture_tasks(self.suite.figures[figure], self.suite, self.rows).values()
        return task

    def place(self, figure: str) -> Place:
        task = self.task(figure)
        needs = {role: self.cache.folder(needed) for role, needed in task.needs.items()}
        return Place(self.cache.folder(task), needs, None, "cpu", self.cache.root, {})

    def folder(self, figure: str, role: str) -> Path:
        return self.cache.folder(self.task(figure).needs[role])


@pytest.fixture(scope="module")
def images_ran(small: Callable[..., Suite], tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(small(**IMAGES), TaskCache(tmp_path_factory.mktemp("pictures")))


@pytest.fixture(scope="module")
def sessions_ran(small: Callable[..., Suite], tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(small(**SESSIONS), TaskCache(tmp_path_factory.mktemp("pictures")))


def planes(ran: Ran, name: str) -> Planes:
    found = ran.board.figures[name]
    assert isinstance(found, Planes)
    return found


def test_a_plane_has_some_items_of_drawn_classes_by_every_model(images_ran: Ran) -> None:
    found = planes(images_ran, "gallery")
    (panel,) = found.panels
    assert found.title == "Three classes" and panel.place == "" and panel.found.models == ["p2s", "l2"]
    gallery = read_sides(images_ran.folder("gallery", "old"))[1]
    names = {gallery.ids[row]: gallery.class_names[label] for row, label in enumerate(gallery.labels)}
    assert len(panel.found.classes) == 3 and len(panel.found.clusters) == 9
    for cluster in panel.found.clusters:
        assert len(cluster.ids) == 4 and {names[item] for item in cluster.ids} == {cluster.name}


def test_classes_can_be_named_and_the_old_model_stand_apart(images_ran: Ran) -> None:
    (panel,) = planes(images_ran, "named").panels
    assert panel.found.classes == ["cross 20", "cross 18"] and panel.found.models == ["l2"] and panel.found.apart


def test_examples_of_training_classes_are_the_pairs_the_old_model_confuses(images_ran: Ran) -> None:
    panels = planes(images_ran, "training").panels
    assert [panel.place for panel in panels] == ["example 1", "example 2"]
    classes = [name for panel in panels for name in panel.found.classes]
    assert len(set(classes)) == 4 and set(classes) <= {f"cross {number:02d}" for number in range(12)}
    assert all({one.model for one in panel.found.clusters} == {"p2s"} for panel in panels)
    assert all(list(panel.found.prototypes) == panel.found.classes for panel in panels)


def test_what_is_not_credible_in_every_class_is_noise(images_ran: Ran) -> None:
    (panel,) = planes(images_ran, "noise").panels
    assert [len(one.ids) for one in panel.found.clusters] == [6, 6]
    for one in panel.found.clusters:
        assert len(set(one.ids) & set(panel.found.noise)) == 4  # of six


def test_angles_are_those_between_the_stored_galleries(images_ran: Ran) -> None:
    found = images_ran.board.figures["angles"]
    assert isinstance(found, Quantities)
    (panel,) = found.panels
    assert list(panel.found.panels) == ["l2", "p2s"]
    place = images_ran.place("angles")
    old = laid_onto(read_sides(place.needs["old"])[1], place, "model 0")
    for number, label in enumerate(("l2", "p2s")):
        expected = angles(old, read_sides(images_ran.folder("angles", f"new {number}"))[1])
        group = panel.found.panels[label].groups["all"]
        assert group.mean == pytest.approx(expected.mean()) and sum(group.counts) == group.items == len(old) == 36


def test_what_the_old_model_has_seen_stands_apart(images_ran: Ran) -> None:
    found = images_ran.board.figures["seen"]
    assert isinstance(found, Quantities)
    groups = found.panels[0].found.panels["p2s"].groups
    seen = len(released(images_ran.place("seen"), "old model").classes)
    assert seen == 6 and (groups["seen"].items, groups["unseen"].items) == (36, 36)


def test_hits_are_judged_by_class_and_have_pictures(images_ran: Ran) -> None:
    found = images_ran.board.figures["hits"]
    assert isinstance(found, ResultStrips)
    strips = found.panels[0].found
    assert strips.models == ["old model", "p2s"] and len(strips.strips) == 3
    for strip in strips.strips:
        for hits in strip.hits.values():
            assert len(hits) == 2 and all(hit.right is (hit.label == strip.label) for hit in hits)
    assert set(strips.pictures) == set(strips.ids)
    assert all(b64decode(file).startswith(b"\x89PNG") for file in strips.pictures.values())


def test_what_cannot_be_drawn_says_why(images_ran: Ran) -> None:
    notes = images_ran.board.figure_notes
    assert set(notes) == {"nothing", "losses"} and "nothing" not in images_ran.board.figures
    assert "carry no uncertainty" in notes["nothing"]
    assert "Unknown term of the loss: 'contast'. Did you mean 'contrast'?" in notes["losses"]
    text, page = leaderboard_text(images_ran.board), images_ran.page
    assert "  gallery: Three classes\n" in text and "  nothing: not drawn. The embeddings" in text
    assert "  losses: in part. Unknown term" in text
    assert "Not drawn: <b>nothing</b>" in page and "Drawn in part: Unknown term" in page


def test_a_figure_waits_for_a_package_and_trains_nothing(images_ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    found = Bench(images_ran.cache).run(images_ran.suite)
    assert "pip install '.[tsne]' in the checkout of limpet, then the same command" in found.figure_notes["gallery"]
    spec = images_ran.suite.figures["gallery"]
    assert pictures.needed_tasks(spec, images_ran.suite, images_ran.rows) == []


def test_learners_are_searched_after_the_last_session_or_after_every_one(sessions_ran: Ran) -> None:
    last, every = (sessions_ran.board.figures[name] for name in ("last", "every"))
    assert isinstance(last, ResultStrips) and isinstance(every, ResultStrips)
    assert last.panels[0].found.models == ["finetune", "cvs"]
    assert every.panels[0].found.models == ["cvs, session 1", "cvs, session 2"]
    plan = sessions_ran.board.figures["plans"]
    assert isinstance(plan, ClassArrivals)
    first = {name for name, home in zip(plan.panels[0].classes, plan.panels[0].home, strict=True) if home == 1}
    assert {strip.label for strip in every.panels[0].found.strips} <= first
    for strip in every.panels[0].found.strips:
        assert {hit.label for hit in strip.hits["cvs, session 1"]} <= first
    assert set(last.panels[0].found.pictures) == set(last.panels[0].found.ids)


def test_classes_arrive_as_the_plan_of_the_first_seed_says(sessions_ran: Ran) -> None:
    found = sessions_ran.board.figures["plans"]
    assert isinstance(found, ClassArrivals)
    (panel,) = found.panels
    labels = np.repeat(np.arange(12), 5)  # one of six images of every class is a test query
    plan = disjoint(labels, sessions=2, validation=1, seed=1)
    assert panel.home == sorted(panel.home) == [1] * 6 + [2] * 6
    for at, name in enumerate(panel.classes):
        number = int(name.removeprefix("cross "))
        assert [row[at] for row in panel.images] == plan.training_counts[number].tolist()


def test_pictures_are_written_and_shown_and_come_back(images_ran: Ran, sessions_ran: Ran, tmp_path: Path) -> None:
    for ran in (images_ran, sessions_ran):
        again = Leaderboard.load(ran.board.save(tmp_path))
        assert again.figures == ran.board.figures and again.figure_notes == ran.board.figure_notes
        write_figures(ran.board, tmp_path)
        for name, value in ran.board.figures.items():
            assert {path.suffix for path in (tmp_path / "figures").glob(f"{name}.*")} == {".md", ".csv", ".svg"}
            with (tmp_path / "figures" / f"{name}.csv").open(newline="") as file:
                assert list(csv.DictReader(file))
            assert value.title in ran.page


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_pictures_fit_a_desk_a_tablet_and_a_phone(images_ran: Ran, sessions_ran: Ran, tmp_path: Path) -> None:
    with started(tmp_path) as browser:
        shown = [found for ran in (images_ran, sessions_ran) for found in browser.measured(ran.page).values()]
    for found in shown:
        assert found["scroll"] == found["client"] and found["outside"] == [] and found["smallest"] >= 9
