"""Mutable state of a training run, and checkpoints that restore it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from limpet.embeddings.storage import write_atomically
from limpet.errors import ConfigError, DataError
from limpet.methods.base import OldModel
from limpet.support.disk import read_text, regular
from limpet.training.layout import lay_out_state

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from limpet.training.objective import Objective


CHECKPOINT = "checkpoint.safetensors"
HISTORY = "history.json"


@dataclass
class History:
    """History of a training run.

    Args:
        epochs: Values of every epoch: the mean of each loss term and of their sum ("loss"), the method's measures at
            its start, and the score of `select`.
        best_epoch: Number of the epoch whose weights were kept; None without `select`.
        seconds: Duration of the run, without work lost by interruptions.
        images: Number of images that this process trained on; repeated images count every time.
        waiting: Seconds that the loop waited for batches. Without worker processes and with data on the CPU, this
            includes reading and augmentation.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int | None = None
    seconds: float = field(default=0.0, compare=False)
    images: int = 0
    waiting: float = field(default=0.0, compare=False)

    @property
    def waiting_share(self) -> float:
        """Share of `seconds` that the loop waited for data, from 0 to 1; 0 before it has run."""
        return self.waiting / self.seconds if self.seconds > 0 else 0.0


def run_identity(
    given: Mapping[str, object],
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
) -> dict[str, object]:
    """Return the plain values that identify a checkpoint as one of this run.

    Args:
        given: The caller's own values: data, learning rate, options, ...
        objective: The trained objective.
        optimizer: The optimiser.
        old: The predecessor.
        class_names: Class names, indexed by the labels.
        steps: Number of steps per epoch.
        epochs: Number of passes over the training set.
        seed: Random seed of the run.
        processes: Number of processes.
        channels_last: Whether images use the memory format `torch.channels_last`; recorded only if True, so that older
            checkpoints stay valid.
    """
    shapes = {name: list(value.shape) for name, value in objective.state_dict().items()}
    if (shard := objective.head.shard) is not None:  # a checkpoint has the rows of all classes
        shapes |= {f"head.{name}": [shard.classes, *rows.shape[1:]] for name, rows in objective.head.named_parameters()}
    return {
        **given,
        "method class": type(objective.method).__name__,
        "epochs": epochs,
        "seed": seed,
        "steps": steps,
        "classes": list(class_names),
        "optimizer": type(optimizer).__name__,
        "processes": processes,
        "shapes": shapes,
        "old": old.embeddings.fingerprint if old is not None else None,
        **({"channels last": True} if channels_last else {}),
    }


