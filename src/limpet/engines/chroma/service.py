"""Requests to a server of Chroma, by its HTTP API alone.

Chroma's own Python package would build the embedding function that a collection names, which can load a model.
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
"""Of a server whose URL names none."""
SCOPES = {"tenant": "default_tenant", "database": "default_database"}
"""Options of a URL that say where in a server a collection is, each with what is meant without it."""
OPTIONS = ("https", *SCOPES)
"""What a URL may say besides what URLs of every kind may."""
_READ, _WRITTEN = 16_384, 1_024
"""Rows of a request: a server's SQLite takes 32,766 ids in one, and a server 40 MiB."""
ID, EMBEDDING, DOCUMENT, URI = OWN = ("id", "embedding", "document", "uri")
"""What Chroma keeps of a row besides its metadata."""
_INCLUDED = {EMBEDDING: "embeddings", DOCUMENT: "documents", URI: "uris", "metadata": "metadatas"}
_EMPTY: Mapping[str, Any] = {EMBEDDING: None, DOCUMENT: None, URI: None, "metadata": {}}
_TOKEN = "CHROMA_TOKEN"
_ATTEMPTS, _GONE = 16, "Error finding id"
_Item = TypeVar("_Item", str, "Record")


class ChromaCollectionRecord(TypedDict, total=False):
    """What Chroma says of a collection, as far as it is read here."""

    id: Required[str]
    configuration_json: Mapping[str, Any]
    schema: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None
    dimension: int | None


@dataclass(frozen=True)
class Record:
    """A row of a collection; what was not asked for is empty.

    Args:
        document: Its text. Chroma cannot remove one, so an empty text counts as none.
        uri: Where the item itself is; an empty one counts as none, too.
        metadata: Values by name; a value of None removes one.
    """

    id: str
    embedding: Sequence[float] | None = None
    document: str | None = None
    uri: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        """Everything but the vector by the name of its column: metadata called as one of `OWN` is "metadata.NAME".

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
            verify=https,  # reading certificates takes time, and http has no use for them
            trust_env=False,  # no proxy, and no password of ~/.netrc
        )

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, there: bool = True) -> Any:
        """Return the answer; None for what is not there, where it need not be.

        Raises:
            StoreError: The server is out of reach, or refuses.
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
        """Return what Chroma says of a collection; None where there is none of the name."""
        found: ChromaCollectionRecord | None = self._send("GET", f"/{quote(name, safe='')}", there=False)
        if found is not None and not (isinstance(found, dict) and "id" in found):
            raise StoreError(f"{self._place} does not answer as Chroma does.", to_do="check the URL.")
        return found

    def described(self, name: str) -> ChromaCollectionRecord:
        """Return what Chroma says of a collection.

        Raises:
            ConfigError: There is none of the name.
        """
        found = self.find(name)
        if found is None:
            raise unknown_name("collection", name, [one["name"] for one in self._send("GET", "")])
        return found

    def create(self, name: str, like: ChromaCollectionRecord) -> None:
        """Make a collection with the settings of another one.

        The embedding function stays behind: it names the model of the other collection.
        """
        settings, metadata = like.get("schema"), like.get("metadata")
        if settings is None or any(one.startswith("hnsw:") for one in metadata or {}):  # which forbid a schema
            made = {"configuration": _without_function(like.get("configuration_json"))}
        else:
            made = {"schema": _without_function(settings)}
        self._send("POST", "", {"name": name, "metadata": metadata, **made})

    def drop(self, name: str) -> None:
        """Remove a collection where it is there."""
        self._send("DELETE", f"/{quote(name, safe='')}", there=False)

    # Rows

    def count(self, collection: ChromaCollectionRecord) -> int:
        """Return how many rows there are."""
        return int(self._send("GET", f"/{collection['id']}/count"))

    def ids(self, collection: ChromaCollectionRecord, where: Mapping[str, Any] | None = None) -> list[str]:
        """Return the ids of all rows, or of those that meet a condition, as of one moment.

        Pages by an offset would leave rows out where others are deleted meanwhile.
        """
        found: list[str] = self._got(collection, {"include": [], "where": where})["ids"]
        return found

    def get(self, collection: ChromaCollectionRecord, include: Sequence[str], ids: Sequence[str]) -> list[Record]:
        """Return those of some rows that are there, with "metadata" and what of `OWN` is named."""
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
        """Ask for rows, and again where one was deleted after its text was read and before its vector was."""
        try:
            return self._send("POST", f"/{collection['id']}/get", asked)
        except StoreError as error:
            if _GONE not in error.given or attempts == 1:
                raise
        return self._got(collection, asked, attempts - 1)

    def upsert(self, collection: ChromaCollectionRecord, records: Sequence[Record]) -> None:
        """Write rows; of one that is there, metadata that is not named stays, and what is None of the others."""
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
    """Give the database of a server.

    The token is read from the environment variable CHROMA_TOKEN; with one the connection is encrypted unless
    ``https=false`` is said. It goes to the host of the URL alone, also where that answers with another address.

    Raises:
        ConfigError: The URL cannot be read.
    """
    service = Service(address)
    try:
        yield service
    finally:
        service.close()
