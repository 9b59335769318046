"""Routes of the API that change nothing: every process of a service serves them."""

from __future__ import annotations

from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request, Response
from numpy.typing import NDArray
from pydantic_core import to_json
from starlette.background import BackgroundTask

from limpet.errors import ServiceError
from limpet.galleries import Gallery
from limpet.service import metrics
from limpet.service.documents import (
    FLOAT32,
    ClickRequest,
    ItemsResponse,
    SearchRequest,
    SearchResponse,
    array_of,
)
from limpet.service.pages import Page, digest_of
from limpet.service.serving import DirectRoute, Serving, allowed, body_of, serving

if TYPE_CHECKING:
    from limpet.embeddings import EmbeddingSet
    from limpet.galleries.state import Generation

router = APIRouter(prefix="/v1", tags=["gallery"], dependencies=[allowed("read")])
searches = APIRouter(prefix="/v1", tags=["gallery"], dependencies=[allowed("read")], route_class=DirectRoute)
JSON, BINARY = "application/json", "application/octet-stream"
_BODIES = {
    "requestBody": {"required": True, "content": {
        JSON: {"schema": SearchRequest.model_json_schema()},
        BINARY: {"schema": {"type": "string", "format": "binary", "description":
                 "Queries as little-endian float32, row by row; what else JSON holds is asked in the query string."}},
    }},
}  # fmt: skip


@searches.post("/search", response_model=SearchResponse, openapi_extra=_BODIES)
async def search(request: Request) -> Response:
    """Find the items nearest to each query among all vectors that queries of their model may search."""
    service: Serving = request.app.state.serving
    kind, body = await body_of(request, JSON, BINARY)
    if raw := kind == BINARY:
        wanted = SearchRequest.model_validate(dict(request.query_params))
    else:
        wanted = SearchRequest.model_validate_json(body)
    start, arm = perf_counter(), service.evidence.arm(wanted)
    canary = {"model": arm[1].fingerprint} if arm is not None and arm[0] == "new" else {}
    document = await found(service, wanted.model_copy(update=canary), body if raw else None)
    answer = Response(to_json(document), media_type=JSON)
    if arm is not None:  # recorded after the response is sent
        seconds = perf_counter() - start
        answer.background = BackgroundTask(service.evidence.note, request.scope["request_id"], wanted, arm, seconds)
    return answer


@router.post("/clicks", status_code=204)
async def click(given: ClickRequest, service: Annotated[Serving, Depends(serving)]) -> None:
    """Say which hit a person chose: evidence for shadow and canary."""
    service.evidence.click(given.request, given.id, given.query)


async def found(service: Serving, wanted: SearchRequest, raw: bytes | None = None) -> dict[str, Any]:
    """Return the result of a search, as `SearchResponse` describes it.

    Args:
        service: Service whose gallery is searched.
        wanted: The search request.
        raw: The queries as little-endian float32, in place of those in the request.
    """
    if sum(one is not None for one in (wanted.vectors, wanted.texts, wanted.images, raw)) != 1:
        raise ServiceError(422, "Nothing, or several things, to search for.", expected='"vectors", "texts" or "images"')
    gallery, limits = service.gallery, service.settings.limits
    while True:
        generation = _generation(gallery, wanted.model, embeds=wanted.items is not None)
        queries: NDArray[np.float32] | EmbeddingSet
        if wanted.items is not None:
            kind, items = wanted.items
            service.refuse_many(kind, len(items), limits.batch)
            queries = await service.encoders.embed(items, generation.fingerprint, "query", kind)
        else:
            queries = array_of(raw if raw is not None else wanted.vectors or [], generation.geometry.dim)
        service.refuse_many("queries", len(queries), limits.batch)
        document = await to_thread.run_sync(
            _answered, service, wanted, queries, generation.fingerprint, limiter=service.searching
        )
        swapped = document["active"] != generation.name  # during embedding
        if wanted.model is None and wanted.cursor is None and wanted.items is not None and swapped:
            continue
        for name, hits in Counter(hit.generation for of_query in document["hits"] for hit in of_query).items():
            metrics.HITS.labels(name).inc(hits)
        return document


