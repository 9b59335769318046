"""What methods ask of the predecessor, or refuse for want of it before training starts."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, EmptyOverlapError
from limpet.geometry import Space
from limpet.geometry.segments import add_by_class
from limpet.methods.base import Head, OldModel, Step

BLOCK = 65_536  # rows at a time


def require_old(old: OldModel | None, method: str) -> OldModel:
    """Return the predecessor, or refuse before anything is computed.

    Raises:
        ConfigError: There is no predecessor.
    """
    if old is None:
        raise ConfigError(
            f"The method '{method}' was given no old model.",
            expected="the release that embedded the gallery",
            to_do="pass --old RELEASE, or train without a predecessor: --method independent.",
        )
    return old


def by_option(method: str, option: str, value: str | int | bool) -> str:
    """Return how an option of a method is set, on the command line and from Python, for messages.

    >>> by_option("l2", "power", 2)
    "--method-options.power 2 (with several methods, --method-options.l2.power 2; from Python, options={'power': 2})"
    """
    typed = f"{option.replace('_', '-')} {value if isinstance(value, str) else json.dumps(value)}"
    return (
        f"--method-options.{typed} (with several methods, --method-options.{method}.{typed}; from Python, "
        f"options={{{option!r}: {value!r}}})"
    )


def labelled_features(embeddings: EmbeddingSet) -> tuple[Tensor, Tensor, int]:
    """Return features (N, D), labels (N,) and the number of classes of a labelled set.

    Raises:
        DataError: The set has no labels or no class names.
    """
    labels, classes = _labels(embeddings)
    return torch.from_numpy(np.array(embeddings.vectors)), labels, classes


def _labels(embeddings: EmbeddingSet) -> tuple[Tensor, int]:
    if embeddings.labels is None or embeddings.class_names is None:
        raise DataError(
            "The old model's embeddings carry no classes.",
            expected="labels and class names",
            to_do="embed a labelled training set: one folder per class, or labels in the file.",
        )
    return torch.from_numpy(np.array(embeddings.labels)), len(embeddings.class_names)


def class_prototypes(embeddings: EmbeddingSet, space: Space) -> tuple[Tensor, Tensor]:
    """Return the mean point (C, D) of every class under the model that made ``embeddings``, and the counts (C,).

    Raises:
        DataError: The set has no classes, or one of them has no item.
    """
    labels, classes = _labels(embeddings)
    sums, counts = torch.zeros(classes, space.summed_dim), torch.zeros(classes)
    for start in range(0, len(labels), BLOCK):  # millions of rows stay in their file
        block = slice(start, start + BLOCK)
        features = torch.from_numpy(np.array(embeddings.vectors[block]))
        add_by_class(sums, counts, space.summed(space.project(features)), labels[block])
    prototypes = space.centre(sums, counts)
    empty = int((counts == 0).sum())
    if empty:
        raise DataError(
            f"{empty} of {classes} classes have no item, so there is no mean to align them to.",
            to_do="drop the unused classes: ImageSet.compact() does.",
        )
    return prototypes, counts


def frozen(module: Head) -> Head:
    """Return a copy that takes no gradient."""
    return copy.deepcopy(module).requires_grad_(False).eval()


def shares_classes(old: OldModel) -> bool:
    """Return whether the old classifier knows at least one class of the new training set, by name."""
    names = old.embeddings.class_names
    return names is not None and bool(set(old.classes) & set(names))


def rows_by_name(names: Sequence[str], wanted: Sequence[str]) -> Tensor:
    """Return the row in ``names`` of every wanted class (C,), or -1: classes match by name, never by number.

    >>> rows_by_name(["dog", "cat"], ["cat", "cow"]).tolist()
    [1, -1]
    """
    rows = {name: row for row, name in enumerate(names)}
    return torch.tensor([rows.get(name, -1) for name in wanted], dtype=torch.int64)


def class_source(old: OldModel, classes: Literal["old", "new"], method: str) -> tuple[Tensor, Tensor, int, Tensor]:
    """Return where statistics of the old classes are measured, and which of them every new class has.

    Returns:
        Raw features (N, D) under the old model of the set that `source_set` chooses, their labels (N,), the number of
        classes they count, and for every new class (C,) its row among these, or -1.

    Raises:
        EmptyOverlapError: As `source_set`.
    """
    source, rows = source_set(old, classes, method)
    return (*labelled_features(source), rows)


def source_set(old: OldModel, classes: Literal["old", "new"], method: str) -> tuple[EmbeddingSet, Tensor]:
    """Return the set that the old classes are measured on, and for every new class (C,) its row there, or -1.

    Args:
        old: The predecessor.
        classes: "old", its own training set, in which classes new to the data do not occur; "new", the new training
            set, in which every class does.
        method: Name of the method, for the message.

    Raises:
        EmptyOverlapError: The old training set is not there, or shares no class with the new one.
    """
    names = list(old.embeddings.class_names or ())
    if classes == "new":
        return old.embeddings, torch.arange(len(names))
    own = old.own_training
    rows = rows_by_name(list(own.class_names or ()) if own is not None else [], names)
    if own is None or not (rows >= 0).any():
        missing = "is not available" if own is None else "shares no class with the new data"
        raise EmptyOverlapError(
            f"{method} measures its classes on the old model's own training set, which {missing}.",
            expected="the old training data (--old-data; own_embeddings of a loss), with classes of the new one",
            to_do=f"measure them on the new data: {by_option(method, 'classes', 'new')}.",
        )
    return own, rows


def select_known(values: Tensor, rows: Tensor) -> Tensor:
    """Return for every new class its row of ``values`` (C_o, ...), zeros where `class_source` knows none: (C, ...).

    >>> select_known(torch.tensor([5.0, 7.0]), torch.tensor([1, -1])).tolist()
    [7.0, 0.0]
    """
    unknown = (rows < 0).view(-1, *[1] * (values.dim() - 1))
    return values[rows.clamp_min(0)].masked_fill(unknown, 0)


class OldScores(nn.Module):
    """The frozen old classifier, whose classes are matched with columns of the new one by name.

    Args:
        old: The predecessor.
        method: Name of the method, for the message.
        without: Option of that method, and its value, that does without the old classifier.

    Raises:
        ConfigError: There is no old classifier, or it knows none of the new classes.
    """

    new_columns: Tensor
    old_columns: Tensor

    def __init__(self, old: OldModel, method: str, without: tuple[str, str | int]) -> None:
        super().__init__()
        rows = rows_by_name(old.classes, old.embeddings.class_names or ())
        if old.head is None or not bool((rows >= 0).any()):
            missing = "was discarded" if old.head is None else "shares no class with the new data"
            raise ConfigError(
                f"{method} compares scores with those of the old classifier, which {missing}.",
                expected="an old release with its classifier, and classes that it knows",
                to_do=f"do without it: {by_option(method, *without)}.",
            )
        self.classifier = frozen(old.head)
        self.register_buffer("new_columns", torch.nonzero(rows >= 0)[:, 0])
        self.register_buffer("old_columns", rows[rows >= 0])

    def forward(self, step: Step) -> tuple[Tensor, Tensor]:
        """Return the scores of the shared classes, the new classifier's of the new view and the old one's of the old.

        Both (B, S), in the order of the new classes; gradients flow through the first.
        """
        new = step.head.logits(step.new).index_select(1, self.new_columns)
        return new, self.classifier.logits(step.predecessor).index_select(1, self.old_columns).detach()
