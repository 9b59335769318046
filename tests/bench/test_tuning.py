"""Equal tuning: as many trials for every row, chosen by a stated rule, and on validation data alone."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.data.text_set import TextData, TextSet
from limpet.embeddings import StringArray
from limpet.errors import ConfigError
from limpet_bench.cache import TaskCache
from limpet_bench.run import Bench, chosen_settings, estimate, planned_trials, trial_outcomes, trials_of
from limpet_bench.sources import VALIDATION_SHARE, set_apart
from limpet_bench.suite import Run, Search
from limpet_bench.tasks import Row, Task, in_order

from .writing import suite_of

RATES = {"recipe.learning_rate": [0.02, 0.05, 0.1, 0.2]}


def tried(budget: int, options: dict[str, list[Any]], **recipe: list[Any]) -> list[Any]:
    return trials_of(Run("p2s", "glyphs", search=Search(budget, options=options, recipe=recipe)))


def test_a_grid_that_fits_is_tried_whole_and_of_a_larger_one_so_many_are_drawn() -> None:
    space: Any = {"options": {"weight": [1, 2, 3]}, "learning_rate": [0.1, 0.2]}
    every = tried(6, **space)
    assert every == tried(99, **space) == [
        {"options.weight": weight, "recipe.learning_rate": rate} for weight in (1, 2, 3) for rate in (0.1, 0.2)
    ]  # fmt: skip
    drawn = tried(4, **space)
    assert len({repr(trial) for trial in drawn}) == 4 and all(trial in every for trial in drawn)
    assert drawn == tried(4, **space) and tried(4, {}) == [] == trials_of(Run("p2s", "glyphs"))


def test_rows_with_grids_of_one_size_get_as_many_trials_of_the_same_places() -> None:
    first = tried(3, {"weight": [1, 2, 3, 4, 5]})
    second = tried(3, {"temperature": [10, 20, 30, 40, 50]})
    assert [trial["options.weight"] * 10 for trial in first] == [trial["options.temperature"] for trial in second]


def test_every_row_that_has_a_choice_gets_the_whole_budget(small) -> None:
    own = {"search": {"options.temperature": [0.05, 0.1, 0.2, 0.4]}}
    methods = {"p2s": own, "l2": {}, "as written": {"method": "p2s", "search": {}}}
    suite = small(methods=methods, tuning={"budget": 3, "search": RATES, "seeds": [0, 1]})
    rows = planned_trials(suite, None)
    tried = {label: {repr(row.changes) for row in rows if row.label == label} for label in methods}
    assert {label: len(found) for label, found in tried.items()} == {"p2s": 3, "l2": 3, "as written": 0}
    assert [row.seed for row in rows] == [0, 1] * 6


def test_a_row_with_a_single_way_to_be_set_takes_it_without_a_trial(small, images) -> None:
    methods = {"p2s": {"search": {"options.weight": [3.0]}}, "l2": {}}
    suite = small(methods=methods, tuning={"budget": 4, "search": RATES})
    assert {row.label for row in planned_trials(suite, None)} == {"l2"}
    place = (str(images), "extended-class", "p2s")
    assert chosen_settings(suite, []) == {place: {"options.weight": 3.0}}


class Trials:
    """Trials of one row whose records say what each came to, P_up and P_comp with an old model of 0 and one of 1."""

    def __init__(self, cache: TaskCache) -> None:
        self.cache, self.rows = cache, []

    def add(self, up: float, comp: float, *, seed: int = 0, name: int | None = None, independent: float = 0.5) -> None:
        changes = {"options.weight": len(self.rows) if name is None else name}
        row = self.row(changes, seed)
        given = {"self_old": 0.1, "self_independent": independent}
        given |= {"self_new": independent * (1 + up), "cross": 0.1 + comp * (independent - 0.1)}
        self.cache.finish(row.score, {"scores": {"map": given}, "verdict": "compatible"}, 1.0)
        self.rows.append(row)

    def fail(self) -> None:
        row = self.row({"options.weight": len(self.rows)}, 0)
        self.cache.fail(row.score.needs["model"], "the loss is not finite")
        self.rows.append(row)

    def row(self, changes: dict[str, Any], seed: int) -> Row:
        model = Task("train", {"experiment": {"method": "p2s", "options": changes, "seed": seed}}, label="p2s")
        return Row("data", "scenario", "p2s", seed, Task("score", {}, {"model": model}), changes, "data", "map", {})

    def chosen(self) -> list[int]:
        return [trial.changes["options.weight"] for trial in trial_outcomes(self.rows, self.cache) if trial.chosen]


@pytest.fixture
def trials(tmp_path: Path) -> Trials:
    return Trials(TaskCache(tmp_path))


RULE: dict[str, tuple[Sequence[tuple[float, float]], int]] = {
    "the highest P_comp": ([(0.0, 0.2), (0.1, 0.6), (0.2, 0.4)], 1),
    "not at the cost of the new model": ([(0.0, 0.2), (-0.06, 0.9), (-0.04, 0.3)], 2),
    "just within the cost": ([(0.0, 0.2), (-0.0499, 0.9), (-0.0501, 0.95)], 1),
    "the very bound, which sums may miss by a rounding": ([(0.0, 0.2), (-0.05, 0.9)], 1),
    "the highest P_up where all cost too much": ([(-0.3, 0.9), (-0.1, 0.1), (-0.2, 0.5)], 1),
    "one that costs little before any that costs much": ([(-0.051, 5.0), (0.0, -3.0)], 1),
    "the first of equals": ([(0.0, 0.2), (0.3, 0.5), (0.1, 0.5)], 1),
}


@pytest.mark.parametrize("what", RULE)
def test_the_rule_of_choice(what, trials) -> None:
    values, best = RULE[what]
    for up, comp in values:
        trials.add(up, comp)
    assert trials.chosen() == [best]


def test_seeds_are_averaged_before_the_choice(trials) -> None:
    for name, comps in enumerate([(0.1, 0.9), (0.45, 0.45)]):
        for seed, comp in enumerate(comps):
            trials.add(0.0, comp, seed=seed, name=name)
    found = trial_outcomes(trials.rows, trials.cache)
    assert [trial.p_comp for trial in found] == pytest.approx([0.5, 0.45]) and trials.chosen() == [0]


def test_a_trial_that_failed_is_shown_and_never_chosen(trials) -> None:
    trials.fail()
    trials.add(-0.9, -0.9)
    found = trial_outcomes(trials.rows, trials.cache)
    assert found[0].failure == "p2s: the loss is not finite" and found[0].p_comp is None
    assert trials.chosen() == [1]


def test_where_all_failed_nothing_is_chosen_and_the_row_stays_as_written(trials, small) -> None:
    trials.fail(), trials.fail()
    found = trial_outcomes(trials.rows, trials.cache)
    assert trials.chosen() == [] and chosen_settings(small(), found) == {}


def test_where_p_comp_is_not_defined_the_first_is_taken(trials) -> None:
    for comp in (0.1, 0.9):
        trials.add(0.0, comp, independent=0.1)
    assert [trial.p_comp for trial in trial_outcomes(trials.rows, trials.cache)] == [None, None]
    assert trials.chosen() == [0]


TUNING = {"budget": 2, "search": {"options.weight": [0.1, 20.0]}}


def test_trials_never_read_the_images_of_the_evaluation(content, own_images, tmp_path) -> None:
    """They come to the same where no image of the evaluation can be read at all, and where there is none like it."""
    suite = suite_of(content(own_images, methods={"p2s": {}}, tuning=TUNING))
    bench = Bench(TaskCache(tmp_path / "tasks"))
    untouched = bench.run(suite)
    spoiled = tmp_path / "spoiled" / "crosses"
    shutil.copytree(own_images, spoiled)
    for part in ("query", "gallery"):
        for path in (spoiled / part).rglob("*.png"):
            path.write_bytes(b"no image")
    other = suite_of(content(spoiled, methods={"p2s": {}}, tuning=TUNING))
    found = Bench(TaskCache(tmp_path / "other tasks")).run(other)
    assert [trial["p_comp"] for trial in found.tuning] == [trial["p_comp"] for trial in untouched.tuning]
    assert [trial["chosen"] for trial in found.tuning] == [trial["chosen"] for trial in untouched.tuning]
    assert all(trial["failure"] is None for trial in found.tuning)
    assert [row.failure is None for row in found.rows] == [False]  # the final rows do read them
    assert [row.failure for row in untouched.rows] == [None]


def test_what_was_chosen_is_what_the_row_is_run_with(content, images, tmp_path) -> None:
    suite = suite_of(content(images, methods={"p2s": {}, "l2": {"search": {}}}, tuning=TUNING))
    cache = TaskCache(tmp_path)
    assert len([task for task in estimate(suite, cache, None).unfinished if task.kind == "train"]) == 5
    found = Bench(cache).run(suite)
    best = next(trial for trial in found.tuning if trial["chosen"])
    rows = {row.label: row for row in found.rows}
    assert rows["p2s"].changes == best["changes"]
    assert rows["p2s"].options["weight"] == best["changes"]["options.weight"]
    assert rows["l2"].changes == {} and {trial["place"][2] for trial in found.tuning} == {"p2s"}
    assert estimate(suite, cache, None).unfinished == []


def test_trials_and_final_rows_of_the_same_settings_share_their_models(small) -> None:
    suite = small(methods={"p2s": {}}, tuning=TUNING)
    final = in_order(
        [
            row.score
            for row in planned_trials(replace(suite, runs=[replace(run, search=None) for run in suite.runs]), None)
        ]
    )
    assert final == []
    kinds = [task.kind for task in in_order(row.score for row in planned_trials(suite, None))]
    assert kinds.count("train") == 4 and kinds.count("score") == 2  # old and independent once


def test_data_without_validation_images_is_refused_before_anything_is_run(content, own_images, tmp_path) -> None:
    shutil.rmtree(own_images / "val")
    suite = suite_of(content(own_images, tuning=TUNING | {"search": RATES}))
    with pytest.raises(ConfigError, match="no validation images"):
        Bench(TaskCache(tmp_path / "tasks")).run(suite)
    assert not (tmp_path / "tasks").exists()


def texts(classes: int, each: int, prefix: str) -> TextSet:
    labels = np.repeat(np.arange(classes), each)
    words = [f"{prefix} {row} of {label}" for row, label in enumerate(labels)]
    names = tuple(f"intent {label}" for label in range(classes))
    return TextSet(StringArray.of(words), labels, names, StringArray.of(words))


def test_trials_of_heads_read_only_texts_to_fit_on() -> None:
    train = texts(20, 6, "fit")
    found = set_apart(TextData("made", train, texts(20, 2, "ask"), texts(20, 3, "kept"), "made up"))
    used = [text for part in found.parts().values() for text in part.ids]
    assert sorted(used) == sorted(train.ids)  # each once, and no text of the evaluation
    assert len(found.query.class_names) == VALIDATION_SHARE * 20
    assert not set(found.train.class_names) & set(found.query.class_names)
    assert len(found.query) == len(found.gallery) == 4 * 3
    other = set_apart(TextData("made", train, texts(20, 3, "other"), texts(20, 4, "else"), "made up"))
    assert {name: part.digest() for name, part in found.parts().items()} == {
        name: part.digest() for name, part in other.parts().items()
    }


def test_trials_search_what_tuning_sets_apart_and_never_the_evaluation(small: Any, images: Path) -> None:
    name = str(images)
    suite = small(methods={"p2s": {}}, tuning={"budget": 2, "search": RATES, "data_options": {name: {"image_size": 8}}})
    tasks = in_order([row.score for row in planned_trials(suite, None)])
    assert {task.settings["part"] for task in tasks if task.kind == "embed"} == {"validation"}
    assert {task.settings["data"]["options"]["image_size"] for task in tasks} == {8}
