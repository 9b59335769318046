"""Validation of the inputs of a custom training loop, and their conversion to the values that methods read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.embeddings.conversion import int64_labels
from limpet.errors import ConfigError, DataError, SpaceMismatchError, brief
from limpet.geometry import Space
from limpet.methods.base import EVERY_SPACE, Head, View

RowSelection = NDArray[Any] | Tensor
"""Embeddings (N, D) of any floating-point type, or labels (N,) of any integer type."""


class OwnClassifier(Head):
    """A user-defined classifier from embeddings (B, D) to scores (B, C), such as a linear layer.

    Args:
        classifier: The module; methods that rotate class rows require its ``weight`` (C, D).
    """

    spaces = EVERY_SPACE

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def logits(self, view: View) -> Tensor:
        """Return the scores (B, C) of raw embeddings."""
        scores: Tensor = self.classifier(view.features)
        return scores

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # a tensor of those that have one
        """The rows of the classes (C, D).

        Raises:
            ConfigError: The classifier has no such weight.
        """
        found = getattr(self.classifier, "weight", None)
        if not isinstance(found, Tensor) or found.dim() != 2:
            raise ConfigError(
                f"The method reads the weights of the classifier, and {type(self.classifier).__name__} has no such.",
                expected="a module with `weight`, one row for each class (C, D), such as torch.nn.Linear",
            )
        return found


def shape_of(values: object) -> str:
    """Describe the type and shape of a value, for messages.

    >>> shape_of(torch.zeros(2, 3)), shape_of((1, 2)), shape_of(None)
    ('a torch.float32 tensor of shape (2, 3)', 'a tuple of 2', 'None')
    """
    if isinstance(values, Tensor):
        return f"a {values.dtype} tensor of shape {tuple(values.shape)}"
    if isinstance(values, np.ndarray):
        return f"a {values.dtype} array of shape {values.shape}"
    if isinstance(values, (tuple, list, dict)):
        return f"a {type(values).__name__} of {len(values)}"
    return "None" if values is None else f"a {type(values).__name__}"


def checked_features(values: object, what: str) -> NDArray[np.float32]:
    """Return embeddings (N, D) as float32 on the CPU.

    Raises:
        DataError: The values are not a floating-point array or tensor with two axes.
    """
    if isinstance(values, Tensor):
        values = values.detach().float().cpu().numpy() if values.is_floating_point() else values.detach().cpu().numpy()
    if not isinstance(values, np.ndarray) or values.ndim != 2 or not np.issubdtype(values.dtype, np.floating):
        raise DataError(
            f"{what} is {shape_of(values)}.",
            expected="a NumPy array or a tensor of floating numbers (items, dimension), row by row, or an EmbeddingSet",
        )
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, and are then refused
        return values.astype(np.float32)


def checked_classes(values: object, items: int, what: str) -> NDArray[np.int64]:
    """Return the class of every one of N items, int64 (N,), on the CPU.

    Raises:
        DataError: The values are not integers (N,).
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    found = np.asarray(values) if isinstance(values, (list, tuple)) else values
    whole = isinstance(found, np.ndarray) and np.issubdtype(found.dtype, np.integer)
    if not isinstance(found, np.ndarray) or not whole or found.shape != (items,):
        raise DataError(
            f"{what} is {shape_of(values)}.",
            expected=f"the class of each of the {items} items, whole numbers of shape ({items},)",
        )
    return int64_labels(found, what)


@dataclass(frozen=True)
class Classes:
    """The classes of the training set, by the numbers that the loop uses.

    Args:
        numbers: Class numbers, sorted and unique, int64 (C,).
    """

    numbers: NDArray[np.int64]
    names: Sequence[str]

    @classmethod
    def counted(cls, labels: NDArray[np.int64] | None, count: int | None) -> Classes | None:
        """Return the classes 0 to ``count`` - 1, or those that occur; None if neither is known."""
        if count is not None:
            numbers = np.arange(count)
        elif labels is not None and len(labels):
            numbers = np.unique(labels)
        else:
            return None
        return cls(numbers, [str(number) for number in numbers])

    def name_of(self, one: object) -> str:
        """Return the name of a class given by its number or by its name; an unknown number is its own name."""
        if isinstance(one, str):
            return one
        row = int(np.searchsorted(self.numbers, int(one)))  # type: ignore[call-overload]
        return self.names[row] if row < len(self.numbers) and self.numbers[row] == one else str(one)

    def rows(self, labels: NDArray[np.int64], what: str) -> NDArray[np.int64]:
        """Return the row of the class of every item (N,).

        Raises:
            DataError: An item has an unknown class.
        """
        rows = np.searchsorted(self.numbers, labels).clip(max=len(self.numbers) - 1)
        unknown = np.unique(labels[self.numbers[rows] != labels])
        if len(unknown):
            raise unknown_classes(what, unknown.tolist(), self)
        return rows


