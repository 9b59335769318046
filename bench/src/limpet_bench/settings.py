"""Settings of one experiment of a suite, resolved with all defaults."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from limpet import EncoderSpec, Experiment, Release, open_release
from limpet.errors import ConfigError, DataError
from limpet.methods import METHODS
from limpet.models import BACKBONES, HEADS, PUBLISHED
from limpet.support import DataOnDevice, version_of
from limpet_bench.suite import Values

Changes = Mapping[str, Any]
"""Settings that replace those of the suite, by dotted name: of a trial, or chosen by tuning."""


def resolved_settings(values: Values, seed: int, root: Path | None) -> Values:
    """Return all settings that determine the result of a run, with defaults; the address of its task depends on them.

    Args:
        values: Settings of one row of a suite.
        seed: Random seed of the run.
        root: Folder that holds the data sets, and published weights in its folder "weights".
    """
    values = {**values, "seed": seed}
    name = values.pop("starts_from", None)
    start = None if name is None else open_release(name)
    experiment = experiment_of(values, start)
    found: Values = {"experiment": experiment.settings()}
    if start is not None:
        found["starts_from"] = {"model": name, "fingerprint": start.fingerprint}
    if (weights := values.get("weights")) is not None:
        found["weights_digest"] = weights_digest(weights, root)
    used: dict[str, Any] = {"method": METHODS[experiment.method]}
    if experiment.head is not None:
        used["head"] = HEADS[experiment.head]
    if isinstance(experiment.model, EncoderSpec) and start is None:
        used["backbone"] = BACKBONES[experiment.model.backbone]
    return found | {f"{kind}_code": version for kind, thing in used.items() if (version := version_of(thing))}


class Machine(TypedDict, total=False):
    """Settings of a recipe that change no result; `Experiment.settings` has none."""

    workers: int
    data_on_device: DataOnDevice


def experiment_of(values: Values, start: Release | None) -> Experiment:
    """Build an experiment from plain values.

    Args:
        values: Settings as for `Experiment.from_settings`.
        start: The release that training starts from. The experiment uses its network; the model in `values` sets only
            the dimension, the projection and zeta. None if training starts from no release.

    Raises:
        ConfigError: The release is not a model of images, or a value is invalid.
    """
    if start is not None:
        spec, given = start.encoder.spec, values["model"]
        if not isinstance(spec, EncoderSpec):
            raise ConfigError(f"A {spec.name} to start from.", expected="a model of images")
        said = given if isinstance(given, Mapping) else given.model_dump()
        model = spec.going_on(dim=said["dim"], projection=said["projection"], zeta=said.get("zeta"))
        values = {**values, "model": model}
    return Experiment.from_settings(values)


def starting_model(settings: Mapping[str, object]) -> Release | None:
    """Return the model that a task starts from; None if it starts from none.

    Raises:
        ConfigError: The model does not exist any more, or it has changed since the task was made.
    """
    asked: Any = settings.get("starts_from")
    return None if asked is None else proven_model(asked)


def proven_model(asked: Mapping[str, str]) -> Release:
    """Open a model by name, and check its fingerprint.

    Raises:
        ConfigError: The model does not exist any more, or it has changed since the task was made.
    """
    found = open_release(asked["model"])
    if found.fingerprint != asked["fingerprint"]:
        raise ConfigError(
            f"The model '{asked['model']}' has the fingerprint {found.fingerprint}.",
            expected=f"the one that the suite was begun with, {asked['fingerprint']}",
            to_do="run the suite again; what is trained and embedded is kept.",
        )
    return found


def experiment_on(
    values: Values,
    device: str,
    root: Path | None = None,
    machine: Machine | None = None,
    start: Release | None = None,
) -> Experiment:
    """Build an experiment from plain values for a device such as "cpu" or "cuda:0"."""
    found = experiment_of(values, start)
    recipe = dataclasses.replace(found.recipe, **(machine or {}), accelerator=device.partition(":")[0])
    weights = None if found.weights is None else weights_folder(str(found.weights), root)
    return dataclasses.replace(found, recipe=recipe, weights=weights)


def of_machine(values: Values) -> Machine:
    """Return the settings of a recipe that change no result."""
    recipe = values["recipe"]
    return {"workers": recipe.workers, "data_on_device": recipe.data_on_device}


FETCHED: Mapping[str, str] = {
    "resnet-18": PUBLISHED["resnet18"],
    "resnet-50": PUBLISHED["resnet50"],
    "vit-b-16-in21k": PUBLISHED["vit_b"],
}
"""Published models, by the name of the folder of their weights in suites."""


def weights_folder(name: str, root: Path | None) -> Path:
    """Return the folder of published weights with this name.

    Raises:
        DataError: The folder, or its weights file, does not exist.
    """
    folder = (Path() if root is None else root) / "weights" / name
    named = f"'{FETCHED[name]}'" if name in FETCHED else "that model"
    if root is None or not (folder / "model.safetensors").is_file():
        raise DataError(
            f"The published weights '{name}' are not there: no file {folder / 'model.safetensors'}.",
            expected="config.json and model.safetensors, as the transformers library writes them",
            to_do=f"fetch {named} and put its files there; LIMPET_DATA=FOLDER says where data and weights are.",
        )
    return folder


def weights_digest(name: str, root: Path | None) -> str:
    """Return the first 24 hexadecimal digits of the sha256 of a file of published weights."""
    with (weights_folder(name, root) / "model.safetensors").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:24]
