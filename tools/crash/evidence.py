"""Evaluations of two compatible models, whose vectors may be mixed, and of two incompatible ones."""

from __future__ import annotations

from functools import cache

import numpy as np

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.results import Evaluation
from limpet.geometry import Euclidean, Hypersphere, Space

ITEMS, CLASSES = 96, 6


def items(name: str, noise: float, space: Space, *, turned: bool = False) -> EmbeddingSet:
    """Return embeddings of items in classes.

    Args:
        name: Name of the model.
        noise: Standard deviation of the noise that is added to the class vectors.
        space: Space of the embeddings.
        turned: Whether to rotate the vectors, so that they cannot be compared with those of another model.
    """
    draw = np.random.default_rng(0 if name == "old" else 1)
    labels = np.arange(ITEMS) % CLASSES
    vectors = np.eye(space.dim)[labels] + noise * draw.normal(size=(ITEMS, space.dim))
    if turned:
        vectors = vectors @ np.linalg.qr(draw.normal(size=(space.dim, space.dim)))[0]
    return EmbeddingSet(
        ids=StringArray.of(f"i{row}" for row in range(ITEMS)),
        vectors=vectors.astype(np.float32),
        fingerprint=f"declared:{name}",
        space=space,
        labels=labels,
        class_names=StringArray.of(f"c{label}" for label in range(CLASSES)),
    )


@cache
def evaluation(
    *, compatible: bool = True, dim: int = 8, new: str = "new", euclidean: bool = False, mixing: bool = True
) -> Evaluation:
    """Return the evaluation of a new model against "old", compatible or not."""
    space = Euclidean(dim) if euclidean else Hypersphere(dim)
    old, made = items("old", 0.5, space), items(new, 0.25, space, turned=not compatible)
    return evaluate(old, made, curve=False, resamples=200, mixing=0.01 if mixing else None)
