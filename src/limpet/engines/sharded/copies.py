"""Backup of a sharded gallery to files, and restore."""

from __future__ import annotations

import json
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, suppress
from typing import Any

from limpet.engines.backup_files import Contents
from limpet.engines.digested_folder import DigestedFolder
from limpet.engines.ledger import reading
from limpet.engines.sharded.layout import ShardedLayout
from limpet.engines.sharded.record import TopRecord
from limpet.engines.store import JournalEntry, Pointer, Store
from limpet.engines.stores import open_store, restore_store
from limpet.engines.top import Beside, Stamped, Top
from limpet.errors import GalleryError, StoreError
from limpet.support.disk import Disk
from limpet.support.documents import parsed_json

_RECORD = "shards.json"


def copy_out(
    top: Top, shards: Sequence[Store], writing: Callable[[], AbstractContextManager[Pointer]], into: DigestedFolder
) -> Pointer:
    """Write all data of one pointer into an empty folder, and return the pointer.

    Writers wait until every shard has begun to be read; each read then sees an unchanged snapshot.

    Args:
        top: Top of the gallery.
        shards: All shards.
        writing: Acquires the writer's lock for this thread.
        into: The folder.

    Raises:
        StoreError: A place fails, or another writer took over before every shard had begun to be read.
    """
    begun, go = threading.Semaphore(0), threading.Event()
    folders = [_ShardFolder(into, f"shard{number}", begun, go) for number in range(len(shards))]
    with ThreadPoolExecutor(len(shards)) as pool:
        try:
            with writing() as pointer:
                before = top.read()
                copies = [pool.submit(one.fill, shard) for one, shard in zip(folders, shards, strict=True)]
                for _ in copies:
                    begun.acquire()
                journal, files = top.journal(0), {digest: top.file(digest) for digest in top.digests()}
                record = TopRecord.read(before.document)
                if top.read() != before or record.unfinished is not None or record.pointer != pointer:
                    raise StoreError(f"Another writer took over '{top.url}' at the start of the copy.", to_do="repeat.")
        finally:
            go.set()
        said = [[shard.kind, vars(copy.result())] for shard, copy in zip(shards, copies, strict=True)]
    for one in folders:
        into.digests |= {f"{one.path.name}/{name}": digest for name, digest in one.digests.items()}
    for digest, content in files.items():
        into.write(f"files/{digest}", [content])
    entries = [[entry.sequence, entry.time, entry.event] for entry in journal]
    copied = {"top": before.document, "shards": said, "files": sorted(files), "journal": entries}
    into.write(_RECORD, [json.dumps(copied).encode()])
    return pointer


def copy_in(layout: ShardedLayout, backup: DigestedFolder, contents: Contents, disk: Disk) -> None:
    """Create the gallery of a backup in the places of a layout; the top, which makes it exist, is written last.

    A shard that an interrupted restore of this backup created is kept.

    Raises:
        GalleryError: The file names another number of shards, a place is not empty, or the backup is damaged.
        StoreError: A disk fails.
    """
    with reading("The list of shards of the backup"):
        document: Any = parsed_json(b"".join(backup.read(_RECORD)))
        record = TopRecord.read(document["top"])
        listed = zip(record.shards, document["shards"], strict=True)
        copies = [(str(kind), Contents(**said)) for _, (kind, said) in listed]
        entries = [JournalEntry(*entry) for entry in document["journal"]]
        files = {digest: b"".join(backup.read(f"files/{digest}")) for digest in document["files"]}
    contents.compare(record.pointer, {name: record.pointer.covered([name]) for name in contents.rows})
    if len(record.shards) != len(layout.shards):
        raise GalleryError(
            f"'{layout.file}' names {len(layout.shards)} shards.",
            expected=f"{len(record.shards)}, the number of the backup",
            to_do="correct the file; nothing was restored.",
        )
    _refuse_gallery(layout, disk)
    made = []
    try:
        for number, (url, (kind, held)) in enumerate(zip(layout.shards, copies, strict=True)):
            if not _is_restored(url, held, record, disk):
                restore_store(url, kind, _part(backup, f"shard{number}/"), held, disk=disk)
                made.append(url.partition(":")[2])
    except BaseException:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        top = layout.top(disk, TopRecord("", ()).plain())
    except GalleryError:
        top = layout.top(disk)  # created by an interrupted restore
    with closing(top):
        stamped = _without_shards(layout, top)  # another restore of this backup may have shared what this one made
        top.move(record.plain(), stamped, secrets.token_hex(8), Beside(entries, files))


class _ShardFolder(DigestedFolder):
    """A folder for a copy of a shard, which waits until all shards have begun to be read."""

    def __init__(self, into: DigestedFolder, name: str, begun: threading.Semaphore, go: threading.Event) -> None:
        super().__init__(into.path / name, into.disk, on_bytes=self._count)
        self._into, self._begun, self._go, self._waits = into, begun, go, True

    def fill(self, shard: Store) -> Contents:
        """Copy a shard, and return the contents of the copy."""
        try:
            self.path.mkdir()
            return Contents.of(shard.backup(self))
        finally:
            self._wait()  # if it failed before

    def write(self, name: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write a new file, see `DigestedFolder.write`."""
        self._wait()
        super().write(name, blocks)

    def _count(self, count: int) -> None:
        self._wait()
        self._into.on_bytes(count)

    def _wait(self) -> None:
        if self._waits:
            self._waits = False
            self._begun.release()
        self._go.wait()


def _part(backup: DigestedFolder, start: str) -> DigestedFolder:
    """Return a subfolder of a backup as a digested folder."""
    digests = {name.removeprefix(start): one for name, one in backup.digests.items() if name.startswith(start)}
    return DigestedFolder(backup.path / start, backup.disk, digests, backup.on_bytes)


def _refuse_gallery(layout: ShardedLayout, disk: Disk) -> None:
    """Refuse to restore over a gallery; a restore that was interrupted may have left a top without shards."""
    try:
        top = layout.top(disk)
    except GalleryError:
        return
    with closing(top):
        _without_shards(layout, top)


def _without_shards(layout: ShardedLayout, top: Top) -> Stamped:
    """Return the document of a top, which must name no shards."""
    stamped = top.read()
    if TopRecord.read(stamped.document).shards:
        raise GalleryError(
            f"There is a gallery of '{layout.file}'.", to_do="name another file and other folders; it is as it was."
        )
    return stamped


def _is_restored(url: str, held: Contents, record: TopRecord, disk: Disk) -> bool:
    """Say whether a shard has the content of a backup, from an interrupted restore."""
    with suppress(GalleryError), closing(open_store(url, disk=disk)) as shard:
        pointer = shard.pointer()
        return Contents.of(pointer) == held and pointer.manifest.get("gallery") == record.gallery
    return False
