"""The top of a sharded gallery: one small document that changes by compare-and-set, with the data that it covers."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from limpet.engines.database import ClosableDatabase
from limpet.engines.folder import create_folder, kind_of, open_folder
from limpet.engines.ledger import GalleryLedger, reading
from limpet.engines.ledger_store import Lock
from limpet.engines.sqlite import WriterLock
from limpet.engines.store import Document, JournalEntry
from limpet.errors import GalleryError, StoreError
from limpet.registry import Registry
from limpet.support.disk import Disk

KIND = "sharded"
REMEMBERED = 64  # moves to keep, so that a writer that lost a reply can find its own
_LOOKS, _PAUSE = 8, 0.01  # attempts to find a move whose reply was lost; the first pause, in seconds


@dataclass(frozen=True)
class Stamped:
    """A version of the document.

    Args:
        document: Plain values.
        tag: Number of moves up to this version.
        commits: Names of the last moves, the newest last.
    """

    document: Document
    tag: int
    commits: Sequence[str] = ()


@dataclass(frozen=True)
class Beside:
    """Data that one move changes in addition to the document.

    Args:
        entries: New entries of the journal.
        files: Values to store, by digest.
        kept: Digests of the existing values to keep; None for all.
    """

    entries: Sequence[JournalEntry] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    kept: Collection[str] | None = None


class Top(ABC):
    """Store of the document: a database, or any other place with compare-and-set.

    Args:
        url: URL for messages.
        lock: Lock of the single writer; `move` alone already ensures that only one writer succeeds.
        folder: Folder of its files, if they are on this machine.
    """

    def __init__(self, url: str, lock: Lock, folder: Path | None = None) -> None:
        self.url, self.lock, self.folder = url, lock, folder

    @abstractmethod
    def read(self) -> Stamped:
        """Return the current document, never a cached one."""

    @abstractmethod
    def put(self, after: Stamped, beside: Beside) -> bool:
        """Store a document and the accompanying data if the tag of the present document is `after`; return whether.

        Raises:
            StoreError: The place fails: everything or nothing may have been stored.
        """

    @abstractmethod
    def journal(self, after: int) -> list[JournalEntry]:
        """Return the entries with a number above ``after``, in order."""

    @abstractmethod
    def file(self, digest: str) -> bytes:
        """Return a value, see `Store.file`."""

    @abstractmethod
    def digests(self) -> set[str]:
        """Return the digests of all values."""

    @abstractmethod
    def exclusive(self, who: str, timeout: float) -> AbstractContextManager[Callable[[], object]]:
        """Hold a lock of this kind, see `Store.exclusive`."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""

    def move(self, document: Document, over: Stamped, commit: str, beside: Beside | None = None) -> Stamped:
        """Replace the document that was read, unless it has changed since; call it once per name.

        If the place fails, it may still have stored the document: its last moves are searched for the name.

        Args:
            document: The new document.
            over: The version that was read.
            commit: A name that no other move has.
            beside: Data that changes with it.

        Returns:
            The version that this move created; others may have replaced it since.

        Raises:
            GalleryError: Another writer replaced the document; nothing was changed.
            StoreError: The place fails, and this move was not stored, or that is unknown.
        """
        after = Stamped(document, over.tag + 1, (*over.commits, commit)[-REMEMBERED:])
        failed: GalleryError = GalleryError(
            f"The top of '{self.url}' has moved since it was read: another writer was faster.",
            to_do="try again.",
            intact="Nothing was changed.",
        )
        try:
            if self.put(after, beside or Beside()):
                return after
        except StoreError as error:
            failed = error
        now = self._look(failed)
        if commit in now.commits:
            return after
        if now.tag - over.tag > REMEMBERED and isinstance(failed, StoreError):
            raise StoreError(
                f"It is unknown whether commit {commit} is in '{self.url}': {REMEMBERED} others followed.",
                to_do="look whether this write is there before you repeat it: it is there whole, or not at all.",
            ) from failed
        raise failed

    def _look(self, failed: GalleryError) -> Stamped:
        """Return the current document, read by another thread: a writing one is bound to the connection that failed."""
        with ThreadPoolExecutor(1) as other:
            for pause in range(_LOOKS):
                try:
                    return other.submit(self.read).result()
                except StoreError:
                    time.sleep(_PAUSE * 2**pause)
        raise failed


