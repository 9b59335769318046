"""Small embedded sets for the tests of protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.geometry import Hypersphere


def build(vectors: Any, labels: Any = None, *, prefix: str = "item", **values: Any) -> EmbeddingSet:
    vectors = np.asarray(vectors, np.float32)
    settings = {
        "ids": [f"{prefix}{row}" for row in range(len(vectors))],
        "fingerprint": "declared:test",
        "space": Hypersphere(vectors.shape[1]),
    }
    return EmbeddingSet(
        vectors=vectors, labels=None if labels is None else np.asarray(labels, np.int64), **{**settings, **values}
    )


@pytest.fixture(scope="session")
def make_items() -> Callable[..., EmbeddingSet]:
    """Build a set from vectors, labels and columns."""
    return build


@pytest.fixture(scope="session")
def make_rankings() -> Callable[..., tuple[EmbeddingSet, EmbeddingSet]]:
    """Build queries whose scores against a gallery of unit vectors are as given (Q, N), up to a factor per query."""

    def rankings(scores: Any, **gallery: Any) -> tuple[EmbeddingSet, EmbeddingSet]:
        scores = np.asarray(scores, np.float32)
        return build(scores, prefix="q"), build(np.eye(scores.shape[1]), **gallery)

    return rankings
