"""Batching of concurrent requests: texts for one call of a model, items for one commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from limpet.errors import ServiceError

_Asked = TypeVar("_Asked")
_Told = TypeVar("_Told")


@dataclass(eq=False)
class _Waiting(Generic[_Asked, _Told]):
    asked: _Asked
    size: int
    kind: object
    answer: asyncio.Future[_Told]


class Gathering(Generic[_Asked, _Told]):
    """Collects requests, and answers them in the order of arrival by calls in one thread.

    Args:
        answer: Called with some requests; returns the answer, or the error, of each. If it fails with several, each
            becomes a call of its own, since only one of them may be at fault.
        what: Name of the waiting items, for messages.
        most: Number of items after which a call takes no further request.
        seconds: Seconds that the first request of a call waits for others.
        room: Maximum number of waiting items; further ones are refused.
    """

    def __init__(
        self,
        answer: Callable[[list[_Asked]], Sequence[_Told | Exception]],
        *,
        what: str,
        most: int = 1000,
        seconds: float = 0.01,
        room: int = 4096,
    ) -> None:
        self._answer, self.what, self.most, self.seconds, self.room = answer, what, most, seconds, room
        self._waiting = deque[_Waiting[_Asked, _Told]]()
        self.size = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=what)
        self._some, self._full, self._closing = asyncio.Event(), asyncio.Event(), False
        self._task = asyncio.create_task(self._run())

    async def ask(self, asked: _Asked, size: int = 1, kind: object = None) -> _Told:
        """Return the answer to a request, or raise its error.

        Args:
            asked: The request.
            size: Number of its items.
            kind: Consecutive requests of the same kind may share a call; requests of kind None never do.

        Raises:
            ServiceError: Too many items wait, or the service stops.
        """
        if self._closing:
            raise ServiceError(503, "The service stops.", to_do="ask again in a moment.", retry_after=2)
        if self.size + size > self.room and self._waiting:
            raise ServiceError(
                429, f"{self.size:,} {self.what} wait already.", expected=f"at most {self.room:,}",
                to_do="ask again in a moment, or send less at a time.", intact="Nothing was changed.", retry_after=1,
            )  # fmt: skip
        answer: asyncio.Future[_Told] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(asked, size, kind, answer))
        self.size += size
        self._some.set()
        if self.size >= self.most:
            self._full.set()
        return await answer

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._waiting:
                self._some.clear()
                await self._some.wait()
            if not self._closing:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._full.wait(), self.seconds)
            group = self._taken()
            answers = await loop.run_in_executor(self._thread, self._answered, [one.asked for one in group])
            for one, answer in zip(group, answers, strict=True):
                if one.answer.done():
                    continue  # its client has disconnected
                if isinstance(answer, Exception):
                    one.answer.set_exception(answer)
                else:
                    one.answer.set_result(answer)

    def _answered(self, asked: list[_Asked]) -> Sequence[_Told | Exception]:
        try:
            return self._answer(asked)
        except Exception as error:
            return [error] if len(asked) == 1 else [answer for one in asked for answer in self._answered([one])]

    def _taken(self) -> list[_Waiting[_Asked, _Told]]:
        group = [self._waiting.popleft()]
        size, kind = group[0].size, group[0].kind
        while self._waiting and kind is not None and self._waiting[0].kind == kind:
            if size + self._waiting[0].size > self.most:
                break
            group.append(self._waiting.popleft())
            size += group[-1].size
        self.size -= size
        if self.size < self.most:
            self._full.clear()
        return group

    async def close(self) -> None:
        """Answer waiting requests, and accept no more."""
        self._closing = True
        self._full.set()
        while self._waiting:
            await asyncio.wait([one.answer for one in self._waiting])
        self._task.cancel()
        self._thread.shutdown()
