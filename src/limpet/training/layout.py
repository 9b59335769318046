"""Memory format of images and convolution weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def laid_out(inputs: Tensor, channels_last: bool) -> Tensor:
    """Return the inputs; images (B, channels, height, width) in the memory format `torch.channels_last` if asked."""
    return inputs.contiguous(memory_format=torch.channels_last) if channels_last and inputs.ndim == 4 else inputs


@contextmanager
def weights_channels_last(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Store convolution weights as `torch.channels_last` in the ``with`` block; their values stay."""
    for module in modules:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        yield
    finally:
        for module in modules:
            module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def lay_out_state(optimizer: Optimizer) -> None:
    """Give an optimiser's state of each parameter the memory format of the parameter, as before saving."""
    for parameter, state in optimizer.state.items():
        for name, values in state.items():
            if values.shape == parameter.shape and values.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter).copy_(values)
