"""User-defined modules as image encoders: input contract, choice of output, and verification by a probe.

The fingerprint of such an encoder covers its weights, the image preprocessing, the chosen output, and the code of its
classes unless an installed package provides them. A probe verifies everything else that a module computes: a few values
of its output for fixed images, recomputed at every loading.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from pydantic import JsonValue
from torch import Tensor, nn

from limpet.errors import ConfigError, DataError, LimpetError, reason, refuse
from limpet.models import image_towers, installed_encoders, timm_models
from limpet.models.backbones import Backbone
from limpet.models.encoder import Encoder
from limpet.models.module_origin import ImageInput, ModuleOrigin, Preprocess
from limpet.models.specs import EncoderSpec, encoder_spec
from limpet.support.source_code import callable_code, own_code

BODY = "backbone.body."
"""Prefix of a module's weights among those of its encoder."""

_PROBED = 16
_TOLERANCE = 1e-2
_SAME = 1e-4

ARCHITECTURES: dict[str, Callable[[ModuleOrigin], nn.Module]] = {
    "transformers": image_towers.rebuild,
    "timm": timm_models.rebuild,
    "entry point": installed_encoders.rebuild,
}
"""Functions that rebuild a module from its record, by its origin; other modules have to be passed again."""


class ModuleSpec(EncoderSpec):
    """Specification of an encoder around a user-defined module, without weights; see `EncoderSpec`."""

    module: ModuleOrigin

    def build(
        self, weights: Path | None = None, freeze_backbone: bool = False, freeze_batch_norm: bool = False
    ) -> Encoder:
        """Build the network without its weights, if its record is sufficient; see `Encoder`."""
        refuse(weights is not None, f"Weights '{weights}' for the module {self.backbone}.", "none: it has its own")
        return self._around(self._architecture(), freeze_backbone, freeze_batch_norm)

    def rebuilt(self, module: nn.Module | None = None, preprocess: Preprocess | None = None) -> Encoder:
        """Build the network of a release around the given module, or around the one that its record describes.

        Raises:
            ConfigError: The module is required and missing, or its code or its preprocessing differs.
        """
        if module is None:
            return self._around(self._architecture(), preprocess=preprocess)
        body, own = parts_of(module)
        code = own_code(type(part) for part in body.modules())
        if code != self.module.code:
            raise ConfigError(
                f"The code of the {type(body).__qualname__} that was given is not that of the {self.module.class_name} "
                "that the release was made of.",
                expected=f"the module as it was, from {self.module.place}",
                to_do="give the code as it was (comments and layout do not count); or make a new release of the "
                "module, whose vectors are then those of another model.",
            )
        return self._around(_snapshot(body), preprocess=copy.deepcopy(preprocess or own))

    def _architecture(self) -> nn.Module:
        if self.needs_module:
            given = self.module.place if self.module.kind == "file" else "FILE.py:FUNCTION"
            raise ConfigError(
                f"{self.backbone} is a module of your own, and limpet cannot build it: a release holds weights, "
                "never code.",
                expected="that very module, given again",
                to_do=f"pass --over {given}; from Python, load_release(FOLDER, module=...).",
                intact="The release is intact.",
            )
        return ARCHITECTURES[self.module.kind](self.module)

    def _around(
        self,
        body: nn.Module,
        freeze_backbone: bool = False,
        freeze_batch_norm: bool = False,
        preprocess: Preprocess | None = None,
    ) -> Encoder:
        if isinstance(body, Encoder):  # from an entry point, with its own preprocessing
            body, preprocess = parts_of(body)
        refuse(
            (None if preprocess is None else callable_code(preprocess)) != self.module.preprocess,
            f"The module {self.backbone} was given {'no' if preprocess is None else 'another'} preprocessing "
            f"{'function' if preprocess is None else 'function than when the release was made'}.",
            "the one that it was made with" if self.module.preprocess else "none",
        )
        width = self.dim if self.projection == "none" else int(self.backbone_options["width"])
        backbone = OwnBackbone(body, width, self.module.output, preprocess)
        return Encoder(self, None, freeze_backbone, freeze_batch_norm, backbone=backbone)

    def going_on(self, *, dim: int, projection: str = "linear", zeta: float | None = None) -> Self:
        """Return the spec of a network that starts from this module and has weights of its own."""
        spec = super().going_on(dim=dim, projection=projection, zeta=zeta)
        copied = self.module.model_copy(update={"weights": "copy", "weights_at": None})
        return spec.model_copy(update={"module": copied})

    def contract(self) -> dict[str, JsonValue]:
        """Return the plain values, without those of the origin, that determine embeddings beside the weights."""
        deciding = {"output", "preprocess", "code", "config"}
        values = self.model_dump(mode="json", exclude={"backbone"})
        return {**values, "module": self.module.model_dump(mode="json", include=deciding)}

    def probe(self, encoder: nn.Module) -> tuple[float, ...]:
        """Return the first values and the lengths of the embeddings of two fixed images."""
        with torch.no_grad():
            vectors = encoder(probe_images(self.input_shape, 2)).float()
        found = torch.cat([vectors[:, :_PROBED].flatten(), torch.linalg.vector_norm(vectors, dim=1)])
        return tuple(float(f"{value:.7g}") for value in found.tolist())

    def left_out(self, name: str) -> bool:
        """Return whether a weight stays where the module's own weights are stored."""
        return self.module.weights == "keep" and name.startswith(BODY)

    def defined_by(self) -> list[object]:
        """Return nothing: the code of the module is part of its spec."""
        return []

    @property
    def is_plan(self) -> bool:
        """Whether the network is built from its record alone: by a library, and without reading weights."""
        return bool(self.module.config) and self.module.weights == "copy"

    @property
    def needs_module(self) -> bool:
        """Whether the module has to be given again."""
        return self.module.kind not in ARCHITECTURES

    @property
    def brings_weights(self) -> bool:
        """A module comes with its weights."""
        return True


