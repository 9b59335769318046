"""The console: HTML pages over the functions of the API. They can be read without JavaScript."""

from __future__ import annotations

import hmac
import io
import re
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.sse import EventSourceResponse, ServerSentEvent
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from numpy.typing import NDArray
from pydantic import BeforeValidator, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.sessions import SessionMiddleware
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.staticfiles import StaticFiles

from limpet.attached.base import NotStartedError
from limpet.errors import LimpetError, ServiceError, without_secrets
from limpet.galleries.state import Generation
from limpet.service import problems, reads, steering
from limpet.service.documents import SearchRequest
from limpet.service.encoders import kind_of
from limpet.service.jobs import Job, JobStep, StepOptions
from limpet.service.keys import AccessKey, digest_of
from limpet.service.serving import Serving
from limpet.service.settings import ServiceSettings
from limpet.support.wording import duration
from limpet.upgrade.lifecycle import POSSIBLE, Phase
from limpet.upgrade.status import share_of
from limpet.upgrade.vector_sources import ItemSource
from limpet.version import __version__

PLACE = "/console"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
}
"""Content security policy of pages: only files of the service, no inline scripts or styles."""
_PAGES = {"": "Overview", "upgrade": "Upgrade", "compare": "Compare", "doctor": "Doctor", "journal": "Journal",
          "jobs": "Jobs", "keys": "Keys"}  # fmt: skip
_STEPS: tuple[JobStep, ...] = ("start", "backfill", "index", "swap", "rollback", "verify", "finish", "cancel", "gc")
_NO_WAY_BACK = ("finish", "cancel")
"""Steps whose name the user must type to confirm."""
_BEGIN = 12  # items that a comparison may start with
_EMPTY = BeforeValidator(lambda given: given or None)
"""For form fields, which send an empty text if nothing was entered."""
_SESSION = 12 * 3600  # seconds
_FILES = Path(__file__).parents[1]
_router = APIRouter()


@dataclass(frozen=True)
class Visit:
    """A request by a user with read access.

    Args:
        key: Key of the session; `EVERYBODY` if the service has no keys.
        form: Posted form fields.
    """

    request: Request
    service: Serving
    key: AccessKey
    form: dict[str, str]

    @property
    def base(self) -> str:
        """Path of the console."""
        return str(self.request.scope["root_path"])

    def page(self, template: str, title: str, **values: Any) -> Response:
        """Return a page."""
        values |= {"key": self.key, "running": [job for job in steering.list_jobs(self.service) if not job.over]}
        return HTMLResponse(_page(self.request, template, title, **values))

    def go(self, place: str) -> Response:
        """Redirect to another page, so that a reload does not post again."""
        return RedirectResponse(f"{self.base}/{place}", 303)


async def _reader(request: Request) -> Visit:
    service: Serving = request.app.state.serving
    return Visit(request, service, service.gate.enter(request.session.get("key"), "read"), {})


async def _steerer(request: Request) -> Visit:
    service: Serving = request.app.state.serving
    return Visit(request, service, service.gate.enter(request.session.get("key"), "upgrade"), await _form(request))


Reader = Annotated[Visit, Depends(_reader)]
Steerer = Annotated[Visit, Depends(_steerer)]


@_router.get("/style.css")
def style() -> Response:
    return FileResponse(_FILES / "reports" / "templates" / "style.css")


@_router.get("/")
def overview(visit: Reader) -> Response:
    service = visit.service
    state = None if service.watches else steering.gallery_state(service)
    return visit.page("overview.html", "Overview", state=state, **_choices(service), **_standing(service))


@_router.get("/upgrade")
def upgrade(visit: Reader) -> Response:
    service, found = visit.service, _standing(visit.service)
    status = found["status"]
    phase: Phase = "steady" if status is None else status.phase
    known = ("start",) if status is None else _STEPS if status.gallery is not None else _STEPS[:-1]
    steps = [step for step in known if phase in POSSIBLE.get(step, (phase,))]  # type: ignore[arg-type]
    if status is not None and status.gallery is not None and phase == "steady" and status.lacking["new"]:
        steps.append("backfill")
    links = () if service.watches else service.gallery.state.links
    asked = not service.watches and (service.settings.shadow or service.settings.canary)
    live = steering.evidence(service) if asked else None
    return visit.page(
        "upgrade.html", "Upgrade", steps=steps, links=links, live=live, shares=service.settings,
        **_choices(service), **found,
    )  # fmt: skip


