"""Backbones: networks from images to feature vectors.

ResNets and vision transformers come from the transformers library (extra ``models``), which also reads their
published weights from a local folder. The small convolutional net and the iResNets of face recognition are written
here, because no library we can depend on has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from limpet.data.image_size import ImageSize, settled, sides, written
from limpet.errors import ConfigError, refuse
from limpet.models.published_weights import PUBLISHED, local_model, transformers_library
from limpet.registry import Registry
from limpet.support.options import bound


class Backbone(nn.Module):
    """A network from images (B, channels, height, width) to features (B, ``width``).

    Args:
        settled: Options determined by published weights; pass them to build the same network without the weights.
    """

    def __init__(self, body: nn.Module, width: int, settled: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.body, self.width, self.settled = body, width, dict(settled or {})

    def forward(self, images: Tensor) -> Tensor:
        """Return features (B, width)."""
        features: Tensor = self.body(images)
        return features


def convnet(channels: int, image_size: ImageSize, weights: Path | None, *, filters: int = 64) -> Backbone:
    """Four convolutions with batch normalisation and pooling, then global average pooling; for 28 to 64 pixels.

    Args:
        channels: Number of image channels.
        image_size: Height and width, or one number for both.
        weights: None, as no published weights exist.
        filters: Even number of filters of the third convolution; the others have half or twice as many.
    """
    _refuse_weights("convnet", weights)
    refuse(filters < 2 or filters % 2 == 1, f"convnet with filters = {filters}.", "an even number of at least 2")
    widths = [channels, filters // 2, filters, 2 * filters, 2 * filters]
    layers: list[nn.Module] = []
    for block, (before, after) in enumerate(pairwise(widths)):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(2)] if block < 3 else []
    return Backbone(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), widths[-1])


class _Pooled(nn.Module):
    """The pooled output of a transformers vision model."""

    def __init__(self, model: nn.Module, pool: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model, self.pool = model, pool

    def forward(self, images: Tensor) -> Tensor:
        return self.pool(self.model(pixel_values=images))


class _SmallStem(nn.Sequential):
    """A 3 × 3 convolution at full resolution, for images of 32 pixels that a stride of 4 would destroy."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


def resnet(
    channels: int,
    image_size: ImageSize,
    weights: Path | None,
    *,
    depths: tuple[int, ...],
    layer_type: str,
    published: str,
    stem: Literal["auto", "small", "imagenet"] = "auto",
    filters: int = 64,
) -> Backbone:
    """ResNet (He et al., CVPR 2016) with mean pooling.

    Args:
        channels: Number of image channels.
        image_size: Height and width, or one number for both.
        weights: Local folder of published weights in the transformers format, or None for random weights.
        depths: Number of blocks per stage.
        layer_type: "basic" or "bottleneck".
        published: Name of matching published weights, for messages.
        stem: "small" (3 × 3, no stride), "imagenet" (7 × 7, total stride 4), or "auto": "imagenet" with weights,
            otherwise "small" up to 64 pixels per side.
        filters: Number of filters of the stem and of each convolution of the first stage; every stage doubles it.
            Published weights have 64.
    """
    refuse(filters < 1, f"A ResNet with filters = {filters}.", "at least 1")
    if stem == "small" and weights is not None:
        raise ConfigError(
            f"The small stem with weights from '{weights}'.",
            expected="the stem 'imagenet' or 'auto': published weights hold no small one, it would stay random",
            to_do="leave --backbone-options.stem out, or train without weights.",
        )
    small = max(sides(image_size)) <= 64 and weights is None
    if stem == "auto":
        stem = "small" if small else "imagenet"
    transformers = transformers_library()
    first = 4 * filters if layer_type == "bottleneck" else filters
    hidden_sizes = [first * 2**stage for stage in range(len(depths))]
    config = transformers.ResNetConfig(
        num_channels=channels,
        embedding_size=filters,
        hidden_sizes=hidden_sizes,
        depths=list(depths),
        layer_type=layer_type,
    )
    model = local_model(transformers.ResNetModel, config, weights, published=published)
    if stem == "small":
        model.embedder = _SmallStem(channels, filters)
    settled = None if weights is None else {"stem": stem}
    return Backbone(_Pooled(model, lambda output: output.pooler_output.flatten(1)), hidden_sizes[-1], settled)


