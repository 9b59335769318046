"""Record of the items that a model was trained or fitted on: sorted digests of contents and ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from limpet.embeddings.embedding_set import EmbeddingSet
from limpet.errors import DataError, reason

Digests = NDArray[np.uint64]

TRAINED_ON_FILE = "trained-on.safetensors"
"""Name of the record beside a release."""


def digests_of(contents: Iterable[bytes | memoryview]) -> Digests:
    """Return the BLAKE2b digest of every content, 8 bytes as uint64 (N,).

    A false match needs about 10^19 / (trained items) queries; none is expected among 10^8 items.
    """
    joined = b"".join(hashlib.blake2b(content, digest_size=8).digest() for content in contents)
    return np.frombuffer(joined, "<u8").astype(np.uint64)


def digests_of_texts(texts: Iterable[str]) -> Digests:
    """Return the digest of every text in UTF-8, uint64 (N,)."""
    return digests_of(text.encode("utf-8", "surrogatepass") for text in texts)


@dataclass(frozen=True, eq=False)
class TrainedOn:
    """Items that a model was trained on or a map was fitted on, at about 16 bytes per item.

    Args:
        contents: Digests of the texts or images, sorted and unique, uint64 (N,). For items without available texts or
            images, digests of their vectors.
        ids: Digests of the ids, sorted and unique, uint64 (M,).
        known: Whether all contents are digests of texts or images.
    """

    contents: Digests
    ids: Digests
    known: bool = True

    @classmethod
    def of(cls, ids: Iterable[str], contents: Digests | None) -> Self:
        """Build a record from ids and digests of contents.

        Args:
            ids: Ids of the items.
            contents: Digests of the items, uint64 (N,); None if the contents are not available.
        """
        found = np.empty(0, np.uint64) if contents is None else np.unique(contents)
        return cls(found, np.unique(digests_of_texts(ids)), contents is not None)

    @classmethod
    def of_pairs(cls, *sides: EmbeddingSet) -> Self:
        """Build a record from paired embeddings; digests of vectors replace missing digests of contents."""
        contents = np.concatenate([_contents(side) for side in sides])
        known = any(side.contents is not None for side in sides)
        return cls(np.unique(contents), np.unique(digests_of_texts(sides[0].ids)), known)

    def __len__(self) -> int:
        return max(len(self.contents), len(self.ids))

    def joined(self, other: TrainedOn | None) -> TrainedOn:
        """Return the items of both records."""
        if other is None:
            return self
        contents, ids = (np.union1d(getattr(self, name), getattr(other, name)) for name in ("contents", "ids"))
        return TrainedOn(contents, ids, self.known and other.known)

    def among(self, embeddings: EmbeddingSet) -> NDArray[np.bool_]:
        """Return a mask of the items (N,) that are in this record.

        The same content under another id is found. Ids are compared only if the contents of one side are unknown.
        Purely numeric ids are never compared, because different files number their rows alike.
        """
        found = _within(self.contents, _contents(embeddings))
        if self.known and embeddings.contents is not None:
            return found
        named = np.fromiter((not _is_number(one) for one in embeddings.ids), np.bool_, len(embeddings))
        return found | (named & _within(self.ids, digests_of_texts(embeddings.ids)))

    def marked(self, embeddings: EmbeddingSet) -> EmbeddingSet:
        """Return embeddings with marks on the items that are in this record, or were marked before."""
        before, found = embeddings.trained_on, self.among(embeddings)
        return embeddings.replace(trained_on=found if before is None else before | found)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to store in its file, or in a part of another file."""
        return {"contents": self.contents, "ids": self.ids, "known": np.array([self.known])}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build a record from such arrays.

        Raises:
            DataError: The arrays are not those of a record.
        """
        contents, ids, known = (arrays.get(name) for name in ("contents", "ids", "known"))
        for values in (contents, ids):
            if values is None or values.dtype != np.uint64 or values.ndim != 1 or (values[1:] <= values[:-1]).any():
                raise DataError("The record of trained items is damaged.", expected="two sorted arrays of digests")
        if known is None or known.dtype != np.bool_ or known.shape != (1,):
            raise DataError("The record of trained items is damaged.", expected="whether contents are known")
        return cls(np.asarray(contents), np.asarray(ids), bool(known[0]))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a record from its file.

        Raises:
            DataError: The file cannot be read.
        """
        try:
            return cls.from_arrays(load_file(path))
        except (OSError, SafetensorError, ValueError) as error:
            raise DataError(
                f"'{path}' cannot be read: {reason(error)}.", expected="a record of trained items"
            ) from error

    def digest(self) -> str:
        """Return the sha256 of the record, 64 hexadecimal digits."""
        return hashlib.sha256(
            b"".join(np.ascontiguousarray(one).tobytes() for one in self.arrays().values())
        ).hexdigest()


def _contents(embeddings: EmbeddingSet) -> Digests:
    if embeddings.contents is not None:
        return embeddings.contents
    return digests_of(memoryview(row) for row in np.ascontiguousarray(embeddings.vectors))


def _within(known: Digests, asked: Digests) -> NDArray[np.bool_]:
    """Return a mask of the digests (N,) that are among sorted ones."""
    if not len(known):
        return np.zeros(len(asked), np.bool_)
    places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.asarray(known[places] == asked)


def _is_number(identifier: str) -> bool:
    return identifier.removeprefix("row ").isdigit()
