"""Errors as problem documents (RFC 9457): the error, what was expected, what to do, and what is intact."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from limpet import errors
from limpet.errors import LimpetError, ServiceError

TYPE = "limpet:"
"""Prefix of the type of a problem; the name of an error class follows."""
_STATUS: tuple[tuple[type[LimpetError], int], ...] = (
    (errors.UnknownModelError, 409),
    (errors.UpgradeStateError, 409),
    (errors.GoneError, 410),
    (errors.LastingStoreError, 500),
    (errors.StoreError, 503),
    (errors.MissingExtraError, 501),
    (errors.ApiError, 502),
    (errors.GalleryError, 409),
    (errors.ConfigError, 422),
    (errors.DataError, 422),
    (errors.SpaceMismatchError, 422),
    (errors.EmptyOverlapError, 422),
)
"""The status of an error: that of the first class that matches; 500 for any other."""
_log = logging.getLogger("limpet.service")


def status_of(error: LimpetError) -> int:
    """Return the HTTP status of an error.

    >>> status_of(errors.UnknownModelError("a")), status_of(ServiceError(429, "a")), status_of(errors.ReleaseError("a"))
    (409, 429, 500)
    """
    if isinstance(error, ServiceError):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem_of(error: LimpetError) -> dict[str, object]:
    """Return the members of a problem document."""
    named = type(error)
    while named.__name__ not in errors.__all__:  # a subclass that is private to its module
        named = named.__bases__[0]
    members = {
        "title": error.given, "expected": error.expected, "to_do": error.to_do, "intact": error.intact,
    }  # fmt: skip
    status, said = status_of(error), {name: text for name, text in members.items() if text}
    return {"type": f"{TYPE}{named.__name__}", "status": status, **said, "detail": str(error)}


def respond(error: LimpetError) -> Response:
    """Return the response to a failed request."""
    status = status_of(error)
    after = getattr(error, "retry_after", None) or (1 if status == 503 else None)
    headers = {} if after is None else {"Retry-After": str(max(1, round(after)))}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(to_json(problem_of(error)), status, headers, "application/problem+json")


def install(app: FastAPI) -> None:
    """Let an application return all errors as problem documents."""

    @app.exception_handler(LimpetError)
    async def of_limpet(request: Request, error: LimpetError) -> Response:
        return respond(error)

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValidationError)
    async def of_validation(request: Request, error: RequestValidationError | ValidationError) -> Response:
        return respond(invalid(error))

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> Response:
        to_do = "`/openapi.json` lists what there is." if error.status_code in (404, 405) else ""
        return respond(ServiceError(error.status_code, f"{error.detail}.", to_do=to_do))

    @app.exception_handler(ClientDisconnect)
    async def of_client(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # the client has disconnected

    @app.exception_handler(Exception)
    async def of_ours(request: Request, error: Exception) -> Response:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return respond(ServiceError(500, "The service failed at this request; its log says why."))


def invalid(error: RequestValidationError | ValidationError) -> ServiceError:
    """Return the error for a malformed request."""
    first, *more = error.errors()
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
    others = f" ({len(more)} more)" if more else ""
    return ServiceError(422, f"{place or 'The body'}: {first['msg']}{others}.", to_do="correct the request.")
