"""Lance tables: creating, linking, changing, syncing and reading them back.

Lance never asks the operating system to sync files. Every change creates a new version, and only readers that know its
number see it. A change therefore has four steps: remove what an interrupted writer left, change the table, sync the new
files, read all of them. The files of a table never change, and refer to each other only by paths below the table's
folder. A folder of links to them is therefore another table, and both can be moved anywhere.

In a bucket, a writer that was presumed dead may still remove files that it listed earlier. No name is therefore used
twice there: what an interrupted writer left of a table stays, below the later versions.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

import lance
import pyarrow as pa

from limpet.engines.forks import at_fork
from limpet.engines.lance.care import merge_pieces, prune
from limpet.engines.lance.checks import compare, read_whole
from limpet.engines.lance.files import TableFiles, open_table
from limpet.engines.lance.places import Edit, TableVersion
from limpet.engines.lance.rows import Table, append, index_folders, index_ids, remove, rows_of, schema_of
from limpet.engines.store import NewGeneration
from limpet.errors import GalleryError, LastingStoreError, LimpetError, StoreError, reason
from limpet.support.disk import Disk

_READERS = 32  # open versions to cache
_SESSION = 1_024  # versions to open before readers start with empty caches
_INDEX_CACHE, _FILE_CACHE = 2 << 30, 64 << 20  # maximum bytes of the caches for indexes, and for all other files
_LAST = 2**64 - 1

_used_by: set[int] = set()  # processes that used Lance, this one and those it was forked from

AGAIN = "check the disk, then try again. The next commit clears away what this one began."


@contextmanager
def translated(where: str, to_do: str = "check the disk; `limpet doctor` looks closer.") -> Iterator[None]:
    """Convert errors of Lance and of the disk to those of limpet."""
    try:
        yield
    except LimpetError:
        raise
    except BaseException as error:
        if not unreadable(error):
            raise
        raise (StoreError if _may_pass(error) else LastingStoreError)(
            f"The vectors in '{where}' cannot be read or written: {reason(error)}.",
            to_do=to_do,
        ) from error


def _may_pass(error: BaseException) -> bool:
    """Say whether an error comes from the system, such as a full or missing disk, not from the content of a file."""
    by_system = getattr(error, "errno", None) is not None or "os error" in str(error)
    return by_system or isinstance(error, StoreError)


def unreadable(error: BaseException) -> bool:
    """Say whether an error is one of the disk or of a damaged file, for which Lance may raise a `BaseException`."""
    known = (OSError, RuntimeError, ValueError, KeyError, pa.ArrowException, StoreError)
    return isinstance(error, known) or type(error).__name__ == "PanicException"


@dataclass
class _Change:
    """Changes of a commit to a table.

    Args:
        table: Handle of the table, which follows its versions.
        before: Version before the commit; None for a new table.
        added: Rows that the commit added.
    """

    table: Table
    before: Table | None
    removed: list[str] = field(default_factory=list)
    added: list[pa.Table] = field(default_factory=list)


def refuse_forked() -> None:
    """Refuse to continue in a fork of a process that used Lance: without its threads, it may hang or crash.

    Raises:
        GalleryError: This process is such a fork.
    """
    if _used_by - {os.getpid()}:
        raise GalleryError(
            "This process was forked from one that had a gallery in LanceDB open, which Lance does not survive.",
            expected="a process that was started anew, or forked before any gallery was opened",
            to_do="let multiprocessing start processes by 'spawn' or 'forkserver', or open galleries after the fork "
            "only.",
        )


class LanceTables:
    """All Lance tables of a gallery.

    Args:
        files: Where they are.
        disk: Every step reaches it.
        certain: Called before anything is removed that a commit may have written; makes sure that it never was.
    """

    def __init__(self, files: TableFiles, disk: Disk, certain: Callable[[], None]) -> None:
        self.files, self._disk, self._certain = files, disk, certain
        self._changes: dict[str, _Change] = {}
        self._inherited: list[object] = []
        _used_by.add(os.getpid())
        at_fork(self, in_child=LanceTables._start_anew)
        self._begin()

    def _begin(self) -> None:
        self._guard = threading.Lock()
        self._readers: OrderedDict[TableVersion, Table] = OrderedDict()
        self._schemas: dict[str, pa.Schema] = {}
        self._session, self._opened_versions = lance.Session(_INDEX_CACHE, _FILE_CACHE), 0
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="limpet-lance")
        self.forget()

    def _start_anew(self) -> None:
        """Start without caches in a forked child; inherited objects are kept but never used: their threads are gone."""
        self._inherited += [self._readers, self._session, self._helper, self._writers, self._writing]
        self._inherited += [self._changes, self._verified]
        self._begin()

    def forget(self) -> None:
        """Drop cached state of tables that a failed commit may have changed."""
        self._writers: dict[str, Table] = {}
        self._writing = lance.Session(_FILE_CACHE, _FILE_CACHE)
        self.files.forget()
        self._verified: dict[str, Table] = {}  # the versions read back last, for comparison with the next change
        self._changes = {}

    def _current_session(self) -> lance.Session:
        """Return the session to open another version with.

        Lance keeps what was used often before what is new: once its cache is full of files of versions that are gone,
        those of new ones are read again by every search.
        """
        with self._guard:
            self._opened_versions += 1
            if self._opened_versions > _SESSION:
                self._session, self._opened_versions = lance.Session(_INDEX_CACHE, _FILE_CACHE), 1
                self._readers.clear()
            return self._session

    # Reading

    def reader(self, place: TableVersion) -> Table:
        """Return a handle of exactly this version; any thread may use it."""
        with self._guard:
            if place in self._readers:
                self._readers.move_to_end(place)
                return self._readers[place]
        refuse_forked()
        opened = self._opened(place, self._current_session())
        with self._guard:
            self._readers[place] = opened
            while len(self._readers) > _READERS:
                self._readers.popitem(last=False)
        return opened

    def _opened(self, place: TableVersion, session: lance.Session) -> Table:
        if place.digest and self._digest(place) != place.digest:
            raise LastingStoreError(
                f"The list of the files of version {place.version} of the table '{place.table}' is damaged.",
                to_do="check the disk; `limpet doctor --repair` goes back to the last commit that is whole.",
            )
        return open_table(self.files, place.table, place.version, session)

    def schema(self, place: TableVersion) -> pa.Schema:
        """Return the schema of a table, which no version changes; cached, since Lance takes a while to return it."""
        known = self._schemas.get(place.table)
        if known is None:
            known = self._schemas[place.table] = self.reader(place).schema
        return known

    def damage(self, place: TableVersion) -> str:
        """Read all files of a version, and say what cannot be read; empty for nothing."""
        try:
            self._opened(place, lance.Session())
            read_whole(self.files, place.table, place.version)
        except BaseException as error:
            if not unreadable(error):
                raise
            return f"{reason(error)}."
        return ""

    # Changing: nothing takes effect before `settle`

    def create(self, generation: NewGeneration) -> TableVersion:
        """Create an empty table for a generation."""
        name = f"{generation.name}-{secrets.token_hex(4)}"
        self._disk.reached("lance.create")
        self.files.begin(name, new=True)
        empty, options = schema_of(generation.width, generation.columns).empty_table(), self.files.options
        table = lance.write_dataset(empty, self.files.uri(name), session=self._writing, storage_options=options)
        self._writers[name] = table
        self._changes[name] = _Change(table, None)
        index_ids(table)
        return TableVersion(name, table.version)

    def link(self, source: TableVersion, name: str) -> TableVersion:
        """Create a table with the rows of another one at this version, from links to its files."""
        linked = f"{name[:80]}-{secrets.token_hex(4)}"
        self._disk.reached("lance.link")
        self.files.begin(linked, new=True)
        self.files.link(source.table, self.files_of(source), linked)
        place = replace(source, table=linked)
        self._writers[linked] = self._opened(place, self._writing)
        self._changes[linked] = _Change(self._writers[linked], self.reader(source))
        return place

    def _change(self, place: TableVersion) -> _Change:
        """Return the changes of a commit to a table, after removing or superseding what an interrupted writer left."""
        name = place.table
        if name not in self._changes:
            left = self._remove_after(place)
            self.files.begin(name)
            if left or name not in self._writers or self._writers[name].version != place.version:
                self._writers[name] = self._opened(place, self._writing)
            if left:
                self._writers[name].restore()
            known = self._verified.get(name)
            before = known if known is not None and known.version == place.version else self.reader(place)
            self._changes[name] = _Change(self._writers[name], before)
        return self._changes[name]

    def edit(self, edits: Mapping[TableVersion, Edit], apart: Collection[TableVersion]) -> None:
        """Change tables, those in `apart` concurrently in another thread."""
        changes = {place: self._change(place) for place in edits}
        if apart:
            self._disk.reached("lance.remainder")
        begun = [self._helper.submit(_edited, changes[place], edits[place]) for place in apart]
        try:
            for place, edit in edits.items():
                if place not in apart:
                    self._edit(changes[place], edit)
        finally:
            wait(begun)
        for one in begun:
            one.result()

    def _edit(self, change: _Change, edit: Edit) -> None:
        if edit.remove:
            self._disk.reached("lance.remove")
        if edit.append:
            self._disk.reached("lance.append")
        _edited(change, edit)

    def leave_out(self, place: TableVersion, ids: Sequence[str] | None) -> None:
        """Remove rows by id, or all rows if ``ids`` is None."""
        change = self._change(place)
        self._disk.reached("lance.leave_out")
        if ids is None:
            change.removed = change.before.to_table(columns=["id"]).column("id").to_pylist() if change.before else []
            change.table.delete("true")
        else:
            _edited(change, Edit(ids, ()))

    def care(self, place: TableVersion, step: Callable[[Table], object]) -> None:
        """Apply a maintenance step that does not change the rows of a table."""
        step(self._change(place).table)

    def settle(self) -> dict[str, TableVersion]:
        """Merge small fragments, make all changes durable and read them back; return the new versions, by table.

        Raises:
            StoreError: The data read back differs from what was written.
        """
        for change in self._changes.values():
            merge_pieces(change.table)
        self._sync()
        self._disk.reached("lance.read_back")
        return {name: self._settled(name, change) for name, change in self._take_changes().items()}

    def _take_changes(self) -> dict[str, _Change]:
        changes, self._changes = self._changes, {}
        self._writers |= {name: change.table for name, change in changes.items()}
        return changes

    def _settled(self, name: str, change: _Change) -> TableVersion:
        place = TableVersion(name, change.table.version)
        after = compare(self.files, name, change.before, place.version, change.removed, change.added)
        self._verified[name] = after
        return replace(place, digest=self._digest(place))

    def _sync(self) -> None:
        self._disk.reached("lance.sync")
        self.files.sync(self._changes)

    # Removing

    def clear(self, kept: Collection[str]) -> None:
        """Remove all tables but these."""
        for name in self.files.tables():
            if name not in kept:
                self._certain()
                self.files.remove_table(name)

    def prune(self, kept: Mapping[str, Collection[int]]) -> None:
        """Remove all other versions of tables, and the files that only they need.

        An unreadable version prevents Lance from removing any: then its manifest is removed first.
        """
        for name, versions in kept.items():
            newest = TableVersion(name, max(versions))
            self._remove_after(newest)
            self._disk.reached("lance.prune")
            last, gone = self._opened(newest, lance.Session()), self._gone(newest, versions)
            try:
                prune(last, gone, certain=self.files.names_return)
            except BaseException as error:
                torn = {one for one in gone if unreadable(error) and not self._opens(TableVersion(name, one))}
                if not torn:
                    raise
                for version in sorted(torn):
                    self.files.remove(name, _manifest(version))
                prune(last, gone - torn, certain=self.files.names_return)
        with self._guard:
            stay = [place for place in self._readers if place.version in kept.get(place.table, ())]
            self._readers = OrderedDict((place, self._readers[place]) for place in stay)

    def _gone(self, newest: TableVersion, versions: Collection[int]) -> set[int]:
        """Return the versions that no reader needs, none after the newest: Lance would reuse their numbers."""
        return {version for version in self._versions(newest.table) if version < newest.version} - set(versions)

    def _opens(self, place: TableVersion) -> bool:
        try:
            self._opened(place, lance.Session())
        except BaseException as error:
            if not unreadable(error):
                raise
            return False
        return True

    def _remove_after(self, place: TableVersion) -> bool:
        """Remove the manifests of later versions, which an interrupted writer left and may be incomplete.

        Returns:
            Whether some stay, since their names must not be reused.
        """
        later = [version for version in self._versions(place.table) if version > place.version]
        if later:
            self._disk.reached("lance.restore")
            self._certain()
            for version in later if self.files.names_return else ():
                self.files.remove(place.table, _manifest(version))
            self._writers.pop(place.table, None)
            self._writing = lance.Session(_FILE_CACHE, _FILE_CACHE)
        return bool(later) and not self.files.names_return

    # Files

    def files_of(self, place: TableVersion) -> list[str]:
        """Return the files that a version needs, relative to the folder of its table."""
        table, files = self.reader(place), {_manifest(place.version)}
        for piece in table.get_fragments():
            files |= {f"data/{file.path}" for file in piece.metadata.files}
            removals = piece.deletion_file()
            files |= {removals} if removals else set()
        for folder in index_folders(table):
            files |= set(self.files.below(place.table, f"_indices/{folder}"))
        return sorted(files)

    def size(self, places: Iterable[TableVersion]) -> int:
        """Return the bytes of all files of some versions, counting a shared file once."""
        return self.files.size((place.table, file) for place in places for file in self.files_of(place))

    def _versions(self, name: str) -> set[int]:
        """Return the existing versions of a table; Lance names them by counting down from the largest 64-bit number."""
        files = (PurePosixPath(file) for file in self.files.below(name, "_versions"))
        return {_LAST - int(file.stem) for file in files if file.suffix == ".manifest" and file.stem.isdigit()}

    def _digest(self, place: TableVersion) -> str:
        return hashlib.sha256(self.files.read(place.table, _manifest(place.version))).hexdigest()

    def close(self) -> None:
        """Close all tables."""
        self._helper.shutdown()
        self.forget()
        with self._guard:
            self._readers.clear()


def _edited(change: _Change, edit: Edit) -> None:
    change.removed += edit.remove
    remove(change.table, edit.remove)
    for part in edit.append:
        change.added.append(rows_of(part, change.table.schema))
        change.table = append(change.table, change.added[-1])


def _manifest(version: int) -> str:
    return f"_versions/{_LAST - version}.manifest"