class OwnBackbone(Backbone):
    """A user-defined module from images to features (B, ``width``).

    Args:
        output: Choice of output; see `selected`.
        preprocess: Function that prepares pixels, with mean 0 and deviation 1; None for none.
    """

    def __init__(self, body: nn.Module, width: int, output: str, preprocess: Preprocess | None = None) -> None:
        super().__init__(body, width, {"width": width})
        self.output, self.preprocess = output, preprocess

    def forward(self, images: Tensor) -> Tensor:
        """Return features (B, width).

        Raises:
            DataError: The module fails, or returns anything else.
        """
        features = selected(returned(self.body, images, self.preprocess), self.output)
        if (
            features.shape[1] != self.width or features.shape[0] != images.shape[0]
        ):  # len() would fix the batch of exports
            raise DataError(
                f"The module returned {tuple(features.shape)} for {len(images)} images.",
                expected=f"({len(images)}, {self.width}), as when the release was made",
                to_do="a module has to give every image one vector, always of the same dimension.",
            )
        return features


def returned(body: nn.Module, images: Tensor, preprocess: Preprocess | None) -> Any:
    """Return the output of a module for images (B, channels, height, width).

    Raises:
        DataError: The module, or its preprocessing, raises.
    """
    what = "preprocessing" if preprocess is not None else "module"
    prepared = images
    try:
        prepared = images if preprocess is None else preprocess(images)
        what = "module"
        return body(prepared)
    except LimpetError:
        raise
    except Exception as error:  # a foreign module may raise anything
        given = prepared if what == "module" else images
        shape = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        raise DataError(
            f"The {what} raised {type(error).__name__} for images {shape}: {reason(error)}.",
            expected="a module for float32 pixels (images, channels, height, width), in [0, 1] before mean and std",
            to_do="check channels, image_size, mean and std; where the module wants something else, such as bytes, "
            "give preprocess=, a function that makes it of these pixels.",
        ) from error


def selected(result: Any, output: str) -> Tensor:
    """Return one vector per image (B, D) from the output of a module.

    Args:
        result: A tensor, a tuple, a mapping, or an object with attributes.
        output: "tensor": the result itself; "mean": the mean over tokens of ``last_hidden_state``, or over places of
            maps; "cls": its first token; "feature_maps": the mean over places of the last map; a number: that entry of
            a tuple; or the name of a key or an attribute, such as pooler_output or image_embeds.

    Raises:
        DataError: The output does not exist, or is not a tensor of one vector per image.

    >>> selected({"pooled": torch.ones(2, 3, 1, 1)}, "pooled").shape
    torch.Size([2, 3])
    """
    taken = result
    if output in ("cls", "mean") and not isinstance(result, Tensor):
        taken = _named(result, "last_hidden_state")
    elif output == "feature_maps":
        taken = _named(result, output)[-1]
    elif output.isdecimal() and isinstance(result, tuple | list) and int(output) < len(result):
        taken = result[int(output)]
    elif output not in ("tensor", "cls", "mean"):
        taken = _named(result, output)
    if not isinstance(taken, Tensor) or taken.ndim < 2:
        found = f"a tensor {tuple(taken.shape)}" if isinstance(taken, Tensor) else _described(taken)
        raise DataError(
            f"The output '{output}' of the module is {found}.",
            expected="a tensor of one vector per image",
            to_do="name another with output=.",
        )
    if output == "cls" and taken.ndim == 3:
        return taken[:, 0]
    if output in ("mean", "feature_maps"):
        return taken.mean(1) if taken.ndim == 3 else taken.flatten(2).mean(2) if taken.ndim == 4 else taken
    if taken.ndim > 2 and math.prod(taken.shape[2:]) != 1:
        raise DataError(
            f"The output '{output}' of the module has the shape {tuple(taken.shape)}.",
            expected="one vector per image: (images, dimension)",
            to_do="output='mean' averages over tokens or places, output='cls' takes the first token.",
        )
    return taken.flatten(1)


