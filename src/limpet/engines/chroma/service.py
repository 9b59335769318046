"""Requests to a Chroma server over its HTTP API.

Chroma's own Python package would create the collection's embedding function, which can load a model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Required, TypedDict, TypeVar
from urllib.parse import quote

import httpx

from limpet.engines.address import Address
from limpet.engines.services import authority_of, flag
from limpet.errors import LastingStoreError, StoreError, reason, unknown_name

PORT = 8000
"""Default port of a server."""
SCOPES = {"tenant": "default_tenant", "database": "default_database"}
"""URL options that select the tenant and database of a collection, with their defaults."""
OPTIONS = ("https", *SCOPES)
"""URL options in addition to those of all kinds of sources."""
_READ, _WRITTEN = 16_384, 1_024
"""Rows per request: a server's SQLite takes 32,766 ids, and a server 40 MiB."""
ID, EMBEDDING, DOCUMENT, URI = OWN = ("id", "embedding", "document", "uri")
"""Fields of a row in Chroma, apart from its metadata."""
_INCLUDED = {EMBEDDING: "embeddings", DOCUMENT: "documents", URI: "uris", "metadata": "metadatas"}
_EMPTY: Mapping[str, Any] = {EMBEDDING: None, DOCUMENT: None, URI: None, "metadata": {}}
_TOKEN = "CHROMA_TOKEN"
_ATTEMPTS, _GONE = 16, "Error finding id"
_Item = TypeVar("_Item", str, "Record")


class ChromaCollectionRecord(TypedDict, total=False):
    """Chroma's description of a collection, as far as it is used here."""

    id: Required[str]
    configuration_json: Mapping[str, Any]
    schema: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None
    dimension: int | None


@dataclass(frozen=True)
class Record:
    """A row of a collection; fields that were not requested are empty.

    Args:
        document: Text of the row. Chroma cannot remove a text, so an empty one counts as none.
        uri: Location of the item; an empty one also counts as none.
        metadata: Values by name; a value of None removes one.
    """

    id: str
    embedding: Sequence[float] | None = None
    document: str | None = None
    uri: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        """Everything but the vector by column name: metadata with a name in `OWN` is "metadata.NAME".

        >>> Record("1", document="a cat", metadata={"uri": 3}).values
        {'metadata.uri': 3, 'document': 'a cat', 'uri': None}
        """
        named = {f"metadata.{name}" if name in OWN else name: value for name, value in self.metadata.items()}
        return {**named, DOCUMENT: self.document, URI: self.uri}


