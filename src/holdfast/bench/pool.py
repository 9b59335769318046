"""Running cells: what is finished is left alone, what fails is noted, the rest goes to worker processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception
from typing import Any, NamedTuple

from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell, in_order
from holdfast.bench.failures import reason_of, refuse_full_disk


class Place(NamedTuple):
    """Where a cell is run.

    Args:
        folder: Its own folder.
        needs: The folders of the cells it needs, by role.
        root: Folder that holds the folders of the named data sets.
        device: Where models are trained and used, such as "cpu" or "cuda:0".
        cache: Folder for what cells share, such as an old model's embeddings of a training set.
    """

    folder: Path
    needs: Mapping[str, Path]
    root: Path | None
    device: str
    cache: Path


Step = Callable[[Mapping[str, Any], Place], Mapping[str, Any]]
"""Does what the settings of a cell say, and returns the values of its record.

Among them may be "seconds", where it knows how long it took with what was done before an interruption."""

_own_device = ["cpu"]  # of this worker process


class Progress(NamedTuple):
    """What a watcher is told when cells are begun, and after every cell.

    Args:
        cell: The cell that ended; None where some were begun.
        done: How many have ended.
        total: How many there are to run; those that need one that fails are never run.
        seconds: How long the cell took.
        failure: Why it failed; None if it did not.
        running: The cells that are run now.
    """

    cell: Cell | None
    done: int
    total: int
    seconds: float = 0.0
    failure: str | None = None
    running: tuple[Cell, ...] = ()


def run_cells(
    cells: Iterable[Cell],
    cache: CellCache,
    *,
    root: Path | None = None,
    processes: int = 1,
    devices: Sequence[str] = ("cpu",),
    watch: Callable[[Progress], object] | None = None,
) -> None:
    """Run cells and all that they need, those without unfinished needs first.

    What a finished, failed or unfinished cell left in the cache is used, so an interrupted run continues. A failed
    cell does not stop the others; those that need it are not run.

    Args:
        cells: What is wanted.
        cache: Where cells are kept.
        root: Folder that holds the folders of the named data sets.
        processes: How many cells are run at once; with 1 they are run here.
        devices: Where models are trained; processes take them in turn.
        watch: Told when cells are begun, and after every cell that was run.
    """
    waiting = [cell for cell in in_order(cells) if cache.record(cell) is None and cache.failure(cell) is None]
    if processes == 1 and devices[0].partition(":")[2] in ("", "0"):
        _run_here(waiting, cache, root, devices[0], watch)
    else:
        _Run(waiting, cache, root, watch).to_the_end(processes, devices)


def blocked_by(cell: Cell, cache: CellCache) -> str | None:
    """Return why a cell has no result: its own failure, or the first of one that it needs; None if nothing failed."""
    for known in in_order([cell]):
        reason = cache.failure(known)
        if reason is not None:
            return reason if known.address == cell.address else f"{known.label or known.kind}: {reason}"
    return None


def _run_here(
    waiting: Sequence[Cell],
    cache: CellCache,
    root: Path | None,
    device: str,
    watch: Callable[[Progress], object] | None,
) -> None:
    left, total = list(waiting), len(waiting)
    while (cell := _next(left, cache)) is not None:
        if watch is not None:
            watch(Progress(None, total - len(left), total, running=(cell,)))
        left.remove(cell)
        seconds = perform(cell, cache, root, device)
        if watch is not None:
            watch(Progress(cell, total - len(left), total, seconds, cache.failure(cell)))


def _next(left: Sequence[Cell], cache: CellCache) -> Cell | None:
    """Return the first cell whose needs are finished, one that another bench runs now only where there is no other.

    None is left where all others need one that has failed.
    """
    held = None
    for cell in left:
        if all(cache.record(needed) is not None for needed in cell.needs.values()):
            if not cache.is_held(cell):
                return cell
            held = held or cell
    return held


class _Run:
    """Cells in worker processes."""

    def __init__(
        self, waiting: list[Cell], cache: CellCache, root: Path | None, watch: Callable[[Progress], object] | None
    ) -> None:
        self.waiting, self.cache, self.root, self.watch = waiting, cache, root, watch
        self.total, self.done = len(waiting), 0
        self.running: dict[Future[float], Cell] = {}

    def to_the_end(self, processes: int, devices: Sequence[str]) -> None:
        while not self._to_the_end_or_a_death(processes, devices):
            suspects, self.running = list(self.running.values()), {}
            for cell in suspects:
                self._run_alone(cell, devices)

    def _to_the_end_or_a_death(self, processes: int, devices: Sequence[str]) -> bool:
        """Run all cells; return False if a worker died: then those that were running may or may not be to blame."""
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
        """Hand over cells, and say whether any was."""
        chosen = ready(self.waiting, self.cache, processes - len(self.running))
        for cell in chosen:
            self.running[workers.submit(perform, cell.to_run(), self.cache, self.root)] = cell
            self.waiting.remove(cell)
        if chosen:
            self._tell(None)
        return bool(chosen)

    def _run_alone(self, cell: Cell, devices: Sequence[str]) -> None:
        """Run a cell again that was running when a worker died, alone; if that one dies too, the cell failed."""
        seconds = 0.0
        if self.cache.record(cell) is None and self.cache.failure(cell) is None:
            self._tell(None, running=(cell,))
            try:
                with _workers(1, devices) as workers:
                    seconds = workers.submit(perform, cell.to_run(), self.cache, self.root).result()
            except BrokenProcessPool:
                self.cache.fail(cell, "the process that ran it died, perhaps for want of memory")
        self._report(cell, seconds)

    def _report(self, cell: Cell, seconds: float) -> None:
        self.done += 1
        self._tell(cell, seconds=seconds, failure=self.cache.failure(cell))

    def _tell(self, cell: Cell | None, **values: Any) -> None:
        if self.watch is not None:
            running = {"running": tuple(self.running.values())}
            self.watch(Progress(cell, self.done, self.total, **(running | values)))


def ready(waiting: Iterable[Cell], cache: CellCache, free: int) -> list[Cell]:
    """Return at most so many cells whose needs are finished, the longest first, those that another bench runs last."""
    if free < 1:
        return []
    found = [cell for cell in waiting if all(cache.record(needed) for needed in cell.needs.values())]
    return sorted(found, key=lambda cell: (cache.is_held(cell), -cell.work))[:free]


@contextmanager
def _workers(count: int, devices: Sequence[str]) -> Iterator[ProcessPoolExecutor]:
    """Open worker processes, and end them at once when something is raised: a training would go on for minutes."""
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


def perform(cell: Cell, cache: CellCache, root: Path | None, device: str | None = None) -> float:
    """Run one cell, and note in the cache what it became; return the seconds it took.

    Where another process runs it at that moment, wait for that one, and run the cell only if it was not finished.

    Raises:
        DataError: There is no room for what it makes, or the cache cannot be written: no other cell could be run.
    """
    started = time.monotonic()
    with cache.held(cell):
        if cache.record(cell) is None and cache.failure(cell) is None:
            _perform(cell, cache, root, device or _own_device[0])
    return time.monotonic() - started


def _perform(cell: Cell, cache: CellCache, root: Path | None, device: str) -> None:
    from holdfast.bench.machine import machine
    from holdfast.bench.steps import STEPS

    started = time.monotonic()
    needs = {role: cache.folder(needed) for role, needed in cell.needs.items()}
    try:
        values = STEPS[cell.kind](
            {**cell.settings, **cell.hints}, Place(cache.folder(cell), needs, root, device, cache.root / "shared")
        )
    except Exception as error:  # whatever one training met, or another package's method got wrong; the others go on
        refuse_full_disk(error, cell, cache)
        cache.fail(cell, reason_of(error), "".join(format_exception(error)))
        return
    cache.finish(cell, values, max(time.monotonic() - started, values.get("seconds", 0.0)), machine())


def _prepare(places: Any) -> None:
    """Make a worker of this process: one device, one thread, as many workers share the processor."""
    import torch

    torch.set_num_threads(1)
    _own_device[0] = _alone_with(places.get())


def _alone_with(device: str) -> str:
    """Hide all accelerators but one from this process, which has used none yet, and return its name from now on.

    Training asks for a kind of accelerator and takes the first one that it sees.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number:
        return device
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[int(number)] if visible else number
    return "cuda:0"