def _named(result: Any, name: str) -> Any:
    found = result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)
    if found is None:
        raise DataError(
            f"The module returns {_described(result)}, without '{name}'.",
            expected="an output that it has: output='NAME', or 'mean' or 'cls' of its last_hidden_state",
        )
    return found


def _described(result: Any) -> str:
    if isinstance(result, Tensor):
        return f"a tensor {tuple(result.shape)}"
    if isinstance(result, tuple | list) and not isinstance(result, Mapping):
        return f"a {type(result).__name__} of {len(result)}"
    if isinstance(result, Mapping):
        return f"a {type(result).__name__} with {', '.join(map(str, result)) or 'nothing'}"
    return f"a {type(result).__name__}"


def default_output(result: Any) -> str:
    """Return the name of the default output.

    Raises:
        DataError: No output of the module is clearly one vector per image.
    """
    if isinstance(result, Tensor):
        return "tensor"
    for name in ("image_embeds", "pooler_output"):
        if (result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)) is not None:
            return name
    raise DataError(
        f"The module returns {_described(result)}, and nobody says what of it is the embedding.",
        expected="a tensor (images, dimension), or a record with image_embeds or pooler_output",
        to_do="name it: output='KEY', output='0' for the first of a tuple, output='cls' or 'mean' of tokens.",
    )


def module_encoder(
    module: nn.Module,
    image_input: ImageInput,
    *,
    preprocess: Preprocess | None = None,
    output: str | None = None,
    dim: int | None = None,
    origin: Mapping[str, object] | None = None,
) -> Encoder:
    """Return a snapshot of a module as an encoder: on the CPU, in float32 and in evaluation mode.

    The module itself is not changed, and later changes to it do not affect the encoder.

    Args:
        module: Module from images to one vector each.
        image_input: Input contract of the module.
        preprocess: Function that prepares pixels in [0, 1], if mean and deviation are not enough.
        output: Choice of output; see `selected` and `default_output`.
        dim: Expected dimension; that of the module when left out.
        origin: Further values of `ModuleOrigin`.

    Raises:
        ConfigError: The value is not a module, cannot be copied, or a setting is out of range.
        DataError: The module raises, or its output is not one finite vector per image that depends on this image alone.
    """
    _refuse_no_module(module)
    refuse(
        preprocess is not None and (image_input.mean != (0.0,) or image_input.std != (1.0,)),
        "preprocess was given with mean or std.",
        "one of the two: a function of pixels in [0, 1] does all that is done to them",
    )
    settings = {**vars(image_input), "projection": "none"}
    plain = encoder_spec(**settings)  # refuses settings that are out of range
    body = _snapshot(module)
    preprocess = copy.deepcopy(preprocess)
    prepare = Encoder(plain, backbone=Backbone(nn.Flatten(), plain.dim))
    with torch.no_grad():
        pixels = prepare.prepared(probe_images(plain.input_shape, 3))
        result = returned(body, pixels[:2], preprocess)
        output = output or default_output(result)
        features = selected(result, output)
        _refuse_unfit(features, dim, lambda count: selected(returned(body, pixels[:count], preprocess), output))
    width = features.shape[1]
    described = ModuleOrigin(
        **{
            "place": type(module).__qualname__, "class_name": type(module).__qualname__, "output": output,
            "preprocess": None if preprocess is None else callable_code(preprocess),
            "code": own_code(type(part) for part in body.modules()), **(origin or {}),
        }
    )  # fmt: skip
    spec = ModuleSpec(
        **settings, dim=width, backbone=described.called, backbone_options={"width": width}, module=described
    )
    encoder = Encoder(spec, backbone=OwnBackbone(body, width, output, preprocess))
    encoder.requires_grad_(False).eval()
    return encoder


