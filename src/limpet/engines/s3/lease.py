"""The writer's lock if no server tracks processes: an object that its holder renews."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from limpet.engines.s3.bucket import Bucket
from limpet.engines.sqlite import holder, writer_refused
from limpet.errors import GalleryError, StoreError
from limpet.support.documents import parsed_json

NAME = "writer.json"
_LEASE = 8.0
"""Seconds without renewal after which a lock is taken over, by the clock of the waiting writer."""
_BEAT, _LOOK = _LEASE / 4, 0.05  # seconds between two renewals, and between two checks of waiting writers


class Lease:
    """Lock of one writer at a time.

    It avoids conflicts between writers but does not guarantee exclusion: a writer that was presumed dead may still
    write. So it is for places where every change is a compare-and-set, which detects another writer's change.

    Args:
        bucket: Bucket of the object.
        name: Name of the object.
    """

    def __init__(self, bucket: Bucket, name: str = NAME) -> None:
        self._bucket, self._name = bucket, name
        self._seen, self._since = "", 0.0  # the last renewal of another holder, and when it was first seen
        self._until = 0.0  # when others may take over from this process, by its clock

    @contextmanager
    def held(self, who: str, timeout: float) -> Iterator[None]:
        """Hold the lock; see `Store.writing`.

        Raises:
            LockedError: Another writer holds it for longer than ``timeout`` seconds.
        """
        tags, done = [self._wait(who, time.monotonic() + timeout)], threading.Event()
        beating = threading.Thread(target=self._beat, args=(who, done, tags), name="limpet lease", daemon=True)
        beating.start()
        try:
            yield
        finally:
            done.set()
            beating.join()
            self._until = 0.0
            with suppress(StoreError):  # others wait until it expires
                self._put("", tags[-1])

    def check(self) -> None:
        """Refuse to continue if others may have taken over.

        Raises:
            GalleryError: Another writer may hold the lock.
        """
        if time.monotonic() > self._until:
            raise GalleryError(
                f"The lock of '{self._bucket.url}' is lost: this process gave no sign for {_LEASE:.0f} s.",
                to_do="try again.",
                intact="What was committed before is intact, without this commit.",
            )

    def _wait(self, who: str, until: float) -> str:
        while True:
            found = self._bucket.read(self._name)
            tag = None if found is None else found[1]
            by = "" if found is None else _writer(found[0])
            if tag is not None and tag != self._seen:
                self._seen, self._since = tag, time.monotonic()
            if not by or time.monotonic() - self._since > _LEASE:
                began = time.monotonic()
                mine = self._put(who, tag)
                if mine is not None:
                    self._until = began + _LEASE
                    return mine
            elif time.monotonic() > until:
                raise writer_refused(who, by)
            time.sleep(_LOOK)

    def _beat(self, who: str, done: threading.Event, tags: list[str]) -> None:
        """Renew the lock until the block ends, or the lock is lost."""
        while time.monotonic() <= self._until and not done.wait(_BEAT):
            began = time.monotonic()
            with suppress(StoreError):
                tag = self._put(who, tags[-1])
                if tag is None:
                    self._until = 0.0
                else:
                    tags[:], self._until = [tag], began + _LEASE

    def _put(self, who: str, over: str | None) -> str | None:
        """Write a renewal; return None if another writer has the lock now."""
        sign = {"writer": holder(who) if who else "", "sign": secrets.token_hex(8)}
        content = json.dumps(sign).encode()
        tag = self._bucket.put(self._name, content, over)
        if tag is None:
            found = self._bucket.read(self._name)
            return found[1] if found is not None and found[0] == content else None  # the reply was lost
        return tag


def _writer(content: bytes) -> str:
    """Return the holder of the lock according to the object; empty if it is free or was altered."""
    with suppress(ValueError):
        said: Any = parsed_json(content)
        return str(said.get("writer", "")) if isinstance(said, dict) else ""
    return ""
