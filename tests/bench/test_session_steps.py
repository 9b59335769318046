"""The track "sessions": tasks of learners come to the numbers of `run_sessions`, and share the first session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from limpet_bench.cache import TaskCache
from limpet_bench.leaderboard import BenchRuns
from limpet_bench.run import Bench, estimate
from limpet_bench.sessions.results import SessionRecord, average_recall, forgetting
from limpet_bench.sessions.runner import run_sessions
from limpet_bench.settings import experiment_on
from limpet_bench.sources import open_setting
from limpet_bench.steps import hand_over
from limpet_bench.suite import SESSION_SCORES, Suite
from limpet_bench.tasks import Planner, in_order

METHODS = {"finetune": {}, "cvs": {}, "rwalk": {}, "joint": {}}
PLANS = {
    "disjoint": {"sessions": 3, "validation": 1},
    "general-incremental": {"first_classes": 4, "new_classes": 4, "sessions": 3, "old_share": 0.3, "validation": 1},
}


@pytest.fixture(scope="module")
def suite(small: Callable[..., Suite]) -> Suite:
    return small(track="sessions", plans=PLANS, test_images=1, budget=6, methods=METHODS)


@pytest.fixture(scope="module")
def ran(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> tuple[TaskCache, BenchRuns]:
    cache = TaskCache(tmp_path_factory.mktemp("tasks"))
    return cache, Bench(cache).run(suite)


def kinds(suite: Suite) -> list[str]:
    return [task.kind for task in in_order(row.score for row in Planner(suite, None).rows())]


def without_seconds(records: list[SessionRecord]) -> list[dict[str, Any]]:
    return [record.model_dump(exclude={"seconds"}) for record in records]


@pytest.mark.parametrize("plan", PLANS)
def test_every_learner_comes_to_what_it_comes_to_beside_the_others(plan, suite, ran, tmp_path) -> None:
    cache, bench = ran
    tasks = {row.label: row.score for row in Planner(suite, None).rows() if row.scenario == plan}
    learners = {label: experiment_on(task.settings["experiment"], "cpu") for label, task in tasks.items()}
    setting = open_setting(tasks["cvs"].settings, None)
    records = run_sessions(setting, learners, tmp_path)
    rows = {row.label: row for row in bench.rows if row.scenario == plan}
    for label, expected in records.items():
        found = cache.record(tasks[label])
        records_found = [SessionRecord(**one) for one in found.values["sessions"]] if found else []
        assert without_seconds(records_found) == without_seconds(expected)
        recall = {f"ar@{k}": value for k, value in average_recall([one.recall for one in expected]).items()}
        lost = forgetting([one.recall_by_home for one in expected])
        last = {"last": expected[-1].recall["1"], "forgetting": lost}
        assert rows[label].scores == {**recall, **last}


def test_rows_have_the_scores_of_sessions_and_no_p(ran) -> None:
    _, bench = ran
    assert bench.suite.metric == "ar@1" and bench.suite.kind == "sessions"
    assert {(row.scenario, row.label) for row in bench.rows} == {(p, m) for p in PLANS for m in METHODS}
    for row in bench.rows:
        assert set(row.scores) == set(SESSION_SCORES) and row.metric == "ar@1" and row.failure is None
        assert row.p_up is row.p_comp is row.p_score is row.verdict is None and row.seconds > 0


def test_the_first_session_is_one_task_for_all_learners_but_one_that_has_to_watch_it(suite, ran) -> None:
    cache, _ = ran
    assert sorted(kinds(suite)) == ["first-session"] * 2 + ["sessions"] * 8
    rows = list(Planner(suite, None).rows())
    assert {row.label: set(row.score.needs) for row in rows} == {
        "finetune": {"first"}, "cvs": {"first"}, "joint": {"first"}, "rwalk": set(),
    }  # fmt: skip
    prints = {
        cache.record(row.score).values["sessions"][0]["fingerprint"] for row in rows if row.scenario == "disjoint"
    }  # type: ignore[index]
    assert len(prints) == 1  # that one trains it again, to the same weights


def test_the_training_that_learners_share_is_counted_once_in_a_row(suite, ran) -> None:
    cache, bench = ran
    tasks = [row.score for row in Planner(suite, None).rows()]
    needed = [{one.address for one in task.needs.values()} for task in tasks]
    for row, task in zip(bench.rows, tasks, strict=True):
        record = cache.record(task)
        parts = [list(one["seconds"].values()) for one in record.values["sessions"]]
        shared = record.values["sessions"][0]["seconds"]["training"] if task.needs else 0.0
        assert record.values["seconds"] == pytest.approx(sum(map(sum, parts)) - shared)
        spent = cache.record(task).seconds + sum(
            cache.record(one).seconds / sum(one.address in known for known in needed) for one in task.needs.values()
        )
        assert row.seconds == pytest.approx(spent)


CHANGES: dict[str, tuple[dict[str, Any], int, int]] = {
    "another memory": ({"budget": 7}, 0, 4),  # of cvs and rwalk, in both plans
    "another memory of a row": ({"methods": METHODS | {"cvs": {"budget": 7}}}, 0, 2),
    "the same memory of a row": ({"methods": METHODS | {"cvs": {"budget": 6}}}, 0, 0),
    "another option of a learner": ({"methods": METHODS | {"cvs": {"options": {"data_weight": 2.0}}}}, 0, 2),
    "another recipe": ({"recipe": {"epochs": 2, "batch_size": 8, "learning_rate": 0.05}}, 2, 8),
    "another plan": ({"plans": PLANS | {"disjoint": {"sessions": 2, "validation": 1}}}, 1, 4),
    "other test queries": ({"test_images": 2}, 2, 8),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_reaches_the_first_session_only_where_it_decides_it(what, suite, small) -> None:
    parts, first, learners = CHANGES[what]
    values = {"track": "sessions", "plans": PLANS, "test_images": 1, "budget": 6, "methods": METHODS, **parts}
    before, after = (
        {task.label: task for task in in_order(row.score for row in Planner(one, None).rows())}
        for one in (suite, small(**values))
    )
    changed = [task.kind for label, task in after.items() if task.address != before[label].address]
    assert (changed.count("first-session"), changed.count("sessions")) == (first, learners)


def test_a_memory_can_be_tried_like_any_setting_of_a_row(suite, small) -> None:
    values = {"track": "sessions", "plans": PLANS, "test_images": 1, "budget": 6}
    written = small(**values, methods={"cvs": {"budget": 7}})
    expected, *_ = Planner(written, None).rows()
    (tried,) = Planner(suite, None).of(suite.rows["cvs"], 0, {"budget": 7})
    assert tried.score.address == expected.score.address and tried.settings == {"budget": 7}
    assert tried.score.settings["budget"] == 7


def test_learners_are_tuned_by_the_validation_queries_of_their_plan(small, tmp_path) -> None:
    """The trial with the highest validation recall averaged over sessions is the row, and nothing is trained twice."""
    weights = [30.0, 0.1]
    values = {"track": "sessions", "plans": {"disjoint": {"sessions": 2, "validation": 1}}}
    values |= {"test_images": 1, "budget": 6}
    tuning = {"budget": 2, "search": {"options.model_weight": weights}}
    suite = small(**values, tuning=tuning, methods={"cvs": {}, "finetune": {"search": {}}})
    cache = TaskCache(tmp_path)
    assert Counter(task.kind for task in estimate(suite, cache, None).unfinished) == {"first-session": 1, "sessions": 3}
    found = Bench(cache).run(suite)
    recall = {}
    for weight in weights:
        written = small(**values, methods={"cvs": {"options": {"model_weight": weight}}})
        (row,) = Planner(written, None).rows()
        recall[weight] = np.mean([one["validation_recall"] for one in cache.record(row.score).values["sessions"]])
    tried = {trial["changes"]["options.model_weight"]: trial["validation_ar@1"] for trial in found.tuning}
    assert tried == pytest.approx(recall) and recall[weights[0]] != recall[weights[1]]
    best = max(weights, key=recall.__getitem__)
    assert best == weights[1], "the first would be taken of equals"
    assert [trial["chosen"] for trial in found.tuning] == [weight == best for weight in weights]
    rows = {row.label: row for row in found.rows}
    assert rows["cvs"].options["model_weight"] == best and rows["finetune"].changes == {}
    assert estimate(suite, cache, None).unfinished == []


def test_a_first_session_is_handed_over_whole_or_not_at_all(tmp_path) -> None:
    first, folder = tmp_path / "first", tmp_path / "run" / "session-1"
    first.mkdir()
    (first / "config.json").write_text("whole")
    part = folder.with_name("session-1.unfinished")
    part.mkdir(parents=True)
    (part / "config.json").write_text("ha")  # of a copy that was interrupted
    hand_over(first, folder)
    assert (folder / "config.json").read_text() == "whole" and not part.exists()
    (folder / "checkpoint").write_text("its own")
    hand_over(first, folder)
    assert (folder / "checkpoint").exists()


def test_a_learner_that_cannot_be_trained_is_a_row_that_failed(small, tmp_path) -> None:
    methods = {"finetune": {}, "crowded": {"method": "finetune", "recipe": {"items_per_class": 1}}}
    suite = small(track="sessions", plans={"disjoint": PLANS["disjoint"]}, test_images=1, methods=methods)
    rows = {row.label: row for row in Bench(TaskCache(tmp_path)).run(suite).rows}
    assert rows["finetune"].failure is None and rows["crowded"].scores is None
    assert rows["crowded"].failure.startswith("first session")  # 8 classes a batch, and 4 in a session
