"""What requests and answers of the API hold."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field

from limpet.errors import SpaceMismatchError, UnusableVectorsError

Kind: TypeAlias = Literal["texts", "images"]
FLOAT32 = np.dtype("<f4")
GivenVectors = Annotated[
    list[list[float]] | str,
    Field(description="One list of numbers each; or all of them as base64 of little-endian float32, row by row."),
]
GivenImages = Annotated[
    list[Base64Bytes], Field(description="Encoded images, such as JPEG or PNG, as base64; embedded like texts.")
]
Model = Annotated[str, Field(description="Fingerprint of a model, or the name of its generation, such as g1.")]


class RequestBody(BaseModel):
    """A part of a request; unknown names are refused."""

    model_config = ConfigDict(extra="forbid")


class SearchRequest(RequestBody):
    """Queries, as vectors, texts or images."""

    vectors: GivenVectors | None = None
    texts: list[str] | None = Field(None, description="Embedded by the model, which the service has to have loaded.")
    images: GivenImages | None = None
    model: Model | None = Field(
        None, description="The model of the queries. May be left out for texts and images, which the active model "
        "embeds, and while the gallery has vectors of one model.",
    )  # fmt: skip
    k: int = Field(10, ge=1, description="Hits of every query; of a page.")
    where: str | None = Field(None, description='What metadata must meet, such as "price<10 AND exists(label)".')
    exact: bool = Field(True, description="Compare with every vector; otherwise use approximate indexes.")
    route_key: str | None = Field(
        None, max_length=200, description="While a canary runs: requests of one key, such as a user, are answered by "
        "one model. When left out, those of the same texts are.",
    )  # fmt: skip
    cursor: str | None = Field(
        None, description='Pages of one commit: "" begins, and every answer brings the cursor of the next page.'
    )

    @property
    def items(self) -> tuple[Kind, list[str] | list[bytes]] | None:
        """What the service is to embed; None where vectors were sent."""
        if self.images is not None:
            return "images", self.images
        return None if self.texts is None else ("texts", self.texts)


class ClickRequest(RequestBody):
    """An item that a person chose among the hits of a search."""

    request: str = Field(max_length=64, description="The header X-Request-ID of the answer.")
    id: str = Field(max_length=1000, description="The item.")
    query: int = Field(0, ge=0, description="Number of the query in the request.")


class FoundHit(BaseModel):
    """An item that was found."""

    id: str
    score: float
    generation: str = Field(description="Whose vector of the item was found.")
    metadata: dict[str, Any]


class AnsweredAt(BaseModel):
    """As of when something was answered."""

    epoch: str = Field(description="Changes with every step of an upgrade; If-Match takes it.")
    commit: int


class SearchResponse(AnsweredAt):
    """What was found, for each query the best first."""

    model: str = Field(description="Fingerprint of the model of the queries.")
    active: str = Field(description="The active generation.")
    sources: list[str] = Field(description="Generations that were searched.")
    merge: str = Field(description="How hits of several generations became one list.")
    covered: int = Field(description="Items that these queries could find.")
    items: int
    hits: list[list[FoundHit]]
    cursor: str | None = Field(None, description="Of the next page; null after the last.")


class Item(BaseModel):
    """An item as it is stored."""

    id: str
    version: int = Field(description="Number of the commit that last wrote it.")
    generations: list[str] = Field(description="Which have a vector of it.")
    metadata: dict[str, Any]
    vectors: dict[str, list[float]] | None = Field(
        None, description="Its points, by generation. In a space without lengths they have length 1."
    )


class ItemsResponse(AnsweredAt):
    """Items by id, and ids that are not there."""

    items: list[Item]
    unknown: list[str]


class GenerationState(BaseModel):
    """The vectors of one model."""

    name: str
    model: str
    note: str
    dim: int
    items: int = Field(description="Items that have one.")
    loaded: bool = Field(description="Whether the service embeds texts with its model.")


class GalleryResponse(AnsweredAt):
    """What a gallery holds."""

    phase: str
    items: int
    active: str
    generations: list[GenerationState]
    columns: dict[str, str]
    writer: str = Field(description='"here"; or why this service only reads.')


class UpsertRequest(RequestBody):
    """Items to write whole: metadata and vectors replace those stored before."""

    ids: list[str] = Field(min_length=1)
    vectors: dict[str, GivenVectors] | None = Field(
        None, description="By fingerprint or generation, of all ids each. Vectors that are not given are removed."
    )
    texts: list[str] | None = Field(None, description="Embedded by all loaded models that the gallery has.")
    images: GivenImages | None = None
    metadata: dict[str, list[Any]] | None = Field(None, description="By column, one value for each id, or null.")


def array_of(vectors: list[list[float]] | str | bytes, dim: int) -> NDArray[np.float32]:
    """Return vectors of a request, float32 (N, dim).

    Raises:
        SpaceMismatchError: They have another dimension.
        UnusableVectorsError: They are no base64 of float32.
    """
    if isinstance(vectors, list):
        lengths = {len(one) for one in vectors}
        if lengths - {dim}:
            raise _wrong(f"Vectors of {', '.join(map(str, sorted(lengths)))} numbers.", dim)
        return np.array(vectors, np.float32).reshape(-1, dim)
    try:
        raw = base64.b64decode(vectors, validate=True) if isinstance(vectors, str) else vectors
    except (binascii.Error, ValueError) as error:
        raise UnusableVectorsError("Vectors as a text that is no base64.", "base64 of little-endian float32") from error
    if len(raw) % (FLOAT32.itemsize * dim):
        raise _wrong(f"{len(raw):,} bytes of vectors.", dim)
    return np.frombuffer(raw, FLOAT32).reshape(-1, dim).astype(np.float32, copy=False)


def _wrong(given: str, dim: int) -> SpaceMismatchError:
    return SpaceMismatchError(
        given, expected=f"{dim} numbers a vector, {FLOAT32.itemsize * dim} bytes in float32",
        to_do='send vectors of the model that "model" names; `GET /v1` lists models and dimensions.',
        intact="Nothing was changed.",
    )  # fmt: skip


def encoded(vectors: Sequence[Sequence[float]] | NDArray[Any]) -> str:
    """Return vectors as base64 of little-endian float32."""
    return base64.b64encode(np.ascontiguousarray(vectors, FLOAT32).tobytes()).decode()


def without_nothing(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name, without those that are None."""
    return {name: value for name, value in values.items() if value is not None}
