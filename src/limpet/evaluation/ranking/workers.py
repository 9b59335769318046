"""Workers that keep what they were given between calls, such as processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, Protocol, Self, TypeVar

from threadpoolctl import threadpool_limits

from limpet.evaluation.ranking.side_by_side import available_cores
from limpet.support.ranges import PositiveInt, checked

_Result = TypeVar("_Result")


class Workers(Protocol):
    """Some workers, each with a state of its own. They open files by the paths of this process."""

    def __len__(self) -> int: ...

    def submit(
        self, worker: int, function: Callable[..., _Result], /, *arguments: Any
    ) -> Future[_Result]:  # pragma: no cover
        """Let one of them call a function of a module; it answers calls one at a time, in the order of asking."""
        ...


class Processes:
    """Processes of this machine; use it in a ``with`` statement, at the end of which they end.

    Args:
        count: How many; they share the processor's cores.
    """

    @checked
    def __init__(self, count: PositiveInt) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the locks of threads it does not copy
        threads = max(1, available_cores() // count)
        self._pools = [
            ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(threads,)) for _ in range(count)
        ]

    def __len__(self) -> int:
        return len(self._pools)

    def submit(self, worker: int, function: Callable[..., _Result], /, *arguments: Any) -> Future[_Result]:
        """Let one process call a function of a module."""
        return self._pools[worker].submit(function, *arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)


def _begin(threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks is interrupted, and ends this one
    threadpool_limits(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
