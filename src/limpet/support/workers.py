"""Stateful workers: threads or processes of this machine, or actors of Ray."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle
from typing import Any, Generic, Protocol, Self, TypeVar

from threadpoolctl import threadpool_limits

from limpet.errors import StoreError
from limpet.support.ranges import PositiveInt, checked

_Result = TypeVar("_Result")
_Kept = TypeVar("_Kept")

_LIVES = 5  # attempts of workers at one part of the work
_WAITING = 2  # queued parts per worker, of which one is being processed
_log = logging.getLogger("limpet")


class Workers(Protocol):
    """Workers with individual state. They open files by the paths of this process."""

    def __len__(self) -> int: ...

    def submit(
        self, worker: int, function: Callable[..., _Result], /, *arguments: Any
    ) -> Future[_Result]:  # pragma: no cover
        """Call a function of a module in one worker, which processes its calls one at a time, in order.

        The future raises `BrokenExecutor` if the worker died; the next call gets a new worker without that state.
        """
        ...


class Threads:
    """Threads of this process, which share its state.

    Args:
        count: Number of threads.
    """

    @checked
    def __init__(self, count: PositiveInt) -> None:
        self._pools: list[Executor] = [ThreadPoolExecutor(1) for _ in range(count)]
        self.close = weakref.finalize(self, _shut, self._pools)

    def __len__(self) -> int:
        return len(self._pools)

    def submit(self, worker: int, function: Callable[..., _Result], /, *arguments: Any) -> Future[_Result]:
        """Call a function in one thread."""
        return self._pools[worker].submit(function, *arguments)


class Processes:
    """Processes of this machine; use it as a context manager, which stops them at exit.

    Args:
        count: Number of processes, which share the CPU cores.
    """

    @checked
    def __init__(self, count: PositiveInt) -> None:
        self._threads = max(1, available_cores() // count)
        self._pools: list[Executor] = [self._started() for _ in range(count)]
        self.close = weakref.finalize(self, _shut, self._pools)

    def _started(self) -> Executor:
        context = multiprocessing.get_context("spawn")  # a fork would copy the locks of threads it does not copy
        return ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(self._threads,))

    def __len__(self) -> int:
        return len(self._pools)

    def submit(self, worker: int, function: Callable[..., _Result], /, *arguments: Any) -> Future[_Result]:
        """Call a function of a module in one process."""
        with suppress(BrokenExecutor):
            return self._pools[worker].submit(function, *arguments)
        self._pools[worker] = self._started()
        return self._pools[worker].submit(function, *arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _shut(pools: Sequence[Executor]) -> None:
    for pool in pools:
        pool.shutdown(cancel_futures=True)


def available_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin(threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks is interrupted, and ends this one
    threadpool_limits(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Opened(Generic[_Kept]):
    """An object that every worker opens once and keeps, such as a model; dead workers restart and repeat their part.

    Args:
        opener: Function that opens the object. Threads share one; for others it is a function of a module, or a
            `functools.partial` of one.
        workers: Workers such as `Processes`; None for this process alone.
    """

    def __init__(self, opener: Callable[[], _Kept], workers: Workers | None) -> None:
        self._opener, self._workers, self._key = opener, workers, uuid.uuid4().hex
        weakref.finalize(self, _OPENED.pop, self._key, None)  # what threads opened in this process

    def each(self, function: Callable[..., _Result], parts: Iterable[tuple[Any, ...]]) -> Iterator[_Result]:
        """Yield the results of a module function for the opened object and each part, in order; workers take turns.

        Raises:
            StoreError: Workers died repeatedly.
        """
        calls = ((function, self._key, self._opener, part) for part in parts)
        if self._workers is None:
            yield from (_called(*call) for call in calls)
            return
        waiting: deque[tuple[int, Any, Future[_Result]]] = deque()
        for worker, call in zip(cycle(range(len(self._workers))), calls, strict=False):
            waiting.append((worker, call, self._workers.submit(worker, _called, *call)))
            if len(waiting) >= _WAITING * len(self._workers):
                yield _result(self._workers, *waiting.popleft())
        while waiting:
            yield _result(self._workers, *waiting.popleft())


def _result(workers: Workers, worker: int, call: Any, future: Future[_Result]) -> _Result:
    died = 0
    while True:
        try:
            return future.result()
        except BrokenExecutor as error:
            died += 1
            if died == _LIVES:
                raise StoreError(
                    f"A worker died {died} times.",
                    to_do="free memory, or use fewer workers; in a script, start them below "
                    "`if __name__ == '__main__':`.",
                ) from error
        _log.warning("a worker died; another one does its part")
        future = workers.submit(worker, _called, *call)


_OPENED: dict[str, Any] = {}
"""Objects that this process has opened."""
_OPENING = threading.Lock()


def _called(function: Callable[..., _Result], key: str, opener: Callable[[], Any], part: tuple[Any, ...]) -> _Result:
    with _OPENING:
        if key not in _OPENED:
            _OPENED[key] = opener()
    return function(_OPENED[key], *part)
