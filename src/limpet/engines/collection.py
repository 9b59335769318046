"""What an engine of collections has to do for an upgrade: read, write and remove rows of two sides."""

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
"""Rows read, or written, at a time at first."""
_MOST, _BYTES = 16_384, 16 * 2**20
_HELPS, _LONG = 1.2, 2.0
_LEVELS = 4096.0
"""Of a standard deviation: two vectors that are not the same agree in all three places once in 10 ** 10 times."""
PART = 8
"""Bytes of a part of a digest: the first tells the fields of an item, the next its vector, further ones other vectors.

Those of vectors are four numbers of 16 bits each, and two vectors are the same where all differ by 1 at most: a folder
of Qdrant rounds vectors in another way when it is opened than when they are written.
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
        else:  # a busy moment, or as fast as it gets
            self._chances -= 1


@dataclass(frozen=True)
class IndexStatus:
    """An approximate index over the new vectors, as there is one over the old ones."""

    name: str
    built: bool


@dataclass(frozen=True)
class Target:
    """What an application names when it searches or writes.

    Args:
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
class CollectionRow:
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


def digest_of(
    value: Any, vector: NDArray[np.float32] | None = None, others: Mapping[str, NDArray[np.float32]] | None = None
) -> bytes:
    """Return what differs where what JSON writes of a value does, or a vector by more than rounding; see `PART`.

    >>> digest_of({"text": "a"}, np.ones(2))[:PART] == digest_of({"text": "a"}, np.zeros(2))[:PART]
    True
    """
    further = sorted((others or {}).items())
    fields = hashlib.blake2b(_written([value, [name for name, _ in further]]), digest_size=PART).digest()
    return b"".join([fields, _sketch(vector), *(_sketch(one) for _, one in further)])


def _sketch(vector: NDArray[np.float32] | None) -> bytes:
    """Return three places of a direction, and the length, each as a number of 16 bits."""
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
    """Return what JSON knows of values of the engines: vectors, sparse vectors, bytes."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    return value.hex() if isinstance(value, bytes) else np.asarray(value).tolist()


class Engine(ABC):
    """Rows of two sides in one service; everything that it acknowledges is seen by the next call.

    Args:
        address: Of the service, or of its folder or file.
        old: What holds the old vectors.
        new: What holds the new ones, or is to.
        dim: Dimension of the new vectors.
        version: A field that the application changes with every write; None to compare rows as a whole.

    Attributes:
        place: What is attached to, in words.
        shared: Whether both sides are vectors of the same items.
    """

    service: ClassVar[str]
    """What it is called."""
    beside: ClassVar[Collection[str]] = ()
    """What the URL may say of where the new vectors are to be; nothing where there is no choice."""
    scopes: ClassVar[Mapping[str, str]] = {}
    """Options of a service's URL inside which names of collections are unique, each with its default."""
    port: ClassVar[int]
    """Of a service whose URL names none."""
    promises: ClassVar[Promises] = Promises.of_collections()
    """What an upgrade may count on here."""

    def __init__(self, address: Address, old: Target, new: Target, dim: int, version: str | None = None) -> None:
        self._address, self._dim, self._version = address, dim, version
        self._targets: dict[ModelSide, Target] = {"old": old, "new": new}
        self.place = f"collection '{old.collection}' of {self.service} at {without_secrets(address.place)}"
        self.shared = old.collection == new.collection
        self._open = ExitStack()

    @classmethod
    @abstractmethod
    def resolved(cls, address: Address, name: str) -> str:
        """Return the collection that a name or an alias leads to."""

    @classmethod
    @abstractmethod
    def sides(cls, address: Address, wanted: Wanted) -> tuple[Target, Target]:
        """Return what holds the old vectors, and what is to hold the new ones.

        Raises:
            ConfigError: They cannot be where they are wanted.
        """

    def refuse(self) -> None:  # noqa: B027
        """Refuse what the new side could not be a faithful copy of: nothing, unless an engine says otherwise.

        Raises:
            GalleryError: Everything that hinders is named.
        """

    def target(self, side: ModelSide) -> Target:
        """Return what holds the rows of a side."""
        return self._targets[side]

    @abstractmethod
    def create(self) -> None:
        """Make the place of the new side where it is not there."""

    @abstractmethod
    def is_there(self) -> bool:
        """Say whether the place of the new side is there."""

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
        """Return those of the rows that are there; without their vectors they have no digest."""

    @abstractmethod
    def put(
        self, side: ModelSide, rows: Sequence[CollectionRow], there: Mapping[str, CollectionRow] | None = None
    ) -> None:
        """Write rows as a whole; where both sides are vectors of the same items, those of items that are there.

        Args:
            side: Which.
            rows: What to write.
            there: What this side holds of these items, by id, where it was just read.
        """

    @abstractmethod
    def remove(self, side: ModelSide, ids: Sequence[str]) -> None:
        """Remove rows of a side; never asked where both sides are vectors of the same items."""

    def build(self) -> None:  # noqa: B027
        """Build the index of the new side as that of the old one is: nothing, where the service does by itself."""

    @abstractmethod
    def indexes(self) -> tuple[IndexStatus, ...]:
        """Return the indexes of the new side."""

    @abstractmethod
    def aliased(self, alias: str) -> str | None:
        """Return what collection an alias leads to."""

    @abstractmethod
    def set_alias(self, alias: str, side: ModelSide) -> None:
        """Let an alias lead to the collection of a side."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the place of the new side where it is there."""

    def close(self) -> None:
        """Let go of the client."""
        self._open.close()