def vit(
    channels: int,
    image_size: ImageSize,
    weights: Path | None,
    *,
    hidden: int,
    heads: int,
    published: str,
    layers: int = 12,
    patch: int = 0,
) -> Backbone:
    """Vision transformer (Dosovitskiy et al., ICLR 2021); features are the class token after the last norm.

    Args:
        channels: Number of image channels.
        image_size: Height and width, or one number for both.
        weights: Local folder of published weights in the transformers format, or None for random weights.
        hidden: Width of the token.
        heads: Number of attention heads.
        published: Name of matching published weights, for messages.
        layers: Number of layers, from 1 to 1000.
        patch: Patch side in pixels; 0 takes 16, or for images of up to 64 pixels the common divisor of both sides
            nearest to an eighth of the longer side.
    """
    refuse(not 1 <= layers <= 1000, f"A vision transformer with layers = {layers}.", "from 1 to 1000")
    patch = patch or _default_patch(image_size)
    if patch < 1 or any(side % patch for side in sides(image_size)):
        raise ConfigError(
            f"Images of {written(image_size)} pixels and patches of {patch}.",
            expected=f"a whole number of patches: one of {', '.join(map(str, _divisors(*sides(image_size))))}",
            to_do="choose one of these with --backbone-options.patch, or another image size.",
        )
    transformers = transformers_library()
    config = transformers.ViTConfig(
        num_channels=channels,
        image_size=settled(image_size),
        patch_size=patch,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        intermediate_size=4 * hidden,
    )
    model = local_model(partial(transformers.ViTModel, add_pooling_layer=False), config, weights, published=published)
    return Backbone(_Pooled(model, lambda output: output.last_hidden_state[:, 0]), hidden)


def _default_patch(image_size: ImageSize) -> int:
    """Return the patch side in pixels; if two divisors are equally near, the smaller one.

    >>> _default_patch(28), _default_patch(32), _default_patch(224), _default_patch((64, 48))
    (4, 4, 16, 8)
    """
    longer = max(sides(image_size))
    if longer > 64:
        return 16
    return min(_divisors(*sides(image_size)), key=lambda divisor: abs(divisor - longer / 8))


def _divisors(*numbers: int) -> list[int]:
    common = math.gcd(*numbers)
    return [divisor for divisor in range(1, common + 1) if common % divisor == 0]


class _IResidual(nn.Module):
    """A block of the improved residual network: norm, convolution, norm, PReLU, strided convolution, norm."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(before),
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.PReLU(after),
            nn.Conv2d(after, after, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        same = stride == 1 and before == after
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        )

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.body(images) + self.shortcut(images)
        return result


def iresnet(channels: int, image_size: ImageSize, weights: Path | None, *, depths: tuple[int, ...]) -> Backbone:
    """Residual network of face recognition (Deng et al., CVPR 2019): features are the flattened last map.

    Built for 112 pixels; every stage halves the sides, so smaller images work and give shorter features.
    """
    _refuse_weights("iresnet", weights)
    height, width = sides(image_size)
    layers: list[nn.Module] = [nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)]
    before = 64
    for after, depth in zip((64, 128, 256, 512), depths, strict=True):
        layers += [_IResidual(before if block == 0 else after, after, 2 if block == 0 else 1) for block in range(depth)]
        before, height, width = after, (height + 1) // 2, (width + 1) // 2
    layers += [nn.BatchNorm2d(512), nn.Flatten()]
    return Backbone(nn.Sequential(*layers), 512 * height * width)


def _refuse_weights(name: str, weights: Path | None) -> None:
    if weights is not None:
        raise ConfigError(
            f"No published weights can be read for '{name}' (given: '{weights}').",
            expected="weights only with a ResNet or a vision transformer",
        )


BACKBONES: Registry[Callable[..., Backbone]] = Registry(
    "backbone",
    "backbones",
    {
        "convnet": convnet,
        "resnet18": partial(resnet, depths=(2, 2, 2, 2), layer_type="basic", published=PUBLISHED["resnet18"]),
        "resnet50": partial(resnet, depths=(3, 4, 6, 3), layer_type="bottleneck", published=PUBLISHED["resnet50"]),
        "iresnet18": partial(iresnet, depths=(2, 2, 2, 2)),
        "iresnet50": partial(iresnet, depths=(3, 4, 14, 3)),
        "vit_s": partial(vit, hidden=384, heads=6, published=PUBLISHED["vit_s"]),
        "vit_b": partial(vit, hidden=768, heads=12, published=PUBLISHED["vit_b"]),
    },
    fits=callable,
    expected="a function (channels, image_size, weights, *, options) that returns a limpet.models.backbones.Backbone",
)


def build_backbone(
    name: str, channels: int, image_size: ImageSize, weights: Path | None, options: Mapping[str, object]
) -> Backbone:
    """Build a backbone by name.

    Raises:
        ConfigError: The name or an option is unknown, or the weights cannot be read.
    """
    build = BACKBONES[name]
    return build(channels, image_size, weights, **bound(build, options, f"backbone '{name}'"))