def _generation(gallery: Gallery, model: str | None, *, embeds: bool) -> Generation:
    """Return the generation of the queries' model."""
    state = gallery.state
    if model is not None:
        return state.by_name.get(model) or state.made_by(model)
    models = [one for one in state.generations if one.mapped_from is None]
    if not embeds and len(models) > 1:
        raise ServiceError(
            422, "Nothing says which model made the queries, and the gallery has vectors of several.",
            expected=f'"model", one of {", ".join(one.fingerprint for one in models)}',
        )  # fmt: skip
    return state.by_name[state.active]


def _answered(
    service: Serving, wanted: SearchRequest, queries: NDArray[np.float32] | EmbeddingSet, fingerprint: str
) -> dict[str, Any]:
    gallery, cursor, k, page = service.gallery, None, wanted.k, None
    if wanted.cursor is not None:
        vectors = np.ascontiguousarray(getattr(queries, "vectors", queries), FLOAT32)
        of = digest_of(vectors.tobytes(), fingerprint, wanted.where, wanted.exact)
        secret = service.settings.secret
        page = Page.of(wanted.cursor, secret, of) if wanted.cursor else Page(gallery.store.pointer(), 0, of)
        k += page.start
    service.refuse_many("hits of a query", k, service.settings.limits.k)
    with metrics.timed(metrics.STORE, "search"):
        reply = gallery.search(
            queries, k, fingerprint=fingerprint, where=wanted.where, exact=wanted.exact, at=page.at if page else None
        )
    hits = reply.hits
    if page is not None:
        more = any(len(of_query) == k for of_query in hits) and k < reply.covered
        cursor = Page(page.at, k, page.search).cursor(secret) if more else None
        hits = [of_query[page.start :] for of_query in hits]
    return {
        "epoch": reply.epoch, "commit": reply.sequence, "model": reply.fingerprint, "active": reply.active,
        "sources": reply.sources, "merge": reply.merge, "covered": reply.covered, "items": reply.items, "hits": hits,
        "cursor": cursor,
    }  # fmt: skip


@router.get("/items", response_model=ItemsResponse)
def get_items(
    service: Annotated[Serving, Depends(serving)],
    id: Annotated[list[str], Query(description="Once for each item.")],
    vectors: Annotated[bool, Query(description="Return vectors as well.")] = False,
) -> Response:
    """Return items by id."""
    return Response(to_json(items_of(service, id, vectors=vectors)), media_type="application/json")


def items_of(service: Serving, ids: list[str], *, vectors: bool = False) -> dict[str, Any]:
    """Return items by id, as `ItemsResponse` describes them."""
    gallery = service.gallery
    service.refuse_many("ids", len(ids), service.settings.limits.batch)
    pointer, state = gallery.now()
    stored = gallery.store.fetch(ids)
    points: dict[str, dict[str, list[float]]] = {name: {} for name in stored.ids}
    for generation in state.generations if vectors else ():
        held, forms = gallery.store.vectors(generation.name, stored.ids)
        for name, point in zip(held, generation.geometry.from_index_form(forms).tolist(), strict=True):
            points[name][generation.name] = point
    items = [
        {"id": name, "version": int(version), "generations": sorted(made), "metadata": metadata,
         **({"vectors": points[name]} if vectors else {})}
        for name, version, made, metadata in zip(
            stored.ids, stored.versions, stored.generations, stored.metadata, strict=True
        )
    ]  # fmt: skip
    known = set(stored.ids)
    return {
        "epoch": state.epoch, "commit": pointer.sequence, "items": items,
        "unknown": [name for name in dict.fromkeys(ids) if name not in known],
    }  # fmt: skip
