"""The one training loop, for every method, device and number of processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from holdfast.errors import DataError
from holdfast.geometry import Space
from holdfast.methods.base import Batch, CompatibilityMethod, Epoch, Head, OldModel, Step, View
from holdfast.methods.predecessor import rows_by_name
from holdfast.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    optimizer_tensors,
    prefixed,
    restore_optimizer,
    save_checkpoint,
    without_prefix,
)
from holdfast.training.encode import encode_features, encode_prototypes
from holdfast.training.objective import Objective, refuse_mismatch
from holdfast.training.schedules import Schedule, constant

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass
class History:
    """What a run leaves behind beside its weights.

    Args:
        epochs: For every epoch the mean of each loss term and of their sum ("loss"), what the method measured at its
            start, and the score of `select`.
        best_epoch: Number of the epoch whose weights were kept; None without `select`.
        seconds: How long the run took, without what an interruption lost.
        images: How many images this process trained on, each as often as it was seen.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int | None = None
    seconds: float = field(default=0.0, compare=False)
    images: int = 0


def fit(
    model: nn.Module,
    head: Head,
    method: CompatibilityMethod,
    loader: DataLoader[Batch],
    encode_loader: Iterable[Batch],
    *,
    space: Space,
    class_names: Sequence[str],
    old: OldModel | None,
    optimizer: Callable[[Iterable[Parameter]], Optimizer],
    scheduler: Schedule | None = None,
    fabric: Fabric,
    epochs: int,
    seed: int,
    clip_norm: float | None = None,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 60.0,
    identity: Mapping[str, Any] | None = None,
    select: Callable[[nn.Module], float] | None = None,
    on_step: Callable[[dict[str, Any]], object] | None = None,
) -> History:
    """Train a model, its head and a compatibility method together; the three are changed in place.

    Interrupted and started again with the same arguments and checkpoint, it ends with the same weights, bit for bit
    on one device.

    Args:
        model: Maps a batch's inputs to raw embeddings (B, D).
        head: The classifier; its loss is the task.
        method: What keeps the new embeddings compatible.
        loader: Yields training batches; its sampler has ``set_position(epoch, step)``.
        encode_loader: The same items un-augmented, in dataset order, for methods that look at all of them.
        space: What embeddings are points of; what is learned about it is trained with the rest.
        class_names: Names of the classes that the labels count.
        old: What is known of the predecessor; None without one.
        optimizer: Builds the optimiser from the parameters of model, head and method.
        scheduler: Factor of the learning rate; constant when left out.
        fabric: Device, precision and processes.
        epochs: Passes over the training set.
        seed: Of initial values drawn by the method and, with the place in the run, of its generator.
        clip_norm: Largest norm of the model's gradient (not the head's or the method's); None does not clip.
        checkpoint: File that keeps the state of the run; None keeps none.
        checkpoint_seconds: Longest time between two writes of it within an epoch.
        identity: Plain values of everything else that decides the run (data, learning rate, options, ...); a
            checkpoint written under other values is refused.
        select: Scores the model, in evaluation mode, after every epoch; the weights of the first best one are kept.
        on_step: Told after every step: epoch, epochs, step, steps, loss, terms, measures, learning_rate
            and images.

    Raises:
        ConfigError: The method does not fit the space or needs a predecessor, or the checkpoint is of another run.
        DataError: The loss is no longer finite, or the old embeddings are not those of the training set.
    """
    refuse_mismatch(method, head, space, old, loader, class_names)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        method.prepare(old, model, head, space)
        objective = Objective(model, head, method, space)
        built = optimizer([parameter for parameter in objective.parameters() if parameter.requires_grad])
        wrapped, wrapped_optimizer = fabric.setup(objective, built)
        run = _Run(
            objective, wrapped, built, wrapped_optimizer, loader, encode_loader, fabric, space, old,
            rows_by_name(old.classes if old is not None else (), class_names),
            epochs, seed, scheduler or constant(), clip_norm, select, on_step or (lambda event: None),
            checkpoint, checkpoint_seconds,
            {**(identity or {}), "method class": type(method).__name__, "epochs": epochs, "seed": seed,
             "steps": len(loader), "classes": list(class_names), "optimizer": type(built).__name__,
             "processes": fabric.world_size, "shapes": _shapes(objective),
             "old": old.embeddings.fingerprint if old is not None else None},
        )  # fmt: skip
        return run.to_the_end()


def _shapes(objective: nn.Module) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in objective.state_dict().items()}


