"""What an engine of collections has to do for an upgrade: read, write and remove rows of two sides."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from limpet.attached.base import IndexStatus
from limpet.attached.state import Side
from limpet.sources.address import Address

AT_ONCE = 256
"""Rows read at a time."""
_NUMBERED = re.compile(r"_upgrade\d+$")


@dataclass(frozen=True)
class Target:
    """What an application names when it searches or writes.

    Args:
        collection: Its name.
        vector: The vector, where a collection has several; else None.
    """

    collection: str
    vector: str | None = None


@dataclass(frozen=True)
class Wanted:
    """What is known of an attachment before its new side has a place.

    Args:
        collection: That is attached to, no alias.
        vector: The column of its vectors.
        alias: What is set after every swap; None for nothing.
        beside: Where the new vectors are to be, one of `Engine.beside`; the engine's choice when None.
        new: Name of what is made; one with the number when None.
        number: Of the attachment.
    """

    collection: str
    vector: str
    alias: str | None
    beside: str | None
    new: str | None
    number: int

    def name_after(self, old: str) -> str:
        """Return the name of what is made in place of something.

        >>> Wanted("items", "emb", None, None, None, 2).name_after("items_upgrade1")
        'items_upgrade2'
        """
        return self.new or f"{_NUMBERED.sub('', old)}_upgrade{self.number}"


@dataclass(frozen=True)
class Row:
    """What one side holds of an item.

    Args:
        id: Of the item, as text.
        vector: Of the side's model, float32 (D,); None where there is none.
        rest: Everything else, as the engine has it.
        digest: What tells this state of the row from any other; None where it has no vector.
        values: What the application keeps of the item by name, such as its text.
    """

    id: str
    vector: NDArray[np.float32] | None
    rest: Mapping[str, Any]
    digest: bytes | None
    values: Mapping[str, Any] = field(default_factory=dict)


def digest_of(value: Any, vector: NDArray[np.float32] | None = None) -> bytes:
    """Return 16 bytes that differ where what JSON writes of a value, or the vector, does."""
    told = hashlib.blake2b(_written(value), digest_size=16)
    if vector is not None:
        told.update(np.ascontiguousarray(vector, np.float32).tobytes())
    return told.digest()


def _written(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain).encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    """Return what JSON knows of values of the engines: vectors, sparse vectors, bytes."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    return value.hex() if isinstance(value, bytes) else np.asarray(value).tolist()


class Engine(Protocol):
    """Rows of two sides in one service; everything that it acknowledges is seen by the next call."""

    beside: ClassVar[Collection[str]]
    """What the URL may say of where the new vectors are to be; nothing where there is no choice."""

    place: str
    """What is attached to, in words."""

    def __init__(self, address: Address, old: Target, new: Target, dim: int, version: str | None = None) -> None: ...

    @classmethod
    def resolved(cls, address: Address, name: str) -> str:
        """Return the collection that a name or an alias leads to."""

    @classmethod
    def sides(cls, address: Address, wanted: Wanted) -> tuple[Target, Target]:
        """Return what holds the old vectors, and what is to hold the new ones.

        Raises:
            ConfigError: They cannot be where they are wanted.
        """

    def refuse(self) -> None:
        """Refuse what the new side could not be a faithful copy of.

        Raises:
            GalleryError: Everything that hinders is named.
        """

    def target(self, side: Side) -> Target:
        """Return what holds the rows of a side."""

    def create(self) -> None:
        """Make the place of the new side where it is not there."""

    def is_there(self) -> bool:
        """Say whether the place of the new side is there."""

    def scan(self, side: Side) -> Iterator[Sequence[tuple[str, bytes | None]]]:
        """Yield ids and digests of all rows of a side, some at a time."""

    def fetch(self, side: Side, ids: Sequence[str]) -> Sequence[Row]:
        """Return those of the rows that are there."""

    def put(self, side: Side, rows: Sequence[Row]) -> None:
        """Write rows as a whole."""

    def remove(self, side: Side, ids: Sequence[str]) -> None:
        """Remove rows of a side."""

    def build(self) -> None:
        """Build the index of the new side as that of the old one is, and let the side be searched."""

    def indexes(self) -> tuple[IndexStatus, ...]:
        """Return the indexes of the new side."""

    def aliased(self, alias: str) -> str | None:
        """Return what collection an alias leads to."""

    def set_alias(self, alias: str, side: Side) -> None:
        """Let an alias lead to the collection of a side."""

    def drop(self) -> None:
        """Remove the place of the new side where it is there."""

    def close(self) -> None:
        """Let go of connections."""
