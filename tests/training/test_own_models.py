"""Models of one's own in training: as the old model, as what the new one starts from, and resumed bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from limpet import Experiment, Recipe, Release, load_release, train_release
from limpet.data import ArrayImages, ImageSet
from limpet.errors import ConfigError, DataError
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Trainable


class Own(nn.Module):
    """Two blocks with batch statistics, and linear layers."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with seeded(seed):
            self.stem = nn.Conv2d(3, 8, 4, stride=4)
            self.blocks = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)) for _ in range(2))
            self.last = nn.Linear(8, 12)

    def forward(self, pixels: Tensor) -> Tensor:
        maps = self.stem(pixels)
        for block in self.blocks:
            maps = maps + block(maps).relu()
        return self.last(maps.mean((2, 3)))


@pytest.fixture(scope="module")
def images() -> ImageSet:
    rng = np.random.default_rng(0)
    labels = np.arange(48) % 6
    patterns = rng.integers(0, 256, (6, 3, 16, 16))
    pixels = np.clip(patterns[labels] + rng.normal(0, 40, (48, 3, 16, 16)), 0, 255).astype(np.uint8)
    return ImageSet(ArrayImages(pixels), labels, [f"c{label}" for label in range(6)], [str(row) for row in range(48)])


def release(seed: int = 0) -> Release:
    return Release.from_module(Own(seed), image_size=16, mean=[0.5], std=[0.5])


def experiment(method: str = "independent", dim: int = 12, start: Release | None = None, **recipe) -> Experiment:
    values = {"epochs": 2, "batch_size": 16, "learning_rate": 0.05, "accelerator": "cpu", **recipe}
    spec = (release() if start is None else start).encoder.spec
    assert isinstance(spec, EncoderSpec)
    return Experiment(method=method, model=spec.going_on(dim=dim), recipe=Recipe(**values))


def test_a_model_is_trained_to_search_what_a_module_embedded(images: ImageSet, tmp_path: Path) -> None:
    """Neither has a classifier that could be asked: class means stand for the old one's."""
    old, start = release(), release(seed=1)
    for method in ("p2s", "bct", "l2"):
        new = train_release(images, experiment(method), tmp_path / method, old=old, encoder=start)
        assert new.record.compatible_with == old.fingerprint and new.record.initial_weights == start.fingerprint
        with pytest.raises(ConfigError, match="module of your own"):
            load_release(tmp_path / method)
        assert load_release(tmp_path / method, module=Own()).fingerprint == new.fingerprint


@pytest.mark.parametrize("trainable", [{}, {"last": 0}, {"last": 1}, {"lora": 2}])
def test_training_begins_with_the_weights_and_moves_what_learns(
    images: ImageSet, tmp_path: Path, trainable: dict[str, int]
) -> None:
    start = release()
    new = train_release(images, experiment(trainable=Trainable(**trainable)), tmp_path / "new", encoder=start)
    assert torch.equal(start.encoder.state_dict()["backbone.body.stem.weight"], Own().stem.weight), "it stays"
    before, after = start.encoder.state_dict(), new.encoder.state_dict()
    moved = {name.removeprefix("backbone.body.") for name in before if not torch.equal(before[name], after[name])}
    assert {name for name in after if "lora" in name} == set()
    every = {name.removeprefix("backbone.body.") for name in before}
    last = {name for name in every if name.startswith(("blocks.1", "last"))}
    expected = {"{}": every, "{'last': 0}": set(), "{'last': 1}": last, "{'lora': 2}": {"last.weight"}}
    assert moved == expected[str(trainable)]
    assert new.record.recipe["trainable"] == {"last": None, "lora": None, **trainable}


@pytest.mark.parametrize("trainable", [{"last": 1}, {"lora": 2}])
def test_a_stopped_run_goes_on_bit_for_bit(images: ImageSet, tmp_path: Path, trainable: dict[str, int]) -> None:
    class StopError(Exception):
        pass

    def stop(event) -> None:
        if event["epoch"] == 1:
            raise StopError

    wanted = experiment(trainable=Trainable(**trainable))
    whole = train_release(images, wanted, tmp_path / "whole", encoder=release())
    with pytest.raises(StopError):
        train_release(images, wanted, tmp_path / "parts", encoder=release(), progress=stop)
    again = train_release(images, wanted, tmp_path / "parts", encoder=release())
    assert again.fingerprint == whole.fingerprint
    kept = train_release(images, wanted, tmp_path / "parts", encoder=release(), progress=stop)
    assert kept.fingerprint == whole.fingerprint, "a finished one is kept"
    with pytest.raises(ConfigError, match=r"other settings: .*initial_weights"):
        train_release(images, wanted, tmp_path / "parts", encoder=release(seed=1))


def test_what_would_stay_random_is_refused(images: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"encoder=release"):
        train_release(images, experiment(), tmp_path)
    plain = replace(experiment(), model=EncoderSpec(dim=4, image_size=16))
    with pytest.raises(ConfigError, match="the experiment is of a convnet"):
        train_release(images, plain, tmp_path, encoder=release())
    with pytest.raises(ConfigError, match="would stay random"):
        train_release(images, replace(plain, recipe=Recipe(trainable=Trainable(last=1))), tmp_path)
    with pytest.raises(ConfigError, match="last=1 and lora=2"):
        Trainable(last=1, lora=2)
    with pytest.raises(DataError, match="not the 48 to train on"):
        train_release(images, experiment("p2s"), tmp_path, encoder=release(), old=release(),
                      old_items=images[np.arange(10)])  # fmt: skip


def test_the_old_model_reads_the_items_at_its_own_size(images: ImageSet, tmp_path: Path) -> None:
    """Its embeddings of the training set are then those of its gallery, not of images made smaller for another."""
    larger = np.repeat(np.repeat(images.images.read(np.arange(48)), 2, axis=2), 2, axis=3)
    own = ImageSet(ArrayImages(larger), images.labels, images.class_names, list(images.ids))
    old = Release.from_module(nn.Sequential(nn.Conv2d(3, 12, 32), nn.Flatten()), image_size=32)
    asked = experiment("l2")
    new = train_release(images, asked, tmp_path / "new", old=old, encoder=release(), old_items=own)
    features = next((tmp_path / "new").glob("features-*.safetensors"))
    from limpet import embed_images, load_embeddings

    expected = embed_images(old, own, form="features")
    assert np.array_equal(load_embeddings(features).vectors, expected.vectors)
    assert new.record.data["digest as the old model takes it"] == own.digest()
