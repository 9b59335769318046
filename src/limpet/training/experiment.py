"""Training settings: typed values, validated in one place for commands, suites and Python."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, dataclass_transform, get_args, get_type_hints

import pydantic.dataclasses
from annotated_types import Ge, Lt
from pydantic import BeforeValidator, ConfigDict, ValidationError

from limpet.data.augment import Augmentation
from limpet.data.sampling import holds_whole_classes
from limpet.errors import ConfigError, LimpetError, brief, nearest, refuse
from limpet.methods import METHODS, build_method
from limpet.models.specs import EmbeddingSpec, EncoderSpec, encoder_spec
from limpet.support.devices import DataOnDevice
from limpet.support.ranges import Count, NonNegative, Positive, PositiveInt, Seed, wanted
from limpet.training import schedules

if TYPE_CHECKING:
    from torch.nn import Parameter
    from torch.optim import Optimizer

    from limpet.methods.base import CompatibilityMethod
    from limpet.models.embedding_network import EmbeddingNetwork

Class = TypeVar("Class", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def settings(what: str) -> Callable[[Class], Class]:
    """Make a class a frozen dataclass that validates its fields and refuses unknown ones.

    Invalid values raise a ConfigError.

    Args:
        what: Name of the settings in messages.
    """

    def checked(kind: Class) -> Class:
        made: Any = pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(extra="forbid"))(kind)
        build = made.__init__

        def init(self: Any, *values: Any, **named: Any) -> None:
            try:
                build(self, *values, **named)
            except ValidationError as error:
                raise refusal(error, made) from error

        made.__init__, made.WHAT = init, what
        checked_kind: Class = made
        return checked_kind

    return checked


def refusal(error: ValidationError, kind: Any) -> LimpetError:
    """Return the first validation error as a message: the given and the expected value."""
    first = error.errors()[0]
    own = first.get("ctx", {}).get("error")
    if isinstance(own, LimpetError):  # a rule over several fields, with a message of its own
        return own
    *outer, name = map(str, first["loc"])
    what = kind.WHAT
    for part in outer:
        inner = _group(get_type_hints(kind).get(part))
        if inner is None:
            name = part  # a value within one setting
            break
        kind = inner
        what = getattr(kind, "WHAT", f"{what}: {part}")
    known = [one.name for one in dataclasses.fields(kind)]
    if first["type"] == "unexpected_keyword_argument":
        return ConfigError(
            f"Unknown setting '{name}' of {what}.{nearest(name, known)}", expected=f"one of {', '.join(known)}"
        )
    mapping = first["type"] in ("dataclass_type", "mapping_type")
    return ConfigError(
        f"{what[:1].upper()}{what[1:]} was given {name}={brief(first['input'])}.",
        "a mapping of settings" if mapping else wanted([first]),
    )


def _group(hint: Any) -> Any:
    """Return the class of a settings group in a type such as ``Augmentation | None``; None for other types."""
    return next((one for one in (hint, *get_args(hint)) if dataclasses.is_dataclass(one)), None)


_MACHINE = ("accelerator", "workers", "data_on_device")
"""Settings that do not change the result."""


@settings("what is trained")
class Trainable:
    """Trainable parts of a backbone; all by default. The projection is always trained.

    Args:
        last: Train this many of its last blocks, with all layers after them; 0 for none.
        lora: Train only low-rank adapters of this rank in its layers (LoRA), which a release merges into its weights;
            requires the extra ``peft``.
    """

    last: Count | None = None
    lora: PositiveInt | None = None

    def __post_init__(self) -> None:
        refuse(
            self.last is not None and self.lora is not None,
            f"What is trained was given last={self.last} and lora={self.lora}.",
            "one of the two",
        )


@settings("the recipe")
class Recipe:
    """How a model is trained.

    Args:
        epochs: Passes over the training images.
        batch_size: Images per step and process; at least 2, because of batch statistics.
        items_per_class: Images of each class in a batch, such as 4 for triplets: every batch then holds batch_size / 4
            classes, and all classes are equally frequent. Default: shuffle all images. Steps per epoch do not change.
        optimizer: "sgd" (with momentum) or "adamw".
        learning_rate: Base rate.
        backbone_rate: Rate of the backbone, as a multiple of the base rate: pretrained weights need a lower rate than
            the new projection and classifier. Default: 1 for images; 0.05 for text models, or 0.5 with LoRA.
        momentum: Momentum of SGD.
        nesterov: Whether SGD uses Nesterov momentum.
        weight_decay: Weight decay of all parameters.
        schedule: "constant", "steps" (× 0.1 at the milestones), "cosine" (to 0), "cosine-restarts" (as in CVS, in
            cycles of 1, 2, 4, ... epochs), or "polynomial" (to 0).
        milestones: Epochs at which "steps" lowers the rate.
        power: Exponent of "polynomial": (1 − progress)^power.
        warmup_epochs: Epochs of linear warm-up before the schedule.
        clip_norm: Maximum gradient norm of the model. Default: no clipping.
        augmentation: Random augmentations, redrawn for every image and epoch.
        old_view: Input of the predecessor: "cached", the clean image, embedded once; "same", the augmented
            image that the new model sees, embedded at every step; or "method", as in the method's paper.
        precision: "32-true", or "bf16-mixed" (losses are still computed in float32).
        channels_last: Store images and convolution weights in the channels-last memory format, which is fastest on GPUs
            in bfloat16.
        freeze_batch_norm: Freeze the running statistics of batch normalisation in a backbone with published weights,
            and use them in training; scales and shifts are trained.
        trainable: Trainable parts of a pretrained backbone: ``last``, its last blocks, or ``lora``, low-rank adapters
            of that rank. Default: all of it. Frozen parts keep their batch statistics.
        accelerator: Device for Lightning Fabric: "auto", "cpu", "cuda", ...
        devices: Number of processes, one per device. Each has batches of ``batch_size``; the loss is computed over all
            of them.
        workers: Processes that read images; 0 reads in the training process.
        data_on_device: Where training images are kept: "always" copies all of them to the device once; "auto" does so
            on a CUDA device if they take at most half of its free memory; "never" reads every batch from the host.
    """

    epochs: PositiveInt = 30
    batch_size: Annotated[int, Ge(2)] = 128
    items_per_class: int | None = None
    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: Positive = 0.1
    backbone_rate: Positive | None = None
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    nesterov: bool = False
    weight_decay: NonNegative = 5e-4
    schedule: Literal["constant", "steps", "cosine", "cosine-restarts", "polynomial"] = "cosine"
    milestones: tuple[int, ...] = ()
    power: Positive = 2.0
    warmup_epochs: NonNegative = 0.0
    clip_norm: Positive | None = None
    augmentation: Augmentation = field(default_factory=Augmentation)
    old_view: Literal["method", "cached", "same"] = "method"
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    channels_last: bool = False
    freeze_batch_norm: bool = False
    trainable: Trainable = field(default_factory=Trainable)
    accelerator: str = "auto"
    devices: PositiveInt = 1
    workers: Count = 0
    data_on_device: DataOnDevice = "auto"

    def __post_init__(self) -> None:
        if self.items_per_class is not None:
            refuse(
                not holds_whole_classes(self.batch_size, self.items_per_class),
                f"The recipe was given items_per_class={self.items_per_class}.",
                f"a divisor of the batch size {self.batch_size} that leaves room for two classes or more; or none",
            )
        refuse(
            self.nesterov and self.momentum == 0,
            "The recipe was given nesterov=True.",
            "false, or a momentum above 0",
        )
        refuse(
            self.schedule == "steps" and not self.milestones,
            "The recipe was given milestones=().",
            "epochs for the schedule 'steps'",
        )

    def decides(self) -> dict[str, object]:
        """Return the settings that affect the result, without those of the hardware."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in _MACHINE}

    def view_for(self, method: CompatibilityMethod) -> Literal["cached", "same"]:
        """Return the input of the predecessor; without augmentation the cached view is equal, and free."""
        if self.augmentation == Augmentation():
            return "cached"
        return method.old_view if self.old_view == "method" else self.old_view

    def batches_for(self, method: CompatibilityMethod) -> Recipe:
        """Return the recipe with the items per class that a method needs, unless the recipe sets them.

        Raises:
            ConfigError: The batch size is not a multiple of the items per class, or holds fewer than two classes.
        """
        wanted = self.items_per_class if self.items_per_class is not None else method.items_per_class
        return self if wanted == self.items_per_class else dataclasses.replace(self, items_per_class=wanted)

    def rates_for(self, model: EmbeddingSpec) -> Recipe:
        """Return the recipe with the default backbone rate of a model, unless the recipe sets one."""
        rate = model.LAYERS_RATE if self.trainable.lora is None else model.LORA_RATE
        return self if self.backbone_rate is not None else dataclasses.replace(self, backbone_rate=rate)

    def build_optimizer(self, parameters: Iterable[Parameter], pretrained: Iterable[Parameter] = ()) -> Optimizer:
        """Return the optimiser over these parameters.

        Args:
            parameters: All trainable parameters.
            pretrained: Parameters that `backbone_rate` applies to; some may be frozen.
        """
        from torch.optim import SGD, AdamW

        learning, slower = list(parameters), {id(one) for one in pretrained}
        groups: list[dict[str, Any]] = [{"params": learning}]
        if self.backbone_rate not in (None, 1) and slower:
            own = [one for one in learning if id(one) not in slower]
            backbone = [one for one in learning if id(one) in slower]
            groups = [{"params": own}, {"params": backbone, "lr": (self.backbone_rate or 1) * self.learning_rate}]
            groups = [group for group in groups if group["params"]]
        if self.optimizer == "adamw":
            return AdamW(groups, lr=self.learning_rate, weight_decay=self.weight_decay)
        return SGD(
            groups,
            lr=self.learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )

    def build_schedule(self) -> schedules.Schedule:
        """Return the learning-rate schedule."""
        table: dict[str, Callable[[], schedules.Schedule]] = {
            "constant": schedules.constant,
            "steps": functools.partial(schedules.milestones, self.milestones),
            "cosine": schedules.cosine,
            "cosine-restarts": schedules.cosine_restarts,
            "polynomial": functools.partial(schedules.polynomial, self.power),
        }
        return schedules.warmed_up(table[self.schedule](), self.warmup_epochs)

    def build_fabric(self) -> Any:
        """Return a launched Lightning Fabric."""
        from lightning_fabric import Fabric

        try:
            strategy: Any = "auto"
            if self.devices > 1:  # a method's buffers are large and change identically in all processes
                from lightning_fabric.strategies.ddp import DDPStrategy

                strategy = DDPStrategy(find_unused_parameters=True, broadcast_buffers=False)
            fabric = Fabric(
                accelerator=self.accelerator, devices=self.devices, precision=self.precision, strategy=strategy
            )
        except Exception as error:  # Fabric raises many kinds of errors for missing devices
            raise ConfigError(
                f"Cannot train on accelerator '{self.accelerator}' with {self.devices} devices: {error}",
                expected="a device of this machine",
                to_do="--recipe.accelerator cpu runs everywhere.",
            ) from error
        if self.devices > 1:
            fabric.launch()
        return fabric