@dataclass
class _Run:
    """One run of `fit`: what it was given, and where it stands."""

    objective: Objective
    wrapped: nn.Module
    optimizer: Optimizer
    wrapped_optimizer: Any
    loader: DataLoader[Batch]
    encode_loader: Iterable[Batch]
    fabric: Fabric
    space: Space
    old: OldModel | None
    old_rows: Tensor
    epochs: int
    seed: int
    schedule: Schedule
    clip_norm: float | None
    select: Callable[[nn.Module], float] | None
    on_step: Callable[[dict[str, Any]], object]
    path: Path | None
    seconds: float
    identity: dict[str, Any]
    history: History = field(default_factory=History)
    sums: dict[str, Tensor] = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)
    best: dict[str, Tensor] = field(default_factory=dict)
    generator: torch.Generator = field(default_factory=torch.Generator)
    started: float = 0.0

    def to_the_end(self) -> History:
        epoch, first_step = self._restore()
        self.started = time.monotonic() - self.history.seconds
        if self.old is not None and self.old.encoder is not None:
            self.fabric.to_device(self.old.encoder).eval()
        self.old_rows = self.fabric.to_device(self.old_rows)
        for index in range(epoch, self.epochs):
            if first_step == 0:
                self._reseed(index, 0)
                self.measures = dict(self.objective.method.on_epoch_start(self._epoch(index)) or {})
                self._share_buffers()
            self._train_epoch(index, first_step)
            self._finish_epoch(index)
            first_step = 0
        if self.best:
            self.objective.load_state_dict(self.best)
        self.history.seconds = time.monotonic() - self.started
        return self.history

    def _share_buffers(self) -> None:
        """Give all processes what the first one computed: their batch statistics and draws differ."""
        if self.fabric.world_size > 1:
            for buffer in self.objective.method.buffers():
                torch.distributed.broadcast(buffer, 0)

    def _reseed(self, epoch: int, step: int) -> None:
        """Make the method's draws a function of the place in the run and the process, so that resuming is exact."""
        place = (self.seed * 1_000_003 + epoch * (len(self.loader) + 1) + step) * self.fabric.world_size
        self.generator.manual_seed((place + self.fabric.global_rank) % 2**63)

    def _train_epoch(self, epoch: int, first_step: int) -> None:
        self.wrapped.train()
        sampler: Any = self.loader.sampler
        sampler.set_position(epoch, first_step)
        steps, written = len(self.loader), time.monotonic()
        for step, cpu_batch in enumerate(self.loader, first_step):
            self._reseed(epoch, step + 1)
            factor = self.schedule.at(epoch, step, steps, self.epochs)
            for group in self.optimizer.param_groups:
                group["lr"] = factor * group.setdefault("initial_lr", group["lr"])
            loss, terms = self._step(cpu_batch, epoch, (epoch * steps + step) / (self.epochs * steps))
            if step + 1 < steps and self.path is not None and time.monotonic() - written >= self.seconds:
                self._save(epoch, step + 1)
                written = time.monotonic()
            self.on_step(
                {"epoch": epoch, "epochs": self.epochs, "step": step, "steps": steps, "loss": loss, "terms": terms,
                 "measures": self.measures, "learning_rate": self.optimizer.param_groups[0]["lr"],
                 "images": len(cpu_batch.labels)}
            )  # fmt: skip

    def _step(self, cpu_batch: Batch, epoch: int, progress: float) -> tuple[Tensor, dict[str, Tensor]]:
        batch: Batch = self.fabric.to_device(cpu_batch)

        def step(head: Head, batch: Batch, features: Tensor, old_features: Tensor | None, old_labels: Tensor) -> Step:
            return Step(
                new=View.of(features, self.space),
                old=None if old_features is None else View.of(old_features, self.space),
                labels=batch.labels,
                old_labels=old_labels,
                index=batch.index,
                replayed=batch.replayed,
                head=head,
                progress=progress,
                epoch=epoch,
                epochs=self.epochs,
                generator=self.generator,
                gather=self._gather,
            )

        old_features = self._old_features(batch, cpu_batch)
        terms = self.wrapped(batch, old_features, self.old_rows[batch.labels], step, self.generator)
        loss = torch.stack(list(terms.values())).sum()
        self.wrapped_optimizer.zero_grad()
        self.fabric.backward(loss)
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.objective.model.parameters(), self.clip_norm)
        self.wrapped_optimizer.step()
        self.objective.method.after_step(self.objective.model)
        self.history.images += len(batch.labels)
        values = {name: term.detach() for name, term in terms.items()}
        for name, value in {"loss": loss.detach(), **values}.items():
            self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value
        return loss.detach(), values

    def _old_features(self, batch: Batch, cpu_batch: Batch) -> Tensor | None:
        if self.old is None:
            return None
        if self.old.encoder is not None:
            with torch.no_grad(), self.fabric.autocast():
                features: Tensor = self.old.encoder(batch.inputs)
            return features
        rows = torch.from_numpy(np.asarray(self.old.embeddings.vectors[cpu_batch.index.numpy()]))
        cached: Tensor = self.fabric.to_device(rows)
        return cached

    def _gather(self, rows: Tensor) -> Tensor:
        rows = rows.detach()
        if self.fabric.world_size == 1:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.fabric.world_size)]
        torch.distributed.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    def _epoch(self, index: int) -> Epoch:
        def new_embeddings() -> View:
            features, _ = encode_features(self.objective.model, self.encode_loader, device=self.fabric.device)
            return View.of(self.fabric.to_device(features), self.space)

        def new_prototypes() -> Tensor:
            model, classes = self.objective.model, len(self.old_rows)
            return encode_prototypes(model, self.encode_loader, self.space, classes, device=self.fabric.device)

        items: Any = self.loader.dataset
        return Epoch(index, self.epochs, len(items), self.generator, new_embeddings, new_prototypes)

    def _finish_epoch(self, epoch: int) -> None:
        self._refuse_not_finite(epoch)
        means = {name: (total / len(self.loader)).item() for name, total in self.sums.items()}
        self.sums = {}
        if self.select is not None:
            self.objective.model.eval()
            with torch.no_grad():
                means["score"] = float(self.select(self.objective.model))
            if np.isnan(means["score"]):
                raise DataError(f"The score after epoch {epoch + 1} is NaN.", expected="a number to choose by")
            previous = self.history.best_epoch
            if previous is None or means["score"] > self.history.epochs[previous]["score"]:
                self.history.best_epoch = epoch
                self.best = {name: value.detach().clone() for name, value in self.objective.state_dict().items()}
        self.history.epochs.append(means | self.measures)
        self._save(epoch + 1, 0)

    def _refuse_not_finite(self, epoch: int) -> None:
        sums = {name: total.item() for name, total in self.sums.items()}
        if not np.isfinite(sums["loss"]):
            raise DataError(
                f"The loss became {sums['loss']} in epoch {epoch + 1}; sums of its terms: {sums}.",
                expected="finite loss terms",
                to_do="lower the learning rate or set a clip norm, and use another --out; nothing broken was saved.",
            )

    def _save(self, epoch: int, step: int) -> None:
        if self.path is None or self.fabric.global_rank != 0:
            return
        if self.sums:
            self._refuse_not_finite(epoch)
        values = {"epoch": epoch, "step": step, "history": self.history.epochs, "best_epoch": self.history.best_epoch,
                  "measures": self.measures, "seconds": time.monotonic() - self.started,
                  "images": self.history.images}  # fmt: skip
        tensors = {
            **prefixed("objective", self.objective.state_dict()),
            **prefixed("optimizer", optimizer_tensors(self.optimizer)),
            **prefixed("best", self.best),
            **prefixed("sums", self.sums),
            "random.cpu": torch.get_rng_state(),
            **{f"random.cuda.{device}": state for device, state in enumerate(_cuda_states())},
        }
        save_checkpoint(Checkpoint(self.identity, values, tensors), self.path)

    def _restore(self) -> tuple[int, int]:
        if self.path is None or not self.path.exists():
            return 0, 0
        found = load_checkpoint(self.path, self.identity)
        self.objective.load_state_dict(without_prefix("objective", found.tensors))
        restore_optimizer(self.optimizer, without_prefix("optimizer", found.tensors))
        self.best = without_prefix("best", found.tensors)
        self.sums = {
            name: self.fabric.to_device(total) for name, total in without_prefix("sums", found.tensors).items()
        }
        self.measures = found.values["measures"]
        torch.set_rng_state(found.tensors["random.cpu"])
        if torch.cuda.is_available():
            torch.cuda.set_rng_state_all(list(without_prefix("random.cuda", found.tensors).values()))
        self.history = History(
            *(found.values[name] for name in ("history", "best_epoch", "seconds", "images")),
        )
        return int(found.values["epoch"]), int(found.values["step"])


def _cuda_states() -> list[Tensor]:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
