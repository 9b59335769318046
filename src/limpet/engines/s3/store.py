"""A gallery whose vectors are Lance tables in a bucket, and whose ledger is in a PostgreSQL database."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, ClassVar

from limpet.engines.backup_files import Contents
from limpet.engines.digested_folder import DigestedFolder
from limpet.engines.lance.files import SUFFIX
from limpet.engines.lance.history import TABLES
from limpet.engines.lance.places import TableVersions
from limpet.engines.lance.store import LanceTableStore
from limpet.engines.lance.tables import translated
from limpet.engines.ledger import GalleryLedger
from limpet.engines.postgres.backup import copy_ledger_in, copy_out
from limpet.engines.postgres.database import PostgresDatabase
from limpet.engines.postgres.schema import create_schema, gallery_database, is_there, missing
from limpet.engines.postgres.sharing import ConnectionLock
from limpet.engines.promises import Promises
from limpet.engines.s3.bucket import Bucket
from limpet.engines.s3.files import ObjectFiles, ServerLeases
from limpet.engines.store import Pointer
from limpet.errors import ConfigError, GalleryError, LimpetError, without_secrets
from limpet.support.disk import Disk
from limpet.support.documents import parsed_json

_MARK = "gallery.json"
_NAMED = "SELECT value FROM meta WHERE name = 'bucket'"
_TABLES = (
    "meta", "generations", "items", "journal", "pointer", "queue", "traffic", "files", "places",
)  # fmt: skip


class S3Store(LanceTableStore):
    """Lance tables below a prefix of a bucket, and a PostgreSQL schema that determines what exists.

    Use it when vectors outgrow the disks of one machine, or when several machines read them. Keys and endpoint of the
    bucket come from the environment, see `Bucket`.

    >>> import numpy as np
    >>> from limpet import EmbeddingSet, Gallery
    >>> items = EmbeddingSet(np.eye(4, dtype=np.float32), model="v1")
    >>> url = "s3://my-bucket/live?ledger=postgresql://shop@127.0.0.1:54320/shop?schema=live"
    >>> with Gallery.create(url, fingerprint=items.fingerprint, space=items.space) as gallery:  # doctest: +SKIP
    ...     print(gallery.add(items), "added; found", gallery.search(items[:1], k=1).hits[0][0].id)
    4 added; found 0
    """

    kind: ClassVar[str] = "s3"
    in_folder: ClassVar[bool] = False
    in_memory: ClassVar[str | None] = None
    promises: ClassVar[Promises] = Promises.of_gallery("clusters")

    def __init__(self, bucket: Bucket, database: PostgresDatabase, disk: Disk) -> None:
        url = f"{bucket.url}?ledger={database.address.url}"
        lock, files, leases = ConnectionLock(database), ObjectFiles(bucket), ServerLeases(database)
        super().__init__(url, database, lock, files, leases, disk, clock=self._server_time)
        self._bucket, self._server, self._disk = bucket, database, disk

    def _server_time(self) -> float:
        [(seconds,)] = self._server.execute("SELECT extract(epoch FROM clock_timestamp())::double precision")
        return float(seconds)

    @classmethod
    def create(cls, place: str, disk: Disk) -> S3Store:
        """Create an empty gallery in a schema that is empty, and below a prefix that has no objects.

        Raises:
            GalleryError: The schema or the prefix is not empty.
            StoreError: The server or the bucket fails.
        """
        with _opened(place, disk) as (bucket, database):
            if is_there(database):
                raise GalleryError(
                    f"There is a gallery at '{database.address.url}'.",
                    to_do="open it, or choose another schema: ?schema=NAME; it is as it was.",
                )
            name = _claim(bucket, database)
            create_schema(database, cls.kind, [*TABLES, f"INSERT INTO meta VALUES ('bucket', '{name}')"])
            return cls(bucket, database, disk)

    @classmethod
    def open(cls, place: str, disk: Disk) -> S3Store:
        """Open the gallery of a schema and a prefix.

        Raises:
            GalleryError: The gallery does not exist, or the two belong to different galleries.
            StoreError: The server or the bucket fails.
        """
        with _opened(place, disk) as (bucket, database):
            if not is_there(database):
                raise missing(database)
            GalleryLedger(database).check_format(database.address.url)
            named, mark = database.execute(_NAMED), _mark(bucket)[0]
            if not named or mark.get("gallery") != named[0][0]:
                raise GalleryError(
                    f"'{bucket.url}' does not hold the vectors of the gallery at '{database.address.url}'.",
                    expected="the prefix and the schema that the gallery was created with",
                    to_do="check both, and AWS_ENDPOINT_URL.",
                    intact="Nothing was changed.",
                )
            return cls(bucket, database, disk)

    @classmethod
    def restore(cls, place: str, backup: DigestedFolder, contents: Contents, disk: Disk) -> None:
        """Create the gallery of a backup: objects first, then the ledger, in one transaction.

        Raises:
            GalleryError: The place is not empty, or the backup has other content.
            StoreError: The server or the bucket fails.
        """
        with closing(cls.create(place, disk)) as store:
            try:
                with store.writing("restore"):
                    for name in sorted(backup.digests):
                        if SUFFIX in name:
                            store._bucket.write(name, backup.read(name))
                    store._take_in(backup, contents)
            except BaseException:
                with suppress(LimpetError):
                    store._remove()
                raise

    def _take_in(self, backup: DigestedFolder, contents: Contents) -> None:
        with self._server.transaction():
            [(name,)] = self._server.execute(_NAMED)
            copy_ledger_in(self._server, backup)
            self._server.execute("UPDATE meta SET value = ? WHERE name = 'bucket'", [name])
            pointer = self.pointer()
            self._history.forget_before(pointer.sequence)
            rows = {place: self._tables.reader(at).count_rows() for place, at in self._current()[1].tables.items()}
            contents.compare(pointer, {name: rows.get(name, 0) for name in contents.rows})

    def _remove(self) -> None:
        """Remove the tables, then the objects that they named; the schema may be older than the gallery, and stays."""
        self._server.execute(f"DROP TABLE {', '.join(_TABLES)}")
        self._bucket.remove(self._bucket.sizes(""))

    @contextmanager
    def _kept(self, sequence: int) -> Iterator[None]:
        with self._leases.held(sequence):
            if sequence and not self._history.exists(sequence):
                raise GalleryError(
                    f"What commit {sequence} named is not there any more.",
                    expected="a commit that is not older than the last tidying allowed",
                    to_do="ask for the pointer again.",
                )
            yield

    def backup(self, into: DigestedFolder) -> Pointer:
        """Write all data of one pointer into an empty folder, see `Store.backup`."""
        with translated(self.url):
            while True:
                with (
                    self._reading() as places,
                    self._server.streaming() as connection,
                    self._server.using(connection),
                ):
                    pointer, plain = self.ledger.pointer()
                    if TableVersions.read(plain) == places:  # otherwise another process committed in between
                        copy_out(self._server, _TABLES, into)
                        for place in places:
                            for file in self._tables.files_of(place):
                                name = f"{place.table}{SUFFIX}/{file}"
                                into.write(name, self._bucket.blocks(name))
                        return pointer


@contextmanager
def _opened(place: str, disk: Disk) -> Iterator[tuple[Bucket, PostgresDatabase]]:
    """Yield bucket and database of a URL; the database is closed on failure."""
    where, _, ledger = place.partition("?ledger=")
    if not ledger.startswith(("postgresql", "postgres")):
        raise ConfigError(
            f"The URL '{without_secrets(where.partition('?')[0])}' names no database for the ledger of the gallery.",
            expected="s3://BUCKET/PREFIX?ledger=postgresql://USER@HOST/DATABASE",
            to_do="add ?ledger=, with ?schema=NAME at its end where the database holds several galleries.",
            intact="Nothing was made.",
        )
    bucket, database = Bucket(where), gallery_database(ledger, disk)
    try:
        yield bucket, database
    except BaseException:
        database.close()
        raise


def _mark(bucket: Bucket) -> tuple[dict[str, Any], str | None]:
    """Return the owner mark of a prefix, and its tag."""
    found = bucket.read(_MARK)
    if found is None:
        return {}, None
    with suppress(ValueError):
        said = parsed_json(found[0])
        return (said if isinstance(said, dict) else {}), found[1]
    return {}, found[1]


def _claim(bucket: Bucket, database: PostgresDatabase) -> str:
    """Claim a prefix for a gallery, unless another one has it; return the mark for the ledger.

    An interrupted creation of the same ledger, which left nothing else, is repeated.
    """
    name, ledger = secrets.token_hex(16), database.address.url
    mark, tag = _mark(bucket)
    others = [one for one in bucket.sizes("") if one != _MARK]
    content = json.dumps({"gallery": name, "ledger": ledger}).encode()
    if others or (tag is not None and mark.get("ledger") != ledger):
        by = mark.get("ledger", "something else")
        raise GalleryError(
            f"Below '{bucket.url}' there is a gallery of '{by}'." if tag else f"'{bucket.url}' holds something else.",
            to_do="choose another prefix; it is as it was.",
        )
    if bucket.put(_MARK, content, tag) is None and _mark(bucket)[0].get("gallery") != name:
        raise GalleryError(f"Another process creates a gallery at '{bucket.url}'.", to_do="open that one.")
    return name
