"""Compute devices by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from limpet.errors import ConfigError

if TYPE_CHECKING:
    import torch

DataOnDevice = Literal["auto", "always", "never"]
"""Location of the items of a training set: on the device, in host memory, or on the device if they fit."""


def device_named(name: str | torch.device) -> torch.device:
    """Return an available device by name.

    Raises:
        ConfigError: The name is unknown, or the device is not available.

    >>> device_named("cpu")
    device(type='cpu')
    """
    import torch

    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # fails on a device without storage, such as meta
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(
            f"The device '{name}' cannot be used: {str(error).splitlines()[0].split('. ')[0]}",
            expected="cpu, or an accelerator of this machine, such as cuda, cuda:1 or mps",
            to_do="leave the device out to compute on the processor.",
        ) from error
    return device
