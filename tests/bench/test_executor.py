"""Running tasks: once each, in an order that needs nothing unfinished, and on past what fails."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from limpet.errors import ConfigError, DataError
from limpet_bench import steps
from limpet_bench.cache import TaskCache
from limpet_bench.executor import Progress, blocked_by, ready_tasks, reason_of, run_tasks
from limpet_bench.leaderboard import BenchRuns
from limpet_bench.run import Bench
from limpet_bench.suite import Suite
from limpet_bench.tasks import Task, code_version


def note(settings: Any, place: Any) -> dict[str, Any]:
    """Write down that it ran and what its needs returned; fail where the settings say so."""
    with (place.cache.parent / "ran").open("a") as log:
        log.write(settings["name"] + "\n")
    if settings.get("fails") == "limpet":
        raise ConfigError("It was meant to fail.", expected="nothing else")
    if settings.get("fails") == "plain":
        raise KeyError("no such thing")
    return {
        "sum": 1
        + sum(json.loads((needed / "cell.json").read_text())["values"]["sum"] for needed in place.needs.values())
    }


LINE = next(
    number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "raise KeyError(" in line
)
PLAIN = f"KeyError: 'no such thing' (test_executor.py:{LINE})"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskCache:
    monkeypatch.setitem(steps.STEPS, "note", note)
    return TaskCache(tmp_path)


def task(name: str, *needs: Task, **settings: Any) -> Task:
    work = settings.pop("work", 1.0)
    return Task("note", {"name": name, **settings}, {str(i): one for i, one in enumerate(needs)}, work, name)


def ran(cache: TaskCache) -> list[str]:
    log = cache.root / "ran"
    return log.read_text().split() if log.exists() else []


def test_what_is_needed_is_run_first_and_everything_once(cache) -> None:
    base = task("base")
    left, right = task("left", base), task("right", base)
    top = task("top", left, right, task("base"))
    run_tasks([top, left, task("top", left, right, base)], cache)
    assert ran(cache) == ["base", "left", "right", "top"]
    assert cache.record(top).values == {"sum": 6}
    run_tasks([top], cache)
    assert len(ran(cache)) == 4


@pytest.mark.parametrize(
    ("fails", "reason"), [("limpet", "It was meant to fail. Expected: nothing else."), ("plain", PLAIN)]
)
def test_a_failure_is_noted_with_its_reason_and_stops_only_what_needs_it(cache, fails, reason) -> None:
    bad, good = task("bad", fails=fails), task("good")
    above, further, beside = task("above", bad, good), task("further", good), task("beside")
    last = task("last", above)
    run_tasks([last, further, beside], cache)
    assert ran(cache) == ["bad", "good", "further", "beside"]
    assert blocked_by(bad, cache) == reason
    assert blocked_by(above, cache) == blocked_by(last, cache) == f"bad: {reason}"
    assert blocked_by(further, cache) is None and cache.failure(above) is None
    run_tasks([last], cache)
    assert len(ran(cache)) == 4  # not tried again by itself
    assert cache.forget_failures([further]) == 0 and cache.forget_failures([last]) == 1
    run_tasks([last], cache)
    assert ran(cache)[4:] == ["bad"]


def raised(given: str, expected: str = "", to_do: str = "") -> DataError:
    return DataError(given, expected=expected, to_do=to_do)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (raised("3 seeds.", "two", "add one"), "3 seeds. Expected: two. Next: add one."),
        (raised("No room!", to_do="free some."), "No room! Next: free some."),
        (raised("Two\n\nlines"), r"Two\n\nlines."),
        (raised(""), "DataError"),
    ],
)
def test_a_reason_has_all_that_limpet_says_on_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_the_traceback_of_a_failure_is_kept(cache) -> None:
    bad = task("bad", fails="plain")
    run_tasks([bad], cache)
    kept = json.loads((cache.folder(bad) / "failure.json").read_text())
    assert kept["traceback"].startswith("Traceback") and f'test_executor.py", line {LINE}, in note' in kept["traceback"]
    assert kept["reason"] == PLAIN


def test_the_watcher_is_told_of_every_task_that_begins_and_ends(cache) -> None:
    seen: list[Progress] = []
    one, bad = task("one"), task("bad", fails="plain")
    run_tasks([one, bad, task("above", bad)], cache, watch=seen.append)
    assert [(found.task, found.done, found.total, found.running) for found in seen] == [
        (None, 0, 3, (one,)), (one, 1, 3, ()), (None, 1, 3, (bad,)), (bad, 2, 3, ()),
    ]  # fmt: skip
    assert [found.failure for found in seen] == [None, None, None, PLAIN]


def test_a_stop_from_the_keyboard_is_no_failure(cache, monkeypatch) -> None:
    def stop(settings: Any, place: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setitem(steps.STEPS, "note", stop)
    with pytest.raises(KeyboardInterrupt):
        run_tasks([task("one")], cache)
    assert cache.failure(task("one")) is None and cache.record(task("one")) is None


def full(path: Path) -> None:
    """Write where there is never room."""
    with path.open("wb", buffering=0) as file:
        file.write(b"a model")


def told_in_words(path: Path) -> None:
    """Fail as packages do that write by themselves."""
    raise RuntimeError(f"I/O error: {os.strerror(errno.ENOSPC)} (os error 28)")


def told_by_another(path: Path) -> None:
    try:
        full(path)
    except OSError as error:
        raise DataError("Could not write the model.") from error


@pytest.mark.parametrize("write", [full, told_in_words, told_by_another])
def test_a_full_disk_stops_the_run_and_is_no_failure_of_the_task(cache, monkeypatch, write) -> None:
    def fill(settings: Any, place: Any) -> dict[str, Any]:
        note(settings, place)
        write(Path("/dev/full"))
        return {}

    monkeypatch.setitem(steps.STEPS, "note", fill)
    with pytest.raises(DataError, match="no room left for 'one'") as caught:
        run_tasks([task("one"), task("two")], cache)
    assert "same command" in caught.value.to_do and ran(cache) == ["one"]
    assert cache.failure(task("one")) is None and cache.record(task("one")) is None
    monkeypatch.setitem(steps.STEPS, "note", note)
    run_tasks([task("one")], cache)
    assert cache.record(task("one")) is not None


TOO_HOT = {"method": "p2s", "recipe": {"learning_rate": 1e30}}


def run_suite(suite: Suite, folder: Path, processes: int) -> tuple[BenchRuns, list[Task]]:
    """Return what was run, and the tasks in the order in which they were finished."""
    seen: list[Progress] = []
    found = Bench(TaskCache(folder), processes=processes, watch=seen.append).run(suite)
    return found, [progress.task for progress in seen if progress.task is not None]


@pytest.fixture(scope="module")
def run_here(small, tmp_path_factory) -> tuple[BenchRuns, list[Task]]:
    """A suite in which a row fails."""
    suite = small(methods={"p2s": {}, "too hot": TOO_HOT, "l2": {}})
    return run_suite(suite, tmp_path_factory.mktemp("tasks"), 1)


def test_a_row_that_failed_says_why_and_the_others_have_scores(run_here) -> None:
    rows = {row.label: row for row in run_here[0].rows}
    assert "loss" in rows["too hot"].failure and rows["too hot"].scores is None
    assert rows["too hot"].method == "p2s" and rows["too hot"].p_comp is rows["too hot"].seconds is None
    assert rows["p2s"].failure is rows["l2"].failure is None
    assert 0 < rows["p2s"].scores["cross"] <= 1


def test_rows_share_the_old_and_the_independent_model(run_here) -> None:
    _, tasks = run_here
    assert [task.kind for task in tasks].count("train") == 5  # old, independent, and one for each row
    assert [task.label.partition(" ")[0] for task in tasks].count("independent") == 1
    assert len({task.address for task in tasks}) == len(tasks)


@pytest.mark.slow
def test_two_processes_find_what_one_finds(small, run_here, comparable, tmp_path) -> None:
    found, tasks = run_suite(small(methods={"p2s": {}, "too hot": TOO_HOT, "l2": {}}), tmp_path, 2)
    assert comparable(found) == comparable(run_here[0])
    assert {task.address for task in tasks} == {task.address for task in run_here[1]} and len(tasks) == len(run_here[1])


def test_of_the_tasks_whose_needs_are_finished_the_longest_are_begun_first(cache) -> None:
    base = task("base")
    run_tasks([base], cache)
    waiting = [task("short", base, work=1.0), task("long", base, work=9.0), task("middle", work=5.0)]
    waiting.append(task("blocked", task("never"), work=99.0))
    assert [found.label for found in ready_tasks(waiting, cache, 2)] == ["long", "middle"]
    assert [found.label for found in ready_tasks(waiting, cache, 9)] == ["long", "middle", "short"]
    assert ready_tasks(waiting, cache, 0) == []
    with cache.held(waiting[1]):  # by another bench
        assert [found.label for found in ready_tasks(waiting, cache, 9)] == ["middle", "short", "long"]
    assert [found.label for found in ready_tasks(waiting, cache, 1)] == ["long"]


def test_a_worker_that_dies_costs_only_the_task_that_killed_it(cache, monkeypatch) -> None:
    """Workers are forked here, and need not import everything again."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method=None: fork)
    monkeypatch.setattr(steps, "STEPS", {"die": lambda *_: os._exit(9), "live": lambda *_: {}})
    bad, good = Task("die", {}), [Task("live", {"number": number}) for number in range(4)]
    above = Task("live", {}, {"one": bad})
    told: list[Progress] = []
    run_tasks([good[0], bad, above, *good[1:]], cache, processes=2, watch=told.append)
    assert (told[0].task, told[0].done, told[0].total, len(told[0].running)) == (None, 0, 6, 2), told[0]
    assert (told[-1].done, told[-1].running) == (5, ()), told[-1]
    assert max(len(found.running) for found in told) == 2 and bad in [found.task for found in told]
    assert all(cache.record(task) for task in good), "a task that was running beside it has no record"
    assert "died" in cache.failure(bad) and cache.record(above) is None


