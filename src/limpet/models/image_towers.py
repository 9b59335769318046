"""Frozen image towers of the transformers library from a folder: DINOv2, SigLIP, the image side of CLIP, ViT, ...

``preprocessor_config.json`` beside the weights defines the image preprocessing. No code from a folder runs, and nothing
is downloaded: names are looked up in the hub's cache only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn

from limpet.data.decoding import Fit
from limpet.errors import ConfigError, brief, reason, refuse
from limpet.models.module_origin import ImageInput, Kept, ModuleOrigin, OpenedModule
from limpet.models.published_weights import transformers_library, with_weights
from limpet.models.seeding import seeded
from limpet.models.text_folders import cached_folder, read_json, refuse_foreign_code
from limpet.support.disk import regular

_VOLATILE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "_commit_hash")
"""Keys of ``config.json`` that vary between versions without changing what a network computes."""

_BACKBONE = "Backbone"
_WITHOUT_POOLER = {"add_pooling_layer": False}


def open_tower(place: str, weights: Kept = "copy") -> OpenedModule:
    """Open an image tower.

    Args:
        place: A folder with ``config.json``, ``preprocessor_config.json`` and weights in safetensors; or a name on the
            hub (owner/name) whose files are in its cache.
        weights: "copy" to store the weights in a release, "keep" to leave them in place.

    Raises:
        ConfigError: The folder does not exist, holds no image tower, or its files cannot be read.
    """
    transformers = transformers_library()
    folder = cached_folder(place, "an image model", "config.json")
    settings = read_json(folder / "config.json")
    refuse_foreign_code(settings, str(folder / "config.json"))
    config = _config(transformers, folder)
    kind, config, options = _tower(transformers, config, settings, folder)
    image_input = image_input_of(folder / "preprocessor_config.json")
    with seeded(0):
        model = with_weights(partial(kind, **options), config, folder)
    output = "feature_maps" if kind.__name__.endswith(_BACKBONE) else "cls" if options else None
    origin = {
        "kind": "transformers",
        "place": place,
        "weights": weights,
        "weights_at": str(folder.resolve()) if weights == "keep" else None,
        "config": {
            "class": kind.__name__,
            "options": options,
            "settings": {name: value for name, value in settings.items() if name not in _VOLATILE},
        },
    }
    return OpenedModule(model, image_input, output, origin)


def rebuild(origin: ModuleOrigin) -> nn.Module:
    """Build the network that a record describes: without weights, or with weights that stayed in place.

    Raises:
        ConfigError: The installed library does not have the network, the record does not describe a network, or its
            weights are missing.
    """
    transformers = transformers_library()
    kind = getattr(transformers, str(origin.config.get("class")), None)
    options = origin.config.get("options", {})
    network = isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)
    refuse(
        (kind is not None and not network) or options not in ({}, _WITHOUT_POOLER),
        f"The record of the release of {origin.place} names {origin.config.get('class')} with {brief(options)}.",
        "a network of the transformers library; nothing else is ever run",
    )
    refuse_foreign_code(origin.config, f"the record of the release of {origin.place}")
    if kind is None:
        raise ConfigError(
            f"The installed transformers {transformers.__version__} has no {origin.config.get('class')}.",
            expected="the network that the release was made of",
            to_do="install a version of transformers that has it.",
            intact="The release is intact.",
        )
    settings = dict(origin.config["settings"])
    try:
        whole = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"The installed transformers {transformers.__version__} cannot build {origin.place}: {reason(error)}.",
            to_do="install the version that the release was made with.",
            intact="The release is intact.",
        ) from error
    config = _image_side(whole)
    build = partial(kind, **options)
    if origin.weights == "copy":
        body: nn.Module = build(config)
        return body.eval()
    folder = Path(str(origin.weights_at))
    if not folder.is_dir():
        raise ConfigError(
            f"The release left the weights of {origin.place} in '{folder}', and that folder is not there.",
            expected="the folder with these very weights",
            to_do="bring it back, or say where it is now: --over hf:FOLDER, from Python load_release(FOLDER, "
            "module=...).",
            intact="The release is intact.",
        )
    return with_weights(build, config, folder)


def image_input_of(file: Path) -> ImageInput:
    """Read the image preprocessing from ``preprocessor_config.json``.

    Images are resized, optionally centre-cropped, scaled to [0, 1] and normalised, as by the image processors of the
    transformers library.

    Raises:
        ConfigError: The file cannot be read, or requires other preprocessing.
    """
    if not file.exists():
        raise ConfigError(
            f"'{file.parent}' has no {file.name}, which says what is done to images before the network.",
            expected="the files of an image model as they were published",
            to_do="copy that file from where the model was published; or open the model yourself and give it to "
            "limpet.Release.from_module with image_size, mean and std.",
        )
    settings = read_json(file)
    resized, cropped = _size(settings.get("size")), _size(settings.get("crop_size"))
    resizes, crops = settings.get("do_resize", True), settings.get("do_center_crop", False)
    shortest = settings.get("size", {}).get("shortest_edge") if isinstance(settings.get("size"), Mapping) else None
    if shortest is not None and resizes and not crops and "crop_pct" in settings:  # ConvNeXt below 384 pixels
        crops, cropped, resized = True, (shortest, shortest), (int(shortest / settings["crop_pct"]),) * 2
    if not resizes or resized is None or (crops and cropped is None) or (shortest is not None and not crops):
        raise ConfigError(
            f"'{file}' does not say to which height and width images are brought: do_resize={resizes}, "
            f"size={settings.get('size')}, do_center_crop={crops}, crop_size={settings.get('crop_size')}.",
            expected="a height and a width, or a shortest_edge with a crop_size",
            to_do="open the model yourself, and give it to limpet.Release.from_module with image_size, mean and std.",
        )
    scaled = float(settings.get("rescale_factor", 1 / 255)) * 255 if settings.get("do_rescale", True) else 255.0
    normalises = settings.get("do_normalize", True)
    mean = tuple(settings.get("image_mean") or (0.0,)) if normalises else (0.0,)
    std = tuple(settings.get("image_std") or (1.0,)) if normalises else (1.0,)
    return ImageInput(
        image_size=resized,
        fit=_fit("squash" if shortest is None else "crop", settings.get("resample", 2), file),
        centre_crop=None if not crops or cropped == resized else cropped,
        mean=tuple(value / scaled for value in mean),
        std=tuple(value / scaled for value in std),
    )


def _fit(way: str, resample: object, file: Path) -> Fit:
    table: dict[tuple[str, object], Fit] = {
        ("squash", 2): "squash", ("crop", 2): "crop", ("squash", 3): "squash-bicubic", ("crop", 3): "crop-bicubic",
    }  # fmt: skip
    if (way, resample) not in table:
        raise ConfigError(
            f"'{file}' asks for the interpolation {resample}.",
            expected="2 (bilinear) or 3 (bicubic)",
            to_do="open the model yourself, and give it to limpet.Release.from_module.",
        )
    return table[way, resample]


def _size(given: object) -> tuple[int, int] | None:
    """Return height and width of a size in the format of image processors; None if it has neither."""
    if isinstance(given, int):
        return given, given
    if not isinstance(given, Mapping):
        return None
    if "shortest_edge" in given:
        return int(given["shortest_edge"]), int(given["shortest_edge"])
    if {"height", "width"} <= set(given):
        return int(given["height"]), int(given["width"])
    return None


def _config(transformers: Any, folder: Path) -> Any:
    try:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"'{folder}' holds no model that transformers {transformers.__version__} knows: {reason(error)}.",
            expected="an image model of the library itself; code of a folder is never run",
            to_do="choose another model; or open it yourself, and give it to limpet.Release.from_module.",
        ) from error


def _image_side(config: Any) -> Any:
    """Return the configuration of the image side of an image-text model, or the configuration of another model."""
    vision = getattr(config, "vision_config", None)
    if vision is None:
        return config
    if hasattr(config, "projection_dim"):
        vision.projection_dim = config.projection_dim
    return vision


def _tower(
    transformers: Any, config: Any, settings: Mapping[str, Any], folder: Path
) -> tuple[Any, Any, dict[str, bool]]:
    """Return the class of the image tower, its configuration, and the options that its weights require.

    Raises:
        ConfigError: The model does not take images.
    """
    family = type(config).__name__.removesuffix("Config")
    vision = _image_side(config)
    written = [name for name in settings.get("architectures") or () if name.endswith((_BACKBONE, "WithProjection"))]
    of_both = [f"{family}VisionModelWithProjection", f"{family}VisionModel"] if vision is not config else []
    kind: Any = next(filter(None, (getattr(transformers, name, None) for name in [*written, *of_both])), None)
    if kind is None:
        kind = transformers.MODEL_MAPPING.get(type(vision), None)
    if kind is None or getattr(kind, "main_input_name", "") != "pixel_values":
        raise ConfigError(
            f"'{folder}' holds a {family} model, which takes no images.",
            expected="an image model, or one of images and texts",
            to_do="for a model of texts give st:FOLDER.",
        )
    pools = "add_pooling_layer" in signature(kind.__init__).parameters
    return kind, vision, {} if not pools or _has_pooler(folder) else _WITHOUT_POOLER


def _has_pooler(folder: Path) -> bool:
    try:
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(regular(file), framework="pt") as arrays:
                if any("pooler." in name for name in arrays.keys()):  # noqa: SIM118 - not a mapping
                    return True
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"Cannot read '{file}': {reason(error)}.", expected="weights in safetensors") from error
    return False
