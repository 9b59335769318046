"""What a run trains, and what it refuses to start with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from holdfast.errors import ConfigError, DataError, SpaceMismatchError
from holdfast.geometry import Space
from holdfast.methods.base import Batch, CompatibilityMethod, Head, OldModel


class Objective(nn.Module):
    """Model, head, method and what is learned of the space: the one module that Fabric wraps.

    A batch in, named loss terms out.
    """

    def __init__(self, model: nn.Module, head: Head, method: CompatibilityMethod, space: Space) -> None:
        super().__init__()
        self.model, self.head, self.method = model, head, method
        self.space = space.parameters_of()

    def forward(
        self, batch: Batch, old_features: Tensor | None, old_labels: Tensor, step: Any, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the method's terms and its penalty; losses never run in half precision."""
        features = self.model(self.method.change_inputs(batch, generator))
        with torch.autocast(features.device.type, enabled=False):
            terms: dict[str, Tensor] = self.method(step(self.head, batch, features, old_features, old_labels))
            return terms | self.method.penalty(self.model)


def refuse_mismatch(
    method: CompatibilityMethod,
    head: Head,
    space: Space,
    old: OldModel | None,
    loader: DataLoader[Batch],
    class_names: Sequence[str],
) -> None:
    """Stop before anything is computed where method, space, predecessor and training set do not fit.

    Raises:
        ConfigError: Method or head do not know the space, or there is no predecessor.
        SpaceMismatchError: The predecessor has another space or dimension.
        DataError: The old embeddings are not raw features of the training set, or count other classes.
    """
    name = type(method).__name__
    if space.name not in method.spaces:
        raise ConfigError(
            f"{name} does not know the space '{space.name}': {method.space_reason}.",
            expected=f"one of {', '.join(sorted(method.spaces))}",
            to_do="choose a method for this space: `holdfast methods --json` lists the spaces of each.",
        )
    if space.name not in head.spaces:
        raise ConfigError(
            f"{type(head).__name__} does not read points of the {space}.",
            expected=f"a classifier for one of {', '.join(sorted(head.spaces))}",
        )
    if method.needs_old and old is None:
        raise ConfigError(
            f"{name} needs a predecessor and was given none.",
            expected="the release that embedded the gallery",
            to_do="pass --old RELEASE, or train without one: --method independent.",
        )
    if old is not None:
        _refuse_predecessor(old, space, loader, class_names)


def _refuse_predecessor(old: OldModel, space: Space, loader: DataLoader[Batch], class_names: Sequence[str]) -> None:
    """Stop where the predecessor's embeddings are not raw features of this very training set, for this space."""
    if not space.takes_features_of(old.embeddings.space):
        raise SpaceMismatchError(
            f"The old model's embeddings are on the {old.embeddings.space}, the new model's on the {space}.",
            expected="one space and one dimension for both",
            to_do=f"train the new model on the old one's space, with --dim {old.embeddings.space.dim}.",
        )
    items: Any = loader.dataset
    if len(old.embeddings) != len(items) or old.embeddings.form != "features":
        raise DataError(
            f"{len(old.embeddings)} old embeddings, kept as {old.embeddings.form}, for {len(items)} training items.",
            expected="raw features of the new training set, row by row",
            to_do="embed the training set with the old release, form='features'.",
        )
    names = old.embeddings.class_names
    if names is not None and list(names) != list(class_names):
        raise DataError(
            f"The old embeddings count their {len(names)} classes in another order than the training set's "
            f"{len(class_names)}, or have others.",
            expected="the same class names in the same order",
            to_do="embed this very training set with the old release, form='features'.",
        )
    if old.own_training is not None and old.own_training.space != old.embeddings.space:
        raise SpaceMismatchError(
            f"The old model's own training set is on the {old.own_training.space}, its embeddings of the new one on "
            f"the {old.embeddings.space}.",
            expected="both embedded by the same release",
            to_do="embed both with the old release.",
        )
