"""What a store is: rows of vectors by generation, and one pointer that moves together with them.

A store keeps items (id, row version, metadata), for every generation one vector in index form per item at most, and the
journal. It knows no geometry and no models: scores are inner products. What exists is what the pointer names: a commit
makes rows, journal and pointer durable together, or leaves everything as it was.
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
"""A JSON object that a store keeps for others, and does not read."""


class Commit(NamedTuple):
    """What tells one commit from every other: a server that takes over may lack some, whose numbers come again.

    Args:
        sequence: Its number.
        time: When it was recorded, in seconds since 1970.
    """

    sequence: int
    time: float


@dataclass(frozen=True)
class Pointer:
    """What exists, as of one commit.

    Args:
        sequence: Number of the commit, counted from 1; 0 before the first. Every commit has one entry in the journal.
        manifest: State of the gallery, plain values; stores keep it and do not read it.
        held: How many items have vectors in exactly these generations, by set of generation names.
        time: When it was recorded, in seconds since 1970.
    """

    sequence: int
    manifest: Document
    held: Mapping[frozenset[str], int] = field(default_factory=dict)
    time: float = 0.0

    @property
    def commit(self) -> Commit:
        """Which commit it is."""
        return Commit(self.sequence, self.time)

    @property
    def items(self) -> int:
        """Number of items, with or without vectors."""
        return sum(self.held.values())

    def covered(self, generations: Sequence[str]) -> int:
        """Return how many items have a vector in at least one of these generations."""
        wanted = set(generations)
        return sum(count for holding, count in self.held.items() if wanted & holding)


@dataclass(frozen=True)
class Items:
    """Items as a store keeps them, one entry of each list per item.

    Args:
        ids: Their names.
        versions: Number of the commit that last wrote the item itself (a backfill does not), int64 (N,).
        generations: Which generations have a vector of it.
        metadata: Values by column; a column that was not given is missing.
        as_of: A commit: they hold what it wrote, and if none came after it, nothing else; None if not known.
    """

    ids: list[str]
    versions: NDArray[np.int64]
    generations: list[frozenset[str]]
    metadata: list[Metadata]
    as_of: Commit | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Sequence[int]) -> Items:
        """Return some of them, in the order given."""
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
        generation: Its name.
        ids: One per row, none twice.
        vectors: float32 (N, width), finite.

    Raises:
        DataError: They are not so; the message names ids.
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
    """Items that are written whole: their metadata and all their vectors are replaced.

    Vectors of generations that are not given are removed, since they describe what the item was before.

    Args:
        ids: One per item, none twice.
        metadata: One mapping per item.
        rows: Vectors, of some or all of these items, at most once per generation. Every item has one at least, unless
            versions are given.
        versions: Version of every item, int64 (N,), where a gallery of several stores counts its own commits; the
            number of this commit if None.

    Raises:
        DataError: They are not so; the message names ids.
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
    """Vectors of a backfill: they are written only where the item is still what was read, and has none yet.

    Args:
        rows: The vectors.
        versions: Version of every item when it was read, int64 (N,).
        seen: The very items, as they were read: they need not be read again where no commit came since.

    Raises:
        DataError: Not one version per row, or other items than rows.
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
        DataError: A name, width or column that no store can keep.
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
    """What one commit changes besides the pointer; parts are applied in the order of the fields.

    Args:
        create: Generations to create.
        remainders: Every (generation, others) that searches may ask for from now on, see `Store.search`; None leaves
            them as they are.
        delete: Ids of items to remove with all their vectors; unknown ones are passed over.
        upsert: Items to write.
        fill: Vectors of a backfill.
        drop: Generations to remove with all their rows; items stay.
        files: Values to keep, by `digest_of` each.
        keep_files: Digests of the values to keep besides these; others are removed. None keeps all.
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
    """Return the name under which a gallery keeps a value.

    >>> digest_of(b"limpet")[:20]
    'sha256:209d63405462d'
    """
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True)
class Committed:
    """What a commit did.

    Args:
        pointer: Where things stand now.
        deleted: Ids that were there and are removed.
        filled: Which rows of the fill were written, bool (N,); the others changed or vanished meanwhile.
    """

    pointer: Pointer
    deleted: Sequence[str] = ()
    filled: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))