class Service:
    """One database of a server; several threads may use it.

    Args:
        address: ``chroma://HOST:PORT/COLLECTION``; see `connected`.

    Raises:
        ConfigError: The URL cannot be read.
    """

    def __init__(self, address: Address) -> None:
        host, port = authority_of(address, PORT, _TOKEN)
        token = os.environ.get(_TOKEN)
        https = flag(address, "https", token is not None)
        said = {name: quote(address.options.get(name, default), safe="") for name, default in SCOPES.items()}
        self._place = f"Chroma at {address.name}"
        self._http = httpx.Client(
            base_url=f"http{'s' * https}://{host}:{port}/api/v2/tenants/{said['tenant']}/databases/{said['database']}",
            headers={"Authorization": f"Bearer {token}", "X-Chroma-Token": token} if token else {},
            timeout=60,
            follow_redirects=False,
            verify=https,  # reading certificates takes time, and http does not use them
            trust_env=False,  # no proxy, and no password of ~/.netrc
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, there: bool = True) -> Any:
        """Return the response; None for a missing object if `there` is false.

        Raises:
            StoreError: The server is unreachable, or refuses.
        """
        try:
            response = self._http.request(method, f"/collections{path}", json=body)
            if response.status_code == HTTPStatus.NOT_FOUND and not there:
                return None
            answer = response.json() if response.content else {}
        except httpx.HTTPError as error:
            raise StoreError(f"{self._place} does not answer: {reason(error)}.", to_do="check the URL.") from error
        except ValueError:
            answer = response.text[:200]
        if response.is_success and not isinstance(answer, str):
            return answer
        refused = response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        told = answer.get("message", answer) if isinstance(answer, dict) else answer
        raise (LastingStoreError if refused else StoreError)(
            f"{self._place} answers {response.status_code}: {told}.",
            to_do=f"set {_TOKEN} to a token that may." if refused else "",
        )

    # Collections

    def find(self, name: str) -> ChromaCollectionRecord | None:
        """Return the description of a collection; None if it does not exist."""
        found: ChromaCollectionRecord | None = self._send("GET", f"/{quote(name, safe='')}", there=False)
        if found is not None and not (isinstance(found, dict) and "id" in found):
            raise StoreError(f"{self._place} does not answer as Chroma does.", to_do="check the URL.")
        return found

    def described(self, name: str) -> ChromaCollectionRecord:
        """Return the description of a collection.

        Raises:
            ConfigError: The collection does not exist.
        """
        found = self.find(name)
        if found is None:
            raise unknown_name("collection", name, [one["name"] for one in self._send("GET", "")])
        return found

    def create(self, name: str, like: ChromaCollectionRecord) -> None:
        """Create a collection with the settings of another one.

        The embedding function is not copied: it names the model of the other collection.
        """
        settings, metadata = like.get("schema"), like.get("metadata")
        if settings is None or any(one.startswith("hnsw:") for one in metadata or {}):  # which forbid a schema
            made = {"configuration": _without_function(like.get("configuration_json"))}
        else:
            made = {"schema": _without_function(settings)}
        self._send("POST", "", {"name": name, "metadata": metadata, **made})

    def drop(self, name: str) -> None:
        """Remove a collection if it exists."""
        self._send("DELETE", f"/{quote(name, safe='')}", there=False)

    # Rows

    def count(self, collection: ChromaCollectionRecord) -> int:
        """Return the number of rows."""
        return int(self._send("GET", f"/{collection['id']}/count"))

    def ids(self, collection: ChromaCollectionRecord, where: Mapping[str, Any] | None = None) -> list[str]:
        """Return the ids of all rows, or of those that match a condition, from one snapshot.

        Pages by offset would skip rows if others are deleted meanwhile.
        """
        found: list[str] = self._got(collection, {"include": [], "where": where})["ids"]
        return found

    def get(self, collection: ChromaCollectionRecord, include: Sequence[str], ids: Sequence[str]) -> list[Record]:
        """Return the existing rows of some ids, with "metadata" and the named fields of `OWN`."""
        return [one for part in _parts(ids, _READ) for one in self._some(collection, include, ids=part)]

    def first(self, collection: ChromaCollectionRecord, include: Sequence[str], limit: int) -> list[Record]:
        """Return the first rows; see `get`."""
        return self._some(collection, include, limit=limit)

    def _some(self, collection: ChromaCollectionRecord, include: Sequence[str], **asked: Any) -> list[Record]:
        plural = {name: _INCLUDED[name] for name in include}
        found = self._got(collection, {**asked, "include": list(plural.values())})
        columns = {name: found[one] for name, one in plural.items() if found[one] is not None}
        return [
            Record(one, **{name: column[row] or _EMPTY[name] for name, column in columns.items()})
            for row, one in enumerate(found["ids"])
        ]

    def _got(self, collection: ChromaCollectionRecord, asked: Mapping[str, Any], attempts: int = _ATTEMPTS) -> Any:
        """Request rows, and repeat if one was deleted between reading its text and reading its vector."""
        try:
            return self._send("POST", f"/{collection['id']}/get", asked)
        except StoreError as error:
            if _GONE not in error.given or attempts == 1:
                raise
        return self._got(collection, asked, attempts - 1)

    def upsert(self, collection: ChromaCollectionRecord, records: Sequence[Record]) -> None:
        """Write rows; in an existing row, metadata that is not named stays, and so do other fields that are None."""
        for part in _parts(records, _WRITTEN):
            self._send("POST", f"/{collection['id']}/upsert", {
                "ids": [one.id for one in part], "embeddings": [one.embedding for one in part],
                "documents": [one.document for one in part], "uris": [one.uri for one in part],
                "metadatas": [one.metadata or None for one in part],
            })  # fmt: skip

    def remove(self, collection: ChromaCollectionRecord, ids: Sequence[str]) -> None:
        """Remove rows."""
        for part in _parts(ids, _READ):
            self._send("POST", f"/{collection['id']}/delete", {"ids": part})


def _parts(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _without_function(settings: Any) -> Any:
    if isinstance(settings, dict):
        return {name: _without_function(one) for name, one in settings.items() if name != "embedding_function"}
    return settings


@contextmanager
def connected(address: Address) -> Iterator[Service]:
    """Yield a client of a server's database.

    The token is read from the environment variable CHROMA_TOKEN; with a token the connection is encrypted unless
    ``https=false`` is given. It is sent only to the host of the URL, even if the host redirects.

    Raises:
        ConfigError: The URL cannot be parsed.
    """
    service = Service(address)
    try:
        yield service
    finally:
        service.close()
