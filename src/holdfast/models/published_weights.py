"""Networks of the transformers library, fresh or with published weights from a local folder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from holdfast.errors import ConfigError, reason


def transformers_library() -> Any:
    """Import transformers, or say how to install it."""
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            "This backbone needs the transformers library, which is not installed.",
            to_do="pip install 'holdfast[models]', or choose convnet, iresnet18 or iresnet50.",
        ) from error
    return transformers


def local_model(build: Any, config: Any, weights: Path | None) -> nn.Module:
    """Build a transformers model, fresh or from a local folder of safetensors; never over the network.

    Weights become float32; those that the model has no place for (a classifier) are left out, none may be missing.
    """
    model: nn.Module
    if weights is None:
        model = build(config)
        return model
    kind: Any = build.func if isinstance(build, partial) else build
    keywords = build.keywords if isinstance(build, partial) else {}
    try:
        model, report = kind.from_pretrained(
            weights,
            config=config,
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            **keywords,
        )
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise ConfigError(
            f"Cannot read weights for this backbone from '{weights}': {reason(error)}.",
            expected="a local folder with config.json and model.safetensors of the same architecture",
        ) from error
    _refuse_partial(report, weights)
    return model


def _refuse_partial(report: Mapping[str, Any], weights: Path) -> None:
    """Refuse weights that leave a part of the model random."""
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
