"""Small made-up steps, predecessors and embeddings, for tests of methods: numbers that can be redone on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from limpet.embeddings import EmbeddingSet
from limpet.geometry import Hypersphere, Space
from limpet.methods.base import Epoch, Head, OldModel, Step, View

__all__ = ["PlainHead", "World", "make_embeddings", "make_epoch", "make_step", "make_world"]


class PlainHead(Head):
    """A linear softmax classifier without bias over raw features.

    Args:
        weight: Rows of the classes (C, D).
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def logits(self, view: View) -> Tensor:
        """Return inner products (B, C)."""
        return view.features @ self.weight.T


def make_step(
    new: Tensor, labels: ArrayLike | Tensor, head: Head, old: Tensor | None = None, *, space: Space | None = None,
    **values: Any,
) -> Step:  # fmt: skip
    """Build a step; what is not given is harmless.

    Args:
        new: Features of the new model (B, D).
        labels: Class of every item (B,).
        head: The classifier in training.
        old: Features of the old model (B, D).
        space: What both are projected onto; the hypersphere when left out.
        values: Other values of `Step`.
    """
    space = space or Hypersphere(new.shape[1])
    labels = torch.as_tensor(labels)
    harmless: dict[str, Any] = {
        "old_labels": labels,
        "index": torch.arange(len(labels)),
        "replayed": torch.zeros(len(labels), dtype=torch.bool),
        "progress": 0.0,
        "epoch": 0,
        "epochs": 1,
        "generator": torch.Generator().manual_seed(0),
    }
    old_view = None if old is None else View.of(old, space)
    return Step(new=View.of(new, space), old=old_view, labels=labels, head=head, **{**harmless, **values})


def make_epoch(new: Tensor, labels: ArrayLike | Tensor, *, space: Space | None = None, **values: Any) -> Epoch:
    """Build the start of an epoch from what the new model makes of the training set (N, D), and its labels (N,)."""
    space = space or Hypersphere(new.shape[1])
    labels, view = torch.as_tensor(labels), View.of(new, space)
    harmless: dict[str, Any] = {
        "index": 0,
        "total": 1,
        "training_size": len(new),
        "generator": torch.Generator().manual_seed(0),
        "new_embeddings": lambda: view,
        "new_prototypes": lambda: space.mean(view.points, labels, int(labels.max()) + 1)[0],
    }
    return Epoch(**{**harmless, **values})


def make_embeddings(
    vectors: ArrayLike, labels: ArrayLike, *, names: Sequence[str] | None = None, **values: Any
) -> EmbeddingSet:
    """Build a labelled set of raw features of an old model, with class names c0, c1, ..."""
    vectors, labels = np.asarray(vectors, np.float32), np.asarray(labels, np.int64)
    names = [f"c{row}" for row in range(int(labels.max()) + 1)] if names is None else names
    harmless: dict[str, Any] = {
        "ids": [f"item{row}" for row in range(len(vectors))],
        "fingerprint": "declared:old",
        "form": "features",
        "space": Hypersphere(vectors.shape[1]),
    }
    given: dict[str, Any] = {**harmless, "class_names": names, **values}
    return EmbeddingSet(vectors=vectors, labels=labels, **given)


@dataclass
class World:
    """A small predecessor: 6 classes of 8 items in 5 dimensions, four of them known to the old classifier.

    Args:
        space: Of both models.
        embeddings: What the predecessor makes of the training set.
        labels: Their classes (48,).
        old: The predecessor; its classes are c3, c2, c1, c0.
        head: The classifier in training.
        new: Features (48, 5) of a new model that does not agree with it.
        classes: How many there are.
    """

    space: Space
    embeddings: EmbeddingSet
    labels: NDArray[np.int64]
    old: OldModel
    head: Head
    new: Tensor
    classes: int = 6

    def epoch(self, **values: Any) -> Epoch:
        """Start an epoch of the new model."""
        return make_epoch(self.new, self.labels, space=self.space, **values)


def make_world(space: Space) -> World:
    """Build a small predecessor on a space of 5 dimensions."""
    embeddings, own, old_rows, rows, new = _made(space)
    assert embeddings.labels is not None
    old_head, head = (PlainHead(torch.tensor(values, dtype=torch.float32)) for values in (old_rows, rows))
    old = OldModel(embeddings=embeddings, classes=("c3", "c2", "c1", "c0"), head=old_head, own_training=own)
    return World(space, embeddings, embeddings.labels, old, head, torch.tensor(new, dtype=torch.float32))


@cache
def _made(space: Space) -> tuple[EmbeddingSet, EmbeddingSet, NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return both sets of the predecessor, the rows of both classifiers, and new features: what is always the same."""
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(6), 8)
    vectors = rng.normal(size=(6, 5))[labels] + 0.3 * rng.normal(size=(48, 5))
    vectors = vectors / 3 if space.lengths_count else vectors  # within reach of the space
    embeddings = make_embeddings(vectors, labels, space=space)
    own = embeddings[np.flatnonzero(labels < 4)]
    own = own.replace(class_names=["c3", "c2", "c1", "c0"], labels=3 - labels[labels < 4])
    return embeddings, own, rng.normal(size=(4, 5)), rng.normal(size=(6, 5)), vectors + rng.normal(size=(48, 5))
