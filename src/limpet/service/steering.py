"""Routes of the API that watch and steer an upgrade of any kind of index."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import AsyncIterable
from contextlib import suppress
from io import BytesIO, StringIO
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Body, Depends, Header, Query, Response
from fastapi.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool

from limpet.attached.opening import open_upgrade, upgrade_journal
from limpet.engines.sides import ModelSide
from limpet.evaluation.thresholds import Thresholds
from limpet.galleries.upgrade import GalleryUpgrade
from limpet.service.documents import GalleryResponse
from limpet.service.jobs import Job, JobStep, StepOptions, epoch_of
from limpet.service.live_evidence import LiveEvidenceSummary
from limpet.service.serving import Serving, allowed, serving
from limpet.service.writes import RequestKey
from limpet.upgrade.status import UpgradeStatus

router = APIRouter(prefix="/v1")
_READ = [allowed("read")]
Provided = Annotated[Serving, Depends(serving)]


@router.get("", response_model=GalleryResponse, dependencies=_READ, tags=["gallery"])
def gallery_state(service: Provided) -> dict[str, Any]:
    """Return what the gallery holds, by model."""
    gallery = service.gallery
    pointer, state = gallery.now()
    return {
        "epoch": state.epoch, "commit": pointer.sequence, "phase": state.phase, "items": pointer.items,
        "active": state.active, "columns": state.columns, "writer": service.writer.notice,
        "generations": [
            {"name": one.name, "model": one.fingerprint, "note": one.note, "dim": one.geometry.dim,
             "items": pointer.covered([one.name]), "loaded": one.fingerprint in service.encoders.models}
            for one in state.generations
        ],
    }  # fmt: skip


@router.get("/upgrade", tags=["upgrade"], dependencies=_READ)
def status(service: Provided, response: Response) -> dict[str, Any]:
    """Return where the upgrade stands, and what comes next; the header ETag has the epoch."""
    epoch, found = standing(service)
    response.headers["ETag"] = f'"{epoch}"'
    return {"epoch": epoch, **found.to_dict(service.settings.url)}


def standing(service: Serving) -> tuple[str, UpgradeStatus]:
    """Return the epoch and the status of the upgrade."""
    with open_upgrade(service.settings.url) as it:
        return epoch_of(it), it.status()


@router.get("/upgrade/thresholds", tags=["upgrade"], dependencies=_READ)
def thresholds(
    service: Provided, threshold: Annotated[list[float] | None, Query(description="On scores of the old model.")] = None
) -> Thresholds:
    """Return what thresholds on scores of the old model become on those of the new one, with their intervals.

    They are measured on items that have vectors of both models. The answer has a row for each threshold that is asked
    for, or a table.
    """
    found = GalleryUpgrade(service.gallery).thresholds()
    if threshold is None:
        return found
    return found.model_copy(update={"rows": tuple(found.at(one) for one in threshold)})


@router.get("/upgrade/evidence", tags=["upgrade"], dependencies=_READ)
def evidence(service: Provided) -> LiveEvidenceSummary:
    """Return what live queries said of the model that is prepared, since the last step of the upgrade."""
    return service.evidence.summary()


@router.get("/upgrade/evidence/{side}.npz", tags=["upgrade"], dependencies=_READ, response_class=Response,
            responses={200: {"content": {"application/octet-stream": {}}}})  # fmt: skip
def evidence_queries(service: Provided, side: ModelSide) -> Response:
    """Return the queries that both models were asked, by one of them, as `limpet evaluate` and `rehearse` read them."""
    names, vectors = service.evidence.queries(side)
    content = BytesIO()
    np.savez(content, allow_pickle=False, vectors=vectors, ids=np.array(names))
    return Response(content.getvalue(), media_type="application/octet-stream")


@router.get("/upgrade/evidence/clicks.csv", tags=["upgrade"], dependencies=_READ, response_class=Response,
            responses={200: {"content": {"text/csv": {}}}})  # fmt: skip
def evidence_clicks(service: Provided) -> Response:
    """Return which items were clicked for these queries, as `limpet evaluate --relevant` reads them."""
    lines = StringIO()
    csv.writer(lines).writerows([("query", "item"), *service.evidence.clicks()])
    return Response(lines.getvalue(), media_type="text/csv")


@router.get("/upgrade/journal", tags=["upgrade"], dependencies=_READ)
def journal(service: Provided, last: Annotated[int, Query(ge=1, le=1000)] = 20) -> list[dict[str, Any]]:
    """Return what was done, the last event last."""
    return [dict(event) for event in upgrade_journal(service.settings.url, last)]


@router.post(
    "/upgrade/{step}",
    tags=["upgrade"],
    status_code=202,
    responses={200: {"description": "What a dry run found."}, 202: {"model": Job}},
)
async def take_step(
    step: JobStep,
    service: Provided,
    response: Response,
    who: Annotated[str, allowed("upgrade")],
    options: Annotated[StepOptions, Body()] = StepOptions(),  # noqa: B008
    dry_run: Annotated[bool, Query(description="Check the step, and change nothing.")] = False,
    if_match: Annotated[str | None, Header(description="Epoch at which the step is to be taken.")] = None,
    key: RequestKey = None,
) -> Any:
    """Take a step of the upgrade as a job, after those before it."""
    epoch = None if if_match is None else if_match.strip().removeprefix("W/").strip('"')
    if dry_run:
        response.status_code = 200
        return await run_in_threadpool(service.jobs.dry_run, step, options, epoch=epoch)
    job = await run_in_threadpool(service.jobs.submit, step, options, who=who, key=key, epoch=epoch)
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


@router.get("/jobs", tags=["upgrade"], dependencies=_READ)
def list_jobs(service: Provided) -> list[Job]:
    """Return the jobs of this service, the last one last."""
    return list(service.jobs.all.values())


def known_job(name: str, service: Provided) -> Job:
    """Return the job that a path names, before any part of the response is sent."""
    return service.jobs.get(name)


KnownJob = Annotated[Job, Depends(known_job)]


@router.get("/jobs/{name}", tags=["upgrade"], dependencies=_READ)
async def get_job(
    job: KnownJob,
    service: Provided,
    wait: Annotated[float, Query(ge=0, le=60, description="Seconds to wait for its end.")] = 0.0,
) -> Job:
    """Return a job."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait):
            async for last in service.jobs.events(job):
                job = last
    return job


@router.get("/jobs/{name}/events", tags=["upgrade"], dependencies=_READ, response_class=EventSourceResponse)
async def job_events(job: KnownJob, service: Provided) -> AsyncIterable[Job]:
    """Send a job whenever something became of it, as server-sent events, until it is over."""
    async for last in service.jobs.events(job):
        yield last


@router.delete("/jobs/{name}", tags=["upgrade"], dependencies=[allowed("upgrade")])
def cancel_job(job: KnownJob, service: Provided) -> Job:
    """Let a job that waits go, and a backfill stop after its batch."""
    return service.jobs.cancel(job)
