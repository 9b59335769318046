from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.geometry import Hypersphere, Space

Make = Callable[..., EmbeddingSet]


@pytest.fixture
def items() -> Make:
    """Points of a space with labels; names of classes are letters, ids count."""

    def make(
        vectors: Sequence[Sequence[float]] | np.ndarray,
        labels: Sequence[int],
        space: Space | None = None,
        names: str = "abcdefgh",
        model: str = "old",
        **values: object,
    ) -> EmbeddingSet:
        found = np.asarray(vectors, np.float32)
        return EmbeddingSet(
            ids=[f"i{row}" for row in range(len(found))],
            vectors=found,
            fingerprint=f"declared:{model}",
            space=space or Hypersphere(found.shape[1]),
            labels=np.asarray(labels, np.int64),
            class_names=list(names),
            **values,
        )

    return make
