"""The applications of a service's processes: the writer serves everything; readers forward what they do not serve."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from typing import Any

import httpx
from fastapi import APIRouter, FastAPI, Request, Response
from starlette.background import BackgroundTask
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import RedirectResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from limpet.attached.opening import is_attached
from limpet.errors import LimpetError, ServiceError, without_secrets
from limpet.galleries import Gallery
from limpet.service import console, metrics, problems, reads, steering, writes
from limpet.service.jobs import Jobs
from limpet.service.serving import Serving
from limpet.service.settings import READY, SOCKET, ServiceSettings
from limpet.version import __version__

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Security headers of every response."""
_READS = (reads.searches, reads.router)
_ROUTERS = (*_READS, writes.upserts, writes.router, steering.router)
_PASSED_ON = ("content-type", "content-length", "etag", "location", "retry-after", "set-cookie", "www-authenticate")
_REQUEST_ID = re.compile(rb"[\w.-]{1,64}")
_OBSERVED_EVERY, _SOON = 2.0, 0.02  # seconds
_log = logging.getLogger("limpet.service")


def writing_app(settings: ServiceSettings) -> ASGIApp:
    """Return the application of the writing process."""
    app, pages = _app(settings, _ROUTERS, _writing), console.console(settings)
    pages.state = app.state
    app.mount(console.PLACE, pages)
    return _Told(app, settings.limits.body * 2**20)


def reading_app(settings: ServiceSettings) -> ASGIApp:
    """Return the application of a process that answers searches itself, and forwards other requests."""
    return _Told(_app(settings, (*_READS, _forwarded()), _reading), settings.limits.body * 2**20)


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI description of the API."""
    return _app(None, _ROUTERS, None).openapi()


def _app(
    settings: ServiceSettings | None, routers: tuple[APIRouter, ...], process: Callable[[Serving], Any] | None
) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        assert settings is not None and process is not None
        gallery = None if is_attached(settings.url) else await asyncio.to_thread(Gallery.open, settings.url)
        app.state.serving = Serving(settings, gallery)
        async with process(app.state.serving):
            with _ready(settings):
                yield
        await app.state.serving.close()

    app = FastAPI(
        title="limpet", version="1", docs_url=None, redoc_url=None, lifespan=lifespan,
        description="Search a live gallery, write into it, and carry it through a change of its embedding model.",
        max_body_size=None if settings is None else settings.limits.body * 2**20,
    )  # fmt: skip
    for router in routers:
        app.include_router(router)
    problems.install(app)
    app.add_route("/", lambda request: RedirectResponse(f"{console.PLACE}/"), include_in_schema=False)
    if settings is not None:
        app.openapi = openapi  # type: ignore[method-assign]
        if settings.keys is None:  # DNS rebinding: other sites may reach a loopback address by their own name
            app.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", "[::1]", settings.host])
    return app


@asynccontextmanager
async def _writing(service: Serving) -> AsyncIterator[None]:
    writer = None if service.watches else service.writer
    if writer is not None:
        await writer.settled.wait()
    service.jobs = Jobs(service.settings, service.encoders, writer)
    watching = asyncio.create_task(_observed(service)) if writer is not None else None
    with _asked_to_end(service.jobs.stop):
        yield
    if watching is not None:
        watching.cancel()
    await service.jobs.close()


async def _observed(service: Serving) -> None:
    while True:
        with suppress(LimpetError):
            await asyncio.to_thread(metrics.observe, service.gallery, service.jobs, service.writer.notice)
        await asyncio.sleep(_OBSERVED_EVERY)


@contextmanager
def _asked_to_end(stop: Callable[[], None]) -> Iterator[None]:
    """Call a function as soon as the process is asked to stop, before uvicorn waits for open responses."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, before = asyncio.get_running_loop(), dict[int, Any]()

    def asked(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(stop)
        before[number](number, frame)

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, asked)
    try:
        yield
    finally:
        for known, handler in before.items():
            signal.signal(known, handler)


@contextmanager
def _ready(settings: ServiceSettings) -> Iterator[None]:
    """Keep a file while this process is ready."""
    folder = settings.folder / READY
    folder.mkdir(exist_ok=True)
    path = folder / str(os.getpid())
    path.touch()
    _log.info("limpet %s serves %s", __version__, without_secrets(settings.url))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@asynccontextmanager
