"""Workers that keep what they were given between calls: threads or processes of this machine, or actors of Ray."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, Self, TypeVar

from threadpoolctl import threadpool_limits

from limpet.support.ranges import PositiveInt, checked

_Result = TypeVar("_Result")


class Workers(Protocol):
    """Some workers, each with a state of its own. They open files by the paths of this process."""

    def __len__(self) -> int: ...

    def submit(
        self, worker: int, function: Callable[..., _Result], /, *arguments: Any
    ) -> Future[_Result]:  # pragma: no cover
        """Let one of them call a function of a module; it answers calls one at a time, in the order of asking.

        The future raises `BrokenExecutor` where the worker died; the next call finds a new one, without that state.
        """
        ...


class Threads:
    """Threads of this process, which share its state.

    Args:
        count: How many.
    """

    @checked
    def __init__(self, count: PositiveInt) -> None:
        self._pools: list[Executor] = [ThreadPoolExecutor(1) for _ in range(count)]
        self.close = weakref.finalize(self, _shut, self._pools)

    def __len__(self) -> int:
        return len(self._pools)

    def submit(self, worker: int, function: Callable[..., _Result], /, *arguments: Any) -> Future[_Result]:
        """Let one thread call a function."""
        return self._pools[worker].submit(function, *arguments)


class Processes:
    """Processes of this machine; use it in a ``with`` statement, at the end of which they end.

    Args:
        count: How many; they share the processor's cores.
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
        """Let one process call a function of a module."""
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
    """Return how many processor cores this process may use."""
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
