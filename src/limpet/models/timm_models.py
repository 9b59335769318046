"""Frozen image models of the timm library, from a folder in the published format.

The library requires torchvision and is not part of limpet's extras; only this file imports it. Weights come from the
folder, and nothing is downloaded or unpickled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Required, TypedDict

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from limpet.data.decoding import Fit
from limpet.errors import ConfigError, reason, refuse
from limpet.models.module_origin import ImageInput, Kept, ModuleOrigin, OpenedModule
from limpet.models.seeding import seeded
from limpet.models.text_folders import cached_folder, read_json, refuse_foreign_code

_FITS: Mapping[tuple[bool, str], Fit] = {
    (False, "bilinear"): "crop",
    (True, "bilinear"): "squash",
    (False, "bicubic"): "crop-bicubic",
    (True, "bicubic"): "squash-bicubic",
}


def timm_library() -> Any:
    """Import timm, or raise an error with the command that installs it."""
    try:
        import timm
    except ImportError as error:
        raise ConfigError(
            "A model of the timm library was named, and timm is not installed.",
            to_do="pip install timm (it brings torchvision, in the version that goes with your torch); or give a model "
            "of the transformers library, hf:FOLDER, which needs neither.",
        ) from error
    return timm


def open_timm(place: str, weights: Kept = "copy") -> OpenedModule:
    """Open a model of the timm library, without its classifier.

    Args:
        place: A folder with ``config.json`` and ``model.safetensors``; or a name on the hub (owner/name) whose files
            are in its cache.
        weights: "copy" to store the weights in a release, "keep" to leave them in place.

    Raises:
        ConfigError: The library or the folder is missing, or its files cannot be used.
    """
    library = timm_library()
    folder = cached_folder(place, "a model of the timm library", "config.json")
    settings = read_json(folder / "config.json")
    if not isinstance(settings, Mapping) or not {"architecture", "pretrained_cfg"} <= set(settings):
        raise ConfigError(
            f"'{folder / 'config.json'}' is not that of a model of the timm library.",
            expected="one with architecture and pretrained_cfg",
            to_do="for a model of the transformers library give hf:FOLDER.",
        )
    config = {"architecture": settings["architecture"], "options": dict(settings.get("model_args") or {})}
    model = _with_weights(_built(library, config), folder)
    origin = {
        "kind": "timm",
        "place": place,
        "config": config,
        "weights": weights,
        "weights_at": str(folder.resolve()) if weights == "keep" else None,
    }
    return OpenedModule(model, image_input_of(settings["pretrained_cfg"]), None, origin)


def rebuild(origin: ModuleOrigin) -> nn.Module:
    """Build the network that a record describes: without weights, or with weights that stayed in place."""
    model = _built(timm_library(), origin.config)
    return model if origin.weights == "copy" else _with_weights(model, Path(str(origin.weights_at)))


class Pretrained(TypedDict, total=False):
    """Settings of published weights (``pretrained_cfg``) that are used here."""

    input_size: Required[tuple[int, ...]]
    mean: Required[Sequence[float]]
    std: Required[Sequence[float]]
    crop_pct: float | None
    crop_mode: str
    interpolation: str


def image_input_of(settings: Pretrained) -> ImageInput:
    """Return the image preprocessing from the settings of published weights (``pretrained_cfg``).

    The shorter side is resized to the input size divided by ``crop_pct``, and the centre is cut out.
    """
    channels, *seen = settings["input_size"]
    share = float(settings.get("crop_pct") or 1.0)
    read = tuple(math.floor(side / share) for side in seen)
    squashes = settings.get("crop_mode", "center") == "squash"
    curve = str(settings.get("interpolation", "bilinear"))
    if (squashes, curve) not in _FITS:
        raise ConfigError(
            f"The weights ask for the interpolation '{curve}'.",
            expected="bilinear or bicubic",
            to_do="open the model yourself, and give it to limpet.Release.from_module.",
        )
    return ImageInput(
        image_size=(read[0], read[1]),
        channels=channels,
        fit=_FITS[squashes, curve],
        centre_crop=None if read == tuple(seen) else (seen[0], seen[1]),
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
    )


def _built(library: Any, config: Mapping[str, Any]) -> nn.Module:
    """Build an architecture without a classifier, with random weights.

    Raises:
        ConfigError: The library does not have it, or would download it or unpickle weights.
    """
    refuse(
        not re.fullmatch(r"\w[\w.]*", str(config["architecture"])),
        f"The architecture '{config['architecture']}'.",
        "the name of one that timm has itself; nothing is fetched",
    )
    refuse_foreign_code(config["options"], str(config["architecture"]))
    try:
        with seeded(0):
            model: nn.Module = library.create_model(
                config["architecture"], pretrained=False, num_classes=0, **config["options"]
            )
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"The installed timm {library.__version__} cannot build '{config['architecture']}': {reason(error)}.",
            to_do="install a version of timm that has it.",
        ) from error
    return model.eval()


def _with_weights(model: nn.Module, folder: Path) -> nn.Module:
    """Load the weights of a folder into a model; classifier weights are ignored, and none may be missing."""
    try:
        report = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ConfigError(
            f"Cannot read the weights of '{folder}': {reason(error)}.",
            expected="model.safetensors of the architecture that its config.json names",
            to_do="fetch the model's files again.",
        ) from error
    if report.missing_keys:
        raise ConfigError(
            f"The weights in '{folder}' lack {len(report.missing_keys)} parts of the network, such as "
            f"{report.missing_keys[0]}.",
            expected="weights of this architecture, so that nothing stays random",
            to_do="fetch the model's files again.",
        )
    return model
