"""How a model is trained, and everything else that decides what a run becomes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch.nn import Parameter
from torch.optim import SGD, AdamW, Optimizer

from holdfast.data.augment import Augmentation
from holdfast.data.class_balance import holds_whole_classes
from holdfast.data.resident import DataOnDevice
from holdfast.errors import ConfigError, refuse
from holdfast.methods.base import CompatibilityMethod
from holdfast.models.embedding_network import EmbeddingSpec
from holdfast.models.encoder import EncoderSpec
from holdfast.training import schedules
from holdfast.training.spaces import Geometry

_MACHINE = ("accelerator", "workers", "data_on_device")
"""Settings that do not change the result."""

_LATER = {"channels_last": False}
"""Settings that came after the first releases, and the value by which the former ones were trained."""


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Args:
        epochs: Passes over the training images.
        batch_size: Images per step and process.
        items_per_class: Images of each class in a batch, such as 4 for triplets: every batch then holds batch_size / 4
            classes, and classes come equally often; none shuffles all images alike. Steps per epoch stay the same.
        optimizer: "sgd" (with momentum) or "adamw".
        learning_rate: Base rate.
        momentum: Of SGD.
        nesterov: Whether SGD looks ahead.
        weight_decay: Of all parameters.
        schedule: "constant", "steps" (× 0.1 at the milestones), "cosine" (to 0), "cosine-restarts" (of CVS,
            in cycles of 1, 2, 4, ... epochs), or "polynomial" (to 0).
        milestones: Epochs of "steps".
        power: Of "polynomial": (1 − progress)^power.
        warmup_epochs: Epochs of linear rise before the schedule.
        clip_norm: Largest norm of the model's gradient; none when left out.
        augmentation: What is drawn anew for every image and epoch.
        old_view: What the predecessor sees: "cached", the clean image, embedded once; "same", the very augmented
            image the new model sees, embedded at every step; or "method", what the method's paper does.
        precision: "32-true", or "bf16-mixed" (losses are computed in float32 all the same).
        channels_last: Let images and the weights of convolutions lie in memory as GPUs convolve them fastest in
            bfloat16.
        accelerator: Device for Lightning Fabric: "auto", "cpu", "cuda", ...
        devices: Number of processes, one per device.
        workers: Processes that read images; 0 reads in the training process.
        data_on_device: Where the training images are kept: "always" copies all of them to the device once; "auto" does
            so on a CUDA device of which they take at most half of the free memory; "never" reads every batch from the
            host.
    """

    epochs: int = 30
    batch_size: int = 128
    items_per_class: int | None = None
    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: Literal["constant", "steps", "cosine", "cosine-restarts", "polynomial"] = "cosine"
    milestones: tuple[int, ...] = ()
    power: float = 2.0
    warmup_epochs: float = 0.0
    clip_norm: float | None = None
    augmentation: Augmentation = field(default_factory=Augmentation)
    old_view: Literal["method", "cached", "same"] = "method"
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    channels_last: bool = False
    accelerator: str = "auto"
    devices: int = 1
    workers: int = 0
    data_on_device: DataOnDevice = "auto"

    def __post_init__(self) -> None:
        rules = {
            "epochs": (self.epochs >= 1, "at least 1"),
            "batch_size": (self.batch_size >= 2, "at least 2, since batch statistics need two images"),
            "items_per_class": (
                self.items_per_class is None or holds_whole_classes(self.batch_size, self.items_per_class),
                f"a divisor of the batch size {self.batch_size} that leaves room for two classes or more; or none",
            ),
            "devices": (self.devices >= 1, "at least 1"),
            "workers": (self.workers >= 0, "at least 0"),
            "learning_rate": (0 < self.learning_rate < math.inf, "a number above 0"),
            "momentum": (0 <= self.momentum < 1, "from 0 to below 1"),
            "nesterov": (not self.nesterov or self.momentum > 0, "false, or a momentum above 0"),
            "weight_decay": (self.weight_decay >= 0, "at least 0"),
            "milestones": (self.schedule != "steps" or bool(self.milestones), "epochs for the schedule 'steps'"),
            "power": (self.power > 0, "above 0"),
            "warmup_epochs": (self.warmup_epochs >= 0, "at least 0"),
            "clip_norm": (self.clip_norm is None or self.clip_norm > 0, "above 0, or none"),
        }
        for name, (holds, expected) in rules.items():
            refuse(not holds, f"The recipe was given {name}={getattr(self, name)}.", expected)

    def decides(self) -> dict[str, Any]:
        """Return the settings that change the result, and not those of the machine it is computed on.

        Those that came after the first releases are left out at their default, so that earlier runs are known again.
        """
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if name not in _MACHINE and _told(name, value)}

    def view_for(self, method: CompatibilityMethod) -> Literal["cached", "same"]:
        """Return what the predecessor sees; without augmentation both views are equal, and the cached one is free."""
        if self.augmentation == Augmentation():
            return "cached"
        return method.old_view if self.old_view == "method" else self.old_view

    def build_optimizer(self, parameters: Iterable[Parameter]) -> Optimizer:
        """Return the optimiser over these parameters."""
        if self.optimizer == "adamw":
            return AdamW(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)
        return SGD(
            parameters,
            lr=self.learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )

    def build_schedule(self) -> schedules.Schedule:
        """Return the learning-rate schedule."""
        table: dict[str, Callable[[], schedules.Schedule]] = {
            "constant": schedules.constant,
            "steps": partial(schedules.milestones, self.milestones),
            "cosine": schedules.cosine,
            "cosine-restarts": schedules.cosine_restarts,
            "polynomial": partial(schedules.polynomial, self.power),
        }
        return schedules.warmed_up(table[self.schedule](), self.warmup_epochs)

    def build_fabric(self) -> Any:
        """Return a launched Lightning Fabric."""
        from lightning_fabric import Fabric

        try:
            strategy = _processes() if self.devices > 1 else "auto"
            fabric = Fabric(
                accelerator=self.accelerator, devices=self.devices, precision=self.precision, strategy=strategy
            )
        except Exception as error:  # Fabric raises many kinds for devices that are not there
            raise ConfigError(
                f"Cannot train on accelerator '{self.accelerator}' with {self.devices} devices: {error}",
                expected="a device of this machine",
                to_do="--recipe.accelerator cpu runs everywhere.",
            ) from error
        if self.devices > 1:
            fabric.launch()
        return fabric