@_router.get("/upgrade/{step}")
def check(visit: Reader, step: JobStep) -> Response:
    given = {name: value for name, value in visit.request.query_params.items() if value}
    epoch, found, problem = _standing(visit.service)["epoch"], None, None
    try:
        found = visit.service.jobs.dry_run(step, StepOptions.model_validate(given), epoch=None)
    except (LimpetError, ValidationError) as error:
        problem = _problem(error)
    return visit.page(
        "check.html", step.capitalize(), step=step, given=given, found=found, problem=problem, epoch=epoch,
        once=secrets.token_hex(8), typed=step in _NO_WAY_BACK or "force" in given,
    )  # fmt: skip


@_router.post("/upgrade/{step}")
async def take(visit: Steerer, step: JobStep) -> Response:
    form = {name: value for name, value in visit.form.items() if value}
    epoch, once, typed = (form.pop(name, None) for name in ("epoch", "once", "typed"))
    if (step in _NO_WAY_BACK or "force" in form) and typed != step:
        raise ServiceError(
            422, f"'{typed or ''}' was typed.", expected=f"the word {step}", to_do="go back, and type it.",
            intact="Nothing was changed.",
        )  # fmt: skip
    job = await steering.take_step(
        step, visit.service, Response(), visit.key.name, StepOptions.model_validate(form), if_match=epoch, key=once
    )
    return visit.go(f"jobs/{job.id}")


@_router.get("/thresholds")
def thresholds(visit: Reader, threshold: Annotated[float | None, _EMPTY] = None) -> Response:
    found, problem = None, None
    try:
        found = steering.thresholds(visit.service, None if threshold is None else [threshold])
    except LimpetError as error:
        problem = _problem(error)
    return visit.page("thresholds.html", "Score thresholds", found=found, problem=problem)