def unknown_classes(what: str, unknown: Sequence[int], classes: Classes) -> DataError:
    """Build the error for labels that are no class of the training set."""
    numbers = classes.numbers
    shown = ", ".join(map(str, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
    known = (
        f"{numbers[0]} to {numbers[-1]}" if len(numbers) == numbers[-1] - numbers[0] + 1 else brief(numbers.tolist())
    )
    several = len(unknown) > 1
    return DataError(
        f"{what} holds the class{'es' if several else ''} {shown}, which {'are' if several else 'is'} none of the "
        "training set.",
        expected=f"the {len(numbers)} classes of the training set: {known}",
        to_do="pass the labels of the whole training set as old_labels, or the number of its classes as classes=; or "
        "leave such items out of the batch.",
    )


def checked_batch(values: object, what: str, space: Space, items: int | None = None) -> Tensor:
    """Return the embeddings of a batch (B, D), or refuse other values; finiteness is not checked.

    Args:
        values: Value that the loop passed.
        what: Name of the value, for messages.
        space: Space of the features.
        items: Required number of items; None for any number.

    Raises:
        DataError: The values are not a floating-point tensor with a row for each item.
        SpaceMismatchError: Their dimension is not that of the space.
    """
    expected = f"a tensor of floating numbers ({'items' if items is None else items}, {space.dim})"
    if not isinstance(values, Tensor):
        inside = " Take the one that holds the embeddings, such as output[0]." if _holds_tensors(values) else ""
        array = " torch.from_numpy(array) makes one." if isinstance(values, np.ndarray) else ""
        raise DataError(f"{what} is {shape_of(values)}.", expected=expected, to_do=f"{inside}{array}".strip())
    if not values.is_floating_point():
        raise DataError(
            f"{what} is {shape_of(values)}, which are no floating numbers.",
            expected=expected,
            to_do="pass what the model returns; labels come after the embeddings.",
        )
    if values.dim() != 2:
        raise DataError(f"{what} is {shape_of(values)}.", expected=expected)
    if values.shape[1] != space.dim:
        raise SpaceMismatchError(
            f"{what} has {values.shape[1]} dimensions, and the old model embeds on the {space}.",
            expected="one dimension for both, since new queries search old vectors",
            to_do=f"give the new model a last layer of {space.dim} dimensions.",
        )
    if items is not None and len(values) != items:
        raise DataError(
            f"{what} has {len(values)} rows, and the batch {items} items.", expected="one row for each item, in order"
        )
    return values


def _holds_tensors(values: object) -> bool:
    return isinstance(values, (tuple, list)) and any(isinstance(one, Tensor) for one in values)


def checked_numbers(values: object, what: str, items: int, device: torch.device) -> Tensor:
    """Return the integers of a batch (B,), as int64 on a device.

    Raises:
        DataError: The values are not an integer tensor of this length.
    """
    whole = isinstance(values, Tensor) and not (values.is_floating_point() or values.is_complex())
    if not isinstance(values, Tensor) or not whole or values.dtype == torch.bool or values.shape != (items,):
        raise DataError(f"{what} is {shape_of(values)}.", expected=f"a tensor of whole numbers of shape ({items},)")
    if values.dtype == torch.uint64:
        values = torch.from_numpy(int64_labels(values.cpu().numpy(), what))
    return values.to(device, torch.int64)


def checked_mask(values: object, what: str, items: int, device: torch.device) -> Tensor:
    """Return a boolean mask over the items of a batch (B,), on a device.

    Raises:
        DataError: The value is not a boolean tensor of this length.
    """
    if not isinstance(values, Tensor) or values.dtype != torch.bool or values.shape != (items,):
        raise DataError(f"{what} is {shape_of(values)}.", expected=f"a tensor of true and false of shape ({items},)")
    return values.to(device)


def refuse_not_finite(values: Tensor, what: str) -> None:
    """Raise an error if an embedding of a batch is not finite; waits for the device.

    Raises:
        DataError: The message names the rows.
    """
    finite = torch.isfinite(values.detach()).all(dim=1)
    if not bool(finite.all()):
        rows = (~finite).nonzero()[:, 0].tolist()
        raise DataError(
            f"{what} holds NaN or infinite values in {len(rows)} of {len(values)} rows, first: row {rows[0]}.",
            expected="finite numbers",
            to_do="lower the learning rate or look at these items.",
            intact="Nothing was changed.",
        )


def refuse_out_of_reach(values: Tensor, what: str, space: Space) -> None:
    """Raise an error if embeddings are too long for the precision of a space with lengths; waits for the device.

    Raises:
        DataError: The message names the first row.
    """
    if not space.lengths_count:
        return
    wrong = space.settled().check_features(values.detach().float().cpu().numpy())
    if len(wrong):
        raise DataError(
            f"{what} holds {len(wrong)} embeddings too long for the {space}, first: row {int(wrong[0])}.",
            expected="tangent vectors at the origin, shorter than 4/√K",
            to_do="clip their lengths in the model, as limpet's encoders do: 1.0 for a first model, 0.2 more for "
            "each that follows.",
        )


def features_set(embeddings: object, labels: object, classes: Classes | None, space: Space, what: str) -> EmbeddingSet:
    """Return raw features of a training set as a set, from arrays; row numbers become its ids.

    Args:
        embeddings: (N, D).
        labels: (N,), or None.
        classes: Classes of the labels; None without labels.
        space: Space of the features.
        what: Name of the embeddings, for messages.
    """
    vectors = checked_features(embeddings, what)
    rows = None
    if labels is not None and classes is not None:
        rows = classes.rows(checked_classes(labels, len(vectors), f"{what.partition('_')[0]}_labels"), "old_labels")
    return EmbeddingSet(
        ids=StringArray.of(f"row {row}" for row in range(len(vectors))),
        vectors=vectors,
        fingerprint="declared:old",
        space=space.settled(),
        form="features",
        labels=rows,
        class_names=None if classes is None else StringArray.of(classes.names),
    )
