"""Devices to compute on, by the names that people give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from limpet.errors import ConfigError

if TYPE_CHECKING:
    import torch

DataOnDevice = Literal["auto", "always", "never"]
"""Where the items of a training set are kept: all on the device, all with the host, or on the device if they fit."""


def device_named(name: str | torch.device) -> torch.device:
    """Return a device that is there.

    Raises:
        ConfigError: The name is unknown, or there is no such device here.

    >>> device_named("cpu")
    device(type='cpu')
    """
    import torch

    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # a device without contents, such as meta, has nothing to say here
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(
            f"The device '{name}' cannot be used: {str(error).splitlines()[0].split('. ')[0]}",
            expected="cpu, or an accelerator of this machine, such as cuda, cuda:1 or mps",
            to_do="leave the device out to compute on the processor.",
        ) from error
    return device
