"""Which parameters learn: what receives gradients, what keeps its statistics, and what LoRA leaves in the weights."""

from __future__ import annotations

import sys

import pytest
import torch
import transformers
from torch import Tensor, nn

from limpet import Release
from limpet.errors import ConfigError
from limpet.models.encoder import Encoder
from limpet.models.feature_encoder import FeatureEncoder
from limpet.models.own_modules import probe_images
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec, FeatureSpec
from limpet.models.trainable import add_lora, blocks_of, merge_lora, train_last


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.1)

    def forward(self, maps: Tensor) -> Tensor:
        return maps + self.drop(self.norm(self.conv(maps)).relu())


class Staged(nn.Module):
    """A stem, three blocks, and a layer after them."""

    def __init__(self) -> None:
        super().__init__()
        with seeded(0):
            self.stem = nn.Conv2d(3, 4, 4, stride=4)
            self.blocks = nn.ModuleList(Block() for _ in range(3))
            self.last = nn.Linear(4, 6)

    def forward(self, pixels: Tensor) -> Tensor:
        maps = self.stem(pixels)
        for block in self.blocks:
            maps = block(maps)
        return self.last(maps.mean((2, 3)))


def started(module: nn.Module | None = None) -> Encoder:
    release = Release.from_module(module or Staged(), image_size=16)
    with seeded(1):
        return release.encoder.going_on(release.encoder.spec.going_on(dim=5))


def learning(encoder: Encoder) -> set[str]:
    """Return the names of the parameters that receive a gradient."""
    encoder.train()(probe_images((3, 16, 16), 4)).square().sum().backward()
    return {name for name, parameter in encoder.named_parameters() if parameter.grad is not None}


BODY = "backbone.body"
PROJECTION = {"projection.weight", "projection.bias"}
BLOCK = [f"{layer}.{part}" for layer in ("conv", "norm") for part in ("weight", "bias")]


def of_blocks(*numbers: int) -> set[str]:
    return {f"{BODY}.blocks.{number}.{name}" for number in numbers for name in BLOCK}


LAST = {f"{BODY}.last.weight", f"{BODY}.last.bias"}
STEM = {f"{BODY}.stem.weight", f"{BODY}.stem.bias"}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (0, PROJECTION),
        (1, PROJECTION | LAST | of_blocks(2)),
        (3, PROJECTION | LAST | of_blocks(0, 1, 2)),
        (None, PROJECTION | LAST | of_blocks(0, 1, 2) | STEM),
    ],
)
def test_what_learns_and_what_keeps_its_statistics(last: int | None, expected: set[str]) -> None:
    encoder = started()
    if last is not None:
        train_last(encoder, last)
    before = {name: value.clone() for name, value in encoder.named_buffers()}
    assert learning(encoder) == expected
    moved = {name.split(".")[3] for name, value in encoder.named_buffers() if not torch.equal(value, before[name])}
    assert moved == {str(number) for number in range(3) if of_blocks(number) <= expected}
    resting = {name for name, part in encoder.backbone.named_modules() if not part.training}
    assert ("body.blocks.0.drop" in resting) == (not of_blocks(0) <= expected), "dropout of what rests is off"


def test_lora_begins_with_the_very_network_and_ends_within_its_weights() -> None:
    encoder, plain = started(), started()
    names, images = set(encoder.state_dict()), probe_images((3, 16, 16), 4)
    with seeded(2):
        add_lora(encoder, 2)
    torch.testing.assert_close(encoder.eval()(images), plain.eval()(images))
    assert learning(encoder) == PROJECTION | {f"{BODY}.last.lora_{one}.default.weight" for one in "AB"}
    assert not any(part.training for part in encoder.backbone.modules() if isinstance(part, nn.BatchNorm2d))
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    trained = encoder.eval()(images)
    addition = encoder.backbone.body.last.lora_B["default"].weight @ encoder.backbone.body.last.lora_A["default"].weight
    merge_lora(encoder)
    assert set(encoder.state_dict()) == names
    torch.testing.assert_close(encoder(images), trained)
    torch.testing.assert_close(encoder.backbone.body.last.weight, plain.backbone.body.last.weight + addition)


def test_lora_takes_convolutions_where_nothing_is_linear_and_leaves_attention_that_reads_weights() -> None:
    convolutions = started(nn.Sequential(nn.Conv2d(3, 4, 8, stride=8), nn.AdaptiveAvgPool2d(1)))
    add_lora(convolutions, 1)
    assert {f"{BODY}.0.lora_A.default.weight", f"{BODY}.0.lora_B.default.weight"} < learning(convolutions)

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.attention = nn.Linear(3, 4), nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, pixels: Tensor) -> Tensor:
            tokens = self.first(pixels.flatten(2).transpose(1, 2))
            return self.attention(tokens, tokens, tokens)[0].mean(1)

    attends = started(Attends())
    add_lora(attends, 1)
    added = {name for name, parameter in attends.named_parameters() if parameter.requires_grad}
    assert added == learning(attends), "nothing learns that gets no gradient"


def test_blocks_of_networks_of_the_library() -> None:
    small = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3, "image_size": 32, "patch_size": 16}
    vit = transformers.ViTModel(transformers.ViTConfig(**small, intermediate_size=16), add_pooling_layer=False)
    blocks = blocks_of(vit)
    assert (len(blocks) == 3 and blocks[0] is next(iter(vit.children())).__class__) or len(blocks) == 3
    resnet = transformers.ResNetModel(
        transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic")
    )
    assert [type(block).__name__ for block in blocks_of(resnet)] == ["ResNetStage"] * 2
    sequence = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Linear(4, 4), nn.BatchNorm1d(4))
    assert [type(block).__name__ for block in blocks_of(sequence)] == ["Conv2d", "Linear", "BatchNorm1d"]
    assert blocks_of(nn.Linear(2, 2)) == []


def test_too_many_blocks_and_networks_without_any_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"(?s)last=4, and Staged has 3 blocks.*at most 3"):
        train_last(started(), 4)
    with pytest.raises(ConfigError, match="has 0 blocks"):
        train_last(started(nn.Conv2d(3, 5, 16)), 1)
    with pytest.raises(ConfigError, match="trained as a whole"):
        add_lora(FeatureEncoder(FeatureSpec(frozen="text:0", width=4, dim=4)), 1)
    flat = Encoder(EncoderSpec(dim=4, image_size=8))
    for part in flat.backbone.modules():
        if isinstance(part, nn.Conv2d):
            part.groups = 2
    with pytest.raises(ConfigError, match="linear layers or convolutions"):
        add_lora(flat, 1)


def test_without_peft_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[peft\]'"):
        add_lora(started(), 1)
