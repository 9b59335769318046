"""The top of a sharded gallery as an object of a bucket, which is replaced by a conditional PUT."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from limpet.engines.checks import damaged
from limpet.engines.ledger import kept_file, reading
from limpet.engines.s3.bucket import Bucket
from limpet.engines.s3.lease import Lease
from limpet.engines.sqlite import translated
from limpet.engines.store import Document, JournalEntry
from limpet.engines.top import Beside, Stamped, Top
from limpet.errors import GalleryError, StoreError
from limpet.support.disk import Disk
from limpet.support.documents import parsed_json

_NAME = "top.json"
_ENTRIES = 64  # journal entries in the object itself; earlier entries are in objects of their own
_FORMAT_VERSION = 1


@dataclass(frozen=True)
class _Content:
    """Content of the object.

    Args:
        stamped: The document.
        files: Names of the objects of values, by digest: no two writers, and no two moves, use the same name.
        earlier: Objects of earlier journal entries, oldest first: the last number in each, and its name.
        entries: The entries after those.
    """

    stamped: Stamped
    files: Mapping[str, str] = field(default_factory=dict)
    earlier: Sequence[tuple[int, str]] = ()
    entries: Sequence[JournalEntry] = ()

    @classmethod
    def read(cls, content: bytes) -> _Content:
        with reading("The top of the gallery"):
            said: Any = parsed_json(content)
            if said["format_version"] != _FORMAT_VERSION:
                raise ValueError(f"format version {said['format_version']!r:.20}; expected {_FORMAT_VERSION}")
            files = {str(digest): str(name) for digest, name in said["files"].items()}
            earlier = [(int(last), str(name)) for last, name in said["earlier"]]
            commits = tuple(map(str, said["commits"]))
            return cls(
                Stamped(dict(said["document"]), int(said["tag"]), commits), files, earlier, _entries(said["entries"])
            )

    def plain(self) -> bytes:
        return json.dumps({
            "format_version": _FORMAT_VERSION,
            "tag": self.stamped.tag,
            "commits": list(self.stamped.commits),
            "document": self.stamped.document,
            "files": dict(self.files),
            "earlier": list(self.earlier),
            "entries": _listed(self.entries),
        }).encode()  # fmt: skip


class S3Top(Top):
    """An object that is replaced only while it is what was read (``If-Match``); see `Bucket` for keys and endpoint.

    Values and older journal entries are objects of their own, under names that are never reused. They are written
    before the move that names them, and removed after the move that no longer names them.

    Args:
        bucket: The prefix reserved for the top.
        disk: Notified before each move.
    """

    def __init__(self, bucket: Bucket, disk: Disk) -> None:
        super().__init__(bucket.url, Lease(bucket))
        self._bucket, self._disk = bucket, disk
        self._last: tuple[bytes, str] | None = None  # what was read last, which the service compares at every read

    def _read(self) -> tuple[_Content, str]:
        found = self._last = self._bucket.read(_NAME, self._last)
        if found is None:
            raise GalleryError(
                f"There is no top of shards at '{self.url}'.",
                expected="the place where the gallery was created",
                to_do="check ?top=s3://BUCKET/PREFIX and AWS_ENDPOINT_URL, or create it: `limpet gallery create`.",
            )
        return _Content.read(found[0]), found[1]

    def begin(self, document: Document) -> None:
        """Write a first document.

        Raises:
            GalleryError: The top exists already.
            StoreError: The service fails, or does not compare before it writes.
        """
        content = _Content(Stamped(document, 0, (secrets.token_hex(8),))).plain()
        if self._bucket.put(_NAME, content, None) is not None:
            if self._bucket.put(_NAME, content, '"of nothing"') is not None:
                self._bucket.remove([_NAME])
                raise StoreError(
                    f"The service of '{self.url}' wrote over an object that is not the one it was to compare with.",
                    expected="a service with conditional writes (If-Match), or writers would lose what others wrote",
                    to_do="keep the top in a folder or in PostgreSQL, or the bucket at another service.",
                )
            return
        found = self._bucket.read(_NAME)
        if found is None:
            raise StoreError(
                f"'{self.url}' is in no bucket.", expected="a bucket that exists", to_do="create it first."
            )
        if found[0] != content:  # otherwise the reply to the first request was lost
            raise GalleryError(
                f"There is a gallery at '{self.url}'.", to_do="open it, or choose another prefix; it is as it was."
            )

    def read(self) -> Stamped:
        """Return the current document."""
        return self._read()[0].stamped

    def put(self, after: Stamped, beside: Beside) -> bool:
        """Replace a document, in one object with the accompanying data; see `Top.put`."""
        before, tag = self._read()
        if before.stamped.tag != after.tag - 1:
            return False
        files = {one: name for one, name in before.files.items() if beside.kept is None or one in beside.kept}
        for digest, content in beside.files.items():
            if digest not in files:
                files[digest] = f"files/{secrets.token_hex(16)}"
                self._bucket.write(files[digest], [content])
        moved = replace(self._closed(before, beside.entries), stamped=after, files=files)
        with translated(self.url):
            self._disk.reached("s3.top")
        if self._bucket.put(_NAME, moved.plain(), tag) is None:
            return False
        with suppress(StoreError):
            self._bucket.remove(set(before.files.values()) - set(files.values()))
        return True

    def _closed(self, before: _Content, new: Sequence[JournalEntry]) -> _Content:
        """Return the journal with new entries; if there are many, the oldest move to an object of their own."""
        entries = [*before.entries, *new]
        if len(entries) <= _ENTRIES:
            return replace(before, entries=entries)
        name = f"journal/{secrets.token_hex(16)}"
        self._bucket.write(name, [json.dumps(_listed(entries)).encode()])
        return replace(before, earlier=[*before.earlier, (entries[-1].sequence, name)], entries=())

    def journal(self, after: int) -> list[JournalEntry]:
        """Return the entries with a number above ``after``, in order."""
        content, _ = self._read()
        found: list[JournalEntry] = []
        for last, name in content.earlier:
            if last > after:
                there = self._bucket.read(name)
                if there is None:
                    raise damaged(f"The journal of '{self.url}'", f"the object '{name}' is not there")
                with reading("The journal of the gallery"):
                    found += _entries(parsed_json(there[0]))
        return [entry for entry in [*found, *content.entries] if entry.sequence > after]

    def file(self, digest: str) -> bytes:
        """Return a value, see `Store.file`."""
        while True:
            name = self._read()[0].files.get(digest)
            there = None if name is None else self._bucket.read(name)
            if there is not None or name is None:
                return kept_file(digest, None if there is None else there[0])
            if self._read()[0].files.get(digest) == name:
                raise damaged(f"The file {digest} of the gallery", f"the object '{name}' is not there")

    def digests(self) -> set[str]:
        """Return the digests of all values."""
        return set(self._read()[0].files)

    @contextmanager
    def exclusive(self, who: str, timeout: float) -> Iterator[Callable[[], object]]:
        """Hold a lock of this kind, see `Store.exclusive`, as long as its holder renews it."""
        lease = Lease(self._bucket, f"{who}.json")
        with lease.held(who, timeout):
            yield lease.check

    def close(self) -> None:
        """Do nothing: connections are closed with this object."""


def s3_top(place: str, disk: Disk, document: Document | None = None) -> S3Top:
    """Return the existing top at ``s3://BUCKET/PREFIX``, or create one with a first document."""
    top = S3Top(Bucket(place), disk)
    if document is not None:
        top.begin(document)
    top.read()
    return top


def _listed(entries: Sequence[JournalEntry]) -> list[list[object]]:
    return [[entry.sequence, entry.time, entry.event] for entry in entries]


def _entries(listed: Any) -> list[JournalEntry]:
    return [JournalEntry(int(sequence), float(moment), dict(event)) for sequence, moment, event in listed]
