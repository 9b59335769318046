"""Lance tables and branches as files: making, changing, syncing and reading them back.

Lance never asks the operating system for durability and makes every change a new version, which nobody sees who was not
told its number. So a change is: bring the table back to the version that counts, change it, sync the new files.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import lancedb
import pyarrow as pa

from holdfast.errors import HoldfastError, StoreError
from holdfast.stores.base import NewGeneration
from holdfast.stores.disk import Disk
from holdfast.stores.lance_care import prune
from holdfast.stores.lance_places import Edit, Place
from holdfast.stores.lance_rows import Table, append, change, index_ids, read_back, remove, schema_of

_READERS = 64  # open versions that are kept


INTACT = (
    "check the disk, then try again. The gallery is as it was before: what was acknowledged is intact, and what was "
    "begun is cleared away by the next commit."
)


@contextmanager
def translated(where: str, to_do: str = "check the disk; `holdfast gallery doctor` looks closer.") -> Iterator[None]:
    """Turn errors of Lance and of the disk into those of holdfast."""
    try:
        yield
    except HoldfastError:
        raise
    except (OSError, RuntimeError, ValueError, pa.ArrowException) as error:
        raise StoreError(
            f"The vectors in '{where}' cannot be read or written: {error}.",
            expected="a disk that works and has room, and all files of the gallery",
            to_do=to_do,
        ) from error


class LanceTables:
    """All Lance tables of a gallery.

    Args:
        folder: Where they are.
        disk: What makes them durable.
    """

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder, self._disk = folder, disk
        self._database = lancedb.connect(str(folder.absolute()))
        self._guard = threading.Lock()
        self._readers: OrderedDict[Place, Table] = OrderedDict()
        self._schemas: dict[str, pa.Schema] = {}
        self._writers: dict[tuple[str, str | None], Table] = {}
        self._durable: dict[str, set[str]] = {}
        self._touched: set[str] = set()
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="holdfast-lance")

    def opens(self, place: Place) -> bool:
        """Say if a version can be opened."""
        try:
            return bool(self.reader(place).version == place.version)
        except (OSError, RuntimeError, ValueError):
            return False

    def reader(self, place: Place) -> Table:
        """Return a handle of exactly this version; any thread may use it."""
        with self._guard:
            if place in self._readers:
                self._readers.move_to_end(place)
                return self._readers[place]
        opened = self._database.open_table(place.table, branch=place.branch, version=place.version)
        with self._guard:
            self._readers[place] = opened
            while len(self._readers) > _READERS:
                self._readers.popitem(last=False)
        return opened

    def schema(self, place: Place) -> pa.Schema:
        """Return the schema of a table, which none of its versions changes; Lance takes a moment to say it."""
        known = self._schemas.get(place.table)
        if known is None:
            known = self._schemas[place.table] = self.reader(place).schema
        return known

    def writer(self, place: Place) -> Table:
        """Return a handle to change a table with, brought back to this version if an interrupted writer went on."""
        self._touch(place.table)
        table = self._writers.get(place.lineage)
        if table is None:
            table = self._writers[place.lineage] = self._database.open_table(place.table, branch=place.branch)
        table.checkout_latest()
        if table.version != place.version:
            self._disk.reached("lance.restore")
            self._durable[place.table] = set()  # what was left stays among the versions, and pruning reads all of them
            table.checkout(place.version)
            table.restore()
        return table

    def create(self, generation: NewGeneration) -> Place:
        """Make an empty table for a generation."""
        name = f"{generation.name}-{secrets.token_hex(4)}"
        self._disk.reached("lance.create")
        self._durable[name] = set()
        self._touch(name)
        table = self._database.create_table(name, schema=schema_of(generation.width, generation.columns))
        self._writers[name, None] = table
        index_ids(table)
        return Place(name, None, table.version)

    def fork(self, source: Place, name: str) -> Place:
        """Make a branch with the rows that a table, or another branch, has at this version."""
        branch = f"{name[:80]}-{secrets.token_hex(4)}"
        self._disk.reached("lance.branch")
        self._touch(source.table)
        table = self.reader(source).branches.create(branch, source.branch, source.version)
        self._writers[source.table, branch] = table
        return Place(source.table, branch, table.version)

    def change(self, edits: Mapping[Place, Edit]) -> dict[Place, Place]:
        """Change tables and branches, sync everything, and read back what was added; return where they are then.

        Raises:
            StoreError: What is read back is not what was written.
        """
        tables = {place: self.writer(place) for place in edits}
        added = self._written(tables, edits)
        self.sync()
        self._disk.reached("lance.read_back")
        for place, rows in added.items():
            read_back(tables[place], rows)
        return {place: replace(place, version=table.version) for place, table in tables.items()}

    def _written(self, tables: Mapping[Place, Table], edits: Mapping[Place, Edit]) -> dict[Place, list[pa.Table]]:
        """Change branches in another thread while this one changes tables."""
        branches = [place for place in tables if place.branch is not None]
        if branches:
            self._disk.reached("lance.remainder")
        begun = {place: self._helper.submit(change, tables[place], edits[place]) for place in branches}
        try:
            added = {place: self._one(tables[place], edits[place]) for place in tables if place.branch is None}
        finally:
            wait(begun.values())
        return added | {place: one.result() for place, one in begun.items()}

    def _one(self, table: Table, edit: Edit) -> list[pa.Table]:
        if edit.remove:
            self._disk.reached("lance.remove")
            remove(table, edit.remove)
        if edit.append:
            self._disk.reached("lance.append")
        return append(table, edit.append)

    def care(self, place: Place, step: Callable[[Table], None]) -> Place:
        """Do something to a table that leaves its rows as they are; `sync` follows."""
        table = self.writer(place)
        step(table)
        return replace(place, version=table.version)

    def leave_out(self, place: Place, ids: Sequence[str] | None) -> Place:
        """Remove rows by id, or all of them where ``ids`` is None; `sync` follows."""
        table = self.writer(place)
        self._disk.reached("lance.leave_out")
        if ids is None:
            table.delete("true")
        else:
            remove(table, ids)
        return replace(place, version=table.version)

    def prune(self, kept: Iterable[Place]) -> None:
        """Remove the versions of every table that are older than the oldest of these."""
        versions: dict[str, list[int]] = {}
        for place in kept:
            if place.branch is None:
                versions.setdefault(place.table, []).append(place.version)
        for name, numbers in versions.items():
            self._disk.reached("lance.prune")
            prune(self._database.open_table(name), numbers)

    def sync(self) -> None:
        """Make all files durable that came into tables since these were first touched."""
        self._disk.reached("lance.sync")
        for name in sorted(self._touched):
            found = self._files(name)
            new = [Path(path) for path in sorted(found - self._durable[name])]
            self._disk.sync(sorted(new, key=lambda path: path.is_dir()))  # no name is durable before what it names
            self._durable[name] = found
        self._touched.clear()

    def forget(self) -> None:
        """Let go of what is known of tables that a failed commit may have changed."""
        self._writers.clear()
        self._durable.clear()
        self._touched.clear()

    def close(self) -> None:
        """Let go of all tables."""
        self._helper.shutdown()
        self.forget()
        with self._guard:
            self._readers.clear()

    def total_size(self) -> int:
        """Return the bytes of all files of all tables."""
        return sum(self.size(name) for name in self.names())

    def size(self, table: str) -> int:
        """Return the bytes of all files of a table."""
        total = 0
        for path in map(Path, self._files(table)):
            with suppress(FileNotFoundError):
                total += path.stat().st_size if path.is_file() else 0
        return total

    def names(self) -> list[str]:
        """Return the tables that there are."""
        return sorted(path.name.removesuffix(".lance") for path in self._folder.glob("*.lance"))

    def clear(self, kept: Collection[tuple[str, str | None]]) -> None:
        """Remove tables and branches that are none of these."""
        tables = {table for table, _ in kept}
        for name in self.names():
            if name not in tables:
                shutil.rmtree(self._path(name))
                continue
            for branch in self._branches(name):
                if (name, branch) not in kept:
                    self._drop_branch(name, branch)

    def repair(self, places: Iterable[Place], *, wrote: bool) -> None:
        """Remove what keeps Lance from opening or pruning these: versions after those that count, which may be torn.

        Args:
            places: The versions that count.
            wrote: Whether this process has written before. Then a later version that can be opened stays until the next
                change goes on from the one that counts: Lance may remember it, and must not meet another of its number.
        """
        for place in places:
            for path in (self._path(place.table) / "_refs").glob("*/*.json"):
                if not _readable(path):
                    path.unlink()
            if not (wrote and self._opens_last(place)):
                self._remove_after(place)

    def _opens_last(self, place: Place) -> bool:
        try:
            self._database.open_table(place.table, branch=place.branch)
        except (RuntimeError, ValueError):
            return False
        return True

    def _remove_after(self, place: Place) -> None:
        """Remove the files that name later versions; Lance counts them down from the largest number of 64 bits."""
        folder = self._path(place.table) / (f"tree/{place.branch}" if place.branch else "") / "_versions"
        for path in folder.glob("*.manifest"):
            if path.stem.isdigit() and 2**64 - 1 - int(path.stem) > place.version:
                path.unlink()

    def _drop_branch(self, name: str, branch: str) -> None:
        known = self._path(name) / "_refs" / "branches" / f"{branch}.json"
        if known.exists():
            with suppress(RuntimeError):  # another that was made from it is still there
                self._database.open_table(name).branches.delete(branch)
        if not known.exists():
            shutil.rmtree(self._path(name) / "tree" / branch, ignore_errors=True)

    def _branches(self, name: str) -> set[str]:
        """Return the branches of a table, also those that were made halfway."""
        known = {path.stem for path in (self._path(name) / "_refs" / "branches").glob("*.json")}
        return known | {path.name for path in (self._path(name) / "tree").glob("*")}

    def _touch(self, name: str) -> None:
        """Note that a table is about to change; all its files that count are durable now."""
        self._touched.add(name)
        if name not in self._durable:
            self._durable[name] = self._files(name)

    def _files(self, name: str) -> set[str]:
        """Return a table's folder with all files and folders in it."""
        found = {str(self._path(name))}
        for folder, folders, files in os.walk(self._path(name)):
            found.update(f"{folder}/{one}" for one in (*folders, *files))
        return found

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lance"


def _readable(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True