def tables(document: Document) -> tuple[str, ...]:
    """Return statements that create the tables of a top in addition to a ledger, with a first document."""
    first = json.dumps(document).replace("'", "''")
    return (
        "CREATE TABLE IF NOT EXISTS top (one bigint PRIMARY KEY, tag bigint NOT NULL, document text NOT NULL, "
        "commits text NOT NULL)",
        f"INSERT INTO top SELECT 1, 0, '{first}', '[]' WHERE NOT EXISTS (SELECT 1 FROM top)",
    )


class LedgerTop(Top):
    """A row in the database of a ledger; the ledger keeps the journal and the values.

    Args:
        database: Database of the ledger, SQLite or PostgreSQL; closed with the top.
    """

    def __init__(self, url: str, database: ClosableDatabase, lock: Lock, folder: Path | None = None) -> None:
        super().__init__(url, lock, folder)
        self.database, self.ledger = database, GalleryLedger(database)

    def read(self) -> Stamped:
        """Return the current document."""
        rows = self.database.execute("SELECT document, tag, commits FROM top WHERE one = 1")
        with reading("The top of the gallery"):
            [(document, tag, commits)] = rows
            return Stamped(json.loads(document), int(tag), tuple(json.loads(commits)))

    def put(self, after: Stamped, beside: Beside) -> bool:
        """Replace a document, in one transaction with the accompanying data; see `Top.put`."""
        values = [after.tag, json.dumps(after.document), json.dumps(after.commits), after.tag - 1]
        with self.database.transaction():
            moved = self.database.execute(
                "UPDATE top SET tag = ?, document = ?, commits = ? WHERE one = 1 AND tag = ? RETURNING tag", values
            )
            if moved:
                self.ledger.keep_files(beside.files, beside.kept)
                for entry in beside.entries:
                    self.ledger.note(entry)
        return bool(moved)

    def journal(self, after: int) -> list[JournalEntry]:
        """Return the entries with a number above ``after``, in order."""
        return self.ledger.journal(after)

    def file(self, digest: str) -> bytes:
        """Return a value, see `Store.file`."""
        return self.ledger.file(digest)

    def digests(self) -> set[str]:
        """Return the digests of all values."""
        return {str(digest) for (digest,) in self.database.execute("SELECT digest FROM files")}

    @contextmanager
    def exclusive(self, who: str, timeout: float) -> Iterator[Callable[[], object]]:
        """Hold a lock of this kind, see `Store.exclusive`; the check asks the session that has the lock."""
        with self.database.exclusive(f"limpet {who}", who, "this gallery", timeout):
            yield self.read

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def sqlite_top(place: str, disk: Disk, document: Document | None = None) -> LedgerTop:
    """Return the existing top in a folder of this machine, or create one with a first document."""
    folder = Path(place)
    if document is not None:
        database = create_folder(folder, KIND, disk, tables(document))
    else:
        found = kind_of(folder)
        if found not in (None, KIND):
            raise GalleryError(
                f"'{folder}' holds a gallery of kind '{found}', and no top of shards.",
                expected="the folder that the file of shards names as its top",
            )
        database = open_folder(folder, disk)
    return LedgerTop(place, database, WriterLock(database), folder)


TOPS: Registry[Callable[..., Top]] = Registry(
    "kind of top",
    "tops",
    {
        "folder": sqlite_top,
        "postgresql": "limpet.engines.postgres.top:postgres_top",
        "s3": "limpet.engines.s3.top:s3_top",
    },
    fits=callable,
    expected="a function of a place, a disk and perhaps a first document, which returns a limpet.engines.top.Top",
)
"""Functions that open or create a top: "folder", or by the scheme of a URL."""
