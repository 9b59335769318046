"""Files of Lance tables as objects of a bucket, and leases of readers on any machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from limpet.engines.lance.files import SUFFIX
from limpet.engines.postgres.database import BEGIN, PostgresDatabase, translated
from limpet.engines.postgres.sharing import lock_key
from limpet.engines.s3.bucket import Bucket
from limpet.errors import GalleryError


class ObjectFiles:
    """Tables in a bucket, which is durable as soon as it responds; links are server-side copies.

    Args:
        bucket: Bucket of the tables.
    """

    names_return = False

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.options: Mapping[str, str] | None = bucket.options

    def uri(self, table: str) -> str:
        """Return the URI of a table for Lance."""
        return f"{self._bucket.url}/{table}{SUFFIX}"

    def tables(self) -> list[str]:
        """Return the existing tables."""
        return [one.removesuffix(SUFFIX) for one in self._bucket.folders() if one.endswith(SUFFIX)]

    def below(self, table: str, folder: str) -> list[str]:
        """Return the files of a table in one of its folders."""
        start = f"{table}{SUFFIX}/"
        return [one.removeprefix(start) for one in self._bucket.sizes(f"{start}{folder}")]

    def read(self, table: str, file: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        found = self._bucket.read(f"{table}{SUFFIX}/{file}")
        if found is None:
            raise FileNotFoundError(f"there is no {self.uri(table)}/{file}")
        return found[0]

    def remove(self, table: str, file: str) -> None:
        """Remove a file."""
        self._bucket.remove([f"{table}{SUFFIX}/{file}"])

    def remove_table(self, table: str) -> None:
        """Remove a table."""
        self._bucket.remove(self._bucket.sizes(f"{table}{SUFFIX}"))

    def link(self, source: str, files: Iterable[str], target: str) -> None:
        """Let the service copy files of a table into another one, the manifest last."""
        for file in sorted(files, key=lambda file: file.startswith("_versions/")):
            self._bucket.copy(f"{source}{SUFFIX}/{file}", f"{target}{SUFFIX}/{file}")

    def size(self, files: Iterable[tuple[str, str]]) -> int:
        """Return the bytes of files by table and name."""
        asked = set(files)
        there = {table: self._bucket.sizes(f"{table}{SUFFIX}") for table in {table for table, _ in asked}}
        return sum(there[table].get(f"{table}{SUFFIX}/{file}", 0) for table, file in asked)

    def total_size(self) -> int:
        """Return the bytes of all files of all tables."""
        return sum(size for name, size in self._bucket.sizes("").items() if f"{SUFFIX}/" in name)

    def begin(self, table: str, *, new: bool = False) -> None:
        """Do nothing: acknowledged writes to a bucket are durable."""

    def sync(self, tables: Collection[str]) -> None:
        """Do nothing, see `begin`."""

    def forget(self) -> None:
        """Do nothing, see `begin`."""


class ServerLeases:
    """Locks of the ledger's server, which releases them when the connection of a reader ends.

    Args:
        database: Database of the ledger.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._key = lock_key(f"readers of {database.address.schema}") >> 32

    @contextmanager
    def held(self, sequence: int) -> Iterator[None]:
        """Protect the data of a commit while the block runs.

        Raises:
            GalleryError: The server is a standby.
        """
        database = self._database
        connection = database.take()
        try:
            with translated(database.address.url):
                connection.execute(database.started(BEGIN))
                lock = "SELECT pg_is_in_recovery(), pg_advisory_xact_lock_shared(%s, %s)"
                [(standby, _)] = connection.execute(lock, [self._key, sequence]).fetchall()
            if standby:
                raise GalleryError(
                    f"'{database.address.url}' is a standby: `gc` at the primary does not see who reads here, and "
                    "may remove what is being read.",
                    to_do="name the primary in ?ledger=.",
                )
            yield
        finally:
            database.finish(connection, "ROLLBACK")

    def sequences(self) -> set[int]:
        """Return the commits that are still read."""
        rows = self._database.execute(
            "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND classid::bigint = ? "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            [self._key & 0xFFFFFFFF],
        )
        return {int(sequence) for (sequence,) in rows}
