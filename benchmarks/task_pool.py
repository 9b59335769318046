"""Many trainings that need one another, done by worker processes, interrupted and continued at will."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from all_methods_tables import Document, Record, Task
from limpet.embeddings import storage

Page = Callable[[Document], str]


class Planned(NamedTuple):
    """A task, and the ones that must be finished before it; ``tuned`` if its value follows from them."""

    task: Task
    needs: tuple[Task, ...] = ()
    tuned: bool = False


@dataclass(frozen=True)
class Work:
    """What the tasks of one benchmark are.

    Args:
        perform: Trains and scores one task in a worker process, writes its record and returns it; can be pickled.
        options_of: Returns the options a task is trained with; a record with other options is made again.
        value_of: Returns the value of the tuned option of a task, from the records of the finished ones.
        passes: Returns about how many passes over all images a task takes, for the estimate of the time left.
        shown: Returns a finished record in a few words.
        task_of: Returns the task that left a record.
    """

    perform: Callable[[Task], Record]
    options_of: Callable[[Task], dict[str, Any]]
    value_of: Callable[[Mapping[Task, Record], Task], float]
    passes: Callable[[Task], float]
    shown: Callable[[Record], str]
    task_of: Callable[[Record], Any] = Task.of


class TaskPool:
    """The state of one run: what is finished, what is under way, and the time it took."""

    def __init__(self, work: Work, planned: Iterable[Planned], folder: Path, processes: int) -> None:
        self.work, self.waiting, self.processes = work, list(planned), processes
        self.total = len(self.waiting)
        self.done: dict[Task, Record] = {}
        self.running: dict[Future[Record], Task] = {}
        self.earlier = {work.task_of(record): record for record in map(read_json, folder.glob("records/*.json"))}
        self.clock = folder / "wall_seconds.json"
        self.before = read_json(self.clock) if self.clock.exists() else 0.0
        self.started = time.monotonic()

    @property
    def wall_seconds(self) -> float:
        """How long this run has worked, interruptions left out."""
        return float(self.before) + time.monotonic() - self.started

    def to_the_end(self) -> dict[Task, Record]:
        """Run all tasks and return their records; that of a task that failed has no scores but a ``failure``."""
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.processes, mp_context=context, initializer=prepare_worker) as pool:
            while self.waiting or self.running:
                self._start_ready(pool)
                finished, _ = wait(self.running, timeout=5, return_when=FIRST_COMPLETED)
                write_json(self.clock, self.wall_seconds)
                for future in finished:
                    self._finish(self.running.pop(future), future)
        return self.done

    def _start_ready(self, pool: ProcessPoolExecutor) -> None:
        """Start as many tasks as there are free processes, and pass over those that are finished."""
        for planned in list(self.waiting):
            if len(self.running) == self.processes:
                return
            if all(need in self.done for need in planned.needs):
                self.waiting.remove(planned)
                task = self._with_value(planned)
                if self.earlier.get(task, {}).get("options") == self.work.options_of(task):
                    self.done[task] = self.earlier[task]
                else:
                    self.running[pool.submit(self.work.perform, task)] = task

    def _with_value(self, planned: Planned) -> Task:
        task = planned.task
        return task._replace(value=self.work.value_of(self.done, task)) if planned.tuned else task

    def _finish(self, task: Task, future: Future[Record]) -> None:
        failure = future.exception()
        if isinstance(failure, BrokenProcessPool):
            raise failure
        if failure is None:
            self.done[task] = future.result()
            shown = f"{self.work.shown(self.done[task])}, {self.done[task]['seconds']:.0f} s"
        else:
            options = self.work.options_of(task)
            self.done[task] = {**task._asdict(), "options": options, "failure": str(failure), "seconds": 0.0}
            shown = f"FAILED: {failure}"
        elapsed, left = ("{}:{:02}".format(*divmod(round(time), 60)) for time in (self.wall_seconds, self._left()))
        print(f"[{len(self.done):3}/{self.total}] {elapsed}, about {left} left | {task.name}: {shown}", flush=True)

    def _left(self) -> float:
        """Return the seconds that the unfinished tasks will take at the speed of the finished ones."""
        unfinished = [*self.running.values(), *(planned.task for planned in self.waiting)]
        seconds = sum(float(record["seconds"]) for record in self.done.values())
        speed = seconds / sum(map(self.work.passes, self.done))
        return speed * sum(map(self.work.passes, unfinished)) / self.processes


def claim(folder: Path, settings: dict[str, Any]) -> None:
    """Refuse a work folder of other settings, whose records would be mixed with these."""
    path = folder / "settings.json"
    if path.exists() and read_json(path) != settings:
        sys.exit(f"'{folder}' holds a run with {read_json(path)}, not {settings}: choose another --work.")
    write_json(path, settings)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def write_json(path: Path, value: Any) -> None:
    storage.write_atomically(path, lambda part: part.write_text(json.dumps(value, indent=1) + "\n"))


def prepare_worker() -> None:
    """Compute with one thread, and end with the process that started this one, however that ends."""
    torch.set_num_threads(1)

    def follow() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def run_and_tell(
    arguments: argparse.Namespace, measured: Callable[[argparse.Namespace], Document], pages: Mapping[str, Page]
) -> None:
    """Measure unless only pages are asked for, write the records and the pages, and end with an error if tasks failed.

    Args:
        arguments: With ``out`` and ``tables_only``.
        measured: Does the work and returns all that the pages need.
        pages: By file name, the records' first with the ending .md; it is printed. The records have its name and .json.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers
    records = arguments.out / Path(next(iter(pages))).with_suffix(".json")
    if not arguments.tables_only:
        try:
            write_json(records, measured(arguments))
        except KeyboardInterrupt:
            sys.exit("Stopped; the same command continues.")
    document = read_json(records)
    texts = {name: page(document) for name, page in pages.items()}
    for name, text in texts.items():
        (arguments.out / name).write_text(text)
    print(next(iter(texts.values())))
    failures = sum("failure" in record for record in document["records"])
    if failures:
        sys.exit(f"Tasks that failed: {failures}; the page lists them.")
