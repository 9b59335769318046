"""Keeps the inputs of a whole training set on the training device, so they are read and copied only once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from limpet.errors import ConfigError
from limpet.methods.base import Batch
from limpet.support.devices import DataOnDevice


def moved(values: Tensor, device: torch.device | None) -> Tensor:
    """Return values on a device; None leaves them where they are. A copy to a CUDA device is asynchronous.

    Copies to other devices are synchronous, because values could otherwise be used before they have arrived.
    """
    return values.to(device, non_blocking=device is not None and device.type == "cuda")


def resident_inputs(loader: DataLoader[Batch], device: torch.device, choice: DataOnDevice) -> Tensor | None:
    """Copy the inputs of all items to a device, in the type in which they are read: images as uint8.

    Args:
        loader: Loader of all items, un-augmented and in dataset order.
        device: The device.
        choice: "never"; "always"; or "auto": only to a CUDA device, if they take at most half of its free memory.

    Returns:
        Inputs (N, ...), row i of item i; None if they are not copied.

    Raises:
        ConfigError: The device does not have enough memory.
    """
    if choice == "never" or (choice == "auto" and device.type != "cuda"):
        return None
    items: Any = loader.dataset
    kept: Tensor | None = None
    for batch in loader:
        if kept is None:
            needed = len(items) * batch.inputs[0].nbytes
            if choice == "auto" and not has_room(needed, torch.cuda.mem_get_info(device)[0]):
                return None
            kept = _room((len(items), *batch.inputs.shape[1:]), batch.inputs.dtype, device)
        first = int(batch.index[0])
        kept[first : first + len(batch.index)].copy_(batch.inputs, non_blocking=device.type == "cuda")
    return kept


def has_room(needed: int, free: int) -> bool:
    """Return whether a training set of `needed` bytes leaves half of the `free` bytes to training.

    >>> has_room(50, 100), has_room(51, 100)
    (True, False)
    """
    return 2 * needed <= free


def _room(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"The training set, {dtype} of shape {tuple(shape)}, does not fit into the memory of '{device}'.",
            to_do="--recipe.data-on-device auto puts it there only if it fits, no never does.",
        ) from error
