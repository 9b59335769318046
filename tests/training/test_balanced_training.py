"""Class-balanced batches and the triplet term, from settings to a release."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limpet.training.train as train_module
from limpet.cli import main
from limpet.data.image_set import ImageSet
from limpet.errors import ConfigError
from limpet.methods.base import CompatibilityMethod
from limpet.models.release import Release, load_release
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Experiment, Recipe
from limpet.training.loop import fit
from limpet.training.train import train_release

CLASSES = 5
TRIPLET = {"triplet": 1.0, "triplet_margin": 0.3, "scale": 16.0, "margin": 0.2}


@pytest.fixture(scope="module")
def images(make_images: Any) -> ImageSet:
    return make_images(40, CLASSES)


BASE = Experiment(
    model=EncoderSpec(dim=8, channels=1, image_size=16, backbone_options={"filters": 8}),
    recipe=Recipe(epochs=2, batch_size=8, learning_rate=0.05, accelerator="cpu"),
)
NEW = replace(
    BASE, method="mixbct", head="arcface", head_options=TRIPLET, recipe=replace(BASE.recipe, items_per_class=2)
)


@pytest.fixture(scope="module")
def base(images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Release:
    return train_release(images, BASE, tmp_path_factory.mktemp("base"))


def test_mixbct_with_arcface_and_triplet_makes_a_release_that_loads(
    images: ImageSet, base: Release, tmp_path: Path
) -> None:
    release = train_release(images, NEW, tmp_path / "new", old=base)
    again = load_release(tmp_path / "new")
    assert again.fingerprint == release.fingerprint and again.record.compatible_with == base.fingerprint
    assert again.record.head_options == TRIPLET and again.record.recipe["items_per_class"] == 2
    card = (tmp_path / "new" / "README.md").read_text(encoding="utf-8")
    assert "classifier: arcface {'triplet': 1.0" in card and "batches: 8 images, 2 of each class" in card
    plain = replace(NEW, head_options={name: TRIPLET[name] for name in ("scale", "margin")})
    assert train_release(images, plain, tmp_path / "plain", old=base).fingerprint != release.fingerprint
    with pytest.raises(ConfigError, match="head_options differ"):
        train_release(images, plain, tmp_path / "new", old=base)
    with pytest.raises(ConfigError, match="recipe differ"):
        train_release(images, replace(NEW, recipe=BASE.recipe), tmp_path / "new", old=base)


def test_a_method_sees_balanced_batches(images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []

    class Watches(CompatibilityMethod):
        needs_old = False

        def forward(self, step: Any) -> dict[str, Any]:
            seen.append(sorted(np.bincount(step.labels, minlength=CLASSES).tolist()))
            return {"task": step.head.loss(step.new, step.labels)}

    from limpet.methods import METHODS

    monkeypatch.setitem(METHODS, "watches", Watches)
    train_release(images, replace(NEW, method="watches"), tmp_path)
    assert seen == [[0, 2, 2, 2, 2]] * 10, "two epochs of 40 // 8 steps"


@pytest.mark.parametrize("stop", [2, 7])
def test_a_run_stopped_within_an_epoch_continues_with_the_same_batches(
    stop: int, images: ImageSet, base: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_release(images, NEW, tmp_path / "whole", old=base)
    monkeypatch.setattr(train_module, "fit", partial(fit, checkpoint_seconds=0))
    steps: list[tuple[int, int]] = []

    def told(event: dict[str, Any]) -> None:
        steps.append((event["epoch"], event["step"]))
        if len(steps) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_release(images, NEW, tmp_path / "resumed", old=base, progress=told)
    resumed = train_release(images, NEW, tmp_path / "resumed", old=base, progress=told)
    assert steps == [(epoch, step) for epoch in range(2) for step in range(5)], "no step twice, none left out"
    assert resumed.fingerprint == whole.fingerprint


def test_too_few_classes_are_refused_before_anything_is_embedded(
    images: ImageSet, base: Release, tmp_path: Path
) -> None:
    recipe = replace(BASE.recipe, batch_size=12, items_per_class=2)
    with pytest.raises(ConfigError, match=r"5 classes, .*(.|\n)*at least 6 classes"):
        train_release(images, replace(NEW, recipe=recipe), tmp_path, old=base)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("items", [0, -2, 5, 64, 128])
def test_a_recipe_says_what_divides_its_batch(items: int) -> None:
    with pytest.raises(ConfigError, match=f"items_per_class={items}(.|\n)*divisor of the batch size 64"):
        Recipe(batch_size=64, items_per_class=items)


def test_the_command_line_takes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for label in range(4):
        folder = tmp_path / "photos" / f"kind{label}"
        folder.mkdir(parents=True)
        for number in range(6):
            pixels = (60 * label + rng.integers(0, 60, (16, 16, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    words = ["train", "--data", tmp_path / "photos", "--method", "independent", "--out", tmp_path / "run", "--dim", 8,
             "--head-options.triplet", 1, "--head-options.triplet-margin", 0.2, "--backbone-options.filters", 8,
             "--recipe.epochs", 1, "--recipe.batch-size", 8, "--recipe.items-per-class", 2]  # fmt: skip
    assert main([*map(str, words), "--json"]) == 0
    record = load_release(tmp_path / "run").record
    assert json.loads(capsys.readouterr().out)["releases"]["independent"]["fingerprint"] == record.fingerprint
    assert record.head_options == {"triplet": 1, "triplet_margin": 0.2} and record.recipe["items_per_class"] == 2
    assert main([*map(str, words[:-1]), "3"]) == 2
    assert "divisor of the batch size 8" in " ".join(capsys.readouterr().err.split())