def recorded_decisions(record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the settings of a recorded recipe that are to be compared with what `Recipe.decides` says of another.

    Args:
        record: All settings of the recipe that a release was trained by; None stands for those it does not have.
        names: What `decides` told of the other one.

    >>> recorded_decisions({"epochs": 3, "channels_last": True, "workers": 2}, ["epochs"])
    {'channels_last': True, 'epochs': 3}
    """
    later = {name for name, value in record.items() if name in _LATER and _told(name, value)}
    return {name: record.get(name) for name in sorted({*names, *later})}


def _told(name: str, value: Any) -> bool:
    return name not in _LATER or value != _LATER[name]


def _processes() -> Any:
    """Return the strategy for several processes: a method's buffers are large and change alike in all of them."""
    from lightning_fabric.strategies.ddp import DDPStrategy

    return DDPStrategy(find_unused_parameters=True, broadcast_buffers=False)


@dataclass(frozen=True)
class Experiment:
    """Everything that decides what a run becomes, apart from its images and its predecessor.

    Args:
        method: A key of `holdfast.METHODS`.
        method_options: Options of that method.
        model: The encoder to build; its ζ is the space's business where it is left out.
        geometry: The space to train on.
        head: A key of `holdfast.models.heads.HEADS`; the space's own when left out: softmax on the hypersphere.
        head_options: Options of that head.
        recipe: How to train.
        weights: Local folder of published backbone weights; none for a fresh start.
        freeze_backbone: Train the projection and the head only.
        seed: Of initial weights, order, augmentation and the method.
    """

    method: str = "independent"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    model: EmbeddingSpec = field(default_factory=EncoderSpec)
    geometry: Geometry = field(default_factory=Geometry)
    head: str | None = None
    head_options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)
    weights: Path | None = None
    freeze_backbone: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        refuse(self.seed < 0, f"The seed {self.seed}.", "a whole number of at least 0")
        refuse(
            self.freeze_backbone and self.weights is None,
            "A frozen backbone without weights would stay random.",
            "the folder of published weights (--weights FOLDER), or a backbone that is trained",
        )