def parts_of(module: nn.Module) -> tuple[nn.Module, Preprocess | None]:
    """Return the module inside an encoder, with its preprocessing; any other module is returned as it is."""
    if isinstance(module, Encoder) and isinstance(module.backbone, OwnBackbone):
        return module.backbone.body, module.backbone.preprocess
    return module, None


def probe_images(shape: tuple[int, int, int], count: int) -> Tensor:
    """Return fixed images (count, *shape), uint8: waves that differ in length, direction, brightness and contrast."""
    channels, *size = shape
    down, right = np.mgrid[0 : size[0], 0 : size[1]] * (2 * math.pi / max(size))
    waves = [
        [
            90
            + 90 * image / count
            + 10 * (channel % 3)
            + (60 - 40 * image / count) * np.sin((1 + image + channel) * down + (2 + 3 * image) * right + channel)
            for channel in range(channels)
        ]
        for image in range(count)
    ]
    return torch.from_numpy(np.rint(waves).astype(np.uint8))


def same_probe(found: Sequence[float], recorded: Sequence[float]) -> bool:
    """Return whether two probes are from the same network, up to rounding differences between machines."""
    if len(found) != len(recorded) or not np.isfinite(found).all():
        return False
    length = np.linalg.norm(recorded)
    return bool(np.linalg.norm(np.subtract(found, recorded)) <= _TOLERANCE * max(float(length), 1e-12))


def _refuse_no_module(module: object) -> None:
    if isinstance(module, nn.Module):
        return
    given = f"the class {module.__name__}" if isinstance(module, type) else f"a {type(module).__name__}"
    raise ConfigError(
        f"A release was to be made of {given}.",
        expected="a torch.nn.Module with its weights",
        to_do="call the class, or the function, and give what it returns.",
    )


def _snapshot(module: nn.Module) -> nn.Module:
    try:
        body = copy.deepcopy(module).cpu().float().eval()
    except Exception as error:  # a foreign module may hold anything
        raise ConfigError(
            f"The {type(module).__qualname__} cannot be copied: {type(error).__name__}, {reason(error)}.",
            expected="a module that copy.deepcopy copies, so that the release stays what it is",
            to_do="give the module without what it holds beside its weights, such as open files or a process group.",
        ) from error
    for name, value in body.state_dict().items():
        refuse(not isinstance(value, Tensor), f"'{name}' of the module's state is a {type(value).__name__}.", "tensors")
    return body


def _refuse_unfit(features: Tensor, dim: int | None, again: Callable[[int], Tensor]) -> None:
    """Refuse an output that is not one finite vector per image, of one dimension, that depends on this image alone."""
    if features.shape[0] != 2:
        raise DataError(f"The module returned {tuple(features.shape)} for 2 images.", expected="one vector per image")
    width = features.shape[1]
    refuse(dim not in (None, width), f"dim = {dim}, of a module of {width} dimensions.", f"{width}, or nothing")
    bad = [number for number, row in enumerate(features) if not torch.isfinite(row).all() or not row.any()]
    if bad:
        raise DataError(
            f"The module returned a vector that is {'zero' if not features[bad[0]].any() else 'not finite'} for an "
            "image of plain waves.",
            expected="finite vectors, not all zero",
            to_do="check its weights, and that it takes pixels as mean and std leave them.",
        )
    scale = float(features.abs().max())
    if torch.allclose(features[0], features[1], rtol=0, atol=_SAME * scale):
        raise DataError(
            "The module returned the same vector for two different images.",
            expected="vectors that tell images apart",
            to_do="where it takes bytes or pixels up to 255, say so: preprocess=, or std=(1 / 255,).",
        )
    if not torch.allclose(features, again(2), rtol=0, atol=_SAME * scale):
        raise DataError(
            "The module returned other vectors when it was given the same images again.",
            expected="the same vectors in evaluation mode",
            to_do="switch off what it draws at random; dropout has to heed eval().",
        )
    more = again(3)
    if more.shape != (3, width):
        raise DataError(
            f"The module returned {tuple(features.shape)} for 2 images and {tuple(more.shape)} for 3.",
            expected="one vector per image, always of the same dimension",
        )
    if not torch.allclose(features, more[:2], rtol=0, atol=_SAME * scale):
        raise DataError(
            "What the module returns for an image depends on the other images of the batch.",
            expected="vectors that depend on their own image alone",
            to_do="let batch normalisation keep running statistics (track_running_stats), and heed eval().",
        )
