"""Experiments from the plain values that people write in a suite, and back."""

from __future__ import annotations

import dataclasses
import hashlib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from holdfast.errors import ConfigError, DataError, nearest
from holdfast.methods import METHODS, build_method
from holdfast.models.encoder import EncoderSpec, encoder_spec
from holdfast.training.recipe import Experiment, Recipe
from holdfast.training.spaces import Geometry

Record = TypeVar("Record")


def experiment_from(values: Mapping[str, Any]) -> Experiment:
    """Build an experiment from plain values.

    Args:
        values: "method", "options" of it, "model", "geometry", "head", "head_options", "recipe", "weights" and
            "seed"; what is left out has the default of `Experiment`.

    Raises:
        ConfigError: A name is unknown, or a value is of another type or out of range.
    """
    known = ("method", "options", "model", "geometry", "head", "head_options", "recipe", "weights", "seed")
    refuse_unknown_names("an experiment", values, known)
    method = values.get("method", "independent")
    options = dict(values.get("options", {}))
    build_method(method, options)  # refuses an unknown method or option
    return Experiment(
        method=method,
        method_options=options,
        model=encoder_spec(**values.get("model", {})),
        geometry=built(Geometry, values.get("geometry", {}), "the geometry"),
        head=values.get("head"),
        head_options=dict(values.get("head_options", {})),
        recipe=built(Recipe, values.get("recipe", {}), "the recipe"),
        weights=None if values.get("weights") is None else Path(values["weights"]),
        seed=values.get("seed", 0),
    )


def experiment_on(
    values: Mapping[str, Any], device: str, root: Path | None = None, machine: Mapping[str, Any] | None = None
) -> Experiment:
    """Build an experiment from plain values that is trained on a device such as "cpu" or "cuda:0".

    Args:
        values: As `experiment_from` takes them.
        device: The device.
        root: Folder of the data; published weights are in ``weights`` there.
        machine: Settings of the recipe that change no result, see `of_machine`.
    """
    found = experiment_from(values)
    recipe = dataclasses.replace(found.recipe, **(machine or {}), accelerator=device.partition(":")[0])
    weights = None if found.weights is None else weights_folder(str(found.weights), root)
    return dataclasses.replace(found, recipe=recipe, weights=weights)


def of_machine(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a recipe that change no result, as they are written: what `plain` leaves out.

    >>> of_machine({"recipe": {"epochs": 3, "workers": 4, "data_on_device": "never"}})
    {'workers': 4, 'data_on_device': 'never'}
    """
    recipe = values.get("recipe", {})
    return {name: recipe[name] for name in ("workers", "data_on_device") if name in recipe}


def weights_folder(name: str, root: Path | None) -> Path:
    """Return the folder of published weights of that name.

    Raises:
        DataError: It is not there.
    """
    folder = (Path() if root is None else root) / "weights" / name
    if root is None or not (folder / "model.safetensors").is_file():
        raise DataError(
            f"The published weights '{name}' are not there: no file {folder / 'model.safetensors'}.",
            expected="config.json and model.safetensors, as the transformers library writes them",
            to_do="put them there; HOLDFAST_DATA=FOLDER or --data-root FOLDER says where data and weights are.",
        )
    return folder


def weights_digest(name: str, root: Path | None) -> str:
    """Return the sha256 of a file of published weights, 24 hexadecimal digits."""
    with (weights_folder(name, root) / "model.safetensors").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:24]


def plain(experiment: Experiment) -> dict[str, Any]:
    """Return everything that decides a run, defaults too, as plain values that `experiment_from` takes."""
    model = experiment.model
    return {
        "method": experiment.method,
        "options": {**_defaults(experiment.method), **experiment.method_options},
        "model": model.model_dump(mode="json") if isinstance(model, EncoderSpec) else {},
        "geometry": dataclasses.asdict(experiment.geometry),
        "head": experiment.head,
        "head_options": dict(experiment.head_options),
        "recipe": {name: _plain(value) for name, value in experiment.recipe.decides().items()},
        "seed": experiment.seed,
        **({} if experiment.weights is None else {"weights": str(experiment.weights)}),
    }


def _defaults(method: str) -> dict[str, Any]:
    from inspect import signature

    parameters = signature(METHODS[method]).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def built(record: type[Record], values: Mapping[str, Any], what: str) -> Record:
    """Build a dataclass from plain values: lists become tuples, mappings become the dataclasses that are wanted.

    >>> built(Recipe, {"epochs": 3, "milestones": [1, 2], "augmentation": {"flip": True}}, "the recipe").milestones
    (1, 2)
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{what} is {values!r}.", expected="a mapping of settings")
    hints = get_type_hints(record)
    names = [one.name for one in dataclasses.fields(record)]  # type: ignore[arg-type]
    refuse_unknown_names(what, values, names)
    return record(**{name: _value(hints[name], value, f"{what}: {name}") for name, value in values.items()})


def _value(kind: Any, value: Any, what: str) -> Any:
    inner = _dataclass_in(kind)
    if inner is not None and isinstance(value, Mapping):
        return built(inner, value, what)
    try:
        return TypeAdapter(kind, config=None if inner else ConfigDict(strict=False)).validate_python(value)
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise ConfigError(f"{what} is {value!r}.", expected=message[:1].lower() + message[1:]) from error


def _dataclass_in(kind: Any) -> Any:
    """Return the dataclass that a type is, or that it is unless it is None."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return next((one for one in kinds if dataclasses.is_dataclass(one)), None)


def refuse_unknown_names(what: str, given: Mapping[str, Any], known: Any) -> None:
    """Refuse the first name that is none of those known, and suggest the nearest."""
    for name in given:
        if name not in known:
            raise ConfigError(
                f"Unknown setting '{name}' of {what}.{nearest(str(name), list(known))}",
                expected=f"one of {', '.join(known)}",
            )
