"""Protocol of stores: rows of vectors by generation, and one pointer that changes together with them.

A store keeps items (id, row version, metadata), for every generation at most one vector per item, in index form, and
the journal. It knows no geometry and no models: scores are inner products. The pointer determines what exists: a commit
makes rows, journal and pointer durable together, or changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, Protocol

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from limpet.engines.checks import refuse_ids, refuse_wrong_ids, refuse_wrong_vectors
from limpet.engines.filters import COLUMN_TYPES, Filter, Metadata
from limpet.engines.promises import Promises
from limpet.errors import DataError, refuse
from limpet.support.ranges import checked

if TYPE_CHECKING:
    from limpet.engines.digested_folder import DigestedFolder

Vectors = NDArray[np.float32]
Document = Mapping[str, object]
"""A JSON object that a store keeps for its caller, and does not interpret."""


class Commit(NamedTuple):
    """Unique identity of a commit: a server that takes over may lack some commits, whose numbers are then reused.

    Args:
        sequence: Number of the commit.
        time: Time at which it was recorded, in seconds since 1970.
    """

    sequence: int
    time: float


@dataclass(frozen=True)
class Pointer:
    """The state of a store as of one commit.

    Args:
        sequence: Number of the commit, counted from 1; 0 before the first. Every commit has one entry in the journal.
        manifest: State of the gallery, plain values; stores keep it and do not interpret it.
        held: Number of items that have vectors in exactly these generations, by set of generation names.
        time: Time at which it was recorded, in seconds since 1970.
    """

    sequence: int
    manifest: Document
    held: Mapping[frozenset[str], int] = field(default_factory=dict)
    time: float = 0.0

    @property
    def commit(self) -> Commit:
        """Identity of the commit."""
        return Commit(self.sequence, self.time)

    @property
    def items(self) -> int:
        """Number of items, with or without vectors."""
        return sum(self.held.values())

    def covered(self, generations: Sequence[str]) -> int:
        """Return the number of items that have a vector in at least one of these generations."""
        wanted = set(generations)
        return sum(count for holding, count in self.held.items() if wanted & holding)


@dataclass(frozen=True)
class Items:
    """Items as a store keeps them, one entry of each list per item.

    Args:
        ids: Ids of the items.
        versions: Number of the commit that last wrote the item itself (a backfill does not), int64 (N,).
        generations: Generations that have a vector of the item.
        metadata: Values by column; a column that was not given is missing.
        as_of: A commit whose writes they include, and none but its writes if no commit came after it; None if unknown.
    """

    ids: list[str]
    versions: NDArray[np.int64]
    generations: list[frozenset[str]]
    metadata: list[Metadata]
    as_of: Commit | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Sequence[int]) -> Items:
        """Return some of the items, in the order given."""
        return Items(
            [self.ids[row] for row in rows],
            self.versions[list(rows)],
            [self.generations[row] for row in rows],
            [self.metadata[row] for row in rows],
            self.as_of,
        )


@dataclass(frozen=True)
class Rows:
    """Vectors of one generation, in index form of the gallery side.

    Args:
        generation: Name of the generation.
        ids: One per row, without duplicates.
        vectors: float32 (N, width), finite.

    Raises:
        DataError: The rows violate this; the message names ids.
    """

    generation: str
    ids: Sequence[str]
    vectors: Vectors

    def __post_init__(self) -> None:
        what = f"vectors of generation '{self.generation}'"
        refuse_wrong_ids(self.ids, what)
        refuse_wrong_vectors(self.vectors, self.ids, what)


@dataclass(frozen=True)
class Upsert:
    """Items that are replaced completely: their metadata and all their vectors.

    Vectors of other generations are removed, since they belong to the item's earlier version.

    Args:
        ids: One per item, without duplicates.
        metadata: One mapping per item.
        rows: Vectors, of some or all of these items, at most once per generation. Every item has at least one, unless
            versions are given.
        versions: Version of every item, int64 (N,), if a gallery of several stores counts its own commits; the
            number of this commit if None.

    Raises:
        DataError: The items violate this; the message names ids.
    """

    ids: Sequence[str]
    metadata: Sequence[Metadata]
    rows: Sequence[Rows]
    versions: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        refuse_wrong_ids(self.ids, "items to write")
        if len(self.metadata) != len(self.ids):
            raise DataError(
                f"{len(self.metadata)} metadata for {len(self.ids)} items.", expected="one mapping per item"
            )
        names = [rows.generation for rows in self.rows]
        if len(set(names)) < len(names):
            raise DataError(f"Vectors of {', '.join(sorted(names))}.", expected="every generation once")
        given = {identifier for rows in self.rows for identifier in rows.ids}
        items = set(self.ids)
        refuse_ids(given - items, "have vectors and are not among the items to write", "vectors of these items only")
        if self.versions is None:
            refuse_ids(items - given, "have no vector", "at least one vector for every item that is written")
        elif self.versions.shape != (len(self.ids),) or self.versions.dtype != np.int64:
            raise DataError(f"{len(self.versions)} versions of {len(self.ids)} items.", expected="one int64 per item")

    def versions_in(self, sequence: int) -> NDArray[np.int64]:
        """Return the version of every item, int64 (N,), if the commit with this number writes them."""
        return np.full(len(self.ids), sequence, np.int64) if self.versions is None else self.versions


@dataclass(frozen=True)
class Fill:
    """Vectors of a backfill: they are written only if the item is unchanged since it was read, and has none yet.

    Args:
        rows: The vectors.
        versions: Version of every item when it was read, int64 (N,).
        seen: The items as they were read, which need not be read again if no commit followed.

    Raises:
        DataError: The number of versions, or the items, do not match the rows.
    """

    rows: Rows
    versions: NDArray[np.int64]
    seen: Items | None = None

    def __post_init__(self) -> None:
        if self.versions.shape != (len(self.rows.ids),) or self.versions.dtype != np.int64:
            raise DataError(
                f"Versions {self.versions.dtype} {self.versions.shape} for {len(self.rows.ids)} rows of a backfill.",
                expected="one int64 per row",
            )
        if self.seen is not None and self.seen.ids != list(self.rows.ids):
            raise DataError("The rows of a backfill are of other items than those seen.", expected="the same ids")


@dataclass(frozen=True)
class NewGeneration:
    """A generation to create, without rows.

    Args:
        name: Its name, letters and digits.
        width: Length of its vectors in index form.
        columns: Types of the metadata columns (a key of `COLUMN_TYPES`) by name.

    Raises:
        DataError: No store can keep the name, width or column.
    """

    name: str
    width: int
    columns: Mapping[str, str]

    def __post_init__(self) -> None:
        if not (self.name.isascii() and self.name.isalnum()):
            raise DataError(f"A generation named '{self.name}'.", expected="letters a to z and digits")
        if self.width < 1:
            raise DataError(f"Generation '{self.name}' with vectors of {self.width} numbers.", expected="1 or more")
        for column, kind in self.columns.items():
            if not column.isprintable() or not column or set(column) & set("`'\"<>=!.\\"):
                raise DataError(f"A metadata column named {column!r}.", expected="letters, digits, spaces, '_' or '-'")
            if kind not in COLUMN_TYPES:
                raise DataError(
                    f"The metadata column '{column}' of type '{kind}'.", expected=f"one of {', '.join(COLUMN_TYPES)}"
                )


@dataclass(frozen=True)
class Changes:
    """Changes of one commit, apart from the pointer; they are applied in the order of the fields.

    Args:
        create: Generations to create.
        remainders: Every (generation, others) that searches may use from now on, see `Store.search`; None for no
            change.
        delete: Ids of items to remove with all their vectors; unknown ids are ignored.
        upsert: Items to write.
        fill: Vectors of a backfill.
        drop: Generations to remove with all their rows; items stay.
        files: Values to store, by `digest_of` each.
        keep_files: Digests of the existing values to keep; others are removed. None keeps all.
    """

    create: Sequence[NewGeneration] = ()
    remainders: Sequence[tuple[str, frozenset[str]]] | None = None
    delete: Sequence[str] = ()
    upsert: Upsert | None = None
    fill: Fill | None = None
    drop: Sequence[str] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    keep_files: Collection[str] | None = None


def digest_of(content: bytes) -> str:
    """Return the digest under which a gallery stores a value.

    >>> digest_of(b"limpet")[:20]
    'sha256:209d63405462d'
    """
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True)
class Committed:
    """Result of a commit.

    Args:
        pointer: The pointer afterwards.
        deleted: Ids that existed and were removed.
        filled: Which rows of the fill were written, bool (N,); the others were changed or deleted meanwhile.
    """

    pointer: Pointer
    deleted: Sequence[str] = ()
    filled: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))


@dataclass(frozen=True)
class Hits:
    """The best rows for every query, best first, ties by id.

    Args:
        ids: At most k ids per query.
        scores: Inner products, float32, of the same length as the ids.
        metadata: Metadata of the items.
    """

    ids: list[list[str]]
    scores: list[NDArray[np.float32]]
    metadata: list[list[Metadata]]


@dataclass(frozen=True)
class JournalEntry:
    """One entry of a journal: a commit of a gallery, or a step of an attachment.

    Args:
        sequence: Number of the entry.
        time: Time of the entry, in seconds since 1970 (UTC).
        event: Plain values with at least "kind".
    """

    sequence: int
    time: float
    event: Document

    def to_dict(self) -> dict[str, object]:
        """Return the event with "at", its time in UTC as text."""
        return {**self.event, "at": datetime.fromtimestamp(self.time, UTC).isoformat()}


@dataclass(frozen=True)
class Upkeep:
    """Physical state of a generation.

    Args:
        rows: Number of vectors.
        bytes: Size of its files, or of its table with indexes.
        indexed: Number of its rows that an approximate index covers.
    """

    rows: int
    bytes: int
    indexed: int


@dataclass(frozen=True)
class GoneBack:
    """Result for items when a store goes back to an earlier commit.

    Args:
        lost: Ids of items that were written after it: they have their earlier state, or are missing.
        returned: Ids of items that were deleted after it.
        unfilled: Items that lost vectors, and are otherwise unchanged.
    """

    lost: Sequence[str]
    returned: Sequence[str]
    unfilled: int


@checked
@dataclass(frozen=True)
class Graph:
    """Parameters of approximate indexes that are graphs (HNSW), such as those of PostgreSQL.

    Args:
        m: Links per row, from 2 to 100: more increase recall and the size of the index.
        ef_construction: Candidates when a row is linked, from twice m to 1,000: more increase recall and build time.
        ef_search: Candidates of a search, from 1 to 1,000; at least two per hit.

    Raises:
        ConfigError: A number is out of range.
    """

    m: Annotated[int, Ge(2), Le(100)] = 16
    ef_construction: int = 64
    ef_search: Annotated[int, Ge(1), Le(1000)] = 100

    def __post_init__(self) -> None:
        narrow = not 2 * self.m <= self.ef_construction <= 1000
        refuse(narrow, f"A graph with ef_construction = {self.ef_construction}.", f"twice m, {2 * self.m}, to 1000")


@dataclass(frozen=True)
class Tidied:
    """Result of tidying.

    Args:
        freed: Bytes that were freed.
        waiting: Bytes that only older commits need, which readers may still be reading, or which were used recently.
    """

    freed: int
    waiting: int


class Store(Protocol):
    """A place that keeps a gallery; all methods raise `StoreError` if the place itself fails."""

    kind: ClassVar[str]
    """Its name in `STORES`: the word before the first colon of a url."""
    in_folder: ClassVar[bool]
    """Whether a gallery is a folder, which ``create`` and ``open`` then receive; else they receive the whole url."""
    in_memory: ClassVar[str | None]
    """The url of a gallery that ends with its process, if this kind supports one."""
    promises: ClassVar[Promises]
    """Guarantees for an upgrade."""
    url: str

    @property
    def folder(self) -> Path | None:
        """Folder of its files, if they are on this machine."""

    def pointer(self) -> Pointer:
        """Return the current pointer; another process may have changed it since the last call."""

    def writing(self, who: str, *, timeout: float = 10.0) -> AbstractContextManager[Pointer]:
        """Acquire the writer lock and yield the pointer, which no other writer moves meanwhile.

        Raises:
            GalleryError: Another writer holds the lock; the message names its process and since when. A lock whose
                process is gone is taken over.
        """

    def exclusive(self, who: str, *, timeout: float) -> AbstractContextManager[Callable[[], object]]:
        """Hold a named lock of this gallery, in parallel with writers; yield a function to call from time to time.

        Args:
            who: Name of the lock, such as "serve".
            timeout: Seconds to wait for another process.

        Raises:
            LockedError: Another process holds it. The function raises a `GalleryError` once another one may.
        """

    def commit(self, changes: Changes, manifest: Document, event: Document) -> Committed:
        """Apply changes, add the event to the journal, and update the pointer, all or nothing; only inside `writing`.

        On return all changes are durable, and vectors were read back and compared.
        """

    def search(
        self,
        queries: Vectors,
        k: int,
        *,
        generation: str,
        without: frozenset[str] = frozenset(),
        where: Filter | None = None,
        exact: bool = True,
        at: Pointer,
    ) -> Hits:
        """Find the rows with the largest inner products.

        Args:
            queries: float32 (Q, width), in index form of the query side.
            k: Hits per query, at least 1.
            generation: Generation of the vectors.
            without: Leave out items that have a vector in one of these; the pair was announced as a remainder.
            where: Leave out items whose metadata does not match; in the form that `checked` returns.
            exact: Compare all rows; otherwise an approximate index may be used, if there is one.
            at: Pointer to search at: the value that `pointer` just returned to this thread. A store may no longer have
                the rows of a pointer that is some seconds old; it then refuses, or if it keeps no history
                (PostgreSQL), answers as of a newer commit, the same one for all searches with it.

        Raises:
            DataError: Queries have another shape or type, or are not finite, or k is below 1.
            GalleryError: The generation does not exist at that pointer, or the pointer is too old.
        """

    def keeps(self, sequence: int) -> bool:
        """Say whether searches can use a commit even if this object never returned its pointer."""

    def fetch(self, ids: Sequence[str]) -> Items:
        """Return the items among these ids that exist, in the order given."""

    def scan(self, *, after: str = "", limit: int, lacking: str | None = None) -> Items:
        """Return the next items with an id above ``after``, by id; only those without a vector in ``lacking``."""

    def vectors(self, generation: str, ids: Sequence[str]) -> tuple[list[str], Vectors]:
        """Return the vectors (M, width) of a generation among these ids, and their ids, in the order given."""

    def scan_rows(
        self, generation: str, *, batch: int = 8192
    ) -> Iterator[tuple[list[str], NDArray[np.int64], Vectors]]:
        """Yield all rows of a generation as they are stored: ids, versions of their items when written, vectors."""

    def file(self, digest: str) -> bytes:
        """Return the value of a digest that `Changes.files` stored, after verifying the digest.

        Raises:
            GalleryError: The value is missing.
            StoreError: The value is damaged.
        """

    def journal(self, *, after: int = 0) -> list[JournalEntry]:
        """Return the entries with a number above ``after``, in order."""

    @property
    def graph(self) -> Graph | None:
        """Parameters of approximate indexes; None if they are no graphs."""

    def choose_graph(self, graph: Graph) -> None:
        """Store the parameters of approximate indexes, including those of later generations.

        Raises:
            ConfigError: Indexes of this store are no graphs.
        """

    def build_index(self, generation: str, *, directions: bool = False) -> None:
        """Build an approximate index over a generation, or update it; searches continue meanwhile.

        It may be a commit of its own.

        Args:
            generation: Its name.
            directions: Whether its rows have one length, so that only their direction matters.

        Raises:
            GalleryError: No index of this store can find neighbours among such rows.
        """

    def keep_up(self, generation: str) -> None:
        """Run the maintenance that keeps searches fast after many commits; searches continue meanwhile."""

    def upkeep(self, generation: str) -> Upkeep:
        """Return the physical state of a generation."""

    def damage(self) -> list[str]:
        """Read all data of the pointer again, from the disk; return what cannot be read, a sentence each."""

    def last_whole(self) -> int | None:
        """Return the number of the newest completely readable commit; None if no commit is kept."""

    def go_back(self, sequence: int, manifest: Document, event: Document) -> GoneBack:
        """Restore rows and items to an earlier commit, as a new commit; only inside `writing`.

        Raises:
            GalleryError: The store no longer has that commit.
        """

    def waiting(self) -> int:
        """Return the bytes of data that the gallery no longer needs and `tidy` would free."""

    def tidy(self, *, older_than: float = 3600.0) -> Tidied:
        """Merge small files and remove data that no pointer has named for `older_than` seconds.

        Tidying may be a commit of its own. Data that is being read is kept, whatever its age.
        """

    def queue(self, generation: str) -> list[str] | None:
        """Return the order of a backfill that `set_queue` stored; None if there is none."""

    def set_queue(self, generation: str, ids: Sequence[str] | None) -> None:
        """Store the order of a backfill so that it can be resumed, or delete it; the pointer does not change."""

    def add_traffic(self, retrieved: Mapping[str, int]) -> None:
        """Add to the retrieval counts of items; the pointer does not change."""

    def traffic(self) -> dict[str, int]:
        """Return the retrieval counts of items."""

    def backup(self, into: DigestedFolder) -> Pointer:
        """Write all data of one pointer into an empty folder: items, vectors, journal, order and traffic.

        Others may write meanwhile; they wait only briefly.

        Returns:
            The pointer.

        Raises:
            StoreError: The place is full or fails.
        """

    def close(self) -> None:
        """Close files and connections."""
