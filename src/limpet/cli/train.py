"""``limpet train``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from limpet.cli.choices import options_by_method
from limpet.cli.console import as_json, print_json, print_table, tell_kept, training_progress
from limpet.cli.models import Model, releases_of
from limpet.cli.options import DataSets, Network, StartingModel
from limpet.cli.parameters import RARE, Named, Options
from limpet.cli.settings import Settings
from limpet.cli.training import Training
from limpet.errors import ConfigError, refuse, unknown_name
from limpet.methods import build_method
from limpet.support.options import bound

if TYPE_CHECKING:
    from limpet.data.retrieval_data import RetrievalData
    from limpet.methods.base import CompatibilityMethod
    from limpet.models.release import Release
    from limpet.training.experiment import Experiment, Geometry
    from limpet.training.loggers import OpenLogger


@dataclass(frozen=True)
class Predecessor(Options):
    """The old model, which embedded the gallery.

    Args:
        old: Old model: release:FOLDER, hf:FOLDER, FILE.py:FUNCTION or another form of --model.
        old_data: Training data of the old model, a name or folder, for methods that measure the old model on it
            (advbct).
        scenario: Split of the data; the old model is trained first, on its share: extended-data, extended-class,
            open-data, open-class, enlarged-backbone-data, enlarged-backbone-class, new-architecture, both.
        scenario_options: Options of the split, such as old_fraction.
        old_backbone: Network of the old model of a scenario. Default: that of the scenario, or of the new model. With
            --model, both models start from that one, unless the old model has another network.
        old_dim: Dimension of the old model of a scenario. Default: that of the new models. Old embeddings of fewer
            dimensions are padded with zeros: see --pad-old.
    """

    old: Model | None = None
    old_data: Annotated[str | None, RARE] = None
    scenario: str | None = None
    scenario_options: Annotated[Named, RARE] = field(default_factory=dict)
    old_backbone: Annotated[str | None, RARE] = None
    old_dim: Annotated[int | None, RARE] = None

    def __post_init__(self) -> None:
        refuse(
            self.old_dim is not None and self.scenario is None,
            f"--old-dim {self.old_dim} without --scenario.",
            "--scenario, which trains the old model; a release of --old has its own dimension",
        )
        if self.scenario is not None and self.old is not None:
            raise ConfigError(
                "Both --scenario and --old were given.",
                expected="--scenario to train an old model on a share of the data, or --old RELEASE to use your own",
            )

    def release(self, over: Model | None = None) -> Release | None:
        """Open the old model, if one was given.

        Args:
            over: What gives the module that it was made of, where that is one's own.

        Raises:
            ReleaseError: It takes no images.
        """
        if self.old is None:
            return None
        from limpet.models.named_models import needs_module

        return releases_of([self.old], over if needs_module(self.old) else None)[self.old]


@dataclass(frozen=True)
class SpaceOptions(Options):
    """The embedding space.

    Args:
        space: Embedding space: hypersphere or lorentz (hyperbolic). Default: the old model's, or the first that every
            method supports: hypersphere, except for hbct.
        curvature: K > 0 of the lorentz space, whose curvature is -K. Default: the old model's, or 1.
        zeta: Maximum distance of points in the lorentz space from the origin. Default: 1 for a first model, else 0.2
            more than the old model's. With --scenario, it is that of the new models.
        lift_old: Lift an old model from the hypersphere to the lorentz space, all points at this distance from the
            origin, and train a hyperbolic model over it. The release to embed with is written as old-lifted.
        relift_old: With a --curvature other than the old model's, lift its tangent vectors again with the new one. The
            release to embed with is written as old-lifted.
        pad_old: Pad an old model of fewer dimensions than --dim with zeros. Methods designed for that, such as
            free_dimensions, do not need this option. The stored vectors stay as they are.
    """

    space: str | None = None
    curvature: Annotated[float | None, RARE] = None
    zeta: Annotated[float | None, RARE] = None
    lift_old: Annotated[float | None, RARE] = None
    relift_old: Annotated[bool, RARE] = False
    pad_old: Annotated[bool, RARE] = False

    @property
    def geometry(self) -> Geometry:
        """What was said of the space."""
        from limpet.training.experiment import Geometry

        return Geometry(
            self.space, self.curvature, lift_old=self.lift_old, relift_old=self.relift_old, pad_old=self.pad_old
        )


@dataclass(frozen=True)
class Destination(Options):
    """Output folder and logs.

    Args:
        out: Output folder for the releases. An interrupted run continues; a finished one is kept.
        logger: Also log training metrics: as TensorBoard event files (tensorboard), a table (csv), an MLflow database
            (mlflow) or an offline run of Weights & Biases (wandb).
        again: Retrain if the code of limpet or of your method has changed; the previous release is kept as
            FOLDER.before-1.
    """

    out: Path
    logger: Annotated[list[Literal["tensorboard", "csv", "mlflow", "wandb"]], RARE] = field(default_factory=list)
    again: Annotated[bool, RARE] = False

    def loggers(self) -> list[OpenLogger]:
        """Return what opens the loggers that were asked for.

        Raises:
            MissingExtraError: What one needs is not installed.
        """
        from limpet.training.loggers import LOGGERS

        return [LOGGERS[name] for name in dict.fromkeys(self.logger)]

    def tell(self, releases: Mapping[str, Release]) -> None:
        """Print what there is now, and which of it was trained by other code."""
        from limpet.training.code import standing_of

        codes = {name: standing_of(release.record) for name, release in releases.items()}
        folders = {name: self.out if len(releases) == 1 else self.out / name for name in releases}
        if as_json():
            print_json(
                {"releases": {name: {"path": str(folders[name]), "fingerprint": release.fingerprint,
                                     "compatible_with": release.record.compatible_with, "code": codes[name]}
                              for name, release in releases.items()}}
            )  # fmt: skip
        rows = [[name, str(folders[name]), release.fingerprint[:24]] for name, release in releases.items()]
        print_table("Releases", ["name", "folder", "fingerprint"], rows)
        tell_kept({folders[name]: code for name, code in codes.items()})


def train(
    data: str,
    *,
    destination: Destination,
    predecessor: Predecessor = Predecessor(),
    network: Network = Network(),
    start: StartingModel = StartingModel(),
    on: SpaceOptions = SpaceOptions(),
    training: Training = Training(),
    sets: DataSets = DataSets(),
    settings: Settings = Settings(),
    method: list[str] = ["p2s"],
    head: Annotated[str | None, RARE] = None,
) -> int:
    """Train a model, or a whole comparison of old, independent and compatible models.

    With --old, a model compatible with that release is trained on all training images. With --scenario, an old model
    is first trained on its share of them, then the independent model and every method. With neither, only the method
    "independent" can be trained: a first model, without a predecessor.

    Args:
        data: Data set: a name (`limpet data list`), or a folder with one subfolder of images per class.
        method: One or more compatibility methods (`limpet methods`).
        head: Training classifier: softmax (the default), normalised or arcface on the hypersphere, lorentz on the
            lorentz space.

    Examples:
        limpet train --data photos --scenario extended-class --method p2s --out runs/photos
        limpet train --data photos --old release:runs/photos/old --method bct --out runs/photos/bct
        limpet train --data photos --old hf:models/dinov2-small --model hf:models/dinov2-base --dim 384
            --recipe.trainable.lora 8 --recipe.learning-rate 0.01 --out runs/photos/dinov2
    """
    from limpet.models.heads import HEADS
    from limpet.training.spaces import common_space, settle

    recipe = training.settled
    chosen = options_by_method(method, training.method_options)
    methods = {name: build_method(name, options) for name, options in chosen.items()}
    first, spec = start.opened(network)
    old = _checked_predecessor(predecessor, methods, on, start)
    asked, projection = on.geometry, network.projection
    if asked.space is None and old is None:
        asked = replace(asked, space=common_space(methods.values()))
    for one in methods.values():
        found = settle(asked, one, dim=network.dim, zeta=on.zeta, head=head, old=old)
        asked, head, projection = replace(asked, space=found.space.name), found.head, projection or found.projection
        if predecessor.scenario is not None:  # what the first model leaves to the second
            found.space.clip_after(found.space.clip_after(None), on.zeta)
    bound(HEADS[str(head)], training.head_options, f"head '{head}'")
    settings = settings.resolved(space=asked.space, head=head, projection=projection, recipe=recipe)
    images = sets.images(data, spec)
    experiments = training.experiments(
        method, network, images.to_train_on(), head=str(head), projection=str(projection), zeta=on.zeta, geometry=asked,
        start=spec,
    )  # fmt: skip
    if not (destination.out / settings.file).exists():  # the settings of a run are kept if it refuses others
        settings.write(destination.out)
    if predecessor.scenario is not None:
        releases = _comparison(images, experiments, destination, predecessor, network.backbone, first)
    else:
        old_data = None if predecessor.old_data is None else sets.images(predecessor.old_data)
        before = Before(old, None if old is None else _as_it_takes_them(old, data, images, sets), old_data)
        releases = _models(images, experiments, destination, before, first)
    settings.write(destination.out)
    destination.tell(releases)
    return 0


def _checked_predecessor(
    predecessor: Predecessor, methods: Mapping[str, CompatibilityMethod], on: SpaceOptions, start: StartingModel
) -> Release | None:
    """Open the old model, if there is one; refuse one too many or too few for the methods."""
    from limpet.data.scenarios import SCENARIOS

    names = ", ".join(methods)
    in_sessions = [name for name, method in methods.items() if method.sessions_only]
    if in_sessions:
        raise ConfigError(
            f"{', '.join(in_sessions)} learns in sessions, each with a gallery of its own, and a single training has "
            "none.",
            expected="a method for one upgrade, such as bct; `limpet methods` lists them",
            to_do=f"limpet-bench sessions general-incremental --data DATA --out DIR --method {' '.join(in_sessions)}",
        )
    needs_old = any(method.needs_old for method in methods.values())
    refuse(
        predecessor.old is not None and not needs_old,
        f"An old model was given, which {names} does not use.",
        "a compatibility method, such as bct; or no --old",
    )
    if predecessor.scenario is not None and predecessor.scenario not in SCENARIOS:
        raise unknown_name("scenario", predecessor.scenario, SCENARIOS)
    start.refuse_unused(predecessor.old)
    old = predecessor.release(start.over)
    refuse(
        old is None and on.lift_old is not None,
        f"--lift-old {on.lift_old} without an old model.",
        "--old RELEASE, a model of the hypersphere",
    )
    refuse(
        old is None and predecessor.scenario is None and on.pad_old,
        "--pad-old without an old model.",
        "--old RELEASE of fewer dimensions than --dim; or --scenario with --old-dim",
    )
    refuse(
        old is None and predecessor.scenario is None and needs_old,
        f"{names} needs a predecessor and was given none.",
        "--old RELEASE, which embedded the gallery; or --scenario, to train an old model on a share of the data",
    )
    return old


def _comparison(
    images: RetrievalData,
    experiments: Mapping[str, Experiment],
    destination: Destination,
    predecessor: Predecessor,
    backbone: str | None,
    first: Release | None,
) -> dict[str, Release]:
    """Train an old model on its share of the images, then an independent one and one by every method.

    Args:
        backbone: Of the new models; the scenario's when left out.
        first: The model that all of them start from, but for an old one of another backbone.
    """
    from limpet.data.scenarios import SCENARIOS
    from limpet.training.train import train_upgrade

    scenario = SCENARIOS[str(predecessor.scenario)]
    items = images.to_train_on()
    seed = next(iter(experiments.values())).seed
    split = scenario.divide(items.labels, **{"seed": seed, **predecessor.scenario_options})
    if scenario.new_backbone is not None and backbone is None and first is None:
        experiments = {name: _with_backbone(one, scenario.new_backbone) for name, one in experiments.items()}
    reference = replace(next(iter(experiments.values())), method="independent", method_options={})
    old_backbone = predecessor.old_backbone or scenario.old_backbone
    old = _with_backbone(reference, old_backbone) if old_backbone else reference
    if predecessor.old_dim is not None:
        old = replace(old, model=old.model.model_copy(update={"dim": predecessor.old_dim}))
    if first is not None and not old.model.brings_weights:  # trained from nothing, and so as a whole
        from limpet.training.experiment import Trainable

        old = replace(old, recipe=replace(old.recipe, trainable=Trainable()))
    from limpet.training.experiment import Geometry

    new = {
        # the curvature is that of the old model
        name: replace(one, geometry=Geometry(one.geometry.space, pad_old=one.geometry.pad_old))
        for name, one in {"independent": reference, **experiments}.items()
    }
    return train_upgrade(
        items,
        split,
        replace(old, model=old.model.model_copy(update={"zeta": None})),
        new,
        destination.out,
        encoder=first,
        data_name=f"{images.name}, {scenario.name}",
        on_run=training_progress,
        loggers=destination.loggers(),
        again=destination.again,
    )


def _with_backbone(experiment: Experiment, backbone: str) -> Experiment:
    from limpet.models.specs import EncoderSpec

    if backbone == experiment.model.name:
        return experiment
    plain = experiment.model.model_dump(include=set(EncoderSpec.model_fields))
    return replace(experiment, model=EncoderSpec(**{**plain, "backbone": backbone, "backbone_options": {}}))


@dataclass(frozen=True)
class Before:
    """The predecessor of a training.

    Args:
        old: The old model.
        items: The data as it takes images; None where it takes them as the new model does.
        data: Its own training data.
    """

    old: Release | None
    items: RetrievalData | None
    data: RetrievalData | None


def _as_it_takes_them(old: Release, data: str, read: RetrievalData, sets: DataSets) -> RetrievalData | None:
    """Read the data as the old model takes images; None where they were read so, or cannot be."""
    from limpet.data.datasets import option_names
    from limpet.models.specs import EncoderSpec

    spec, images = old.encoder.spec, read.to_train_on()
    if not isinstance(spec, EncoderSpec) or images.fit is None or "image_size" not in option_names(data):
        return None
    if images.shape == spec.input_shape and images.fit == spec.fit:
        return None
    return sets.images(data, spec, exactly=True)


def _models(
    images: RetrievalData,
    experiments: Mapping[str, Experiment],
    destination: Destination,
    before: Before,
    first: Release | None,
) -> dict[str, Release]:
    """Train a model by every method on all images, several in a folder each; all of them start from ``first``."""
    from limpet.training.train import train_release

    several, out = len(experiments) > 1, destination.out
    releases = {}
    for name, experiment in experiments.items():
        with training_progress(name) as bar:
            releases[name] = train_release(
                images.to_train_on().compact(),
                experiment,
                out / name if several else out,
                old=before.old,
                old_images=None if before.data is None else before.data.to_train_on().compact(),
                old_items=None if before.items is None else before.items.to_train_on().compact(),
                encoder=first,
                data_name=images.name,
                cache=out / "cache" if several else None,
                progress=bar,
                loggers=destination.loggers(),
                again=destination.again,
            )
    return releases
