"""Networks of the transformers library, with random weights or published weights from a local folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from limpet.errors import ConfigError, reason
from limpet.support.disk import only_files, read_text
from limpet.support.extras import needing

PUBLISHED: Mapping[str, str] = {
    "resnet18": "microsoft/resnet-18",
    "resnet50": "microsoft/resnet-50",
    "vit_s": "facebook/dino-vits16",
    "vit_b": "google/vit-base-patch16-224-in21k",
}
"""Published model, by its name on the hub, for each backbone that can start from one."""


def transformers_library() -> Any:
    """Import transformers, or raise an error with the command that installs it."""
    with needing("This backbone", "choose convnet, iresnet18 or iresnet50"):
        import transformers
    return transformers


def as_float32() -> dict[str, torch.dtype]:
    """Return the option of transformers that loads weights as float32; its name differs before version 4.56."""
    import transformers

    major, minor, *_ = transformers.__version__.split(".")
    return {"dtype" if (int(major), int(minor)) >= (4, 56) else "torch_dtype": torch.float32}


@contextmanager
def quietly() -> Iterator[None]:
    """Hide the library's own progress bars and its lists of ignored weights in the ``with`` block.

    The code that opens the model refuses missing weights.
    """
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def local_model(build: Any, config: Any, weights: Path | None, *, published: str = "") -> nn.Module:
    """Build a transformers model with random weights or from a local folder of safetensors, never over the network.

    Weights become float32; surplus weights (a classifier) are ignored, and none may be missing.

    Raises:
        ConfigError: The folder does not exist, or its weights are damaged or of another architecture.
    """
    model: nn.Module
    if weights is None:
        model = build(config)
        return model
    _refuse_other_architecture(config, weights, published)
    return with_weights(build, config, weights, published=published)


def with_weights(build: Any, config: Any, weights: Path, *, published: str = "") -> nn.Module:
    """Read a transformers model from a local folder of safetensors; see `local_model`.

    Raises:
        ConfigError: The folder holds no weights, or its weights are damaged or incomplete.
    """
    kind: Any = build.func if isinstance(build, partial) else build
    keywords = build.keywords if isinstance(build, partial) else {}
    try:
        with quietly():
            model, report = kind.from_pretrained(
                weights,
                config=config,
                local_files_only=True,
                use_safetensors=True,
                **as_float32(),
                output_loading_info=True,
                **keywords,
            )
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise ConfigError(
            f"Cannot read weights for this backbone from '{weights}': {reason(error)}.",
            expected="a local folder with config.json and model.safetensors of the same architecture",
            to_do=_to_fetch(f"'{weights}'", published),
        ) from error
    _refuse_partial(report, weights)
    network: nn.Module = model
    return network


def _refuse_other_architecture(config: Any, weights: Path, published: str) -> None:
    """Refuse a folder without weights, or with weights of another architecture."""
    held = [(weights / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")]
    path = weights / "config.json"
    if not (path.is_file() and any(held)):
        missing = "config.json" if any(held) else "model.safetensors"
        raise ConfigError(
            f"'{weights}' holds no published weights: there is no {missing if weights.is_dir() else 'such folder'}.",
            expected="a local folder with config.json and model.safetensors, as the transformers library writes them",
            to_do=_to_fetch(f"'{weights}'", published),
        )
    try:
        given = json.loads(read_text(only_files(weights) / path.name))
        found = type(config).from_dict(given)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"Cannot read '{path}': {reason(error)}.",
            expected="what the transformers library writes beside weights",
            to_do=_to_fetch(f"'{weights}'", published),
        ) from error
    kind = given.get("model_type", config.model_type)
    wanted = {"model_type": config.model_type} if kind != config.model_type else config.to_dict()
    values = {"model_type": kind} if kind != config.model_type else found.to_dict()
    other = [
        f"{name} {values.get(name)} and not {value}"
        for name, value in wanted.items()
        if name in _OF_ARCHITECTURE and values.get(name) != value
    ]
    if other:
        raise ConfigError(
            f"The weights in '{weights}' are of another architecture: {', '.join(other)}.",
            expected="weights of the same architecture, number of channels and size of images",
            to_do="choose the backbone that they were published for; or "
            + _to_fetch("a folder of its own, and say --weights with that one", published),
        )


_OF_ARCHITECTURE = frozenset(
    {
        "model_type", "num_channels", "embedding_size", "hidden_sizes", "depths", "layer_type", "image_size",
        "patch_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    }
)  # fmt: skip
"""Configuration keys that define layer sizes."""


def _to_fetch(place: str, published: str) -> str:
    named = f"'{published}'" if published else "a published model of the architecture"
    return f"fetch {named} (config.json and model.safetensors) into {place}; nothing was trained."


def _refuse_partial(report: Mapping[str, Any], weights: Path) -> None:
    missing = [name for name in report["missing_keys"] if not name.endswith("num_batches_tracked")]
    absent = sorted([*missing, *(str(entry[0]) for entry in report["mismatched_keys"])])
    if absent:
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise ConfigError(
            f"The weights in '{weights}' lack {len(absent)} parts of this backbone, or have them in another size: "
            f"{', '.join(absent[:3])}{more}.",
            expected="weights of the same architecture and depth, so that nothing stays random",
            to_do="choose the backbone that these weights were published for.",
        )
