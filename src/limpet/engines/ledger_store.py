"""Common base of stores with a ledger: items, journal, queue and traffic, and the writer's lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from limpet.engines.forks import at_fork
from limpet.engines.ledger import GalleryLedger
from limpet.engines.sqlite import holder, writer_refused
from limpet.engines.store import Document, GoneBack, Graph, Items, JournalEntry, Pointer
from limpet.errors import ConfigError, GalleryError, without_secrets


def no_graph(url: str) -> ConfigError:
    """Build the error for graph settings of indexes that are no graphs."""
    return ConfigError(
        f"Settings of a graph (HNSW) for the gallery '{without_secrets(url)}'.",
        expected="a gallery in PostgreSQL",
        to_do="leave them out: LanceDB and galleries in memory search in their own ways.",
    )


class Lock(Protocol):
    """Lock of the single writer."""

    def held(self, who: str, timeout: float) -> AbstractContextManager[None]:
        """Hold the lock; see `Store.writing`."""

    def check(self) -> None:
        """Refuse to commit if this process no longer holds the lock; called inside every commit."""


class ThreadLock:
    """A lock between the threads of one process, for galleries that no other process sees."""

    def __init__(self) -> None:
        at_fork(self, in_child=ThreadLock._start_anew)
        self._start_anew()

    def _start_anew(self) -> None:
        self._lock = threading.Lock()
        self._holder = "another thread"

    @contextmanager
    def held(self, who: str, timeout: float) -> Iterator[None]:
        """Hold the lock; see `Store.writing`."""
        lock = self._lock  # a forked child has another one
        if not lock.acquire(timeout=timeout):
            raise writer_refused(who, self._holder)
        self._holder = holder(who)
        try:
            yield
        finally:
            lock.release()

    def check(self) -> None:
        """Do nothing: no other process can take this lock."""


class SingleWriterStore:
    """The part of a store that handles the single writer, with default implementations.

    Args:
        url: URL of the gallery, for messages.
        lock: Lock of the single writer.
        folder: Folder of its files, if they are on this machine.
    """

    def __init__(self, url: str, lock: Lock, folder: Path | None = None) -> None:
        self.url, self._lock, self.folder = url, lock, folder
        self._writer: int | None = None
        at_fork(self, in_child=type(self)._start_anew)

    def _start_anew(self) -> None:
        self._writer = None

    def pointer(self) -> Pointer:
        """Return the current pointer, see `Store.pointer`."""
        raise NotImplementedError

    @contextmanager
    def writing(self, who: str, *, timeout: float = 10.0) -> Iterator[Pointer]:
        """Hold the writer's lock, see `Store.writing`; it is reentrant per thread."""
        if self._writer == threading.get_ident():
            yield self.pointer()
            return
        with self._lock.held(who, timeout):
            self._writer = threading.get_ident()
            try:
                self._recover()
                yield self.pointer()
            finally:
                self._writer = None

    def _recover(self) -> None:
        """Restore the state that the pointer names after an interrupted writer; called before any write."""

    def _must_be_writing(self) -> None:
        """Refuse a commit without the writer's lock; called inside the transaction that updates the pointer."""
        if self._writer != threading.get_ident():
            raise GalleryError(
                "A commit by one that is not the writer.",
                expected="a commit inside `with store.writing(...)`, in the same thread",
                intact="Nothing was changed.",
            )
        self._lock.check()

    @property
    def graph(self) -> Graph | None:
        """None: by default, the approximate indexes of a store are no graphs."""
        return None

    def choose_graph(self, graph: Graph) -> None:
        """Refuse, see `graph`."""
        raise no_graph(self.url)

    def keeps(self, sequence: int) -> bool:
        """Say whether a search may use an earlier commit: no, by default."""
        return False

    def keep_up(self, generation: str) -> None:
        """Run the maintenance that keeps searches fast after many commits: none, by default."""

    def damage(self) -> list[str]:
        """Read all data of the pointer again: nothing, by default."""
        return []

    def last_whole(self) -> int | None:
        """Return the newest readable commit: None, unless a store keeps earlier ones."""
        return None

    def go_back(self, sequence: int, manifest: Document, event: Document) -> GoneBack:
        """Go back to an earlier commit, which only some stores support."""
        raise GalleryError(
            f"The gallery '{self.url}' keeps nothing of commit {sequence}.",
            expected="a store that keeps earlier commits, such as LanceDB",
            to_do="restore a backup.",
            intact="Nothing was changed.",
        )


class LedgerStore(SingleWriterStore):
    """The part of a store that uses its ledger.

    Args:
        url: URL of the gallery, for messages.
        ledger: Its items, journal and pointer.
        lock: Lock of the single writer.
        folder: Folder of its files, if they are on this machine.
    """

    def __init__(self, url: str, ledger: GalleryLedger, lock: Lock, folder: Path | None = None) -> None:
        super().__init__(url, lock, folder)
        self.ledger = ledger

    def pointer(self) -> Pointer:
        """Return the current pointer."""
        return self.ledger.pointer()[0]

    @contextmanager
    def exclusive(self, who: str, *, timeout: float) -> Iterator[Callable[[], object]]:
        """Hold a lock of this kind, see `Store.exclusive`; the check asks the session that has the lock."""
        with self.ledger.database.exclusive(f"limpet {who}", who, "this gallery", timeout):
            yield self.ledger.sequence

    def fetch(self, ids: Sequence[str]) -> Items:
        """Return the items among these ids that exist, in the order given."""
        return self.ledger.fetch(ids)

    def scan(self, *, after: str = "", limit: int, lacking: str | None = None) -> Items:
        """Return the next items with an id above ``after``, by id; only those without a vector in ``lacking``."""
        return self.ledger.scan(after, limit, lacking)

    def journal(self, *, after: int = 0) -> list[JournalEntry]:
        """Return the entries with a number above ``after``, in order."""
        return self.ledger.journal(after)

    def file(self, digest: str) -> bytes:
        """Return the value of a digest, see `Store.file`."""
        return self.ledger.file(digest)

    def queue(self, generation: str) -> list[str] | None:
        """Return the stored order of a backfill; None if there is none."""
        return self.ledger.queue(generation)

    def set_queue(self, generation: str, ids: Sequence[str] | None) -> None:
        """Store the order of a backfill so that it can be resumed, or delete it; the pointer does not change."""
        self.ledger.set_queue(generation, ids)

    def add_traffic(self, retrieved: Mapping[str, int]) -> None:
        """Add to the retrieval counts of items; the pointer does not change."""
        self.ledger.add_traffic(retrieved)

    def traffic(self) -> dict[str, int]:
        """Return the retrieval counts of items."""
        return self.ledger.traffic()