@dataclass(frozen=True)
class Hits:
    """The best rows for every query, best first; of equal scores the smaller id first.

    Args:
        ids: For each query at most k ids.
        scores: Their inner products, float32, as long as the ids.
        metadata: Their metadata.
    """

    ids: list[list[str]]
    scores: list[NDArray[np.float32]]
    metadata: list[list[Metadata]]


@dataclass(frozen=True)
class JournalEntry:
    """One entry of a journal: what a commit of a gallery was, or a step of an attachment.

    Args:
        sequence: Its number.
        time: When, in seconds since 1970 (UTC).
        event: Plain values with at least "kind".
    """

    sequence: int
    time: float
    event: Document

    def to_dict(self) -> dict[str, object]:
        """Return the event with "at", its moment in UTC as text."""
        return {**self.event, "at": datetime.fromtimestamp(self.time, UTC).isoformat()}


@dataclass(frozen=True)
class Upkeep:
    """What is known of the physical state of a generation.

    Args:
        rows: How many vectors it has.
        bytes: Size of its files, or of its table with indexes.
        indexed: How many of its rows an approximate index covers.
    """

    rows: int
    bytes: int
    indexed: int


@dataclass(frozen=True)
class GoneBack:
    """What became of items when a store went back to an earlier commit.

    Args:
        lost: Ids of items that were written after it: as they were then, or not there at all.
        returned: Ids of items that were deleted after it.
        unfilled: Items that have fewer vectors than before, and are what they were otherwise.
    """

    lost: Sequence[str]
    returned: Sequence[str]
    unfilled: int


