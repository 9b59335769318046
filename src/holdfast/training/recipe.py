"""From images and settings to a release: everything around the loop that a user would otherwise wire by hand."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch.nn import Parameter
from torch.optim import SGD, AdamW, Optimizer

from holdfast.data.augment import Augmentation
from holdfast.data.image_set import ImageSet
from holdfast.data.loading import encoding_loader, training_loader
from holdfast.errors import ConfigError, DataError, SpaceMismatchError, refuse
from holdfast.geometry import Hypersphere
from holdfast.methods import build_method
from holdfast.methods.base import CompatibilityMethod, OldModel
from holdfast.models.encoder import Encoder, EncoderSpec
from holdfast.models.heads import build_head
from holdfast.models.release import Release, load_release, make_release, save_release
from holdfast.models.seeding import seeded
from holdfast.training import schedules
from holdfast.training.encode import cached_embeddings
from holdfast.training.events import EventLog
from holdfast.training.loop import History, fit

OnStep = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Args:
        epochs: Passes over the training images.
        batch_size: Images per step and process.
        optimizer: "sgd" (with momentum) or "adamw".
        learning_rate: Base rate.
        momentum: Of SGD.
        nesterov: Whether SGD looks ahead.
        weight_decay: Of all parameters.
        schedule: "constant", "steps" (× 0.1 at the milestones), "cosine" (to 0), or "polynomial" (to 0).
        milestones: Epochs of "steps".
        power: Of "polynomial": (1 − progress)^power.
        warmup_epochs: Epochs of linear rise before the schedule.
        clip_norm: Largest norm of the model's gradient; none when left out.
        augmentation: What is drawn anew for every image and epoch.
        old_view: What the predecessor sees: "cached", the clean image, embedded once; "same", the very augmented
            image the new model sees, embedded at every step; or "method", what the method's paper does.
        precision: "32-true", or "bf16-mixed" (losses are computed in float32 all the same).
        accelerator: Device for Lightning Fabric: "auto", "cpu", "cuda", ...
        devices: Number of processes, one per device.
        workers: Processes that read images; 0 reads in the training process.
    """

    epochs: int = 30
    batch_size: int = 128
    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: Literal["constant", "steps", "cosine", "polynomial"] = "cosine"
    milestones: tuple[int, ...] = ()
    power: float = 2.0
    warmup_epochs: float = 0.0
    clip_norm: float | None = None
    augmentation: Augmentation = field(default_factory=Augmentation)
    old_view: Literal["method", "cached", "same"] = "method"
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    accelerator: str = "auto"
    devices: int = 1
    workers: int = 0

    def __post_init__(self) -> None:
        rules = {
            "epochs": (self.epochs >= 1, "at least 1"),
            "batch_size": (self.batch_size >= 2, "at least 2, since batch statistics need two images"),
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
        """Return the settings that change the result, and not those of the machine it is computed on."""
        machine = ("accelerator", "workers")
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in machine}

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
            "polynomial": partial(schedules.polynomial, self.power),
        }
        return schedules.warmed_up(table[self.schedule](), self.warmup_epochs)

    def build_fabric(self) -> Any:
        """Return a launched Lightning Fabric."""
        from lightning_fabric import Fabric

        strategy = "ddp_find_unused_parameters_true" if self.devices > 1 else "auto"
        try:
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


@dataclass(frozen=True)
class Experiment:
    """Everything that decides what a run becomes, apart from its images and its predecessor.

    Args:
        method: A key of `holdfast.METHODS`.
        method_options: Options of that method.
        model: The encoder to build.
        head: A key of `holdfast.models.heads.HEADS`.
        head_options: Options of that head.
        recipe: How to train.
        weights: Local folder of published backbone weights; none for a fresh start.
        freeze_backbone: Train the projection and the head only.
        seed: Of initial weights, order, augmentation and the method.
    """

    method: str = "independent"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    model: EncoderSpec = field(default_factory=EncoderSpec)
    head: str = "softmax"
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


def train_release(
    images: ImageSet,
    experiment: Experiment,
    folder: Path,
    *,
    old: Release | None = None,
    old_images: ImageSet | None = None,
    data_name: str = "",
    cache: Path | None = None,
    on_step: OnStep | None = None,
    tensorboard: bool = False,
) -> Release:
    """Train one model and save it as a release.

    A finished release of the same settings and data is loaded instead; an unfinished run is continued.

    Args:
        images: The training set.
        experiment: What to train.
        folder: Where the release goes, with the run's checkpoint beside it until it is finished.
        old: The predecessor, for methods that need one.
        old_images: The predecessor's own training set, for methods that measure it there.
        data_name: Name of the data, for the record.
        cache: Folder for the predecessor's embeddings of the training set; ``folder`` when left out.
        on_step: Told after every step; see `fit`.
        tensorboard: Also write TensorBoard's event files beside ``events.jsonl``.

    Raises:
        ConfigError: Settings are wrong, or the folder holds another release.
        DataError: There are fewer than two classes to learn.
        SpaceMismatchError: The predecessor has another space or dimension.
    """
    method = build_method(experiment.method, experiment.method_options)
    space = Hypersphere(experiment.model.dim)
    _check(images, experiment, method, old)
    with seeded(experiment.seed):
        encoder = Encoder(experiment.model, experiment.weights, experiment.freeze_backbone)
        head = build_head(experiment.head, len(images.class_names), experiment.model.dim, dict(experiment.head_options))
    record = _record(images, experiment, method, old if method.needs_old else None, data_name)
    identity = {**record, "encoder": encoder.spec.model_dump(mode="json"), "recipe": experiment.recipe.decides()}
    if (folder / "config.json").exists():
        return _finished(folder, identity)
    fabric = experiment.recipe.build_fabric()
    old_model = None
    if old is not None and method.needs_old:
        same_view = experiment.recipe.view_for(method) == "same"
        old_model = _old_model(old, images, old_images, experiment, cache or folder, fabric, same_view=same_view)
    checkpoint = folder / "checkpoint.safetensors"
    first = fabric.global_rank == 0
    with EventLog(folder, tensorboard=tensorboard, then=on_step) if first else nullcontext() as log:
        _run(encoder, head, method, images, experiment, space, old_model, fabric, checkpoint, identity, log)
    encoder.cpu(), head.cpu()
    if first:
        release = make_release(encoder, space, classifier=head, classes=images.class_names, **record)
        save_release(release, folder)
        checkpoint.unlink(missing_ok=True)
    fabric.barrier()  # batch statistics differ between processes; the release is that of the first
    return release if first else load_release(folder)