class Benches:
    """Processes that run the same tasks in one cache; the first task ends when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.living: dict[int, int] = {}

    def start(self, own: int) -> None:
        child = os.fork()  # with all that was imported
        if not child:
            try:
                self.bench(own)
                os._exit(0)
            finally:
                os._exit(1)
        self.living[own] = child
        self.until(lambda: (self.folder / f"begun {own}").exists())

    def bench(self, own: int) -> None:
        def count(settings: Any, place: Any) -> dict[str, Any]:
            with (self.folder / "ran").open("a") as log:
                log.write(f"{settings['name']} {own}\n")
            if settings["name"] == "first":
                self.until(lambda: (self.folder / "go on").exists())
            if settings["name"] == "bad":
                raise KeyError("nothing")
            return {}

        steps.STEPS["count"] = count
        first = Task("count", {"name": "first"})
        tasks = [Task("count", {"name": name}, {"one": first}) for name in ("second", "third")]
        bad = Task("count", {"name": "bad"})
        (self.folder / f"begun {own}").touch()
        run_tasks([*tasks, bad, Task("count", {"name": "never"}, {"one": bad})], TaskCache(self.folder))
        (self.folder / f"ended {own}").touch()

    def kill(self, own: int) -> None:
        os.kill(self.living[own], signal.SIGKILL)
        os.waitpid(self.living.pop(own), 0)

    def ran(self) -> list[str]:
        log = self.folder / "ran"
        return log.read_text().splitlines() if log.exists() else []

    def until(self, happened: Callable[[], bool]) -> None:
        until = time.monotonic() + 300
        while not happened() and time.monotonic() < until:
            time.sleep(0.005)
        assert happened()

    def to_the_end(self) -> None:
        (self.folder / "go on").touch()
        for own in self.living:
            self.until(lambda path=self.folder / f"ended {own}": path.exists())  # type: ignore[misc]


@pytest.fixture
def benches(tmp_path: Path) -> Iterator[Benches]:
    code_version()  # once for all of them
    found = Benches(tmp_path)
    yield found
    for own in list(found.living):
        found.kill(own)


def test_two_benches_on_one_cache_run_every_task_once(benches) -> None:
    benches.start(0)
    benches.until(lambda: benches.ran() == ["first 0"])
    benches.start(1)
    benches.until(lambda: benches.ran() == ["first 0", "bad 1"])  # what needs nothing
    time.sleep(0.2)
    assert len(benches.ran()) == 2  # it waits: all the rest needs the first
    benches.to_the_end()
    assert sorted(line.split()[0] for line in benches.ran()) == ["bad", "first", "second", "third"]
    assert len(list(benches.folder.glob("count/*/cell.json"))) == 3


def test_the_hold_of_a_bench_that_is_killed_ends_with_it(benches) -> None:
    benches.start(0)
    benches.until(lambda: benches.ran() == ["first 0"])
    benches.start(1)
    benches.until(lambda: benches.ran() == ["first 0", "bad 1"])
    benches.kill(0)
    benches.until(lambda: len(benches.ran()) == 3)
    benches.to_the_end()
    assert benches.ran()[2:] == ["first 1", "second 1", "third 1"]


def test_a_task_is_held_by_whoever_runs_it_and_by_nobody_after_that(cache, monkeypatch) -> None:
    seen = []
    one, two = task("one"), task("two", fails="plain")

    def look(settings: Any, place: Any) -> dict[str, Any]:
        seen.append((settings["name"], cache.is_held(one), cache.is_held(two)))
        return note(settings, place)

    monkeypatch.setitem(steps.STEPS, "note", look)
    run_tasks([one, two], cache)
    assert seen == [("one", True, False), ("two", False, True)]
    assert not cache.is_held(one) and not cache.is_held(two) and not cache.is_held(task("never"))
