"""What `ratios.py` times of metrics: rankings of 512 queries beside the bare product of their vectors.

Code that numba compiled is loaded before, as in a process that has measured something large.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.evaluation.retrieval import rank_metrics
from limpet.geometry import Hypersphere

DIM, QUERIES, ITEMS, TILE = 128, 512, 50_000, 16_384
NAMES = ("map", "recall@1", "map@r")
EASY, HARD = 1.0, 2.3  # noise: at most 1 %, or more than half of the scores exceed a query's lowest relevant one

Prepare = Callable[[Any, int], Callable[[], object]]


@cache
def sides(
    size: int, relevant: int | None, noise: float, asking: int = QUERIES, model: str = "declared:benchmark"
) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Return queries and a gallery in clusters.

    Args:
        size: Items of the gallery.
        relevant: Items of every class; None for classes of sizes by Zipf's law, a fiftieth as many as items.
        noise: Standard deviation of items around the centre of their class, relative to that of centres.
        asking: Queries.
        model: Fingerprint of the model.
    """
    rng = np.random.default_rng(0)
    if relevant is None:
        shares = 1 / np.arange(1, size // 50 + 1)
        labels = rng.choice(len(shares), size, p=shares / shares.sum())
    else:
        labels = np.arange(size) % max(1, size // relevant)
    centres = rng.standard_normal((labels.max() + 1, DIM), dtype=np.float32)
    asked = rng.choice(labels, asking)

    def drawn(classes: NDArray[np.int64]) -> EmbeddingSet:
        made = centres[classes] + np.float32(noise) * rng.standard_normal((len(classes), DIM), dtype=np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        ids = StringArray.of(map(str, range(len(made))))
        return EmbeddingSet(made, ids, model, Hypersphere(DIM), labels=classes)

    return drawn(asked), drawn(labels)


def ranking(relevant: int | None, noise: float) -> Prepare:
    """Measure mAP, recall and mAP@R of all queries."""
    return lambda _, size: _ranked(*sides(size, relevant, noise))


def of_relevant(_: Any, relevant: int) -> Callable[[], object]:
    """Measure the same with so many relevant items a query."""
    return _ranked(*sides(ITEMS, relevant, HARD))


def of_queries(_: Any, asking: int) -> Callable[[], object]:
    """Measure the same of so many queries."""
    return _ranked(*sides(ITEMS, 50, HARD, asking))


def _ranked(query: EmbeddingSet, gallery: EmbeddingSet) -> Callable[[], object]:
    with suppress(ImportError):  # numba is not installed, or the other checkout does not use it
        import limpet.evaluation.ranking.compiled_counting  # noqa: F401
    return lambda: rank_metrics(query, gallery, NAMES)


def multiplying(relevant: int | None, noise: float) -> Prepare:
    """Multiply all queries with the gallery, a tile at a time, and do nothing with the products."""

    def prepare(_: Any, size: int) -> Callable[[], object]:
        query, gallery = (one.vectors for one in sides(size, relevant, noise))

        def multiply() -> None:
            products = np.empty((QUERIES, TILE), np.float32)
            for start in range(0, size, TILE):
                part = gallery[start : start + TILE]
                np.matmul(query, part.T, out=products[:, : len(part)])

        return multiply

    return prepare
