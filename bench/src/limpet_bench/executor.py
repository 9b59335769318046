"""Runs tasks in this process or in worker processes; skips finished tasks and records failures."""

from __future__ import annotations

import errno
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Any, NamedTuple

from limpet.errors import BudgetError, DataError, LimpetError
from limpet_bench.cache import TaskCache
from limpet_bench.places import Place
from limpet_bench.tasks import Task, in_order

if TYPE_CHECKING:
    from limpet.models import ApiSettings


def reason_of(error: Exception) -> str:
    """Return why a task failed, on one line.

    For an error of limpet this is its whole message. For another error it is the type, the first line of the message,
    and the place in the code.
    """
    if isinstance(error, LimpetError):
        return " ".join(_sentence(line) for line in str(error).splitlines() if line.strip()) or type(error).__name__
    first = next(iter(str(error).splitlines()), "no word on why")
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {first} ({Path(last.filename).name}:{last.lineno})"


def _sentence(line: str) -> str:
    """Return a line with a full stop, so that another sentence can follow it.

    >>> _sentence("Expected: at least 1"), _sentence("It is 0. ")
    ('Expected: at least 1.', 'It is 0.')
    """
    text = line.strip()
    return text if text.endswith((".", "!", "?", ":", ";", ",")) else f"{text}."


def refuse_full_disk(error: BaseException, task: Task, cache: TaskCache) -> None:
    """Raise a `DataError` if an error was caused by a full disk, so that the task is not recorded as failed.

    Raises:
        DataError: The error, or one that caused it, says that the disk or the quota is full.
    """
    cause: BaseException | None = error
    while cause is not None:
        full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or os.strerror(errno.ENOSPC) in str(cause):  # some packages report it only in the message
            raise DataError(
                f"There is no room left for '{task.label or task.kind}' in '{cache.folder(task)}'.",
                expected="space for models and embeddings",
                to_do="free some, and type the same command again; finished steps are kept.",
            ) from error
        cause = cause.__cause__ or cause.__context__


_own_device = ["cpu"]  # the device of this worker process, set by `_prepare`


class Progress(NamedTuple):
    """The progress that a watcher receives when tasks start and after every task.

    Args:
        task: The task that ended; None when tasks start.
        done: Number of tasks that have ended.
        total: Number of tasks to run, including tasks that will not run because a task they need fails.
        seconds: Duration of the task in seconds.
        failure: Why the task failed; None if it did not.
        running: The tasks that run now.
    """

    task: Task | None
    done: int
    total: int
    seconds: float = 0.0
    failure: str | None = None
    running: tuple[Task, ...] = ()


def run_tasks(
    tasks: Iterable[Task],
    cache: TaskCache,
    *,
    root: Path | None = None,
    processes: int = 1,
    devices: Sequence[str] = ("cpu",),
    watch: Callable[[Progress], object] | None = None,
    api: ApiSettings | None = None,
) -> None:
    """Run tasks and all tasks that they need, each after the tasks that it needs.

    An interrupted run continues: finished tasks are skipped, and unfinished ones continue from the cache. Tasks that
    failed before are not run again. A failed task does not stop the others; tasks that need it are not run.

    Args:
        tasks: Tasks whose results are wanted.
        cache: Folder of finished tasks.
        root: Folder that holds the folders of the named data sets.
        processes: Number of tasks to run at once. With 1, tasks run in this process, unless the first device is an
            accelerator with a number above 0.
        devices: Devices that train models; worker processes take them in turn.
        watch: Called when tasks start, and after every task.
        api: Settings of models behind an API. Tasks that call an API run in this process, so that its limits hold for
            all of them together.

    Raises:
        BudgetError: The limits of `api` allow no further request. Embeddings so far are in the cache of the API, if it
            has one.
    """
    waiting = [task for task in in_order(tasks) if cache.record(task) is None and cache.failure(task) is None]
    if processes == 1 and devices[0].partition(":")[2] in ("", "0"):
        _run_here(waiting, cache, root, devices[0], watch, api)
    else:
        _run_here([task for task in waiting if task.asks_api], cache, root, "cpu", watch, api)
        _WorkerRun([task for task in waiting if not task.asks_api], cache, root, watch).to_the_end(processes, devices)


def blocked_by(task: Task, cache: TaskCache) -> str | None:
    """Return why a task has no result: its failure, or that of the first failed task it needs; None without failure."""
    for known in in_order([task]):
        reason = cache.failure(known)
        if reason is not None:
            return reason if known.address == task.address else f"{known.label or known.kind}: {reason}"
    return None


def _run_here(
    waiting: Sequence[Task],
    cache: TaskCache,
    root: Path | None,
    device: str,
    watch: Callable[[Progress], object] | None,
    api: ApiSettings | None,
) -> None:
    left, total = list(waiting), len(waiting)
    while (task := _next(left, cache)) is not None:
        if watch is not None:
            watch(Progress(None, total - len(left), total, running=(task,)))
        left.remove(task)
        seconds = run_task(task, cache, root, device, api)
        if watch is not None:
            watch(Progress(task, total - len(left), total, seconds, cache.failure(task)))


def _next(left: Sequence[Task], cache: TaskCache) -> Task | None:
    """Return the first task whose needed tasks are finished; tasks that another bench runs now come last.

    None means that all remaining tasks need a failed one, or that no task remains.
    """
    held = None
    for task in left:
        if all(cache.record(needed) is not None for needed in task.needs.values()):
            if not cache.is_held(task):
                return task
            held = held or task
    return held


