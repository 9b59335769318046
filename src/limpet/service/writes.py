"""The part of the API that writes items."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic_core import to_json

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, ServiceError
from limpet.galleries.rows import batches
from limpet.galleries.state import GalleryState
from limpet.service.documents import Kind, UpsertRequest, array_of
from limpet.service.encoders import Items
from limpet.service.reads import JSON
from limpet.service.serving import DirectRoute, Serving, allowed, body_of, entered, serving
from limpet.service.writer import Written

router = APIRouter(prefix="/v1", tags=["gallery"])
upserts = APIRouter(route_class=DirectRoute)
_KEY, _KEY_LENGTH = "Idempotency-Key", 200
_OF_KEYS = "A name of your own for this request: repeated, it is done once, and answered as the first time."
RequestKey = Annotated[str | None, Header(alias=_KEY, max_length=_KEY_LENGTH, description=_OF_KEYS)]
_UPSERT = {
    "requestBody": {"required": True, "content": {JSON: {"schema": UpsertRequest.model_json_schema()}}},
    "parameters": [
        {"name": _KEY, "in": "header", "schema": {"type": "string", "maxLength": _KEY_LENGTH}, "description": _OF_KEYS}
    ],
}


@upserts.post("/items", dependencies=[allowed("write")], response_model=Written, openapi_extra=_UPSERT)
async def upsert(request: Request) -> Response:
    """Write items whole: their metadata and vectors replace what was there. The answer comes when they are durable."""
    service, who = await entered(request, "write")
    service.writer.refuse_reader()
    given, key = UpsertRequest.model_validate_json((await body_of(request, JSON))[1]), request.headers.get(_KEY)
    if key is not None and len(key) > _KEY_LENGTH:
        raise ServiceError(422, f"An {_KEY} of {len(key)} characters.", expected=f"at most {_KEY_LENGTH}")
    state, ids = service.gallery.state, given.ids
    service.refuse_many("items", len(ids), service.settings.limits.batch)
    if sum(one is not None for one in (given.vectors, given.texts, given.images)) != 1:
        raise ServiceError(422, "Items of nothing, or of several things.", expected='"vectors", "texts" or "images"')
    if given.vectors is not None:
        sets = [_points(state, model, ids, vectors) for model, vectors in given.vectors.items()]
    elif given.texts is not None:
        sets = await _embedded(service, state, ids, given.texts, "texts")
    else:
        sets = await _embedded(service, state, ids, given.images or [], "images")
    if not sets:
        raise ServiceError(422, "Items without vectors.", expected='"vectors" of one model or more')
    [batch] = batches(state, sets, given.metadata, len(ids))
    written = await service.writer.write(batch, await request.body(), who=who, key=key)
    return Response(to_json(written), media_type=JSON)


router.include_router(upserts)


def _points(state: GalleryState, model: str, ids: list[str], vectors: list[list[float]] | str) -> EmbeddingSet:
    generation = state.by_name.get(model) or state.made_by(model)
    points = array_of(vectors, generation.geometry.dim)
    if len(points) != len(ids):
        raise DataError(
            f"{len(points)} vectors of {model} for {len(ids)} ids.", expected="one for each, in their order"
        )
    return EmbeddingSet(points, ids, generation.fingerprint, generation.geometry, role="document")


async def _embedded(
    service: Serving, state: GalleryState, ids: list[str], items: Items, kind: Kind
) -> list[EmbeddingSet]:
    if len(items) != len(ids):
        raise DataError(f"{len(items)} {kind} for {len(ids)} ids.", expected="one for each, in their order")
    models = [one for one in state.generations if one.fingerprint in service.encoders.models]
    if state.active not in (one.name for one in models):
        raise service.encoders.not_loaded(state.by_name[state.active].fingerprint)
    sets = []
    for generation in models:
        made = await service.encoders.embed(items, generation.fingerprint, "document", kind)
        vectors = np.ascontiguousarray(made.vectors, np.float32)
        sets.append(EmbeddingSet(vectors, ids, generation.fingerprint, generation.geometry, role="document"))
    return sets


@router.delete("/items")
async def delete(
    service: Annotated[Serving, Depends(serving)],
    who: Annotated[str, allowed("write")],
    id: Annotated[list[str], Query(description="Once for each item.")],
    key: RequestKey = None,
) -> Written:
    """Remove items with all their vectors; a backfill does not bring them back. Unknown ids are passed over."""
    service.refuse_many("ids", len(id), service.settings.limits.batch)
    return await service.writer.write(list(dict.fromkeys(id)), repr(("delete", id)).encode(), who=who, key=key)
