"""A suite that is killed goes on where it was, ends with the same document, and does nothing twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet_bench.cache import TaskCache
from limpet_bench.leaderboard import BenchRuns
from limpet_bench.run import Bench
from limpet_bench.tasks import Task

from .writing import suite_of


class Killed:
    """A suite that is run by processes of its own, which can be killed all at once.

    They are forked from this one, which has imported all they need.
    """

    def __init__(self, folder: Path, content: Mapping[str, Any], processes: int) -> None:
        self.folder, self.tasks, self.content, self.processes = folder, folder / "tasks", content, processes

    def ended(self, prepare: Callable[[], None] = lambda: None) -> int:
        """Run it after something was prepared in its process, and return how that ended."""
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        try:
            os.setsid()
            log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1), os.dup2(log, 2)
            prepare()
            fork = multiprocessing.get_context("fork")
            multiprocessing.get_context = lambda method=None: fork  # type: ignore[assignment]
            found = Bench(TaskCache(self.tasks), processes=self.processes).run(suite_of(self.content))
            (self.folder / "document.json").write_text(json.dumps(found.to_dict()))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def kill_after(self, records: int, files: int, seconds: float) -> list[str]:
        """Run until so many tasks are finished and so many files more are there, then kill; return what was begun.

        A process kills all of them at what it writes next, so that none comes to its end before, however busy others
        keep the machine.
        """
        wanted: int | None = None

        def at(event: str, given: tuple[Any, ...]) -> None:
            nonlocal wanted
            if event not in ("open", "os.rename") or not str(given[0]).startswith(str(self.tasks)):
                return
            names = [name for _, _, names in os.walk(self.tasks) for name in names]  # folders are renamed meanwhile
            if wanted is None and names.count("cell.json") >= records:
                wanted = len(names) + files
            if wanted is not None and len(names) >= wanted:
                time.sleep(seconds)  # in which other processes go on
                os.killpg(0, signal.SIGKILL)

        return self.killed(lambda: sys.addaudithook(at))

    def kill_before_the_record_of(self, kind: str) -> list[str]:
        """Run until a task of this kind has made all its files, and kill; return what was begun."""
        finish = TaskCache.finish

        def finish_or_die(tasks: TaskCache, task: Task, *values: Any) -> None:
            if task.kind == kind:
                os.killpg(0, signal.SIGKILL)
            finish(tasks, task, *values)

        return self.killed(lambda: setattr(TaskCache, "finish", finish_or_die))

    def killed(self, prepare: Callable[[], None]) -> list[str]:
        """Run until it kills itself, and return what was begun."""
        assert self.ended(prepare) == -signal.SIGKILL, (self.folder / "log").read_text()
        return self.unfinished()

    def to_the_end(self) -> BenchRuns:
        assert self.ended() == 0, (self.folder / "log").read_text()
        return BenchRuns.model_validate_json((self.folder / "document.json").read_text())

    def finished(self) -> dict[Path, tuple[int, str]]:
        """Return the records, and when they were written."""
        return {path: (path.stat().st_mtime_ns, path.read_text()) for path in self.tasks.glob("*/*/cell.json")}

    def unfinished(self) -> list[str]:
        """Return the kinds of the tasks that were begun and are not finished."""
        return [path.parent.name for path in self.tasks.glob("*/*") if _is_begun(path)]


def _is_begun(folder: Path) -> bool:
    return folder.is_dir() and folder.parent.name != "shared" and not (folder / "cell.json").exists()


@pytest.fixture
def uninterrupted(tmp_path) -> Callable[[Mapping[str, Any]], BenchRuns]:
    """Run a suite here, in a cache of its own."""

    def run(content: Mapping[str, Any]) -> BenchRuns:
        return Bench(TaskCache(tmp_path / "other tasks")).run(suite_of(content))

    return run


def assert_nothing_was_run_twice(before: Mapping[Path, tuple[int, str]], after: Mapping[Path, tuple[int, str]]) -> None:
    assert {path: after[path] for path in before} == dict(before)


@pytest.mark.slow
def test_killed_once_it_goes_on_and_ends_alike(content, uninterrupted, comparable, tmp_path) -> None:
    suite = content(recipe={"epochs": 2, "batch_size": 8, "learning_rate": 0.05})
    whole, run = uninterrupted(suite), Killed(tmp_path, suite, processes=1)
    run.kill_after(records=1, files=3, seconds=0.0)
    before = run.finished()
    assert 1 <= len(before) < 10
    found = Bench(TaskCache(run.tasks)).run(suite_of(suite))
    assert_nothing_was_run_twice(before, run.finished())
    assert comparable(found) == comparable(whole)
    assert all(row.failure is None for row in found.rows)


@pytest.mark.slow
def test_killed_at_five_moments_it_ends_with_the_document_of_an_uninterrupted_run(
    content, uninterrupted, comparable, tmp_path
) -> None:
    suite = content(recipe={"epochs": 6, "batch_size": 8, "learning_rate": 0.05}, seeds=[0, 1])
    whole, run = uninterrupted(suite), Killed(tmp_path, suite, processes=2)
    generator = np.random.default_rng(0)
    finished: dict[Path, tuple[int, str]] = {}

    def look() -> None:
        nonlocal finished
        assert_nothing_was_run_twice(finished, run.finished())
        finished = run.finished()
        assert not (tmp_path / "document.json").exists()

    for kind in ("train", "embed"):
        assert kind in run.kill_before_the_record_of(kind)
        look()
    for records in (6, 9, 12):  # of 20 tasks; and within a task by what it wrote
        run.kill_after(records, files=int(generator.integers(0, 4)), seconds=float(generator.uniform(0, 0.05)))
        look()
    found = run.to_the_end()
    assert_nothing_was_run_twice(finished, run.finished())
    assert len(run.finished()) == 20 and not run.unfinished()
    assert comparable(found) == comparable(whole)
    assert all(row.failure is None for row in found.rows)


@pytest.mark.parametrize("kind", ["train", "embed", "score"])
def test_without_its_record_what_a_task_made_does_not_count(kind, content, comparable, tmp_path) -> None:
    suite = content(methods={"p2s": {}})
    tasks = TaskCache(tmp_path / "tasks")
    expected = comparable(Bench(tasks).run(suite_of(suite)))
    records = sorted(tasks.root.glob(f"{kind}/*/cell.json"))
    for place, record in enumerate(records):  # as a kill leaves it: no record, or half of one under another name
        record.rename(record.with_name(".cell.json.1.part")) if place else record.unlink()
    assert comparable(Bench(tasks).run(suite_of(suite))) == expected
    assert sorted(tasks.root.glob(f"{kind}/*/cell.json")) == records


@pytest.mark.slow
def test_sessions_killed_in_the_middle_go_on_with_the_session_they_were_in(
    content, uninterrupted, comparable, tmp_path
) -> None:
    suite = content(track="sessions", plans={"disjoint": {"sessions": 3, "validation": 1}}, test_images=1)
    suite["methods"] = {"finetune": {}}
    whole, run = uninterrupted(suite), Killed(tmp_path, suite, processes=1)
    run.kill_after(records=1, files=22, seconds=0.0)
    learner = next(run.tasks.glob("sessions/*"))
    begun = {path: path.stat().st_mtime_ns for path in learner.glob("run/learner/*/session.json")}
    assert not (learner / "cell.json").exists() and begun
    found = Bench(TaskCache(run.tasks)).run(suite_of(suite))
    assert {path: path.stat().st_mtime_ns for path in begun} == begun
    assert comparable(found) == comparable(whole)


def test_the_seconds_of_an_interrupted_training_are_those_of_all_its_parts(content, tmp_path) -> None:
    tasks = TaskCache(tmp_path / "tasks")
    Bench(tasks).run(suite_of(content(methods={"p2s": {}})))
    records = tasks.root.glob("train/*/cell.json")
    record = next(path for path in records if json.loads(path.read_text())["label"].startswith("p2s"))
    history = record.parent / "release" / "history.json"
    values = json.loads(history.read_text())
    history.write_text(json.dumps(values | {"seconds": 1234.5}))  # as after a long first part
    record.unlink()
    found = Bench(tasks).run(suite_of(content(methods={"p2s": {}})))
    assert json.loads(record.read_text())["seconds"] == 1234.5 < found.rows[0].seconds
