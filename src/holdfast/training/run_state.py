"""What changes while a run goes on, and how an interrupted run gets all of it back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from holdfast.errors import DataError
from holdfast.methods.base import OldModel
from holdfast.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    optimizer_tensors,
    prefixed,
    restore_optimizer,
    save_checkpoint,
    without_prefix,
)
from holdfast.training.history import History
from holdfast.training.layout import lay_out_state
from holdfast.training.objective import Objective

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def run_identity(
    given: Mapping[str, Any],
    objective: Objective,
    optimizer: Optimizer,
    old: OldModel | None,
    *,
    class_names: Sequence[str],
    steps: int,
    epochs: int,
    seed: int,
    processes: int,
    channels_last: bool,
) -> dict[str, Any]:
    """Return the plain values by which a checkpoint is known as one of this very run.

    Args:
        given: What the caller knows of the run beyond the loop: data, learning rate, options, ...
        objective: What is trained.
        optimizer: What trains it.
        old: What is known of the predecessor.
        class_names: Names of the classes that the labels count.
        steps: Of an epoch.
        epochs: Passes over the training set.
        seed: Of the run.
        processes: How many share the work.
        channels_last: Whether images lie as `torch.channels_last`; told only then, for checkpoints from before it.
    """
    return {
        **given,
        "method class": type(objective.method).__name__,
        "epochs": epochs,
        "seed": seed,
        "steps": steps,
        "classes": list(class_names),
        "optimizer": type(optimizer).__name__,
        "processes": processes,
        "shapes": {name: list(value.shape) for name, value in objective.state_dict().items()},
        "old": old.embeddings.fingerprint if old is not None else None,
        **({"channels last": True} if channels_last else {}),
    }


@dataclass
class RunState:
    """Where a run stands.

    Args:
        objective: What is trained; its weights and buffers are part of the state.
        optimizer: What trains it, with all that it remembers.
        fabric: Device and processes.
        path: File that keeps the state; None keeps none.
        identity: What the run is; the state of another run is refused.
        history: Of the run so far.
        sums: Every loss term, added up since the epoch began, as scalars on the device.
        measures: What the method measured at the start of the epoch.
        best: The objective's state at the end of the best epoch; empty where none is chosen.
        started: When the run would have begun had it never been interrupted, on the monotonic clock.
    """

    objective: Objective
    optimizer: Optimizer
    fabric: Fabric
    path: Path | None
    identity: dict[str, Any]
    history: History = field(default_factory=History)
    sums: dict[str, Tensor] = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)
    best: dict[str, Tensor] = field(default_factory=dict)
    started: float = 0.0

    def add(self, losses: Mapping[str, Tensor]) -> None:
        """Add the loss terms of one step to the sums of the epoch."""
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value

    def take_means(self, steps: int) -> dict[str, float]:
        """Return the mean of every loss term over the steps of an epoch, and begin new sums."""
        means = {name: (total / steps).item() for name, total in self.sums.items()}
        self.sums = {}
        return means

    def keep_if_best(self, epoch: int, score: float) -> None:
        """Keep the weights of this epoch if no earlier one, all of which are in the history, scored as high."""
        previous = self.history.best_epoch
        if previous is None or score > self.history.epochs[previous]["score"]:
            self.history.best_epoch = epoch
            self.best = {name: value.detach().clone() for name, value in self.objective.state_dict().items()}

    def refuse_not_finite(self, epoch: int) -> None:
        """Stop where the loss left the numbers, before a broken model replaces a whole one on disk.

        Raises:
            DataError: It did.
        """
        sums = {name: total.item() for name, total in self.sums.items()}
        if not np.isfinite(sums["loss"]):
            raise DataError(
                f"The loss became {sums['loss']} in epoch {epoch + 1}; sums of its terms: {sums}.",
                expected="finite loss terms",
                to_do="lower the learning rate or set a clip norm, and use another --out; nothing broken was saved.",
            )

    def save(self, epoch: int, step: int) -> None:
        """Write the state to the file, if there is one, so that the run can go on with this step of this epoch.

        Raises:
            DataError: The loss is no longer finite.
        """
        if self.path is None or self.fabric.global_rank != 0:
            return
        if self.sums:
            self.refuse_not_finite(epoch)
        values = {
            "epoch": epoch,
            "step": step,
            "history": self.history.epochs,
            "best_epoch": self.history.best_epoch,
            "measures": self.measures,
            "seconds": time.monotonic() - self.started,
            "images": self.history.images,
            "waiting": self.history.waiting,
        }
        save_checkpoint(Checkpoint(self.identity, values, self._tensors()), self.path)

    def _tensors(self) -> dict[str, Tensor]:
        return {
            **prefixed("objective", self.objective.state_dict()),
            **prefixed("optimizer", optimizer_tensors(self.optimizer)),
            **prefixed("best", self.best),
            **prefixed("sums", self.sums),
            "random.cpu": torch.get_rng_state(),
            **{f"random.cuda.{device}": state for device, state in enumerate(_cuda_states())},
        }

    def restore(self) -> tuple[int, int]:
        """Read the state from the file, if there is one, and start the clock.

        Returns:
            The epoch and the step to go on with; (0, 0) for a run that begins.

        Raises:
            ConfigError: The file is damaged or of another run; it is left untouched.
        """
        epoch, step = 0, 0
        if self.path is not None and self.path.exists():
            found = load_checkpoint(self.path, self.identity)
            self._take_tensors(found.tensors)
            self._take_values(found.values)
            epoch, step = int(found.values["epoch"]), int(found.values["step"])
        self.started = time.monotonic() - self.history.seconds
        return epoch, step

    def _take_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        self.objective.load_state_dict(without_prefix("objective", tensors))
        restore_optimizer(self.optimizer, without_prefix("optimizer", tensors))
        lay_out_state(self.optimizer)
        self.best = without_prefix("best", tensors)
        self.sums = {name: self.fabric.to_device(total) for name, total in without_prefix("sums", tensors).items()}
        torch.set_rng_state(tensors["random.cpu"])
        if torch.cuda.is_available():
            torch.cuda.set_rng_state_all(list(without_prefix("random.cuda", tensors).values()))

    def _take_values(self, values: Mapping[str, Any]) -> None:
        self.measures = values["measures"]
        self.history = History(
            values["history"],
            values["best_epoch"],
            values["seconds"],
            values["images"],
            values.get("waiting", 0.0),  # told since a later version than the rest
        )


def _cuda_states() -> list[Tensor]:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
