"""How long what is left of a suite takes, by what was measured before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limpet_bench.cache import TaskCache
from limpet_bench.cli.bench import plan_sentences, step_lines
from limpet_bench.run import Estimate, estimate
from limpet_bench.suite import Suite
from limpet_bench.tasks import Task


@pytest.fixture
def cache(tmp_path: Path) -> TaskCache:
    return TaskCache(tmp_path)


@pytest.fixture
def found(small: Callable[..., Suite], cache: TaskCache) -> Callable[[], Estimate]:
    return lambda: estimate(small(), cache, None)


def of_kind(kind: str, among: Estimate) -> list[Task]:
    return [task for task in among.unfinished if task.kind == kind]


def elsewhere(task: Task) -> Task:
    """Return a task of another suite that takes as long."""
    return Task(task.kind, {**task.settings, "side": "elsewhere"}, work=task.work)


def change(cache: TaskCache, task: Task, **values: Any) -> None:
    path = cache.folder(task) / "cell.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_worked_example(cache, found) -> None:
    nothing = found()
    assert (len(nothing.unfinished), nothing.finished, nothing.seconds, nothing.unknown) == (10, 0, None, 10)
    first, *others = of_kind("train", nothing)
    cache.finish(first, {}, seconds=2.0 * first.work)
    after = found()
    assert (len(after.unfinished), after.finished) == (9, 1)
    assert after.seconds == pytest.approx(2.0 * sum(task.work for task in others)) and len(others) == 3
    assert after.unknown == 6  # no embedding and no score was made yet
    cache.finish(of_kind("embed", nothing)[0], {}, seconds=5.0)
    assert found().seconds == pytest.approx(after.seconds + 3 * 5.0) and found().unknown == 2


def test_other_versions_of_the_code_count_only_where_this_one_made_nothing(cache, found) -> None:
    first, *others = of_kind("train", found())
    left = sum(task.work for task in others)
    for number in range(3):
        old = Task("train", {**first.settings, "number": number}, work=first.work)
        cache.finish(old, {}, seconds=100.0 * first.work)
        change(cache, old, code="another")
    assert found().seconds == pytest.approx(100.0 * (left + first.work))
    cache.finish(first, {}, seconds=3.0 * first.work)
    assert found().seconds == pytest.approx(3.0 * left)


def test_work_that_was_counted_otherwise_is_counted_anew_for_tasks_of_the_suite(cache, found) -> None:
    first, *others = of_kind("train", found())
    cache.finish(first, {}, seconds=2.0 * first.work)
    expected = found().seconds
    change(cache, first, work=first.work * 1000)
    assert found().seconds == expected == pytest.approx(2.0 * sum(task.work for task in others))
    other = elsewhere(first)
    cache.finish(other, {}, seconds=4.0 * other.work)
    assert found().seconds == pytest.approx(1.5 * expected)  # the median of 2 and 4


def words(seconds: float | None, unknown: int, *, tasks: int = 8, failed: int = 0, processes: int = 1) -> str:
    left = [Task("train", {"number": number}) for number in range(tasks)]
    return " ".join(plan_sentences(Estimate(left, 0, seconds, unknown), failed, processes))


def test_the_words_divide_by_the_processes_and_say_what_is_not_known() -> None:
    assert words(1200.0, 0).startswith("About 20 minutes one after another, by what was measured")
    told = words(1200.0, 3, processes=4)
    assert "About 5 minutes with 4 at once (20 minutes one after another)" in told
    assert "Of 3 of the 8 steps nothing is known" in told
    assert "10 minutes with 2 at once" in words(1200.0, 0, tasks=2, processes=64)
    assert "nothing is known" not in words(1200.0, 0) and "failed" not in words(1200.0, 0)
    assert words(None, 8).startswith("The duration is unknown") and words(None, 0, tasks=0) == ""
    assert "2 failed before or need one that did" in words(None, 8, failed=2)


def test_at_most_twenty_steps_are_named_and_the_rest_is_counted() -> None:
    def lines(count: int) -> list[str]:
        tasks = [Task("train", {"number": number}, label=f"step {number}") for number in range(count)]
        return list(step_lines(Estimate(tasks, 0, None, count)))

    assert lines(0) == [] and lines(20) == [f"  step {number}" for number in range(20)]
    assert lines(1043) == [*lines(20), "  … and 1,023 more (--json lists all)"]


def test_what_is_made_for_trials_says_what_they_try(small, cache) -> None:
    tuning = {"budget": 2, "search": {"options.weight": [0.1, 20.0]}}
    suite = small(methods={"p2s": {}, "l2": {"search": {}}}, tuning=tuning)
    found = estimate(suite, cache, None)
    tried = [(task.kind, found.trials[task.address]) for task in found.unfinished if task.address in found.trials]
    weights = [{"options.weight": weight} for weight in (0.1, 20.0)]
    assert sorted(tried, key=repr) == [(kind, one) for kind in ("embed", "score", "train") for one in weights]
    assert len(of_kind("train", found)) == 5 and len(of_kind("score", found)) == 4  # old, independent and l2, too
    told = [line for line in step_lines(found) if ", trial: " in line]
    assert len(told) == 6 and sum(line.endswith(", trial: options.weight 20.0") for line in told) == 3
    assert all("p2s" in line for line in told)