async def _reading(service: Serving) -> AsyncIterator[None]:
    transport = httpx.AsyncHTTPTransport(uds=str(service.settings.folder / SOCKET), limits=httpx.Limits())
    async with httpx.AsyncClient(transport=transport, timeout=None, base_url="http://writer") as client:
        service.forwarding, service.stopping = client, asyncio.Event()
        with _asked_to_end(service.stopping.set):
            yield


def _forwarded() -> APIRouter:
    router = APIRouter()

    @router.api_route(f"{console.PLACE}/{{path:path}}", methods=["GET", "POST"])
    @router.api_route("/v1", methods=["GET"])
    @router.api_route("/v1/{path:path}", methods=["GET", "POST", "PUT", "DELETE"])
    async def forward(request: Request) -> Response:
        service: Serving = request.app.state.serving
        client = service.forwarding
        query = request.scope["query_string"].decode("latin-1")
        asked = client.build_request(
            request.method, request.scope["raw_path"].decode("latin-1") + (f"?{query}" if query else ""),
            headers=[(name, value) for name, value in request.headers.raw if name != b"connection"],
            content=await request.body(),
        )  # fmt: skip
        again = request.method == "GET" or "idempotency-key" in request.headers
        while True:
            try:
                answer = await client.send(asked, stream=True)
                headers = {name: value for name, value in answer.headers.items() if name in _PASSED_ON}
                if "content-length" in headers:  # the writer may end before all of it has arrived
                    return Response(await answer.aread(), answer.status_code, headers)
                break
            except httpx.TransportError as error:
                if service.stopping.is_set() or not (again or isinstance(error, httpx.ConnectError)):
                    raise _writer_gone() from error
                again = False  # the writer is restarted, and its socket stays: wait for it
                await asyncio.sleep(_SOON)  # unless the supervisor was killed, and its socket is gone
        parts = _until(service.stopping, answer.aiter_raw())
        return StreamingResponse(parts, answer.status_code, headers, background=BackgroundTask(answer.aclose))

    return router


async def _until(stopping: asyncio.Event, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield parts as they arrive, until this process is asked to stop."""
    stop = asyncio.ensure_future(stopping.wait())
    while True:
        coming = asyncio.ensure_future(anext(parts, b""))
        await asyncio.wait((coming, stop), return_when=asyncio.FIRST_COMPLETED)
        if not coming.done() or not (part := coming.result()):
            break
        yield part
    coming.cancel()
    stop.cancel()


def _writer_gone() -> ServiceError:
    return ServiceError(
        503, "The process that writes ended while it had this request.",
        to_do="read what became of it, or send such requests with an Idempotency-Key: then they may be repeated.",
        retry_after=2,
    )  # fmt: skip


def _encoded(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    return {name.lower().encode(): value.encode() for name, value in headers.items()}


_OWN, _OF_CONSOLE = _encoded(HEADERS), _encoded(HEADERS | console.HEADERS)


class _Told:
    """Names every request, counts and logs its result, and adds the security headers to every response.

    Args:
        app: The wrapped application.
        most: Maximum bytes of a request; larger ones are refused before they are read.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request = given.decode() if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        own = _OF_CONSOLE if scope["path"].startswith(f"{console.PLACE}/") else _OWN
        scope["request_id"] = request
        start, status = time.perf_counter(), 500

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                others = [one for one in message["headers"] if one[0] not in own]
                message["headers"] = [*others, *own.items(), (b"x-request-id", request.encode())]
            await send(message)

        try:
            app = self.app if _length(scope) <= self.most else problems.respond(self._too_large())
            await app(scope, receive, told)
        finally:
            seconds = time.perf_counter() - start
            route = scope.get("root_path", "") + getattr(scope.get("route"), "path", "none")
            metrics.SECONDS.labels("total").observe(seconds)
            metrics.REQUESTS.labels(route, str(status)).inc()
            if status >= 400:
                metrics.REFUSED.labels(str(status)).inc()
            level = logging.WARNING if status >= 500 else logging.DEBUG
            _log.log(level, "%s %s %d %.1f ms", scope["method"], route, status, seconds * 1000,
                     extra={"request": request})  # fmt: skip

    def _too_large(self) -> ServiceError:
        return ServiceError(
            413, "The request is too large.", expected=f"at most {self.most >> 20} MiB", to_do="send less at a time.",
            intact="Nothing was changed.",
        )  # fmt: skip


def _length(scope: Scope) -> int:
    """Return the bytes of a request according to its header."""
    given = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(given) if given.isdigit() else 0
