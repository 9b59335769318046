"""``holdfast train``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import encoder_for, open_data, options_by_method, write_settings
from holdfast.cli.console import console, print_json, print_table, training_progress
from holdfast.cli.parsing import parse, resolved
from holdfast.errors import ConfigError, ReleaseError, refuse
from holdfast.experiment import Experiment, Recipe
from holdfast.methods import build_method

if TYPE_CHECKING:
    from holdfast.data.retrieval_data import RetrievalData
    from holdfast.experiment import Geometry
    from holdfast.models.release import Release


def train(
    data: str,
    out: Path,
    method: list[str] = ["p2s"],  # noqa: B006 - read only, and shown as the default
    method_options: dict[str, Any] = {},  # noqa: B006
    old: Path | None = None,
    old_data: str | None = None,
    scenario: str | None = None,
    scenario_options: dict[str, Any] = {},  # noqa: B006
    backbone: str | None = None,
    old_backbone: str | None = None,
    dim: int = 128,
    projection: str | None = None,
    backbone_options: dict[str, Any] = {},  # noqa: B006
    mean: list[float] = [0.5],  # noqa: B006
    std: list[float] = [0.5],  # noqa: B006
    weights: Path | None = None,
    freeze_backbone: bool = False,
    space: str | None = None,
    curvature: float | None = None,
    learn_curvature: bool = False,
    zeta: float | None = None,
    lift_old: float | None = None,
    head: str | None = None,
    head_options: dict[str, Any] = {},  # noqa: B006
    recipe: Recipe = Recipe(),  # noqa: B008 - immutable
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    tensorboard: bool = False,
    seed: int = 0,
    again: bool = False,
    json: bool = False,
) -> None:
    """Train models.

    With --old, a model compatible with that release is trained on all training images. With --scenario, an old model
    is first trained on its share of them, then the independent model and every method. With neither, only the method
    "independent" can be trained: a first model, without a predecessor.

    Args:
        data: A data set by name (`holdfast data list`), or a folder with one sub-folder of images per class.
        out: Folder for the releases; an interrupted run continues, a finished one is kept.
        method: One or more compatibility methods (`holdfast methods`).
        method_options: Options of the method; with several methods, a mapping of each one's name to its options.
        old: Release that embedded the gallery.
        old_data: The old model's own training data, like --data, for methods that measure it there (advbct).
        scenario: Who sees what: extended-data, extended-class, open-data, open-class, enlarged-backbone-data,
            enlarged-backbone-class, new-architecture, both.
        scenario_options: Options of the split, such as old_fraction.
        backbone: Network of the new model: convnet, resnet18, resnet50, iresnet18, iresnet50, vit_s or vit_b; the
            scenario's, or convnet, when left out.
        old_backbone: Network of the old model; the scenario's, or the same, when left out.
        dim: Dimension of the embeddings.
        projection: From backbone to embedding: linear, linear-bn, mlp or none; linear when left out,
            linear-bn on the lorentz space.
        backbone_options: Options of the backbone, such as filters of convnet.
        mean: Subtracted from each channel, after scaling pixels to [0, 1].
        std: Divides each channel.
        weights: Local folder of published backbone weights.
        freeze_backbone: Train projection and classifier only.
        space: What embeddings are points of: hypersphere or lorentz (hyperbolic); the old model's when left out, else
            the first that every method knows: hypersphere, but for hbct.
        curvature: K > 0 of the lorentz space (curvature -K); the old model's, or 1, when left out.
        learn_curvature: Learn the curvature of a first model, with --scenario that of the old one. With --old it makes
            another space, on which the old gallery has to be lifted again: the release for that is written beside the
            new one, as old-lifted.
        zeta: Distance from the origin to which points of the lorentz space reach; 1 for a first model, 0.2 more than
            the old model's when left out. With --scenario, that of the new models.
        lift_old: Lay an old model of the hypersphere onto the lorentz space, all its points at this distance from the
            origin, and train a hyperbolic model over it; the release to embed with is written as old-lifted.
        head: Classifier of the training: softmax, normalised or arcface on the hypersphere, lorentz on the lorentz
            space; the first of them when left out.
        head_options: Options of the head, such as scale and margin of arcface, or triplet of any.
        recipe: How to train.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set, such as image_size.
        tensorboard: Also write TensorBoard's event files.
        seed: Of initial weights, order, augmentation, split and method.
        again: Train anew what other code trained, of holdfast or of your method; what was there is kept beside it, as
            FOLDER.before-1.
        json: Print one JSON document with the releases.
    """


def main(words: list[str]) -> int:
    """Train, and say where the releases are and what to type next."""
    arguments, text = parse(train, words, "train")
    old = _check(arguments)
    text = resolved(text, {name: arguments[name] for name in ("space", "head", "projection")})
    images = open_data(arguments["data"], arguments["data_root"], arguments["data_options"])
    experiments = _experiments(arguments, images)
    if not (arguments["out"] / "train.yaml").exists():  # the settings of a run are kept if it refuses others
        write_settings(arguments["out"], "train.yaml", text)
    if arguments["scenario"] is not None:
        releases = _scenario(arguments, images, experiments)
    else:
        releases = _single(arguments, images, experiments, old)
    write_settings(arguments["out"], "train.yaml", text)
    _report(arguments, releases)
    return 0


def _check(arguments: dict[str, Any]) -> Release | None:
    """Refuse what cannot work before any data is read; return the old release, if there is one."""
    from holdfast.data.scenarios import SCENARIOS
    from holdfast.errors import unknown_name
    from holdfast.models.encoder import EncoderSpec
    from holdfast.models.heads import HEADS
    from holdfast.models.release import load_release
    from holdfast.options import bound
    from holdfast.training.spaces import common_space, settle

    names = arguments["method"]
    chosen = options_by_method(names, arguments["method_options"])
    methods = [build_method(name, options) for name, options in chosen.items()]
    _refuse_sessions([name for name, method in zip(chosen, methods, strict=True) if method.sessions_only])
    refuse(
        arguments["old"] is not None and not any(method.needs_old for method in methods),
        f"An old model was given, which {', '.join(names)} does not use.",
        "a compatibility method, such as bct; or no --old",
    )
    if arguments["scenario"] is not None and arguments["scenario"] not in SCENARIOS:
        raise unknown_name("scenario", arguments["scenario"], SCENARIOS)
    if arguments["scenario"] is not None and arguments["old"] is not None:
        raise ConfigError(
            "Both --scenario and --old were given.",
            expected="--scenario to train an old model on a share of the data, or --old RELEASE to use your own",
        )
    old = None if arguments["old"] is None else load_release(arguments["old"])
    if old is not None and not isinstance(old.encoder.spec, EncoderSpec):
        raise ReleaseError(
            f"The release '{arguments['old']}' takes {old.encoder.spec.input_words}, no images.",
            expected="a model that was trained on images",
            to_do="for two frozen models, `holdfast adapt` trains heads and fits adapters.",
        )
    if arguments["space"] is None and old is None:
        arguments["space"] = common_space(methods)
    refuse(
        old is None and arguments["lift_old"] is not None,
        f"--lift-old {arguments['lift_old']} without an old model.",
        "--old RELEASE, a model of the hypersphere",
    )
    refuse(
        old is None and arguments["scenario"] is None and any(method.needs_old for method in methods),
        f"{', '.join(names)} needs a predecessor and was given none.",
        "--old RELEASE, which embedded the gallery; or --scenario, to train an old model on a share of the data",
    )
    for method in methods:
        asked = _geometry(arguments)
        found = settle(asked, method, dim=arguments["dim"], zeta=arguments["zeta"], head=arguments["head"], old=old)
        settled = {"space": found.space.name, "head": found.head, "projection": found.projection}
        arguments.update({name: arguments[name] or value for name, value in settled.items()})
        if arguments["scenario"] is not None:  # what the first model leaves to the second
            found.space.clip_after(found.space.clip_after(None), arguments["zeta"])
    bound(HEADS[arguments["head"]], arguments["head_options"], f"head '{arguments['head']}'")
    return old


def _refuse_sessions(names: list[str]) -> None:
    """Stop where a method that learns session by session was asked to train one model."""
    if names:
        raise ConfigError(
            f"{', '.join(names)} learns in sessions, each with a gallery of its own, and a single training has none.",
            expected="a method for one upgrade, such as bct; `holdfast methods` lists them",
            to_do=f"holdfast sessions general-incremental --data DATA --out DIR --method {' '.join(names)}",
        )


def _geometry(arguments: dict[str, Any]) -> Geometry:
    from holdfast.experiment import Geometry

    return Geometry(**{key: arguments[key] for key in ("space", "curvature", "learn_curvature", "lift_old")})


def _experiments(arguments: dict[str, Any], data: RetrievalData) -> dict[str, Experiment]:
    base = Experiment(
        model=encoder_for(arguments, data.to_train_on()),
        geometry=_geometry(arguments),
        **{key: arguments[key] for key in ("head", "head_options", "recipe", "weights", "freeze_backbone", "seed")},
    )
    return {
        name: replace(base, method=name, method_options=options)
        for name, options in options_by_method(arguments["method"], arguments["method_options"]).items()
    }


def _scenario(arguments: dict[str, Any], data: RetrievalData, experiments: dict[str, Experiment]) -> dict[str, Release]:
    from holdfast.data.scenarios import SCENARIOS
    from holdfast.experiment import Geometry
    from holdfast.training.train import train_upgrade

    scenario = SCENARIOS[arguments["scenario"]]
    split = scenario.divide(data.to_train_on().labels, **{"seed": arguments["seed"], **arguments["scenario_options"]})
    if scenario.new_backbone is not None and arguments["backbone"] is None:
        experiments = {name: _with_backbone(one, scenario.new_backbone) for name, one in experiments.items()}
    reference = replace(next(iter(experiments.values())), method="independent", method_options={})
    old_backbone = arguments["old_backbone"] or scenario.old_backbone
    old = _with_backbone(reference, old_backbone) if old_backbone else reference
    old = replace(old, model=old.model.model_copy(update={"zeta": None}))
    experiments, reference = (  # the curvature is that of the old model
        {name: replace(one, geometry=Geometry(one.geometry.space)) for name, one in experiments.items()},
        replace(reference, geometry=Geometry(reference.geometry.space)),
    )
    return train_upgrade(
        data.to_train_on(),
        split,
        old,
        {"independent": reference, **experiments},
        arguments["out"],
        data_name=f"{data.name}, {scenario.name}",
        on_run=training_progress,
        tensorboard=arguments["tensorboard"],
        again=arguments["again"],
    )


def _with_backbone(experiment: Experiment, backbone: str) -> Experiment:
    if backbone == experiment.model.name:
        return experiment
    return replace(experiment, model=experiment.model.model_copy(update={"backbone": backbone, "backbone_options": {}}))


def _single(
    arguments: dict[str, Any], data: RetrievalData, experiments: dict[str, Experiment], old: Release | None
) -> dict[str, Release]:
    from holdfast.training.train import train_release

    old_images = None
    if arguments["old_data"] is not None:
        old_data = open_data(arguments["old_data"], arguments["data_root"], arguments["data_options"])
        old_images = old_data.to_train_on().compact()
    several = len(experiments) > 1
    releases = {}
    for name, experiment in experiments.items():
        folder = arguments["out"] / name if several else arguments["out"]
        with training_progress(name) as on_step:
            releases[name] = train_release(
                data.to_train_on().compact(),
                experiment,
                folder,
                old=old,
                old_images=old_images,
                data_name=data.name,
                cache=arguments["out"] / "cache" if several else None,
                on_step=on_step,
                tensorboard=arguments["tensorboard"],
                again=arguments["again"],
            )
    return releases


def _report(arguments: dict[str, Any], releases: dict[str, Release]) -> None:
    from holdfast.training.code import training_code

    out = arguments["out"]
    codes = {}
    for name, release in releases.items():
        record = release.record
        now = training_code(record.method, record.head, record.encoder)
        codes[name] = "unknown" if record.code is None else "same" if record.code == now else "other"
    folders = {name: out if len(releases) == 1 else out / name for name in releases}
    if arguments["json"]:
        print_json(
            {"releases": {name: {"path": str(folders[name]), "fingerprint": release.fingerprint,
                                 "compatible_with": release.record.compatible_with, "code": codes[name]}
                          for name, release in releases.items()}}
        )  # fmt: skip
    rows = [[name, str(folders[name]), release.fingerprint[:24]] for name, release in releases.items()]
    print_table("Releases", ["name", "folder", "fingerprint"], rows)
    for code, said in _OF_CODE.items():
        kept = [str(folders[name]) for name in releases if codes[name] == code]
        if kept:
            console.print(f"Kept as it was, {said}: {', '.join(kept)}.", markup=False)
    if {*codes.values()} != {"same"}:
        console.print(
            f"Next: the same command with --again trains that anew; what is there stays, as {out.name}.before-1 or the "
            "like.",
            markup=False,
        )


_OF_CODE = {
    "other": "trained by other code than that of today",
    "unknown": "trained before releases told which code trained them",
}
