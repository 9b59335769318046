"""State of one process of a service, and the dependencies of its routes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from anyio import CapacityLimiter
from fastapi import Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from limpet.errors import ServiceError
from limpet.galleries import Gallery
from limpet.service.encoders import Encoders
from limpet.service.keys import RIGHTS, AccessControl, AccessRight, digest_of
from limpet.service.live_evidence import LiveEvidence
from limpet.service.settings import ServiceSettings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

    import httpx

    from limpet.service.jobs import Jobs
    from limpet.service.writer import GalleryWriter

_Source = TypeVar("_Source")
_BEARER = HTTPBearer(auto_error=False, description="A key, where the service has keys.")


def opened_once(opening: Callable[[], _Source] | None) -> Callable[[], _Source | None]:
    """Return a function that opens something at its first call; several threads may call it."""
    lock = threading.Lock()

    @cache
    def opened() -> _Source | None:
        return None if opening is None else opening()

    def ask() -> _Source | None:
        with lock:
            return opened()

    return ask


class Serving:
    """State of one process; created inside the event loop.

    Args:
        settings: Settings of the service.
        gallery: The process's own view of the gallery; None if an application owns the rows.
    """

    jobs: Jobs
    forwarding: httpx.AsyncClient
    """Client of a reading process for the writing process."""
    stopping: asyncio.Event
    """Set when that process is asked to stop."""
    _writer: GalleryWriter

    def __init__(self, settings: ServiceSettings, gallery: Gallery | None) -> None:
        self.settings, self._gallery = settings, gallery
        known = [] if gallery is None else [one.fingerprint for one in gallery.state.generations]
        self.encoders = Encoders(settings, known)
        self.searching = CapacityLimiter(os.cpu_count() or 1)  # more concurrent searches only slow each other down
        self.texts, self.images = opened_once(settings.texts), opened_once(settings.images)
        self.gate = AccessControl(settings.keys, settings.limits.rate)
        if gallery is not None:
            self._evidence = LiveEvidence(settings, self.encoders, gallery)

    @property
    def gallery(self) -> Gallery:
        """The gallery.

        Raises:
            ServiceError: The service is for an index that an application owns.
        """
        if self._gallery is None:
            raise ServiceError(
                404, "This service upgrades an index that an application owns, and answers no searches.",
                expected="/v1/upgrade and /v1/jobs", to_do="search the table or collection itself.",
            )  # fmt: skip
        return self._gallery

    @property
    def evidence(self) -> LiveEvidence:
        """Evidence of live queries on the new model."""
        _ = self.gallery  # raises for an index that an application owns
        return self._evidence

    @property
    def watches(self) -> bool:
        """Whether an application owns the rows: the service steers an upgrade, and serves no searches."""
        return self._gallery is None

    @property
    def writer(self) -> GalleryWriter:
        """The writer of the gallery."""
        if not hasattr(self, "_writer"):
            from limpet.service.writer import GalleryWriter

            self._writer = GalleryWriter(self.gallery, room=self.settings.limits.waiting)
        return self._writer

    def refuse_many(self, what: str, count: int, most: int) -> None:
        """Refuse more than a request may contain."""
        if count > most:
            raise ServiceError(413, f"{count:,} {what}.", expected=f"at most {most:,} in a request",
                               to_do="ask for less at a time.", intact="Nothing was changed.")  # fmt: skip

    async def close(self) -> None:
        """Answer waiting requests, and close everything."""
        if hasattr(self, "_writer"):
            await self._writer.close()
        if self._gallery is not None:
            await self._evidence.close()
        await self.encoders.close()
        if self._gallery is not None:
            self._gallery.close()


async def serving(request: Request) -> Serving:
    """Return the state of this process."""
    found: Serving = request.app.state.serving
    return found


async def who_asks(
    request: Request,
    scopes: SecurityScopes,
    given: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
) -> str:
    """Return the name of the caller; see `AccessControl.enter`."""
    right = next(one for one in RIGHTS if one in scopes.scopes)
    return _name_of(request.app.state.serving, given, right)


def allowed(right: AccessRight) -> Any:
    """Return the dependency that refuses unauthorized callers, and whose value is the caller's name."""
    return Security(who_asks, scopes=[right])


def _name_of(service: Serving, given: HTTPAuthorizationCredentials | None, right: AccessRight) -> str:
    return service.gate.enter(digest_of(given.credentials) if given and given.credentials else None, right).name


class DirectRoute(APIRoute):
    """A route whose function takes only the request: resolving dependencies would cost as much as all other overhead.

    It has one dependency, `allowed`, which it evaluates first; ``request.state.who`` is the name of the caller.
    """

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return the handler that checks access and calls the function."""
        [right] = (right for one in self.dependencies for right in RIGHTS if right in getattr(one, "scopes", ()))

        async def handle(request: Request) -> Response:
            request.state.who = _name_of(request.app.state.serving, await _BEARER(request), right)
            answer: Response = await self.endpoint(request)
            return answer

        return handle


async def body_of(request: Request, *kinds: str) -> tuple[str, bytes]:
    """Return the media type of a request, one of `kinds`, and its body.

    Raises:
        ServiceError: It has none of these types. Pages of other sites can only send a few types, none of these.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        raise ServiceError(415, f"A body of the type '{kind}'.", expected=" or ".join(kinds))
    return kind, await request.body()