@_router.get("/compare")
async def compare(
    visit: Reader, q: str = "", item: str = "", a: str = "", b: str = "", k: Annotated[int, Query(ge=1)] = 10
) -> Response:
    service, pair, answers = visit.service, tuple[Generation, ...](), list[dict[str, Any]]()
    if not service.watches:
        state = service.gallery.state
        names = (a or (state.previous or (state.active,))[-1], b or (state.started or state.active))
        pair = tuple(state.by_name.get(name) or state.made_by(name) for name in names)
        if q or item:
            answers = [await _answered(service, one, q, item, k) for one in pair]
    shown = [hit.id for answer in answers for hits in answer.get("hits", ()) for hit in hits]
    if pair and not answers:
        first = (await run_in_threadpool(service.gallery.store.scan, limit=512)).ids
        shown = list(first[:: -(-len(first) // _BEGIN) or 1])
    return visit.page(
        "compare.html", "Compare", q=q, item=item, k=k, pair=pair, answers=answers, shown=shown,
        generations=() if service.watches else service.gallery.state.generations, pictures=service.settings.images,
        texts=await run_in_threadpool(_texts, service.texts, [item, *shown]), **_choices(service),
    )  # fmt: skip


@_router.get("/picture")
def picture(visit: Reader, item: str) -> Response:
    source = visit.service.images()
    known, pixels = ([], None) if source is None else source.read([item])
    if pixels is None or not known:
        raise ServiceError(404, f"No image of the item '{item}' is known.")
    return Response(_png(pixels[0]), media_type="image/png")


@_router.get("/doctor")
def doctor(visit: Reader) -> Response:
    known = [job for job in steering.list_jobs(visit.service) if job.step == "doctor"]
    return visit.page("doctor.html", "Doctor", last=known[-1] if known else None, **_choices(visit.service))


@_router.get("/journal")
def journal(visit: Reader, last: Annotated[int, Query(ge=1, le=1000)] = 50) -> Response:
    events: list[dict[str, Any]] = []
    with suppress(NotStartedError):
        events = steering.journal(visit.service, last)
    return visit.page("journal.html", "Journal", events=events[::-1], last=last)


@_router.get("/jobs")
def jobs(visit: Reader) -> Response:
    return visit.page("jobs.html", "Jobs", jobs=steering.list_jobs(visit.service)[::-1])


@_router.get("/jobs/{name}")
def job(visit: Reader, job: steering.KnownJob) -> Response:
    return visit.page("job_page.html", f"{job.step.capitalize()} {job.id}", job=job)


@_router.get("/jobs/{name}/events", response_class=EventSourceResponse)
async def events(visit: Reader, job: steering.KnownJob) -> AsyncIterator[ServerSentEvent]:
    panel, told = _template("job.html"), ""
    async for last in visit.service.jobs.events(job):
        said = _said(last)
        page = panel.render(job=last, base=visit.base, said=said if said != told else "")
        yield ServerSentEvent(event="job", raw_data=page)
        told = said
        if last.over:
            yield ServerSentEvent(event="over", raw_data=last.status)


@_router.post("/jobs/{name}/cancel")
def cancel(visit: Steerer, job: steering.KnownJob) -> Response:
    return visit.go(f"jobs/{steering.cancel_job(job, visit.service).id}")


@_router.get("/keys")
def keys(visit: Reader) -> Response:
    gate = visit.service.gate
    return visit.page("keys.html", "Keys", keys=gate.keys(), read_at=gate.read_at)


@_router.get("/login")
def login(request: Request, next: str = "") -> Response:
    return HTMLResponse(_page(request, "login.html", "Sign in", next=next, problem=None))


@_router.post("/login")
async def signed_in(request: Request) -> Response:
    form = await _form(request)
    digest, base = digest_of(form.get("key", "")), request.scope["root_path"]
    try:
        request.app.state.serving.gate.enter(digest, "read")
    except ServiceError as error:
        told = {**_problem(error), "expected": "a key of this service"}
        page = _page(request, "login.html", "Sign in", next=form.get("next", ""), problem=told)
        return HTMLResponse(page, error.status)
    request.session["key"] = digest
    place = form.get("next", "")
    return RedirectResponse(place if place.startswith(f"{base}/") else f"{base}/", 303)


@_router.post("/logout")
async def logout(request: Request) -> Response:
    await _form(request)
    request.session.clear()
    return RedirectResponse(f"{request.scope['root_path']}/login", 303)


def console(settings: ServiceSettings) -> FastAPI:
    """Return the application of the console, which another one mounts and gives its state."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(
        SessionMiddleware, secret_key=settings.secret.hex(), session_cookie="limpet", max_age=_SESSION, path=PLACE,
        same_site="strict", https_only=settings.certificate is not None,
    )  # fmt: skip
    app.mount("/static", StaticFiles(directory=_FILES / "service" / "static"))
    for kind in (LimpetError, ValidationError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _failed)
    app.include_router(_router)
    return app


async def _form(request: Request) -> dict[str, str]:
    """Return the form that a page of this session posted.

    Raises:
        ServiceError: Another site may have posted it.
    """
    form = dict(parse_qsl((await request.body()).decode(errors="replace")))
    token = form.pop("token", "").encode()
    ours = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    if not (ours and hmac.compare_digest(token, _token(request).encode())):
        raise ServiceError(403, "The form is not one of this session.", to_do="load the page again, and repeat it.",
                           intact="Nothing was changed.")  # fmt: skip
    return form


def _token(request: Request) -> str:
    """Return the CSRF token of a session, which its forms send back."""
    secret: bytes = request.app.state.serving.settings.secret
    return hmac.digest(secret, f"form {request.session.get('key', '')}".encode(), "sha256").hex()


def _problem(error: Exception) -> dict[str, Any]:
    """Return the members of the problem document of an error."""
    if isinstance(error, ValidationError | RequestValidationError):
        error = problems.invalid(error)
    elif isinstance(error, HTTPException):
        error = ServiceError(error.status_code, f"{error.detail}.")
    assert isinstance(error, LimpetError)
    return problems.problem_of(error)


async def _failed(request: Request, error: Exception) -> Response:
    problem, path = _problem(error), request.scope["path"]
    if problem["status"] == 401:
        login = f"{request.scope['root_path']}/login?{urlencode({'next': path})}"
        if "hx-request" in request.headers:  # it would put the page into a part of another one
            return Response(headers={"HX-Redirect": login})
        return RedirectResponse(login, 303)
    return HTMLResponse(_page(request, "error.html", "Error", problem=problem), problem["status"])


def _page(request: Request, template: str, title: str, **values: Any) -> str:
    service: Serving = request.app.state.serving
    base, path = request.scope["root_path"], request.scope["path"]
    shown = {
        "base": base, "path": path, "here": path.removeprefix(base).strip("/").partition("/")[0], "pages": _PAGES,
        "title": title, "place": without_secrets(service.settings.url), "version": __version__,
        "notice": "here" if service.watches else service.writer.notice, "token": _token(request),
        "watches": service.watches, "key": None, "running": [], "fragment": "hx-request" in request.headers,
    }  # fmt: skip
    return str(_template(template).render({**shown, **values}))


def _template(name: str) -> Any:
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("limpet", "service/templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"code": _code, "duration": duration, "moment": _moment, "share_of": share_of}
    return environment


def _code(text: str) -> Markup:
    """Write text between backticks as code.

    >>> _code("`ls <x>`; ended")
    Markup('<code>ls &lt;x&gt;</code>; ended')
    """
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _moment(at: float | str) -> str:
    """Write a time in UTC.

    >>> _moment(0), _moment("2026-11-29T23:05:12.5+00:00")
    ('1970-01-01 00:00:00', '2026-11-29 23:05:12')
    """
    found = datetime.fromisoformat(at) if isinstance(at, str) else datetime.fromtimestamp(at, UTC)
    return found.strftime("%Y-%m-%d %H:%M:%S")


def _standing(service: Serving) -> dict[str, Any]:
    """Return the status of the upgrade; empty for an index whose upgrade was not started."""
    try:
        return dict(zip(("epoch", "status"), steering.standing(service), strict=True))
    except NotStartedError:
        return {"epoch": None, "status": None}


def _choices(service: Serving) -> dict[str, Any]:
    """Return the names and fingerprints of the loaded models, to select and display."""
    named = service.encoders.named
    return {
        "names": dict.fromkeys(named, ""),
        "fingerprints": {one.fingerprint: name for name, one in named.items()},
        "of_texts": any(kind_of(one) == "texts" for one in named.values()),
    }


def _said(job: Job) -> str:
    """Describe the progress of a job, in steps suited to screen readers."""
    done, total = job.progress.get("done"), job.progress.get("total")
    share = f", {10 * int(10 * done / total)} %" if done and total and not job.over else ""
    return f"{job.step.capitalize()}: {job.status}{share}."


async def _answered(service: Serving, generation: Generation, q: str, item: str, k: int) -> dict[str, Any]:
    """Return the hits of a text, or of an item's vector, as a query of a model; or why there are none."""
    asked: dict[str, Any] = {"texts": [q]}
    try:
        if not q:
            found = await run_in_threadpool(lambda: reads.items_of(service, [item], vectors=True))
            vectors = {name: one for stored in found["items"] for name, one in stored["vectors"].items()}
            if generation.name not in vectors:
                raise ServiceError(404, f"The item '{item}' has no vector of {generation.name}." if vectors else
                                   f"There is no item '{item}'.")  # fmt: skip
            asked = {"vectors": [vectors[generation.name]]}
        return await reads.found(service, SearchRequest(model=generation.name, k=k, **asked))
    except LimpetError as error:
        return {"problem": _problem(error)}


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Return an image, (channels, height, width), as a PNG file; a single channel is grey."""
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)).save(content, "PNG")
    return content.getvalue()


def _texts(opened: Callable[[], ItemSource[list[str]] | None], ids: Sequence[str]) -> dict[str, str]:
    """Return the texts of items, as far as the service has them."""
    source = opened()
    return {} if source is None else dict(zip(*source.read([one for one in ids if one]), strict=True))
