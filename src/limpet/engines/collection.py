"""Interface of engines of collections for an upgrade: read, write and remove rows of two sides."""

from __future__ import annotations

import hashlib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from limpet.engines.address import Address
from limpet.engines.promises import Promises
from limpet.engines.sides import ModelSide
from limpet.errors import without_secrets

AT_ONCE = 256
"""Initial number of rows to read, or write, at a time."""
_MOST, _BYTES = 16_384, 16 * 2**20
_HELPS, _LONG = 1.2, 2.0
_LEVELS = 4096.0
"""Levels per standard deviation: two different vectors agree in all three components once in 10 ** 10 times."""
PART = 8
"""Bytes of a part of a digest: the first covers the fields of an item, the next its vector, further ones other vectors.

Parts of vectors are four 16-bit numbers, and two vectors count as equal if all differ by 1 at most: a Qdrant folder
rounds vectors differently when it is opened than when they are written.
"""
UNREAD = b""
"""Placeholder for a digest that is not needed."""
_NUMBERED = re.compile(r"_upgrade\d+$")


class Pace:
    """Number of rows to take at a time: quadrupled for as long as that makes it faster.

    Up to some number of rows, services answer a request for a thousand rows hardly later than one for ten. That number
    depends on the service, the vectors and the network.

    Args:
        dim: Dimension of a vector; at most about 16 MiB of vectors, in their wire format, are taken at a time.
    """

    def __init__(self, dim: int) -> None:
        self.rows = AT_ONCE
        self._most = max(AT_ONCE, min(_MOST, _BYTES // (24 * dim + 1024)))
        self._best, self._chances = 0.0, 2

    def took(self, rows: int, seconds: float) -> None:
        """Adapt to the seconds that `rows` rows took; fewer rows than requested are ignored."""
        if rows < self.rows or not self._chances:
            return
        speed = rows / max(seconds, 1e-9)
        if speed >= _HELPS * self._best:
            self._best, self._chances = speed, 2
            if seconds < _LONG:
                self.rows = min(4 * self.rows, self._most)
        else:  # a busy server, or the maximum speed
            self._chances -= 1


@dataclass(frozen=True)
class IndexStatus:
    """An approximate index over the new vectors that corresponds to one over the old ones."""

    name: str
    built: bool


@dataclass(frozen=True)
class Target:
    """Target that an application names when it searches or writes.

    Args:
        vector: Name of the vector, if a collection has several; else None.
    """

    collection: str
    vector: str | None = None


@dataclass(frozen=True)
class Wanted:
    """Properties of an attachment before its new side exists.

    Args:
        collection: Name of the attached collection, no alias.
        vector: Column of its vectors.
        alias: Alias that is set after every swap; None for none.
        beside: Place of the new vectors, one of `Engine.beside`; the engine's choice when None.
        new: Name of the new target; one with the number when None.
    """

    collection: str
    vector: str
    alias: str | None
    beside: str | None
    new: str | None
    number: int

    def name_after(self, old: str) -> str:
        """Return the name of the new target after the old one's name.

        >>> Wanted("items", "emb", None, None, None, 2).name_after("items_upgrade1")
        'items_upgrade2'
        """
        return self.new or f"{_NUMBERED.sub('', old)}_upgrade{self.number}"


@dataclass(frozen=True)
class CollectionRow:
    """One side's data of an item.

    Args:
        id: Id of the item, as text.
        vector: Vector of the side's model, float32 (D,); None if missing.
        rest: Everything else, in the engine's form.
        digest: Digest of this state of the row; None if it has no vector.
        values: The application's fields of the item by name, such as its text.
    """

    id: str
    vector: NDArray[np.float32] | None
    rest: Mapping[str, Any]
    digest: bytes | None
    values: Mapping[str, Any] = field(default_factory=dict)


def digest_of(
    value: Any, vector: NDArray[np.float32] | None = None, others: Mapping[str, NDArray[np.float32]] | None = None
) -> bytes:
    """Return a digest that changes with the JSON of a value, or with a vector by more than rounding; see `PART`.

    >>> digest_of({"text": "a"}, np.ones(2))[:PART] == digest_of({"text": "a"}, np.zeros(2))[:PART]
    True
    """
    further = sorted((others or {}).items())
    fields = hashlib.blake2b(_written([value, [name for name, _ in further]]), digest_size=PART).digest()
    return b"".join([fields, _sketch(vector), *(_sketch(one) for _, one in further)])


def _sketch(vector: NDArray[np.float32] | None) -> bytes:
    """Return three components of a direction, and the length, each as a 16-bit number."""
    if vector is None or not (length := float(np.linalg.norm(vector))):
        return bytes(PART)
    places = _axes(len(vector)) @ (np.asarray(vector, np.float64) / length) * _LEVELS
    numbers = np.array([*places, math.log2(length) * _LEVELS / 4]).round()
    return numbers.clip(-32768, 32767).astype("<i2").tobytes()


@cache
def _axes(dim: int) -> NDArray[np.float64]:
    return np.random.default_rng(dim).choice([-1.0, 1.0], size=(3, dim))


def _written(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain).encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    """Convert values of the engines for JSON: vectors, sparse vectors, bytes."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    return value.hex() if isinstance(value, bytes) else np.asarray(value).tolist()


class Engine(ABC):
    """Rows of two sides in one service; everything that it acknowledges is visible to the next call.

    Args:
        address: Address of the service, or of its folder or file.
        old: Target of the old vectors.
        new: Target of the new vectors, which may not exist yet.
        dim: Dimension of the new vectors.
        version: Field that the application changes with every write; None to compare whole rows.

    Attributes:
        place: Description of the attached collection.
        shared: Whether both sides are vectors of the same items.
    """

    service: ClassVar[str]
    """Name of the service."""
    beside: ClassVar[Collection[str]] = ()
    """Permitted places of the new vectors in the URL; empty if there is no choice."""
    scopes: ClassVar[Mapping[str, str]] = {}
    """URL options that scope the names of collections, each with its default."""
    port: ClassVar[int]
    """Default port of the service."""
    promises: ClassVar[Promises] = Promises.of_collections()
    """Guarantees for an upgrade."""

    def __init__(self, address: Address, old: Target, new: Target, dim: int, version: str | None = None) -> None:
        self._address, self._dim, self._version = address, dim, version
        self._targets: dict[ModelSide, Target] = {"old": old, "new": new}
        self.place = f"collection '{old.collection}' of {self.service} at {without_secrets(address.place)}"
        self.shared = old.collection == new.collection
        self._open = ExitStack()

    @classmethod
    @abstractmethod
    def resolved(cls, address: Address, name: str) -> str:
        """Return the collection of a name or an alias."""

    @classmethod
    @abstractmethod
    def sides(cls, address: Address, wanted: Wanted) -> tuple[Target, Target]:
        """Return the targets of the old and the new vectors.

        Raises:
            ConfigError: The requested place is not possible.
        """

    def refuse(self) -> None:  # noqa: B027
        """Refuse a collection that cannot be copied faithfully; nothing by default.

        Raises:
            GalleryError: The message names all reasons.
        """

    def target(self, side: ModelSide) -> Target:
        """Return the target of the rows of a side."""
        return self._targets[side]

    @abstractmethod
    def create(self) -> None:
        """Create the new side if it does not exist."""

    @abstractmethod
    def is_there(self) -> bool:
        """Say whether the new side exists."""

    @abstractmethod
    def scan(
        self, side: ModelSide, pace: Pace, *, digests: bool = True
    ) -> Iterator[Sequence[tuple[str, bytes | None]]]:
        """Yield ids and digests of all rows of a side, in batches of the size that `pace` sets from their timing.

        Args:
            side: The model whose rows are read.
            pace: Sets the batch size, and receives the time that each batch took.
            digests: Whether digests are needed: if not, `UNREAD` replaces them all, and little more than ids is read.
        """

    @abstractmethod
    def fetch(self, side: ModelSide, ids: Sequence[str], *, vectors: bool = True) -> Sequence[CollectionRow]:
        """Return the existing rows; without their vectors they have no digest."""

    @abstractmethod
    def put(
        self, side: ModelSide, rows: Sequence[CollectionRow], there: Mapping[str, CollectionRow] | None = None
    ) -> None:
        """Write whole rows; if both sides are vectors of the same items, vectors of existing items.

        Args:
            side: The side to write.
            rows: Rows to write.
            there: Current rows of these items on this side, by id, if they were just read.
        """

    @abstractmethod
    def remove(self, side: ModelSide, ids: Sequence[str]) -> None:
        """Remove rows of a side; never called if both sides are vectors of the same items."""

    def build(self) -> None:  # noqa: B027
        """Build the new side's index like that of the old one; does nothing if the service builds it by itself."""

    @abstractmethod
    def indexes(self) -> tuple[IndexStatus, ...]:
        """Return the indexes of the new side."""

    @abstractmethod
    def aliased(self, alias: str) -> str | None:
        """Return the collection of an alias."""

    @abstractmethod
    def set_alias(self, alias: str, side: ModelSide) -> None:
        """Point an alias to the collection of a side."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the new side if it exists."""

    def close(self) -> None:
        """Close the client."""
        self._open.close()
