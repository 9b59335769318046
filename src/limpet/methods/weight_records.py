"""What the learners that hold weights in their place keep of every weight, and how it is handed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from limpet.errors import ConfigError
from limpet.losses.importance import Tensors


class WeightRecords(nn.Module):
    """One tensor for every weight, as buffers, so that they move and are saved with the method.

    Args:
        found: Tensors by the names of the weights; copied. None for no weight at all.
        persistent: Whether checkpoints hold them; not needed for what `prepare` finds again.
    """

    def __init__(self, found: Tensors | None = None, *, persistent: bool = True) -> None:
        super().__init__()
        # names of weights have dots, those of buffers must not; and a weight may have the name of an attribute
        self.places = {name: f"of/{name.replace('.', '/')}" for name in found or {}}
        for name, place in self.places.items():
            self.register_buffer(place, (found or {})[name].detach().clone(), persistent=persistent)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors themselves, by the names of the weights."""
        return {name: self.get_buffer(place) for name, place in self.places.items()}

    def update(self, found: Tensors) -> None:
        """Overwrite all of them, in place."""
        for name, buffer in self.tensors().items():
            buffer.copy_(found[name].detach())


def trained_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that take a gradient, by name; frozen ones cannot move and need no record.

    >>> model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    >>> list(trained_weights(model.requires_grad_(False)))
    []
    >>> list(trained_weights(model[1].requires_grad_()))
    ['weight', 'bias']
    """
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def grouped(**groups: Tensors) -> dict[str, Tensor]:
    """Put tensors by weight into one mapping, which a method hands to its next session; see `group_of`.

    >>> import torch
    >>> list(grouped(fisher={"a.b": torch.ones(1)}, scores={"a.b": torch.zeros(1)}))
    ['fisher.a.b', 'scores.a.b']
    """
    return {f"{group}.{name}": values for group, found in groups.items() for name, values in found.items()}


def group_of(found: Mapping[str, Tensor], group: str) -> dict[str, Tensor]:
    """Return the tensors of one group by the names of the weights; empty where nothing was handed on.

    >>> import torch
    >>> group_of({"fisher.a.b": torch.ones(1), "scores.a.b": torch.zeros(1)}, "fisher")
    {'a.b': tensor([1.])}
    """
    return {name.removeprefix(f"{group}."): found[name] for name in found if name.startswith(f"{group}.")}


def refuse_other_weights(found: Tensors, model: nn.Module, method: str) -> None:
    """Stop where records were handed on, but not of the very weights that this session trains.

    Raises:
        ConfigError: A weight is new, gone, frozen since, or has another shape.
    """
    weights = {name: weight.shape for name, weight in trained_weights(model).items()}
    kept = {name: values.shape for name, values in found.items()}
    different = sorted(name for name in weights.keys() | kept.keys() if weights.get(name) != kept.get(name))
    if kept and different:
        raise ConfigError(
            f"{method} was handed records of other weights: {', '.join(different[:3])} and {len(different)} in all "
            "are new, gone, frozen or of another shape.",
            expected="the network of the session before, with the same weights in training",
            to_do="keep backbone, dimension, projection and what is frozen from session to session.",
        )


@contextmanager
def evaluated(*modules: nn.Module) -> Iterator[None]:
    """Put modules into evaluation mode meanwhile; afterwards every part is in its former mode."""
    modes = {part: part.training for module in modules for part in module.modules()}
    try:
        for module in modules:
            module.eval()
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
