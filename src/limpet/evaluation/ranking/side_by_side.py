"""Doing the same to many things at once, in threads of which each computes alone."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import lru_cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


def side_by_side(function: Callable[[_Given], _Result], things: Iterable[_Given], workers: int) -> Iterator[_Result]:
    """Yield the result for each thing, in order: at most `workers` run at once, and at most that many wait.

    Meanwhile, matrix products run in the thread that calls them: threads of their own would compete with the workers.
    A single thing is computed in the calling thread: starting a thread takes as long as ranking a few items.
    """
    if isinstance(things, Sequence) and len(things) == 1:
        yield function(things[0])
        return
    waiting: deque[Future[_Result]] = deque()
    alone = _libraries(len(sys.modules)).limit(limits=1, user_api="blas") if workers > 1 else nullcontext()
    with alone, ThreadPoolExecutor(workers) as pool:
        try:
            for thing in things:
                waiting.append(pool.submit(function, thing))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """Return what this process multiplies with; an import since may have brought another library.

    Looking for libraries takes longer than ranking a few items.
    """
    return ThreadpoolController()