@checked
@dataclass(frozen=True)
class Graph:
    """How approximate indexes are built and searched that are graphs (HNSW), as those of PostgreSQL are.

    Args:
        m: Links of every row, from 2 to 100: more find more, in a larger index.
        ef_construction: Rows that are looked at to link one, from twice m to 1,000: more find more, built in longer.
        ef_search: Rows that a search looks at, from 1 to 1,000; at least two for each hit.

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
    """What tidying did.

    Args:
        freed: Bytes that were given back.
        waiting: Bytes that only older commits need, which readers may still be reading, or which were used of late.
    """

    freed: int
    waiting: int


class Store(Protocol):
    """One place that keeps a gallery; all methods raise `StoreError` where the place itself fails."""

    kind: ClassVar[str]
    """Its name in `STORES`: the word before the first colon of a url."""
    in_folder: ClassVar[bool]
    """Whether a gallery is a folder, which is what ``create`` and ``open`` are given; else they get the whole url."""
    in_memory: ClassVar[str | None]
    """The url of a gallery that ends with its process, where there is such a one."""
    promises: ClassVar[Promises]
    """What an upgrade may count on here."""
    url: str

    @property
    def folder(self) -> Path | None:
        """Where its files are, if this machine has them."""

    def pointer(self) -> Pointer:
        """Return what exists now; another process may have moved it since the last call."""

    def writing(self, who: str, *, timeout: float = 10.0) -> AbstractContextManager[Pointer]:
        """Acquire the writer lock and yield the pointer, which no other writer moves meanwhile.

        Raises:
            GalleryError: Another writer holds the lock; the message names its process and since when. A lock whose
                process is gone is taken over.
        """

    def exclusive(self, who: str, *, timeout: float) -> AbstractContextManager[Callable[[], object]]:
        """Be the only process of a kind at this gallery, beside writers: yields what to call now and then.

        Args:
            who: The kind, such as "serve".
            timeout: Seconds to wait for another process.

        Raises:
            LockedError: Another process is it; what was yielded raises a `GalleryError` once another one may be.
        """

    def commit(self, changes: Changes, manifest: Document, event: Document) -> Committed:
        """Apply changes, add the event to the journal, and move the pointer, all or nothing; only inside `writing`.

        On return everything is durable, and vectors were read back and found equal.
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
            generation: Whose vectors.
            without: Leave out items that have a vector in one of these; the pair was announced as a remainder.
            where: Leave out items whose metadata does not meet it; as `checked` returns it.
            exact: Compare with every row; otherwise an approximate index may be used where there is one.
            at: What is to exist for this search: what `pointer` returned to this thread just before. Of a pointer
                that is some seconds old, a store may have forgotten the rows; it refuses then, or where it keeps no
                history (PostgreSQL) answers as of a newer commit, the same one for all searches with it.

        Raises:
            DataError: Queries of another shape or type, or not finite, or k below 1.
            GalleryError: There is no such generation at that pointer, or the pointer is too old.
        """

    def keeps(self, sequence: int) -> bool:
        """Say whether searches can ask for a commit even if this object never returned its pointer."""

    def fetch(self, ids: Sequence[str]) -> Items:
        """Return the items among these ids that exist, in the order given."""

    def scan(self, *, after: str = "", limit: int, lacking: str | None = None) -> Items:
        """Return the next items with an id above ``after``, by id; only those without a vector in ``lacking``."""

    def vectors(self, generation: str, ids: Sequence[str]) -> tuple[list[str], Vectors]:
        """Return the vectors (M, width) among these ids that a generation has, and their ids, in the order given."""

    def scan_rows(
        self, generation: str, *, batch: int = 8192
    ) -> Iterator[tuple[list[str], NDArray[np.int64], Vectors]]:
        """Yield all rows of a generation as they are stored: ids, versions of their items when written, vectors."""

    def file(self, digest: str) -> bytes:
        """Return the value of a digest that `Changes.files` kept, after proving that it is that value.

        Raises:
            GalleryError: There is none.
            StoreError: It is damaged.
        """

    def journal(self, *, after: int = 0) -> list[JournalEntry]:
        """Return the entries with a number above ``after``, in order."""

    @property
    def graph(self) -> Graph | None:
        """How approximate indexes are built and searched; None where they are no graphs."""

    def choose_graph(self, graph: Graph) -> None:
        """Keep how approximate indexes are built and searched from now on, those of later generations, too.

        Raises:
            ConfigError: Indexes of this store are no graphs.
        """

    def build_index(self, generation: str, *, directions: bool = False) -> None:
        """Build an approximate index over a generation, or bring it up to date; searches go on meanwhile.

        It may be a commit of its own.

        Args:
            generation: Its name.
            directions: Whether its rows have one length, so that only their direction counts.

        Raises:
            GalleryError: No index of this store leads to what is near among such rows.
        """

    def keep_up(self, generation: str) -> None:
        """Do what keeps searches of a generation fast after many commits; searches go on meanwhile."""

    def upkeep(self, generation: str) -> Upkeep:
        """Return the physical state of a generation."""

    def damage(self) -> list[str]:
        """Read all that the pointer names again, from the disk; return what cannot be read, a sentence each."""

    def last_whole(self) -> int | None:
        """Return the number of the newest commit of which everything can be read; None where none is kept."""

    def go_back(self, sequence: int, manifest: Document, event: Document) -> GoneBack:
        """Make rows and items what they were at an earlier commit, as a new commit; only inside `writing`.

        Raises:
            GalleryError: The store keeps nothing of that commit.
        """

    def waiting(self) -> int:
        """Return the bytes that nothing in the gallery needs any more and `tidy` would give back."""

    def tidy(self, *, older_than: float = 3600.0) -> Tidied:
        """Merge small pieces and remove data that no pointer has named for `older_than` seconds.

        Tidying may be a commit of its own. Data that is being read is kept, whatever its age.
        """

    def queue(self, generation: str) -> list[str] | None:
        """Return the ids of the order of a backfill that was written by `set_queue`; None where none was."""

    def set_queue(self, generation: str, ids: Sequence[str] | None) -> None:
        """Keep the order of a backfill so that it can be resumed, or forget it; moves no pointer."""

    def add_traffic(self, retrieved: Mapping[str, int]) -> None:
        """Add to how often items were retrieved; moves no pointer."""

    def traffic(self) -> dict[str, int]:
        """Return how often items were retrieved."""

    def backup(self, into: DigestedFolder) -> Pointer:
        """Write everything of one pointer into an empty folder: items, vectors, journal, order and traffic.

        Others may write meanwhile; they wait a moment at most.

        Returns:
            The pointer.

        Raises:
            StoreError: The place is full or fails.
        """

    def close(self) -> None:
        """Let go of files and connections."""