class _WorkerRun:
    """Tasks in worker processes."""

    def __init__(
        self, waiting: list[Task], cache: TaskCache, root: Path | None, watch: Callable[[Progress], object] | None
    ) -> None:
        self.waiting, self.cache, self.root, self.watch = waiting, cache, root, watch
        self.total, self.done = len(waiting), 0
        self.running: dict[Future[float], Task] = {}

    def to_the_end(self, processes: int, devices: Sequence[str]) -> None:
        while not self._to_the_end_or_a_death(processes, devices):
            suspects, self.running = list(self.running.values()), {}
            for task in suspects:
                # runs the task alone, to find out whether it killed its process
                seconds = 0.0
                if self.cache.record(task) is None and self.cache.failure(task) is None:
                    self._tell(None, running=(task,))
                    try:
                        with _workers(1, devices) as workers:
                            seconds = workers.submit(run_task, task.to_run(), self.cache, self.root).result()
                    except BrokenProcessPool:
                        self.cache.fail(task, "the process that ran it died, perhaps for want of memory")
                self._report(task, seconds)

    def _to_the_end_or_a_death(self, processes: int, devices: Sequence[str]) -> bool:
        """Run all tasks; return False if a worker process died, as any of the running tasks may be the cause."""
        try:
            with _workers(processes, devices) as workers:
                while self._start_ready(workers, processes) or self.running:
                    finished, _ = wait(self.running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        seconds = future.result()
                        self._report(self.running.pop(future), seconds)
        except BrokenProcessPool:
            return False
        return True

    def _start_ready(self, workers: ProcessPoolExecutor, processes: int) -> bool:
        chosen = ready_tasks(self.waiting, self.cache, processes - len(self.running))
        for task in chosen:
            self.running[workers.submit(run_task, task.to_run(), self.cache, self.root)] = task
            self.waiting.remove(task)
        if chosen:
            self._tell(None)
        return bool(chosen)

    def _report(self, task: Task, seconds: float) -> None:
        self.done += 1
        self._tell(task, seconds=seconds, failure=self.cache.failure(task))

    def _tell(self, task: Task | None, **values: Any) -> None:
        if self.watch is not None:
            running = {"running": tuple(self.running.values())}
            self.watch(Progress(task, self.done, self.total, **(running | values)))


def ready_tasks(waiting: Iterable[Task], cache: TaskCache, free: int) -> list[Task]:
    """Return at most `free` tasks whose needed tasks are finished.

    The longest come first. Tasks that another bench runs now come last.
    """
    if free < 1:
        return []
    found = [task for task in waiting if all(cache.record(needed) for needed in task.needs.values())]
    return sorted(found, key=lambda task: (cache.is_held(task), -task.work))[:free]


@contextmanager
def _workers(count: int, devices: Sequence[str]) -> Iterator[ProcessPoolExecutor]:
    """Start worker processes, and terminate them if an error is raised: a training could continue for minutes."""
    context = multiprocessing.get_context("spawn")
    places = context.Queue()
    for place in range(count):
        places.put(devices[place % len(devices)])
    with ProcessPoolExecutor(count, mp_context=context, initializer=_prepare, initargs=(places,)) as workers:
        try:
            yield workers
        except BaseException:
            for process in list((workers._processes or {}).values()):
                process.terminate()
            workers.shutdown(wait=False, cancel_futures=True)
            raise


def run_task(
    task: Task, cache: TaskCache, root: Path | None, device: str | None = None, api: ApiSettings | None = None
) -> float:
    """Run one task, and write its record or its failure to the cache.

    If another process runs the task now, wait for that process, then run the task only if it is still unfinished.

    Returns:
        Duration in seconds, with the wait.

    Raises:
        DataError: The disk is full, or the cache cannot be written. Other tasks would fail in the same way.
        BudgetError: The limits of `api` allow no further request.
    """
    started = time.monotonic()
    with cache.held(task):
        if cache.record(task) is None and cache.failure(task) is None:
            _run_task(task, cache, root, device or _own_device[0], api)
    return time.monotonic() - started


def _run_task(task: Task, cache: TaskCache, root: Path | None, device: str, api: ApiSettings | None) -> None:
    from limpet_bench.machine import machine
    from limpet_bench.steps import STEPS

    started = time.monotonic()
    needs = {role: cache.folder(needed) for role, needed in task.needs.items()}
    starts = {role: needed.settings.get("starts_from") for role, needed in task.needs.items()}
    named = {role: start["model"] for role, start in starts.items() if start is not None}
    place = Place(cache.folder(task), needs, root, device, cache.root / "shared", named, api)
    try:
        values = STEPS[task.kind]({**task.settings, **task.hints}, place)
    except BudgetError:  # not recorded as a failure: with a larger budget the task continues
        raise
    except Exception as error:  # a failure of one task, or of a method from another package, must not stop the others
        refuse_full_disk(error, task, cache)
        cache.fail(task, reason_of(error), "".join(format_exception(error)))
        return
    cache.finish(task, values, max(time.monotonic() - started, values.get("seconds", 0.0)), machine())


def _prepare(places: Any) -> None:
    """Prepare a worker process: one device, and one thread because the workers share the processor."""
    import torch

    torch.set_num_threads(1)
    _own_device[0] = _alone_with(places.get())


def _alone_with(device: str) -> str:
    """Hide all CUDA devices but one from this process, and return the name of the device in this process.

    Training asks only for a kind of accelerator and uses the first visible one. This must run before the process uses
    an accelerator.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number:
        return device
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[int(number)] if visible else number
    return "cuda:0"
