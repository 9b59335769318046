"""How the values of images, and of the weights of convolutions, lie in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def laid_out(inputs: Tensor, channels_last: bool) -> Tensor:
    """Return inputs of the same values; images (B, channels, height, width) lie as `torch.channels_last` if asked."""
    return inputs.contiguous(memory_format=torch.channels_last) if channels_last and inputs.ndim == 4 else inputs


@contextmanager
def weights_channels_last(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let the weights of convolutions lie as `torch.channels_last` for a while; their values stay."""
    for module in modules:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        yield
    finally:
        for module in modules:
            module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def lay_out_state(optimizer: Optimizer) -> None:
    """Let what an optimiser remembers of each parameter lie in memory as that does, as if it had never been saved."""
    for parameter, state in optimizer.state.items():
        for name, values in state.items():
            if values.shape == parameter.shape and values.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter).copy_(values)