HEAD_RECIPE = Recipe(epochs=20, batch_size=256, optimizer="adamw", learning_rate=4e-3, weight_decay=1e-4)
"""Default recipe for a head over thousands of items; takes seconds on a CPU."""
TEXT_RECIPE = Recipe(
    epochs=4, batch_size=64, optimizer="adamw", learning_rate=2e-3, weight_decay=1e-2,
    warmup_epochs=0.2, clip_norm=1.0,
)  # fmt: skip
"""Default recipe for fine-tuning a text model; its layers learn at a rate of 1e-4, LoRA at 1e-3."""


def recipe_with(usual: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Return a recipe with other settings; nested mappings set groups within it.

    Raises:
        ConfigError: A setting is unknown, or a value out of range.

    >>> recipe_with(Recipe(), {"epochs": 3, "trainable": {"last": 2}}).trainable
    Trainable(last=2, lora=None)
    """
    return Recipe(**_merged(dataclasses.asdict(usual), changes))


def _merged(usual: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: (usual[name], value) for name, value in changes.items() if isinstance(usual.get(name), Mapping)}
    inner = {name: _merged(one, other) for name, (one, other) in both.items() if isinstance(other, Mapping)}
    return {**usual, **changes, **inner}


_FEWEST_STEPS = 16  # steps per epoch, below which batches become smaller
_SMALLEST_BATCH = 32
_WIDTH = 384  # dimensions of the vectors for which the rate of `HEAD_RECIPE` was tuned


def head_recipe(items: int, width: int = 0) -> Recipe:
    """Return the recipe of a head over `items` items, with smaller batches if an epoch would have too few steps.

    Args:
        items: Number of training items.
        width: Dimensions of a vector, for a method with `CompatibilityMethod.slower_when_wide`: above 384, for which
            the rate was tuned, the rate falls in proportion. 0 for other methods, whose rate stays.

    >>> head_recipe(15_000).batch_size, head_recipe(1_000).batch_size, head_recipe(100).batch_size
    (256, 62, 32)
    >>> head_recipe(15_000).learning_rate, head_recipe(15_000, 1280).learning_rate
    (0.004, 0.0012)
    """
    return dataclasses.replace(
        HEAD_RECIPE,
        batch_size=min(HEAD_RECIPE.batch_size, max(_SMALLEST_BATCH, items // _FEWEST_STEPS)),
        learning_rate=HEAD_RECIPE.learning_rate * min(1.0, _WIDTH / max(width, 1)),
    )


@settings("the geometry")
class Geometry:
    """Settings of the space that a model is trained on; all are optional.

    Args:
        space: A key of `limpet.geometry.SPACES`. Default: that of the predecessor, or the hypersphere.
        curvature: K > 0, for spaces that have a curvature. Default: that of the predecessor, or of the space.
        learn_curvature: Learn K with the model, within a factor of ten of its initial value. With a predecessor, the
            space changes: stored embeddings must be lifted again, by the release that `train_release` writes.
        lift_old: Distance ζ from the origin at which the directions of a predecessor on the hypersphere are lifted to
            the new space; None refuses predecessors of other spaces.
        relift_old: Lift the tangent vectors of a predecessor of another curvature again, with this curvature (HBCT,
            table 3); otherwise such a predecessor is refused. Its stored embeddings must be lifted in the same way
            before they can be searched.
        pad_old: Pad the embeddings of a predecessor of fewer dimensions with zeros; otherwise it is refused, except by
            methods that use further dimensions, such as free_dimensions. Stored galleries do not change.
    """

    space: str | None = None
    curvature: Positive | None = None
    learn_curvature: bool = False
    lift_old: Positive | None = None
    relift_old: bool = False
    pad_old: bool = False


def _encoder(given: Any) -> Any:
    return encoder_spec(**given) if isinstance(given, Mapping) else given


@settings("the experiment")
class Experiment:
    """All settings that determine the result of a run, apart from its images and its predecessor.

    Args:
        method: A key of `limpet.METHODS`.
        method_options: Options of that method.
        model: The encoder to build; if its ζ is not set, the space chooses it.
        geometry: The space to train on.
        head: A key of `limpet.models.heads.HEADS`. Default: that of the space, softmax on the hypersphere.
        head_options: Options of that head.
        recipe: How to train.
        weights: Local folder of published backbone weights. Default: random initialisation.
        freeze_backbone: Train only the projection and the head.
        seed: Random seed of initial weights, order, augmentation and the method.
    """

    method: str = "independent"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    model: Annotated[EmbeddingSpec, BeforeValidator(_encoder)] = field(default_factory=EncoderSpec)
    geometry: Geometry = field(default_factory=Geometry)
    head: str | None = None
    head_options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)
    weights: Path | None = None
    freeze_backbone: bool = False
    seed: Seed = 0

    def __post_init__(self) -> None:
        refuse(
            self.freeze_backbone and self.weights is None and not self.model.brings_weights,
            "A frozen backbone without weights would stay random.",
            "the folder of published weights (--weights FOLDER), or a backbone that is trained",
        )
        refuse(
            self.recipe.freeze_batch_norm and self.weights is None and not self.model.brings_weights,
            "The recipe was given freeze_batch_norm=True, and without weights there are no statistics to keep.",
            "the folder of published weights (--weights FOLDER), or false",
        )

    def build_model(self, weights: Path | None = None) -> EmbeddingNetwork:
        """Return the network, with its frozen parts set to require no gradient.

        Args:
            weights: Local folder of published backbone weights; None for random initialisation.
        """
        from limpet.models.building import build_network

        network: EmbeddingNetwork = build_network(
            self.model,
            weights,
            freeze_backbone=self.freeze_backbone,
            freeze_batch_norm=self.recipe.freeze_batch_norm,
        )
        return network

    @classmethod
    def from_settings(cls, values: Mapping[str, object]) -> Self:
        """Build an experiment from plain values, as in a settings file.

        Args:
            values: Values of the fields, by name; "options" are those of the method.

        Raises:
            ConfigError: A name is unknown, or a value is of another type or out of range.
        """
        named: dict[str, Any] = {
            "method_options" if name == "options" else name: value for name, value in values.items()
        }
        experiment = cls(**named)
        build_method(experiment.method, experiment.method_options)  # refuses an unknown method or option
        return experiment

    def settings(self) -> dict[str, object]:
        """Return all settings, including defaults, as plain values for `from_settings`."""
        method = inspect.signature(METHODS[self.method]).parameters.values()
        defaults = {one.name: one.default for one in method if one.default is not one.empty}
        return {
            "method": self.method,
            "options": {**defaults, **self.method_options},
            "model": self.model.model_dump(mode="json") if isinstance(self.model, EncoderSpec) else {},
            "geometry": dataclasses.asdict(self.geometry),
            "head": self.head,
            "head_options": dict(self.head_options),
            "recipe": _plain(self.recipe.decides()),
            "seed": self.seed,
            **({} if self.weights is None else {"weights": str(self.weights)}),
        }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
