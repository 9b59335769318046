"""Settings that several commands share, from words to values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError, refuse

if TYPE_CHECKING:
    from holdfast.data.image_set import ImageSet
    from holdfast.data.retrieval_data import RetrievalData
    from holdfast.models.encoder import EncoderSpec


def data_root(given: Path | None) -> Path | None:
    """Return the folder of the named data sets: the one given, or that of the environment variable HOLDFAST_DATA."""
    if given is not None:
        return given
    named = os.environ.get("HOLDFAST_DATA")
    return Path(named) if named else None


def open_data(data: str, root: Path | None, options: Mapping[str, Any]) -> RetrievalData:
    """Open a data set by name or path, showing that it is being read."""
    from holdfast.cli.console import console
    from holdfast.data.datasets import load_dataset

    with console.status(f"reading {data}"):
        return load_dataset(data, data_root(root), **options)


def options_by_method(
    names: Sequence[str], options: Mapping[str, Any], what: str = "method"
) -> dict[str, dict[str, Any]]:
    """Return the options of every method, or adapter: of one they are given as they are, of several by its name.

    Raises:
        ConfigError: A method is named twice, or the options of several are not given by name.
    """
    refuse(len(set(names)) < len(names), f"The {what}s {', '.join(names)}.", f"each {what} once")
    if len(names) == 1:
        return {names[0]: dict(options)}
    for name in options:
        if name not in names or not isinstance(options[name], dict):
            raise ConfigError(
                f"With the {what}s {', '.join(names)}, --{what}_options has '{name}'.",
                expected=f"a mapping of {what} names to their options",
                to_do=f"write --{what}_options.{names[0]}.OPTION VALUE.",
            )
    return {name: options.get(name, {}) for name in names}


def encoder_for(arguments: Mapping[str, Any], images: ImageSet) -> EncoderSpec:
    """Return the encoder that a command's options describe, for images like these."""
    from holdfast.models.encoder import encoder_spec

    channels, height, width = images.shape
    refuse(height != width, f"Images of {height} × {width} pixels.", "square images")
    return encoder_spec(
        backbone=arguments["backbone"] or "convnet",
        channels=channels,
        image_size=height,
        fit=images.fit or "crop",
        mean=tuple(arguments["mean"]),
        std=tuple(arguments["std"]),
        zeta=arguments.get("zeta"),
        **{key: arguments[key] for key in ("dim", "projection", "backbone_options")},
    )


def input_options(data: str, contract: EncoderSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with which a data set is read as an encoder wants its images, overridden by those given."""
    from holdfast.data.datasets import option_names

    wanted = {"image_size": contract.image_size, "channels": contract.channels, "fit": contract.fit}
    accepted = option_names(data)
    return {**{name: value for name, value in wanted.items() if name in accepted}, **given}


def write_settings(folder: Path, name: str, text: str) -> None:
    """Write the resolved settings of a command beside its results, wholly or not at all.

    Raises:
        DataError: The folder cannot be written.
    """
    from holdfast.embeddings.storage import write_atomically

    write_atomically(folder / name, lambda part: part.write_text(text, encoding="utf-8"))


def guards_of(arguments: dict[str, Any]) -> tuple[str, ...] | None:
    """Return the guarded metrics of --guard and --no-guard; None for the usual ones."""
    names = [name for given in arguments["guard"] for name in given.split(",") if name]
    refuse(bool(names) and arguments["no_guard"], "--guard and --no-guard were given.", "one of them")
    return () if arguments["no_guard"] else tuple(names) or None
