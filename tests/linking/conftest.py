"""Embeddings of the same items by two models, and candidates that link them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from limpet.adapters import build_adapter
from limpet.embeddings import EmbeddingSet
from limpet.geometry import Hypersphere
from limpet.linking.compare import Candidate, FittedLink
from limpet.linking.held_out import HeldOut, hold_out

Sets = tuple[EmbeddingSet, EmbeddingSet]


@pytest.fixture(scope="session")
def points() -> Callable[..., EmbeddingSet]:
    """Build a set of unit rows named i0, i1, ..., or by the ids given."""

    def build(vectors: Any, model: str, labels: Any = None, **values: Any) -> EmbeddingSet:
        vectors = np.asarray(vectors, np.float64)
        vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        ids = values.pop("ids", [f"i{row}" for row in range(len(vectors))])
        labels = None if labels is None else np.asarray(labels, np.int64)
        return EmbeddingSet(vectors, ids, f"declared:{model}", Hypersphere(vectors.shape[1]), labels=labels, **values)

    return build


@pytest.fixture(scope="session")
def two_models(points: Callable[..., EmbeddingSet]) -> Callable[..., Sets]:
    """Draw an old and a better new model of the same items; labels, if any, come with the old one.

    ``wrong`` is the share of pairs whose partners are exchanged, without labels that could tell.
    """

    def build(items: int = 600, classes: int = 12, *, labelled: bool = True, wrong: float = 0.0) -> Sets:
        rng = np.random.default_rng(7)
        labels = np.arange(items) % classes
        causes = rng.normal(size=(classes, 10))[labels] + rng.normal(size=(items, 10))
        old, new = (
            (causes + noise * rng.normal(size=causes.shape)) @ rng.normal(size=(10, dim))
            for noise, dim in ((1.0, 8), (0.3, 14))
        )
        partner, moved = np.arange(items), rng.permutation(items)[: round(wrong * items)]
        partner[moved] = np.roll(partner[moved], 1)
        return points(old, "old", labels if labelled else None), points(new[partner], "new")

    return build


@pytest.fixture(scope="session")
def adapter() -> Callable[..., Candidate]:
    """Return the candidate of an adapter, under its own name or another one."""

    def build(kind: str, name: str | None = None, **options: Any) -> Candidate:
        return Candidate(
            name or kind,
            "adapter",
            lambda old, new, _: FittedLink.of_adapter(build_adapter(kind, options).fit(old, new)),
        )

    return build


@pytest.fixture(scope="session")
def labelled(two_models: Callable[..., Sets]) -> HeldOut:
    return hold_out(*two_models())


@pytest.fixture(scope="session")
def unlabelled(two_models: Callable[..., Sets]) -> HeldOut:
    return hold_out(*two_models(labelled=False))
