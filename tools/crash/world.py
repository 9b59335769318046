"""Expected vectors: a function of the model, the id of the item, and its current content."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.adapters import build_adapter
from limpet.adapters.base import Adapter
from limpet.embeddings import EmbeddingSet
from limpet.geometry import Hypersphere, Lorentz, Space

DIM = 8
SPACES: dict[str, Space] = {"hypersphere": Hypersphere(DIM), "lorentz": Lorentz(DIM, 1.0)}
COLOURS = ("red", "green", "blue")
COLUMNS = {"content": "integer", "colour": "text"}


@lru_cache(maxsize=100_000)
def _tangent(key: str) -> NDArray[np.float32]:
    return np.random.default_rng(zlib.crc32(key.encode())).standard_normal(DIM).astype(np.float32)


def points(model: str, contents: Sequence[tuple[str, int]], space: Space) -> NDArray[np.float32]:
    """Return a model's vectors (N, D) of items, each given as an id and the number of its content."""
    rows = [_tangent(f"{model}/{identifier}/{content}") for identifier, content in contents]
    found = np.array(rows, np.float32).reshape(len(rows), DIM)
    if isinstance(space, Hypersphere):
        found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found


def embedded(model: str, contents: Sequence[tuple[str, int]], space: Space, role: str = "document") -> EmbeddingSet:
    """Return a model's vectors of items as an `EmbeddingSet`."""
    vectors = points(model, contents, space)
    ids: Any = [identifier for identifier, _ in contents]
    return EmbeddingSet(ids=ids, vectors=vectors, fingerprint=model, space=space, role=role)  # type: ignore[arg-type]


@lru_cache
def adapter(new: str, old: str, seed: int) -> Adapter:
    """Return an adapter that maps queries of the new model to the old one, fitted on pairs that depend on the seed."""
    pairs = [(f"pair {number}", seed) for number in range(4 * DIM)]
    space = SPACES["hypersphere"]
    fitted = build_adapter("procrustes", {"direction": "new_to_old"})
    return fitted.fit(embedded(old, pairs, space), embedded(new, pairs, space))


def metadata(content: int) -> dict[str, Any]:
    """Return the metadata of an item with this content."""
    return {"content": content, "colour": COLOURS[content % 3]}


def unknown_to(model: str, identifier: str) -> bool:
    """Return whether the source of a model lacks an item: some sources have every item, others lack a few."""
    return zlib.crc32(model.encode()) % 2 == 1 and zlib.crc32(f"{model}?{identifier}".encode()) % 19 == 0
