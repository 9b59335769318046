"""Training that starts from published weights in a folder, here random ones of ResNets in the same format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.errors import ConfigError
from limpet.models.encoder import EncoderSpec
from limpet.models.release import load_release
from limpet.models.seeding import seeded
from limpet.training.experiment import Experiment, Recipe
from limpet.training.train import train_release


def from_folder(weights: Path, backbone: str = "resnet50") -> Experiment:
    """Return a training as for dogs of fine-grained breeds, but small."""
    return Experiment(
        model=EncoderSpec(backbone=backbone, dim=8, image_size=40, centre_crop=32),
        recipe=Recipe(epochs=1, batch_size=4, learning_rate=1e-4, freeze_batch_norm=True, accelerator="cpu"),
        weights=weights,
    )


LAYERS = {
    "resnet18": {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "layer_type": "basic"},
    "resnet50": {"hidden_sizes": [256, 512, 1024, 2048], "depths": [3, 4, 6, 3], "layer_type": "bottleneck"},
}


def published(folder: Path, backbone: str) -> Path:
    """Write a ResNet as the transformers library saves it, with batch statistics of its own."""
    import transformers

    with seeded(5):
        model = transformers.ResNetModel(transformers.ResNetConfig(embedding_size=64, **LAYERS[backbone]))
        for name, value in model.named_buffers():
            if name.endswith("running_mean"):
                value.normal_(0, 0.1)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def photographs() -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 40, 40), np.uint8)
    return ImageSet(ArrayImages(pixels), np.arange(4) % 2, ("a", "b"), [f"i{row}" for row in range(4)])


@pytest.mark.parametrize("backbone", ["resnet18", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_a_fine_grained_start_has_the_weights_of_the_folder(
    backbone: str, photographs: ImageSet, tmp_path: Path
) -> None:
    import safetensors.torch

    weights = published(tmp_path / "weights", backbone)
    release = train_release(photographs, from_folder(weights, backbone), tmp_path / "run")
    trained, given = release.encoder.state_dict(), safetensors.torch.load_file(weights / "model.safetensors")
    assert len(given) > 100
    for name, value in given.items():
        now = trained[f"backbone.body.model.{name}"]
        if "running" in name:
            assert torch.equal(now, value), name
        elif now.is_floating_point():
            torch.testing.assert_close(now, value, rtol=0, atol=2e-3)  # one step at a rate of 1e-4
    moved = "encoder.stages.3.layers.1.layer.1.convolution.weight"
    assert not torch.equal(trained[f"backbone.body.model.{moved}"], given[moved])
    again = load_release(tmp_path / "run").record.encoder
    assert isinstance(again, EncoderSpec) and again.backbone_options == {"stem": "imagenet"}


def test_a_folder_that_is_not_there_is_told_with_the_model_to_fetch(photographs: ImageSet, tmp_path: Path) -> None:
    missing = tmp_path / "weights" / "resnet-50"
    with pytest.raises(
        ConfigError, match=rf"there is no such folder(.|\n)*fetch 'microsoft/resnet-50' .* into '{missing}'"
    ):
        train_release(photographs, from_folder(missing), tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()
