"""The part of the API that writes items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from numpy.typing import NDArray
from pydantic_core import to_json

from limpet.errors import DataError, ServiceError
from limpet.service.documents import Kind, UpsertRequest
from limpet.service.encoders import Items
from limpet.service.reads import JSON
from limpet.service.serving import DirectRoute, Serving, allowed, body_of, serving
from limpet.service.writer import Upsertion, Written

router = APIRouter(prefix="/v1", tags=["gallery"])
upserts = APIRouter(prefix="/v1", tags=["gallery"], dependencies=[allowed("write")], route_class=DirectRoute)
_KEY, _KEY_LENGTH = "Idempotency-Key", 200
_OF_KEYS = "A name of your own for this request: repeated, it is done once, and answered as the first time."
RequestKey = Annotated[str | None, Header(alias=_KEY, max_length=_KEY_LENGTH, description=_OF_KEYS)]
_UPSERT = {
    "requestBody": {"required": True, "content": {JSON: {"schema": UpsertRequest.model_json_schema()}}},
    "parameters": [
        {"name": _KEY, "in": "header", "schema": {"type": "string", "maxLength": _KEY_LENGTH}, "description": _OF_KEYS}
    ],
}


@upserts.post("/items", response_model=Written, openapi_extra=_UPSERT)
async def upsert(request: Request) -> Response:
    """Write items whole, replacing their stored metadata and vectors. The response is sent once they are durable."""
    service: Serving = request.app.state.serving
    service.writer.refuse_reader()
    _, body = await body_of(request, JSON)
    given, key = UpsertRequest.model_validate_json(body), request.headers.get(_KEY)
    if key is not None and len(key) > _KEY_LENGTH:
        raise ServiceError(422, f"An {_KEY} of {len(key)} characters.", expected=f"at most {_KEY_LENGTH}")
    service.refuse_many("items", len(given.ids), service.settings.limits.batch)
    if sum(one is not None for one in (given.vectors, given.texts, given.images)) != 1:
        raise ServiceError(422, "Items of nothing, or of several things.", expected='"vectors", "texts" or "images"')
    if given.vectors is not None:
        vectors: Mapping[str, Any] = given.vectors
    elif given.texts is not None:
        vectors = await _embedded(service, given.ids, given.texts, "texts")
    else:
        vectors = await _embedded(service, given.ids, given.images or [], "images")
    if not vectors:
        raise ServiceError(422, "Items without vectors.", expected='"vectors" of one model or more')
    content = Upsertion(given.ids, vectors, given.metadata)
    return Response(to_json(await service.writer.write(content, body, who=request.state.who, key=key)), media_type=JSON)


async def _embedded(service: Serving, ids: list[str], items: Items, kind: Kind) -> dict[str, NDArray[np.float32]]:
    if len(items) != len(ids):
        raise DataError(f"{len(items)} {kind} for {len(ids)} ids.", expected="one for each, in their order")
    state = service.gallery.state
    models = [one for one in state.generations if one.fingerprint in service.encoders.models]
    if state.active not in (one.name for one in models):
        raise service.encoders.not_loaded(state.by_name[state.active].fingerprint)
    made = {one.fingerprint: await service.encoders.embed(items, one.fingerprint, "document", kind) for one in models}
    return {fingerprint: np.ascontiguousarray(one.vectors, np.float32) for fingerprint, one in made.items()}


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
