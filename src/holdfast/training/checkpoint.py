"""The state of an unfinished run in one safetensors file: nothing in it is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from holdfast.embeddings.storage import write_atomically
from holdfast.errors import ConfigError


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands.

    Args:
        identity: What the run is; a checkpoint of another run is refused.
        values: Plain values: position, history, best score.
        tensors: Named tensors: weights, buffers, optimiser, random states.
    """

    identity: dict[str, Any]
    values: dict[str, Any]
    tensors: dict[str, Tensor]


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint, replacing the one before wholly or not at all."""
    tensors = {name: values.detach().cpu().contiguous().clone() for name, values in checkpoint.tensors.items()}
    metadata = {"identity": json.dumps(checkpoint.identity, sort_keys=True), "values": json.dumps(checkpoint.values)}
    write_atomically(path, lambda part: save_file(tensors, part, metadata=metadata))


def load_checkpoint(path: Path, identity: Mapping[str, Any]) -> Checkpoint:
    """Read a checkpoint of this very run.

    Raises:
        ConfigError: The file is damaged or belongs to a run with other settings; it is left untouched.
    """
    try:
        with safe_open(path, framework="pt") as content:
            metadata = content.metadata()
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - not a mapping
        found, values = json.loads(metadata["identity"]), json.loads(metadata["values"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"The checkpoint '{path}' cannot be read: {error}.",
            expected="the state of an interrupted run",
            to_do="delete this file to start the run again from its beginning.",
        ) from error
    wanted = json.loads(json.dumps(identity))
    if found != wanted:
        different = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        raise ConfigError(
            f"The checkpoint '{path}' belongs to another run: {', '.join(different)} differ.",
            expected="the settings it was written with",
            to_do="use the same settings to continue, another --out to start anew, or delete the file.",
        )
    return Checkpoint(found, values, tensors)


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put a prefix before every name."""
    return {f"{prefix}.{name}": values for name, values in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose name starts with the prefix, under the rest of their name."""
    return {
        name.removeprefix(f"{prefix}."): values for name, values in tensors.items() if name.startswith(f"{prefix}.")
    }


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimiser that keeps tensors per parameter (SGD, Adam and their kin)."""
    state = optimizer.state_dict()["state"]
    return {
        f"{parameter}.{name}": torch.as_tensor(value)
        for parameter, values in state.items()
        for name, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` returned."""
    record = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for key, values in tensors.items():
        parameter, name = key.split(".", 1)
        state.setdefault(int(parameter), {})[name] = values
    optimizer.load_state_dict({"state": state, "param_groups": record["param_groups"]})
