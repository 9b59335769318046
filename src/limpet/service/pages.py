"""Cursors: pages of one search, all as of the commit of the first page."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from limpet.engines.store import Pointer
from limpet.errors import ServiceError

_SIGNATURE = 16  # bytes


@dataclass(frozen=True)
class Page:
    """Position of a page.

    Args:
        at: The searched commit.
        start: Number of hits on the pages before.
        search: Digest of the search.
    """

    at: Pointer
    start: int
    search: str

    def cursor(self, secret: bytes) -> str:
        """Return the page as a cursor for clients: signed, so that no client can forge a commit."""
        held = {" ".join(sorted(names)): count for names, count in self.at.held.items()}
        values = [self.at.sequence, self.at.time, self.at.manifest, held, self.start, self.search]
        content = zlib.compress(json.dumps(values).encode())
        return base64.urlsafe_b64encode(_signed(content, secret) + content).decode()

    @classmethod
    def of(cls, cursor: str, secret: bytes, search: str) -> Page:
        """Parse a cursor.

        Raises:
            ServiceError: The cursor is not one of this service, or belongs to another search.
        """
        with suppress(ValueError):
            raw = base64.urlsafe_b64decode(cursor)
            signature, content = raw[:_SIGNATURE], raw[_SIGNATURE:]
            if hmac.compare_digest(signature, _signed(content, secret)):
                sequence, time, manifest, held, start, of = json.loads(zlib.decompress(content))
                if of != search:
                    raise _refused("The cursor is of another search.")
                counts = {frozenset(names.split()): count for names, count in held.items()}
                return cls(Pointer(sequence, manifest, counts, time), start, of)
        raise _refused("The cursor is none that this service gave.")


def _signed(content: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, content, "sha256")[:_SIGNATURE]


def _refused(given: str) -> ServiceError:
    return ServiceError(422, given, expected="the cursor of the page before, with the same search",
                        to_do='begin anew with "cursor": "".')  # fmt: skip


def digest_of(*parts: Any) -> str:
    """Return a digest of a search."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else repr(part).encode())
        found.update(b"\0")
    return found.hexdigest()[:16]