@dataclass
class RunState:
    """The state of a run.

    Args:
        objective: The trained objective; its weights and buffers are part of the state.
        optimizer: The optimiser, with its state.
        path: Checkpoint file; None for none.
        identity: Identity of the run; the state of another run is refused.
        history: History of the run so far.
        sums: Sums of the loss terms since the epoch began, as scalars on the device.
        measures: Measures of the method at the start of the epoch.
        best: State of the objective at the end of the best epoch; empty without `select`.
        started: Start of the run on the monotonic clock, as if it had never been interrupted.
    """

    objective: Objective
    optimizer: Optimizer
    fabric: Fabric
    path: Path | None
    identity: dict[str, object]
    history: History = field(default_factory=History)
    sums: dict[str, Tensor] = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)
    best: dict[str, Tensor] = field(default_factory=dict)
    started: float = 0.0

    def add(self, losses: Mapping[str, Tensor]) -> None:
        """Add the loss terms of one step to the sums of the epoch."""
        for name, value in losses.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value.clone()

    def take_means(self, steps: int) -> dict[str, float]:
        """Return the mean of every loss term over the steps of an epoch, and reset the sums."""
        means = {name: (total / steps).item() for name, total in self.sums.items()}
        self.sums = {}
        return means

    def keep_if_best(self, epoch: int, score: float) -> None:
        """Keep the weights of this epoch if no earlier epoch in the history scored as high."""
        previous = self.history.best_epoch
        if previous is None or score > self.history.epochs[previous]["score"]:
            self.history.best_epoch = epoch
            self.best = {name: value.detach().clone() for name, value in self.objective.state_dict().items()}

    def refuse_not_finite(self, epoch: int) -> None:
        """Stop if the loss is not finite, before a broken model replaces a valid one on disk.

        Raises:
            DataError: The loss is not finite.
        """
        sums = {name: total.item() for name, total in self.sums.items()}
        if not np.isfinite(sums["loss"]):
            raise DataError(
                f"The loss became {sums['loss']} in epoch {epoch + 1}; sums of its terms: {sums}.",
                expected="finite loss terms",
                to_do="lower the learning rate or set a clip norm, and use another --out; nothing broken was saved.",
            )

    def save(self, epoch: int, step: int) -> None:
        """Write the state to the file, if one is set, so that the run can resume at this step of this epoch.

        Raises:
            DataError: The loss is no longer finite.
        """
        if self.path is None or (self.fabric.global_rank != 0 and self.objective.head.shard is None):
            return
        if self.sums:
            self.refuse_not_finite(epoch)
        tensors = self._tensors()
        if self.fabric.global_rank != 0:
            return
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
        save_checkpoint(Checkpoint(self.identity, values, tensors), self.path)

    def _tensors(self) -> dict[str, Tensor]:
        """Return the whole state; if classes are divided, the rows of all processes are gathered."""
        tensors = {
            **prefixed("objective", self.objective.state_dict()),
            **prefixed("optimizer", optimizer_tensors(self.optimizer)),
            **prefixed("best", self.best),
            **prefixed("sums", self.sums),
            "random.cpu": torch.get_rng_state(),
            **{f"random.cuda.{device}": state for device, state in enumerate(_cuda_states())},
        }
        shard = self.objective.head.shard
        return tensors if shard is None else self._of_classes(tensors, shard.count, shard.united)

    def _of_classes(
        self, tensors: Mapping[str, Tensor], rows: int, change: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:
        """Change the tensors that have this number of rows, one for each class, and leave the others as they are."""
        own = {id(parameter) for parameter in self.objective.head.parameters()}
        trained = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        places = [f"optimizer.{place}." for place, parameter in enumerate(trained) if id(parameter) in own]
        prefixes = ("objective.head.", "best.head.", *places)
        return {
            name: change(values) if name.startswith(prefixes) and values.shape[:1] == (rows,) else values
            for name, values in tensors.items()
        }

    def restore(self) -> tuple[int, int]:
        """Read the state from the file, if it exists, and start the clock.

        Returns:
            The epoch and the step to resume at; (0, 0) for a new run.

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
        if (shard := self.objective.head.shard) is not None:
            tensors = self._of_classes(tensors, shard.classes, shard.part)
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
            values["waiting"],
        )


def _cuda_states() -> list[Tensor]:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


@dataclass(frozen=True)
class Checkpoint:
    """A saved state of a run.

    Args:
        identity: Identity of the run; a checkpoint of another run is refused.
        values: Plain values: position, history, best score.
        tensors: Named tensors: weights, buffers, optimiser, random states.
    """

    identity: dict[str, object]
    values: dict[str, Any]
    tensors: dict[str, Tensor]


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint, atomically replacing the previous one."""
    tensors = {name: values.detach().cpu().contiguous().clone() for name, values in checkpoint.tensors.items()}
    metadata = {"identity": json.dumps(checkpoint.identity, sort_keys=True), "values": json.dumps(checkpoint.values)}
    write_atomically(path, lambda part: save_file(tensors, part, metadata=metadata))


def load_checkpoint(path: Path, identity: Mapping[str, object]) -> Checkpoint:
    """Read a checkpoint of this run.

    Raises:
        ConfigError: The file is damaged or belongs to a run with other settings; it is left untouched.
    """
    try:
        with safe_open(regular(path), framework="pt") as content:
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
    if {**found, "code": None} == {**wanted, "code": None} and found != wanted:
        raise ConfigError(
            f"The checkpoint '{path}' was written by other code than that of today.",
            expected="one model, trained by one code from beginning to end",
            to_do="delete this file to start the run again from its beginning; `limpet train --again` keeps it "
            "beside the new one.",
        )
    if found != wanted:
        different = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        raise ConfigError(
            f"The checkpoint '{path}' belongs to another run: {', '.join(different)} differ.",
            expected="the settings it was written with",
            to_do="use the same settings to continue, another --out to start anew, or delete the file.",
        )
    return Checkpoint(found, values, tensors)


def checkpoint_code(path: Path) -> str | None:
    """Return the digest of the code that wrote a checkpoint; None if it is not recorded."""
    try:
        with safe_open(regular(path), framework="pt") as content:
            code = json.loads(content.metadata()["identity"]).get("code")
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return code if isinstance(code, str) else None


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put a prefix before every name."""
    return {f"{prefix}.{name}": values for name, values in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose name starts with the prefix, under the rest of their name."""
    return {
        name.removeprefix(f"{prefix}."): values for name, values in tensors.items() if name.startswith(f"{prefix}.")
    }


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimiser that keeps tensors per parameter, such as SGD and Adam."""
    state = optimizer.state_dict()["state"]
    return {
        f"{parameter}.{name}": torch.as_tensor(value)
        for parameter, values in state.items()
        for name, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state that `optimizer_tensors` returned."""
    record = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for key, values in tensors.items():
        parameter, name = key.split(".", 1)
        state.setdefault(int(parameter), {})[name] = values
    optimizer.load_state_dict({"state": state, "param_groups": record["param_groups"]})


def save_history(history: History, folder: Path) -> None:
    """Write the epochs of a finished run to ``history.json``."""
    text = json.dumps(dataclasses.asdict(history), indent=1) + "\n"
    write_atomically(folder / HISTORY, lambda part: part.write_text(text, encoding="utf-8"))


def load_history(folder: Path) -> History:
    """Read a history that `save_history` wrote.

    Raises:
        DataError: The file is missing or damaged.
    """
    try:
        return History(**json.loads(read_text(folder / HISTORY)))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"Cannot read '{folder / HISTORY}': {error}.",
            expected="the epochs of a finished run",
            to_do=f"remove the folder '{folder}' to run it again.",
        ) from error
