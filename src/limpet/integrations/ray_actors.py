"""Actors of Ray as workers, on this machine or on those of a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from limpet.errors import StoreError, reason
from limpet.support.extras import needing
from limpet.support.ranges import NonNegative, PositiveInt, checked

_Result = TypeVar("_Result")
_STARTS = 3  # attempts to start Ray


class RayActors:
    """Actors of Ray, each of which keeps what it was given: `limpet.support.workers.Workers`.

    The cluster is the one that the environment variable RAY_ADDRESS names. Without it, one is started on this machine
    and ends with this process; Ray listens on all addresses of the machine, and asks for a random token.
    Machines of a cluster need limpet, and files at the same paths. In place of an actor that dies another one is
    started.

    Args:
        count: How many.
        gpus: GPUs of each; of parts of one several share it.
        cpus: Processor cores of each.

    Raises:
        MissingExtraError: Ray is not installed.
        StoreError: No cluster could be reached or started, or it is too small for this number of actors.

    >>> from limpet.integrations.ray_actors import RayActors
    >>> workers = RayActors(2)  # doctest: +SKIP
    >>> workers.submit(0, sum, [1, 2]).result()  # doctest: +SKIP
    3
    """

    @checked
    def __init__(self, count: PositiveInt, *, gpus: NonNegative = 0.0, cpus: NonNegative = 1.0) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
        with needing("Embedding by actors of Ray"):
            import ray
        self._ray = ray
        self._died = (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError)  # Ray ends actors to free memory
        cores = None if os.environ.get("RAY_ADDRESS") else max(count, os.cpu_count() or 1)
        for left in reversed(range(_STARTS)):
            try:
                if not ray.is_initialized():
                    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="error")
                break
            except Exception as error:  # Ray raises nothing narrower where a busy machine takes 30 seconds
                ray.shutdown()
                if not left or cores is None:
                    raise StoreError(
                        f"Ray could not be reached or started: {reason(error)}.",
                        to_do="check RAY_ADDRESS, or leave it out for this machine alone.",
                    ) from error
        room = ray.cluster_resources()
        for name, wanted in (("GPU", count * gpus), ("CPU", count * cpus)):
            if room.get(name, 0) < wanted:
                raise StoreError(
                    f"The cluster has {room.get(name, 0):g} {name}, and {count} actors need {wanted:g}.",
                    to_do="use fewer workers, or a larger cluster.",
                )
        kind = ray.remote(num_cpus=cpus, num_gpus=gpus)(_Actor)
        self._made = partial(kind.remote, str(Path.cwd()), sys.path)
        self._actors = [self._made() for _ in range(count)]

    def __len__(self) -> int:
        return len(self._actors)

    def close(self) -> None:
        """End the actors. Without it they end with this object."""
        for actor in self._actors:
            self._ray.kill(actor)

    def submit(self, worker: int, function: Callable[..., _Result], /, *arguments: Any) -> Future[_Result]:
        """Let one actor call a function of a module."""
        actor, answer = self._actors[worker], Future[_Result]()
        answer.set_running_or_notify_cancel()
        asked = actor.call.remote(function, *arguments).future()
        asked.add_done_callback(lambda done: self._tell(worker, actor, done, answer))
        return answer

    def _tell(self, worker: int, actor: Any, done: Future[Any], answer: Future[Any]) -> None:
        error = done.exception()
        if error is None:
            answer.set_result(done.result())
        elif isinstance(error, self._died):
            try:
                if self._actors[worker] is actor:
                    self._actors[worker] = self._made()
            finally:  # also where the cluster has ended, and makes none
                answer.set_exception(BrokenExecutor("an actor of Ray died"))
        else:
            answer.set_exception(getattr(error, "cause", None) or error)


class _Actor:
    """What runs on another machine."""

    def __init__(self, folder: str, path: list[str]) -> None:
        with suppress(OSError):  # another machine may not have the folder
            os.chdir(folder)
        sys.path[:] = [*dict.fromkeys([*path, *sys.path])]

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)
