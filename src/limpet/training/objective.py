"""The training objective: loss terms of a method, seeds for its draws, and compatibility checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.geometry import Space
from limpet.methods.base import Batch, CompatibilityMethod, Head, LossAlone, OldModel, Step


class RunPosition(NamedTuple):
    """Position in a run at which random numbers are drawn."""

    epoch: int
    """Number of the epoch, from 0."""
    steps: int
    """Number of steps per epoch."""
    step: int
    """0 for the start of the epoch, from 1 for its steps."""


class Objective(nn.Module):
    """Model, head, method and learnable parameters of the space: the module that Fabric wraps.

    Maps a batch to named loss terms over the batches of all processes.
    """

    def __init__(
        self, model: nn.Module, head: Head, method: CompatibilityMethod, space: Space, processes: int = 1
    ) -> None:
        super().__init__()
        self.model, self.head, self.method, self.processes = model, head, method, processes
        self.space = space.parameters_of()
        self.shown_head = head
        if head.shard is not None:
            self.shown_head = LossAlone(head)
            names = [f"head.{name}" for name, _ in head.named_parameters()]
            self._ddp_params_and_buffers_to_ignore = names  # rows differ between processes and must not be averaged

    def forward(
        self, batch: Batch, old_features: Tensor | None, old_labels: Tensor, step: Any, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the method's terms and its penalty; losses never run in half precision."""
        whole = Batch(batch.inputs, *(together(rows, self.processes) for rows in batch[1:]))
        features = self.model(changed_inputs(self.method, whole, generator, self.processes))
        old = None if old_features is None else together(old_features, self.processes)
        seen = together(features, self.processes), old, together(old_labels, self.processes)
        return named_terms(self.method, self.model, lambda: step(self.shown_head, whole, *seen), features.device.type)


def named_terms(
    method: CompatibilityMethod, model: nn.Module, step: Callable[[], Step], device_type: str
) -> dict[str, Tensor]:
    """Return the terms of a method and its penalty; losses, and the views of a step, are never in half precision."""
    with torch.autocast(device_type, enabled=False):
        terms: dict[str, Tensor] = method(step())
        return terms | method.penalty(model)


def total(terms: Mapping[str, Tensor]) -> Tensor:
    """Return the sum of named terms, a scalar: the loss."""
    return torch.stack(list(terms.values())).sum()


def seed_at(place: RunPosition, seed: int) -> int:
    """Return the seed of a method's draws at a position in the run, so that resuming is exact and processes agree."""
    return (seed * 1_000_003 + place.epoch * (place.steps + 1) + place.step) % 2**63


def refuse_mismatch(
    method: CompatibilityMethod,
    head: Head,
    space: Space,
    old: OldModel | None,
    items: int,
    class_names: Sequence[str],
) -> None:
    """Refuse a method, space, predecessor and training set of N items that do not fit, before any computation.

    Raises:
        ConfigError: The method or head does not support the space, or the predecessor is missing.
        SpaceMismatchError: The predecessor has another space or dimension.
        DataError: The old embeddings are not raw features of the training set, or have other classes.
    """
    name = type(method).__name__
    if space.name not in method.spaces:
        raise ConfigError(
            f"{name} does not know the space '{space.name}': {method.space_reason}.",
            expected=f"one of {', '.join(sorted(method.spaces))}",
            to_do="choose a method for this space: `limpet methods --json` lists the spaces of each.",
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
        _refuse_predecessor(old, space, items, class_names)


def _refuse_predecessor(old: OldModel, space: Space, items: int, class_names: Sequence[str]) -> None:
    """Refuse a predecessor whose embeddings are not raw features of this training set, for this space."""
    if not space.takes_features_of(old.embeddings.space):
        raise SpaceMismatchError(
            f"The old model's embeddings are on the {old.embeddings.space}, the new model's on the {space}.",
            expected="one space and one dimension for both",
            to_do=f"train the new model on the old one's space, with --dim {old.embeddings.space.dim}"
            + (
                "; or let old embeddings count as padded with zeros: old.padded(space)."
                if space.pads(old.embeddings.space)
                else "."
            ),
        )
    if len(old.embeddings) != items or old.embeddings.form != "features":
        raise DataError(
            f"{len(old.embeddings)} old embeddings, kept as {old.embeddings.form}, for {items} training items.",
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


def share(values: Iterable[Tensor], processes: int) -> None:
    """Broadcast values of the first process to all, in place; batch statistics and draws differ between processes."""
    if processes > 1:
        for value in values:
            torch.distributed.broadcast(value, 0)


def together(rows: Tensor, processes: int) -> Tensor:
    """Return the rows (N, ...) of all processes, in their order, as (processes · N, ...); N is the same in all.

    Every process computes the same loss over all rows, so it has the full gradient of its own rows and sends none.
    Gradients of weights are averaged over processes, hence the factor.
    """
    if processes == 1:
        return rows
    parts = [torch.empty_like(rows, memory_format=torch.contiguous_format) for _ in range(processes)]
    torch.distributed.all_gather(parts, rows.detach().contiguous())
    if rows.requires_grad:
        own = rows.clone()
        own.register_hook(lambda gradient: processes * gradient)  # type: ignore[no-untyped-call]
        parts[torch.distributed.get_rank()] = own
    return torch.cat(parts)


def changed_inputs(method: CompatibilityMethod, batch: Batch, generator: torch.Generator, processes: int) -> Tensor:
    """Return the inputs for the model of this process; a method that changes inputs gets those of all processes.

    Args:
        method: Method that may change the inputs.
        batch: The inputs of this process (B, ...), and all other values of all processes.
        generator: Random generator for the method.
        processes: Number of processes.
    """
    if type(method).change_inputs is CompatibilityMethod.change_inputs:
        return batch.inputs
    changed = method.change_inputs(batch._replace(inputs=together(batch.inputs, processes)), generator)
    return changed.chunk(processes)[torch.distributed.get_rank() if processes > 1 else 0]
