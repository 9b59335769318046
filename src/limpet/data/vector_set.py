"""Embeddings of a frozen model as training items for a compatible head."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from limpet.data.items import check_class_rows
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.embeddings.embedding_set import joined
from limpet.errors import DataError


@dataclass(frozen=True, eq=False)
class VectorSet:
    """N vectors of one frozen model, of which the first L are labelled.

    Args:
        embeddings: Vectors (L, F) with labels and class names; every class has an item.
        unlabelled: Vectors (N - L, F) of other items, without labels; None if there are none.

    Raises:
        DataError: There are no labels or class names, a class has no item, or an item is in both sets.
    """

    kind: ClassVar[str] = "vectors"

    embeddings: EmbeddingSet
    unlabelled: EmbeddingSet | None = None

    def __post_init__(self) -> None:
        labels = self.labels[: len(self.embeddings)]
        check_class_rows(labels, len(self.class_names), "items")
        empty = len(self.class_names) - len(np.unique(labels))
        if empty:
            raise DataError(
                f"{empty} of {len(self.class_names)} classes have no item.",
                to_do="VectorSet.of(embeddings) drops the classes that are not used.",
            )

    @classmethod
    def of(cls, embeddings: EmbeddingSet, unlabelled: EmbeddingSet | None = None) -> Self:
        """Build from labelled and unlabelled embeddings; classes without an item are dropped.

        A label without a name is named after its number.

        Raises:
            DataError: The embeddings have no labels.
        """
        if embeddings.labels is None:
            raise DataError(
                f"These {len(embeddings)} embeddings have no labels.",
                expected="a class for every item, to train a head",
                to_do="give labels with either side, or fit an adapter, which needs none.",
            )
        used, labels = np.unique(embeddings.labels, return_inverse=True)
        given = embeddings.class_names
        names = used.astype(str).tolist() if given is None else [given[int(row)] for row in used]
        return cls(embeddings.replace(labels=labels.astype(np.int64), class_names=StringArray.of(names)), unlabelled)

    @cached_property
    def all(self) -> EmbeddingSet:
        """All N vectors, without labels if some have none."""
        return self.embeddings if self.unlabelled is None else joined([self.embeddings, self.unlabelled])

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Class of every vector (N,), -1 if unknown."""
        known = np.empty(0, np.int64) if self.embeddings.labels is None else self.embeddings.labels
        return np.concatenate([known, np.full(len(self.all) - len(known), -1, np.int64)])

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name per class."""
        return tuple(self.embeddings.class_names or ())

    @property
    def ids(self) -> StringArray:
        """One text per vector (N)."""
        return self.all.ids

    def __len__(self) -> int:
        return len(self.all)

    def __repr__(self) -> str:
        return f"VectorSet({len(self)} vectors of {self.embeddings.dim} values, {len(self.class_names)} classes)"

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the chosen vectors, float32 (n, F)."""
        return np.ascontiguousarray(self.all.vectors[rows])

    def digest(self) -> str:
        """Return a sha256 over vectors, ids, labels and class names of both sets, 64 hexadecimal digits."""
        if self.unlabelled is None:
            return self.embeddings.digest()
        return hashlib.sha256(f"{self.embeddings.digest()};{self.unlabelled.digest()}".encode()).hexdigest()

    def digests(self) -> NDArray[np.uint64] | None:
        """Return the digest of every item's content (N,); None if one of them is unknown."""
        return self.all.contents