def _run(
    encoder: Encoder,
    head: Any,
    method: CompatibilityMethod,
    images: ImageSet,
    experiment: Experiment,
    space: Hypersphere,
    old: OldModel | None,
    fabric: Any,
    checkpoint: Path,
    identity: Mapping[str, Any],
    on_step: OnStep | None,
) -> History:
    recipe = experiment.recipe
    loader = training_loader(
        images,
        batch_size=recipe.batch_size,
        seed=experiment.seed,
        augmentation=recipe.augmentation,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
        workers=recipe.workers,
    )
    return fit(
        encoder,
        head,
        method,
        loader,
        encoding_loader(images, batch_size=4 * recipe.batch_size, workers=recipe.workers),
        space=space,
        class_names=images.class_names,
        old=old,
        optimizer=recipe.build_optimizer,
        scheduler=recipe.build_schedule(),
        fabric=fabric,
        epochs=recipe.epochs,
        seed=experiment.seed,
        clip_norm=recipe.clip_norm,
        checkpoint=checkpoint,
        identity=identity,
        on_step=on_step,
    )


def _check(images: ImageSet, experiment: Experiment, method: CompatibilityMethod, old: Release | None) -> None:
    classes = len(set(images.labels.tolist()))
    if classes < 2:
        raise DataError(
            f"The training images show {classes} class.",
            expected="at least two classes, or there is nothing to tell apart",
            to_do="check the folder: one sub-folder per class, with images in it.",
        )
    if method.needs_old and old is None:
        raise ConfigError(
            f"The method '{experiment.method}' needs a predecessor and was given none.",
            expected="the release that embedded the gallery",
            to_do="pass --old RELEASE; or let one be trained on a share of the data: --scenario extended-class.",
        )
    if method.needs_old and old is not None and old.space.dim != experiment.model.dim:
        raise SpaceMismatchError(
            f"The old model has {old.space.dim} dimensions, the new one {experiment.model.dim}.",
            expected="one dimension, since new queries search old vectors",
            to_do=f"train the new model with --dim {old.space.dim}.",
        )


def _record(
    images: ImageSet, experiment: Experiment, method: CompatibilityMethod, old: Release | None, data_name: str
) -> dict[str, Any]:
    return {
        "compatible_with": None if old is None else old.fingerprint,
        "method": experiment.method,
        "method_options": dict(experiment.method_options),
        "head": experiment.head,
        "head_options": dict(experiment.head_options),
        "recipe": dataclasses.asdict(experiment.recipe),
        "old_view": None if old is None else experiment.recipe.view_for(method),
        "initial_weights": None if experiment.weights is None else _weights_name(experiment.weights),
        "frozen_backbone": experiment.freeze_backbone,
        "data": {"name": data_name, "digest": images.digest(), "images": str(len(images))},
        "seed": experiment.seed,
    }


def _weights_name(folder: Path) -> str:
    """Return the name of a folder of weights with the sha256 of their file."""
    file = folder / "model.safetensors"
    return f"{folder.name}, sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}" if file.exists() else folder.name


def _finished(folder: Path, identity: Mapping[str, Any]) -> Release:
    """Load a release that these very settings made; refuse to replace another one."""
    release = load_release(folder)
    found = release.record.model_dump(mode="json")
    found["recipe"] = {name: found["recipe"].get(name) for name in identity["recipe"]}
    wanted = json.loads(json.dumps(identity))
    different = [key for key in wanted if found[key] != wanted[key]]
    if different:
        raise ConfigError(
            f"'{folder}' already holds a release made with other settings: {', '.join(different)} differ.",
            expected="an empty folder, or the same settings to continue",
            to_do="choose another --out, or remove that folder yourself; it is intact.",
        )
    return release


def _old_model(
    old: Release,
    images: ImageSet,
    old_images: ImageSet | None,
    experiment: Experiment,
    cache: Path,
    fabric: Any,
    *,
    same_view: bool,
) -> OldModel:
    recipe = experiment.recipe
    settings = {"batch_size": 4 * recipe.batch_size, "device": fabric.device, "workers": recipe.workers}
    own = None if old_images is None else cached_embeddings(old, old_images, cache, **settings)
    return OldModel(
        embeddings=cached_embeddings(old, images, cache, **settings),
        classes=old.classes,
        head=old.head,
        own_training=own,
        encoder=old.encoder if same_view else None,
    )
