"""Training loop for all methods, devices and numbers of processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limpet.support.extras import importing
from limpet.support.progress import Progress, listener, showing

with importing(__name__):
    import torch
    from torch import Tensor, nn
    from torch.nn import Parameter
    from torch.optim import Optimizer
    from torch.utils.data import DataLoader

from limpet.errors import DataError
from limpet.geometry import Space
from limpet.methods.base import Batch, CompatibilityMethod, Epoch, Head, OldModel, Step, View
from limpet.methods.predecessor import rows_by_name
from limpet.support.logs import logger
from limpet.training.encode import encode_features, encode_prototypes
from limpet.training.events import TrainingStep
from limpet.training.layout import laid_out, weights_channels_last
from limpet.training.objective import Objective, RunPosition, refuse_mismatch, seed_at, share, total
from limpet.training.run_state import History, RunState, run_identity
from limpet.training.schedules import Schedule, constant

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_log = logger("training")
CHECKPOINT_PAUSE = 1.0
"""Minimum seconds between checkpoints after epochs; less work is faster to repeat than to save."""


@showing("training")
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
    channels_last: bool = False,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 60.0,
    identity: Mapping[str, object] | None = None,
    select: Callable[[nn.Module], float] | None = None,
    progress: Progress[TrainingStep] = None,
) -> History:
    """Train a model, its head and a compatibility method together, all in place.

    An interrupted run that is restarted with the same arguments and checkpoint ends with the same weights, bit for bit
    on one device.

    Args:
        model: Maps a batch's inputs to raw embeddings (B, D).
        head: The classifier; its loss is the task loss.
        method: The compatibility method.
        loader: Training batches; its sampler has ``set_position(epoch, step)``.
        encode_loader: The same items un-augmented, in dataset order, for methods that need all of them.
        space: Space of the embeddings; its learnable parameters are trained as well.
        class_names: Class names, indexed by the labels.
        old: Data of the predecessor; None without one.
        optimizer: Function that builds the optimiser from the parameters of model, head and method.
        scheduler: Factor of the learning rate. Default: constant.
        fabric: Device, precision and processes.
        epochs: Passes over the training set.
        seed: Random seed of initial values drawn by the method and, with the position in the run, of its generator.
        clip_norm: Maximum gradient norm of the model (not of the head or the method); None does not clip.
        channels_last: Use the memory format `torch.channels_last` for images and convolution weights in training, also
            of the predecessor: the fastest on GPUs in bfloat16. Rounding differs. The format of the weights is restored
            at the end.
        checkpoint: File of the state of the run; None writes no checkpoint.
        checkpoint_seconds: Maximum seconds between two writes of the checkpoint within an epoch. After an epoch, it is
            written only if one second, or this time, has passed, since retraining is then faster than writing.
        identity: Plain values of everything else that determines the run (data, learning rate, options, ...); a
            checkpoint with other values is refused.
        select: Function that scores the model, in evaluation mode, after every epoch; the weights of the first best one
            are kept.
        progress: "rich" or "tqdm" for a bar, or a
            function that is called with every `TrainingStep`.

    Raises:
        ConfigError: The method does not fit the space or needs a predecessor, or the checkpoint is of another run.
        DataError: The loss is no longer finite, or the old embeddings are not those of the training set.
    """
    items: Any = loader.dataset
    refuse_mismatch(method, head, space, old, len(items), class_names)
    encoders = [model] if old is None or old.encoder is None else [model, old.encoder]
    with torch.random.fork_rng(), weights_channels_last(encoders if channels_last else []):
        torch.manual_seed(seed)
        method.prepare(old, model, head, space)
        head.divide(fabric.global_rank, fabric.world_size)
        objective = Objective(model, head, method, space, fabric.world_size)
        built = optimizer([parameter for parameter in objective.parameters() if parameter.requires_grad])
        wrapped, wrapped_optimizer = fabric.setup(objective, built)
        known = run_identity(
            identity or {}, objective, built, old, class_names=class_names, steps=len(loader), epochs=epochs, seed=seed,
            processes=fabric.world_size, channels_last=channels_last,
        )  # fmt: skip
        run = _Run(
            RunState(objective, built, fabric, checkpoint, known), wrapped, wrapped_optimizer, loader, encode_loader,
            fabric, space, old, _old_rows(old, class_names), epochs, seed,
            scheduler or constant(), clip_norm, channels_last, select, progress,
            checkpoint_seconds,
        )  # fmt: skip
        return run.to_the_end()


def _old_rows(old: OldModel | None, class_names: Sequence[str]) -> Tensor:
    """Return the row of the old classifier for every class (C + 1,); the last is that of -1, the unknown class."""
    rows = rows_by_name(old.classes if old is not None else (), class_names)
    return torch.cat([rows, rows.new_full((1,), -1)])


@dataclass
class _Run:
    """One run of `fit`: its arguments and its current state."""

    state: RunState
    wrapped: nn.Module
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
    channels_last: bool
    select: Callable[[nn.Module], float] | None
    progress: Progress[TrainingStep]
    seconds: float
    generator: torch.Generator = field(default_factory=torch.Generator)
    written: float = 0.0

    @property
    def objective(self) -> Objective:
        return self.state.objective

    def to_the_end(self) -> History:
        epoch, first_step = self.state.restore()
        self.written = time.monotonic()
        if self.old is not None and self.old.encoder is not None:
            self.fabric.to_device(self.old.encoder).eval()
        self.old_rows = self.fabric.to_device(self.old_rows)
        for index in range(epoch, self.epochs):
            if first_step == 0:
                self._reseed(index, 0)
                self.state.measures = dict(self.objective.method.on_epoch_start(self._epoch(index)) or {})
                share(self.objective.method.buffers(), self.fabric.world_size)
            self._train_epoch(index, first_step)
            self._finish_epoch(index)
            first_step = 0
        if self.state.best:
            self.objective.load_state_dict(self.state.best)
        self.objective.head.reunite()
        self.objective.method.on_training_end(self.objective.head)
        self.state.history.seconds = time.monotonic() - self.state.started
        return self.state.history

    def _reseed(self, epoch: int, step: int) -> None:
        """Seed the method's draws by the position in the run, so that resuming is exact."""
        self.generator.manual_seed(seed_at(RunPosition(epoch, len(self.loader), step), self.seed))

    def _train_epoch(self, epoch: int, first_step: int) -> None:
        self.wrapped.train()
        sampler: Any = self.loader.sampler
        sampler.set_position(epoch, first_step)
        steps = len(self.loader)
        for step, cpu_batch in enumerate(self._batches(), first_step):
            self._reseed(epoch, step + 1)
            factor = self.schedule.at(epoch, step, steps, self.epochs)
            for group in self.state.optimizer.param_groups:
                group["lr"] = factor * group.setdefault("initial_lr", group["lr"])
            loss, terms = self._step(cpu_batch, epoch, (epoch * steps + step) / (self.epochs * steps))
            if step + 1 < steps:
                self._save(epoch, step + 1, self.seconds)
            listener(self.progress)(
                {"epoch": epoch, "epochs": self.epochs, "step": step, "steps": steps, "loss": loss, "terms": terms,
                 "measures": self.state.measures, "learning_rate": self.state.optimizer.param_groups[0]["lr"],
                 "images": len(cpu_batch.labels), "done": epoch * steps + step + 1, "total": self.epochs * steps},
            )  # fmt: skip

    def _batches(self) -> Iterator[Batch]:
        """Yield the batches of an epoch, and add up the waiting time for each.

        A GPU continues with queued work meanwhile: this is the waiting time of the host. Reading the sums at the end of
        the epoch waits for the GPU, so that `seconds` covers the whole computation.
        """
        before = time.monotonic()
        for batch in self.loader:
            self.state.history.waiting += time.monotonic() - before
            yield batch
            before = time.monotonic()

    def _step(self, cpu_batch: Batch, epoch: int, progress: float) -> tuple[Tensor, dict[str, Tensor]]:
        batch: Batch = self.fabric.to_device(cpu_batch)
        batch = batch._replace(inputs=laid_out(batch.inputs, self.channels_last))
        old_features = self._old_features(batch, cpu_batch)
        step = partial(self._seen, epoch, progress)
        terms = self.wrapped(batch, old_features, self.old_rows[batch.labels], step, self.generator)
        loss = total(terms)
        self._move(loss)
        self.state.history.images += len(batch.labels)
        values = {name: term.detach() for name, term in terms.items()}
        self.state.add({"loss": loss.detach(), **values})
        return loss.detach(), values

    def _seen(
        self,
        epoch: int,
        progress: float,
        head: Head,
        batch: Batch,
        features: Tensor,
        old_features: Tensor | None,
        old_labels: Tensor,
    ) -> Step:
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
        )

    def _move(self, loss: Tensor) -> None:
        self.wrapped_optimizer.zero_grad()
        self.fabric.backward(loss)
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.objective.model.parameters(), self.clip_norm)
        self.wrapped_optimizer.step()
        self.objective.method.after_step(self.objective.model)

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

    def _epoch(self, index: int) -> Epoch:
        def new_embeddings() -> View:
            features, _ = encode_features(self.objective.model, self.encode_loader, **where)
            return View.of(self.fabric.to_device(features), self.space)

        def new_prototypes() -> Tensor:
            model, classes = self.objective.model, len(self.old_rows) - 1
            return encode_prototypes(model, self.encode_loader, self.space, classes, **where)

        where: dict[str, Any] = {"device": self.fabric.device, "channels_last": self.channels_last}
        items: Any = self.loader.dataset
        return Epoch(index, self.epochs, len(items), self.generator, new_embeddings, new_prototypes)

    def _finish_epoch(self, epoch: int) -> None:
        self.state.refuse_not_finite(epoch)
        means = self.state.take_means(len(self.loader))
        if self.select is not None:
            means["score"] = self._score(self.select, epoch)
            self.state.keep_if_best(epoch, means["score"])
        self.state.history.epochs.append(means | self.state.measures)
        told = ", ".join(f"{name} {value:.4g}" for name, value in means.items())
        _log.info("epoch %d of %d: %s", epoch + 1, self.epochs, told)
        self._save(epoch + 1, 0, min(self.seconds, CHECKPOINT_PAUSE))

    def _save(self, epoch: int, step: int, pause: float) -> None:
        """Write a checkpoint from which a run resumes at this step, unless the last is younger than `pause` seconds."""
        due = time.monotonic() - self.written >= pause
        if self.objective.head.shard is not None:  # every process brings the rows of its classes
            agreed = torch.tensor(due, dtype=torch.uint8, device=self.fabric.device)
            share([agreed], self.fabric.world_size)
            due = bool(agreed)
        if due:
            self.state.save(epoch, step)
            self.written = time.monotonic()

    def _score(self, select: Callable[[nn.Module], float], epoch: int) -> float:
        self.objective.model.eval()
        with torch.no_grad():
            score = float(select(self.objective.model))
        if np.isnan(score):
            raise DataError(f"The score after epoch {epoch + 1} is NaN.", expected="a number to choose by")
        return score
