"""Group commit: batches that several threads submit while they wait for the writer become one commit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from limpet.galleries.rows import ItemBatch

ITEMS = 1000
"""Number of items after which a commit takes no further batch."""


@dataclass(eq=False)
class _Waiting:
    """A batch that a thread waits for."""

    batch: ItemBatch
    done: bool = False
    error: Exception | None = None


class GroupCommit:
    """Lets one of several threads commit the batches of all waiting threads.

    A batch that waits alone is a commit of its own. If a commit of several fails, each becomes a commit of its own, so
    that an error reaches the thread whose batch caused it.

    Args:
        writing: Acquires the writer's lock for this thread.
        commit: Commits batches, all or nothing, in the order of arrival; a batch may be repeated.
    """

    def __init__(
        self,
        writing: Callable[[], AbstractContextManager[object]],
        commit: Callable[[Sequence[ItemBatch]], object],
    ) -> None:
        self._writing, self._commit = writing, commit
        self._leading, self._waiting = threading.Lock(), deque[_Waiting]()

    def write(self, batch: ItemBatch) -> None:
        """Return when a batch is committed, or raise the error that prevented it."""
        one = _Waiting(batch)
        self._waiting.append(one)
        with self._leading:
            if not one.done:
                self._lead(one)
        if one.error is not None:
            raise one.error

    def _lead(self, one: _Waiting) -> None:
        """Commit waiting batches until this one is done; if the lock is unavailable, all of them fail."""
        try:
            with self._writing():
                while not one.done:
                    self._commit_some()
        except Exception as error:
            while self._waiting:
                self._end(self._waiting.popleft(), error)
        finally:
            if not one.done:  # interrupted before its turn
                self._waiting.remove(one)

    def _commit_some(self) -> None:
        group, items = [], 0
        while self._waiting and items < ITEMS:
            group.append(self._waiting.popleft())
            items += len(group[-1].batch.ids)
        try:
            error = self._committed([one.batch for one in group])
            for one in group:
                self._end(one, error and (self._committed([one.batch]) if len(group) > 1 else error))
        finally:
            self._waiting.extendleft(one for one in reversed(group) if not one.done)  # after an interruption

    def _committed(self, batches: Sequence[ItemBatch]) -> Exception | None:
        try:
            self._commit(batches)
        except Exception as error:
            return error
        return None

    def _end(self, one: _Waiting, error: Exception | None) -> None:
        one.error, one.done = error, True
