"""The top of a sharded gallery: one small document that moves by compare-and-set, and what moves together with it."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
REMEMBERED = 64  # moves, of which a writer that lost a reply can say whether its own is among them
_LOOKS, _PAUSE = 8, 0.01  # how often to look for a move whose reply was lost; the first pause, in seconds


@dataclass(frozen=True)
class Stamped:
    """A document as it was at one moment.

    Args:
        document: Plain values.
        tag: How many moves led to it.
        commits: Names of the last of them, the newest last.
    """

    document: Document
    tag: int
    commits: Sequence[str] = ()


@dataclass(frozen=True)
class Beside:
    """What one move changes besides the document.

    Args:
        entries: For the journal.
        files: Values to keep, by digest.
        kept: Digests of the values that stay besides these; None for all.
    """

    entries: Sequence[JournalEntry] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    kept: Collection[str] | None = None


class Top(ABC):
    """Where the document is: in a database, or any other place that compares before it writes.

    Args:
        url: For messages.
        lock: Held by the one writer, who needs no other protection than `move` to be the only one that counts.
        folder: Where its files are, if this machine has them.
    """

    def __init__(self, url: str, lock: Lock, folder: Path | None = None) -> None:
        self.url, self.lock, self.folder = url, lock, folder

    @abstractmethod
    def read(self) -> Stamped:
        """Return the document as it is now; never one that was read before."""

    @abstractmethod
    def put(self, after: Stamped, beside: Beside) -> bool:
        """Keep a document, and what is beside it, if the one there has the tag before; say whether it had.

        Raises:
            StoreError: The place fails: it may be there whole, or not at all.
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
        """Be the only process of a kind, see `Store.exclusive`."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def move(self, document: Document, over: Stamped, commit: str, beside: Beside | None = None) -> Stamped:
        """Replace the document that was read, unless it has moved since; call it once for a name.

        Where the place fails, it may still have moved the document: its last moves are looked through.

        Args:
            document: What is to be there.
            over: What was read.
            commit: A name that no other move has.
            beside: What changes with it.

        Returns:
            The document as this move left it; others may have moved it since.

        Raises:
            GalleryError: Another writer moved it; nothing was changed.
            StoreError: The place fails, and this move is not there, or that is unknown.
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
        for pause in range(_LOOKS):
            try:
                return self.read()
            except StoreError:
                time.sleep(_PAUSE * 2**pause)
        raise failed


def tables(document: Document) -> tuple[str, ...]:
    """Return statements that create what a top needs beside a ledger, with a first document."""
    first = json.dumps(document).replace("'", "''")
    return (
        "CREATE TABLE IF NOT EXISTS top (one bigint PRIMARY KEY, tag bigint NOT NULL, document text NOT NULL, "
        "commits text NOT NULL)",
        f"INSERT INTO top SELECT 1, 0, '{first}', '[]' WHERE NOT EXISTS (SELECT 1 FROM top)",
    )


class LedgerTop(Top):
    """A row beside a ledger; the ledger keeps the journal and the values.

    Args:
        database: Of the ledger, SQLite or PostgreSQL; closed with the top.
    """

    def __init__(self, url: str, database: ClosableDatabase, lock: Lock, folder: Path | None = None) -> None:
        super().__init__(url, lock, folder)
        self.database, self.ledger = database, GalleryLedger(database)

    def read(self) -> Stamped:
        """Return the document as it is now."""
        rows = self.database.execute("SELECT document, tag, commits FROM top WHERE one = 1")
        with reading("The top of the gallery"):
            [(document, tag, commits)] = rows
            return Stamped(json.loads(document), int(tag), tuple(json.loads(commits)))

    def put(self, after: Stamped, beside: Beside) -> bool:
        """Keep a document over the one before it, in a transaction with what is beside it; see `Top.put`."""
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
        """Be the only process of a kind, see `Store.exclusive`; the session that has the lock is asked for it."""
        with self.database.exclusive(f"limpet {who} {self.url}", who, "this gallery", timeout):
            yield self.read

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def sqlite_top(place: str, disk: Disk, document: Document | None = None) -> LedgerTop:
    """Return the top in a folder of this machine: the one that is there, or a new one with a first document."""
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
"""What opens or makes a top: "folder", or by the scheme of a URL."""
