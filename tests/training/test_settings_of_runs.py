from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from limpet.data.augment import Augmentation, RandAugment, ResizedCrop
from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.methods.base import CompatibilityMethod
from limpet.models.encoder import Encoder
from limpet.models.release import Release, load_release
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Experiment, Recipe
from limpet.training.run_state import load_history
from limpet.training.train import train_release

CLASSES = 4


BASE = Experiment(
    model=EncoderSpec(dim=8, channels=1, image_size=16, backbone_options={"filters": 8}),
    recipe=Recipe(epochs=2, batch_size=8, learning_rate=0.05, schedule="polynomial", accelerator="cpu"),
)


@pytest.fixture(scope="module")
def base(images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Release:
    return train_release(images, BASE, tmp_path_factory.mktemp("base"))


CHANGES: dict[str, Any] = {
    "epochs": 3, "batch_size": 16, "items_per_class": 4, "optimizer": "adamw", "learning_rate": 0.01, "momentum": 0.5,
    "nesterov": True, "weight_decay": 0.1, "schedule": "constant", "power": 1.0, "warmup_epochs": 1.0,
    "clip_norm": 0.01, "augmentation": Augmentation(flip=True), "precision": "bf16-mixed",
    "backbone_rate": 0.1,
}  # fmt: skip
OF_THE_MACHINE = {"accelerator", "devices", "workers", "data_on_device"}


def test_every_setting_is_among_the_changes() -> None:
    assert {definition.name for definition in dataclasses.fields(Recipe)} == (
        CHANGES.keys() | OF_THE_MACHINE | {"milestones", "old_view", "channels_last", "freeze_batch_norm", "trainable"}
    )


@pytest.mark.filterwarnings("ignore:.*bfloat16.*")
@pytest.mark.parametrize("name", CHANGES)
def test_every_setting_changes_the_result(name: str, images: ImageSet, base: Release, tmp_path: Path) -> None:
    changed = replace(BASE, recipe=replace(BASE.recipe, **{name: CHANGES[name]}))
    release = train_release(images, changed, tmp_path)
    assert release.fingerprint != base.fingerprint


def test_milestones_change_the_result(images: ImageSet, tmp_path: Path) -> None:
    steps = replace(BASE, recipe=replace(BASE.recipe, schedule="steps", milestones=(1,)))
    later = replace(BASE, recipe=replace(BASE.recipe, schedule="steps", milestones=(2,)))
    prints = {train_release(images, one, tmp_path / str(n)).fingerprint for n, one in enumerate((steps, later))}
    assert len(prints) == 2


def test_workers_do_not_change_the_result(images: ImageSet, base: Release, tmp_path: Path) -> None:
    changed = replace(BASE, recipe=replace(BASE.recipe, workers=1))
    assert train_release(images, changed, tmp_path).fingerprint == base.fingerprint


@pytest.mark.parametrize("augmentation", [Augmentation(), Augmentation(1, True, 10.0)])
def test_where_the_data_is_kept_does_not_change_the_result(augmentation, images, base, tmp_path) -> None:
    """Cached embeddings of a predecessor, the pass over all images of ndpp and its augmented batches included."""
    prints = {}
    for choice in ("never", "always"):
        recipe = replace(BASE.recipe, augmentation=augmentation, data_on_device=choice)
        release = train_release(images, replace(BASE, method="ndpp", recipe=recipe), tmp_path / choice, old=base)
        assert release.record.recipe["data_on_device"] == choice
        prints[choice] = release.fingerprint
    assert prints["always"] == prints["never"]


def test_data_on_the_device_is_read_once(images: ImageSet, tmp_path: Path) -> None:
    read: list[int] = []

    class Noted(ArrayImages):
        def read(self, rows: Any) -> Any:
            read.extend(rows.tolist())
            return super().read(rows)

    noted = ImageSet(Noted(images.read(np.arange(32))), images.labels, images.class_names, images.ids)
    for choice, times in (("always", 1), ("auto", 2)):
        read.clear()
        changed = replace(BASE, recipe=replace(BASE.recipe, data_on_device=choice))
        train_release(noted, changed, tmp_path / choice)
        assert sorted(read) == sorted([*range(32)] * times)


def test_channels_last_decides(images: ImageSet, tmp_path: Path) -> None:
    """Bits of the result may be the same: then the layout is all that changed."""
    changed = replace(BASE, recipe=replace(BASE.recipe, channels_last=True))
    assert changed.recipe.decides() == {**BASE.recipe.decides(), "channels_last": True}
    release = train_release(images, BASE, tmp_path / "a")
    assert release.record.recipe["backbone_rate"] == 1.0
    with pytest.raises(ConfigError, match="recipe differ"):
        train_release(images, changed, tmp_path / "a")
    other = train_release(images, changed, tmp_path / "b")
    assert train_release(images, changed, tmp_path / "b").fingerprint == other.fingerprint
    with pytest.raises(ConfigError, match="recipe differ"):
        train_release(images, BASE, tmp_path / "b")
    one, same = release.encoder.state_dict(), other.encoder.state_dict()
    assert all(torch.allclose(one[name].float(), same[name].float(), atol=1e-3) for name in one)


def test_operations_on_images_decide(images: ImageSet, tmp_path: Path) -> None:
    plain = replace(BASE, recipe=replace(BASE.recipe, epochs=1, augmentation=Augmentation(flip=True)))
    crops = Augmentation(flip=True, resized_crop=ResizedCrop((0.5, 1.0)), rand_augment=RandAugment(1, 5))
    changed = replace(plain, recipe=replace(plain.recipe, augmentation=crops))
    release = train_release(images, plain, tmp_path / "a")
    assert train_release(images, plain, tmp_path / "a").fingerprint == release.fingerprint
    with pytest.raises(ConfigError, match="recipe differ"):
        train_release(images, changed, tmp_path / "a")
    other = train_release(images, changed, tmp_path / "b").record.recipe["augmentation"]
    assert other["rand_augment"] == {"operations": 1, "magnitude": 5, "scale": 10}
    assert tuple(other["resized_crop"]["scale"]) == (0.5, 1.0)
    assert Experiment.from_settings(changed.settings()).recipe == replace(changed.recipe, accelerator="auto")


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ({"image_size": 12}, (12, 12)),
        ({"image_size": (12, 8)}, (12, 8)),
        ({"image_size": 16, "centre_crop": (12, 8)}, (12, 8)),
    ],
)
def test_resized_crops_have_the_size_that_the_network_sees(
    size: dict[str, Any], expected: tuple[int, int], images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[int, ...]] = set()
    forward = Encoder.forward

    def watched(encoder: Encoder, inputs: torch.Tensor) -> torch.Tensor:
        seen.add((encoder.training, *inputs.shape[2:]))
        return forward(encoder, inputs)

    monkeypatch.setattr(Encoder, "forward", watched)
    recipe = replace(BASE.recipe, epochs=1, augmentation=Augmentation(resized_crop=ResizedCrop()))
    model = BASE.model.model_copy(update=size)
    train_release(images, replace(BASE, model=model, recipe=recipe), tmp_path)
    assert images.shape[1:] == (16, 16) and seen == {(True, *expected)}


@pytest.mark.parametrize(
    ("augmentation", "message"),
    [
        ({"rand_augment": {"operation": 2}}, r"'operation' of .*rand_augment\. Did you mean 'operations'"),
        ({"rand_augment": {"magnitude": 12}}, r"magnitude = 12(.|\n)*its scale"),
        ({"rand_augment": 7}, "a mapping of settings"),
        ({"rand_augmen": {}}, "Did you mean 'rand_augment'"),
        ({"auto_augment": "imagenet"}, "auto_augment='imagenet'(.|\n)*cifar-10"),
        ({"resized_crop": {"scale": [0.1]}}, r"resized_crop was given scale=\[0.1\]"),
    ],
)
def test_unknown_and_impossible_operations_are_refused(augmentation: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.from_settings({"recipe": {"augmentation": augmentation}})


@pytest.mark.gpu
def test_a_gpu_trains_alike_wherever_the_data_is(images: ImageSet, tmp_path: Path) -> None:
    augmentation, losses = Augmentation(crop_padding=1, flip=True), []
    for choice in ("never", "always", "auto"):
        recipe = replace(BASE.recipe, accelerator="cuda", data_on_device=choice, augmentation=augmentation)
        train_release(images, replace(BASE, recipe=recipe), tmp_path / choice)
        losses.append(load_history(tmp_path / choice).epochs[0]["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3) and losses[2] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*bfloat16.*")
def test_a_gpu_trains_in_bfloat16_and_channels_last(images: ImageSet, base: Release, tmp_path: Path) -> None:
    recipe = replace(BASE.recipe, accelerator="cuda", precision="bf16-mixed", channels_last=True, old_view="same")
    recipe = replace(recipe, augmentation=Augmentation(flip=True))
    release = train_release(images, replace(BASE, method="bct", recipe=recipe), tmp_path, old=base)
    assert all(weight.is_contiguous() and not weight.is_cuda for weight in release.encoder.parameters())
    history = load_history(tmp_path)
    assert history.epochs[-1]["loss"] < 2 * history.epochs[0]["loss"] and 0 < history.waiting_share < 1


def test_seed_decides_the_result(images: ImageSet, base: Release, tmp_path: Path) -> None:
    assert train_release(images, BASE, tmp_path / "a").fingerprint == base.fingerprint
    assert train_release(images, replace(BASE, seed=1), tmp_path / "b").fingerprint != base.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": replace(BASE.recipe, learning_rate=0.01)},
        {"model": EncoderSpec(dim=16, channels=1, image_size=16, backbone_options={"filters": 8})},
        {"head": "normalised"},
        {"head_options": {"bias": True}},
        {"seed": 1},
    ],
)
def test_neither_a_finished_nor_an_unfinished_run_continues_with_other_settings(
    change: dict[str, Any], every_epoch_kept: None, images: ImageSet, tmp_path: Path
) -> None:
    def stop(event: dict[str, Any]) -> None:
        if event["epoch"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_release(images, BASE, tmp_path, progress=stop)
    with pytest.raises(ConfigError, match="belongs to another run"):
        train_release(images, replace(BASE, **change), tmp_path)
    release = train_release(images, BASE, tmp_path)
    with pytest.raises(ConfigError, match="made with other settings"):
        train_release(images, replace(BASE, **change), tmp_path)
    assert load_release(tmp_path).fingerprint == release.fingerprint


def test_other_images_are_another_run(images: ImageSet, tmp_path: Path) -> None:
    train_release(images, BASE, tmp_path)
    other = ImageSet(ArrayImages(255 - images.read(np.arange(32))), images.labels, images.class_names, images.ids)
    with pytest.raises(ConfigError, match="data differ"):
        train_release(other, BASE, tmp_path)


def test_a_resumed_run_repeats_no_line_of_its_log(images: ImageSet, tmp_path: Path) -> None:
    calls = iter(range(100))

    def stop(event: dict[str, Any]) -> None:
        if next(calls) == 6:  # in the second epoch, whose lines the resumed run writes again
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_release(images, BASE, tmp_path, progress=stop)
    train_release(images, BASE, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(line["epoch"], line["step"]) for line in lines] == [(0, 0), (0, 3), (1, 0), (1, 3)]


@pytest.mark.parametrize(
    ("method", "setting", "augmented", "view"),
    [
        ("bct", "method", True, "cached"),
        ("advbct", "method", True, "same"),
        ("advbct", "method", False, "cached"),
        ("advbct", "cached", True, "cached"),
        ("l2", "same", True, "same"),
        ("hoc", "method", True, "same"),
    ],
)
def test_what_the_predecessor_sees(method, setting, augmented, view, images, base, tmp_path, monkeypatch) -> None:
    augmentation = Augmentation(flip=True) if augmented else Augmentation()
    recipe = replace(BASE.recipe, epochs=1, old_view=setting, augmentation=augmentation)
    seen: list[torch.Tensor] = []
    forward = type(base.encoder).forward

    def watched(encoder: Any, inputs: torch.Tensor) -> torch.Tensor:
        if encoder is base.encoder:
            seen.append(inputs)
        return forward(encoder, inputs)

    monkeypatch.setattr(type(base.encoder), "forward", watched)
    experiment = replace(BASE, method=method, recipe=recipe)
    release = train_release(images, experiment, tmp_path, old=base, old_images=images)
    assert release.record.old_view == view
    whole = sum(len(inputs) == recipe.batch_size for inputs in seen)
    assert whole == len(images) // recipe.batch_size * (
        2 if view == "same" else 1
    )  # embedded once, and once more a step


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0}, {"batch_size": 1}, {"learning_rate": 0.0}, {"learning_rate": float("nan")}, {"momentum": -1.0},
        {"nesterov": True, "momentum": 0.0}, {"weight_decay": -1.0}, {"schedule": "steps"}, {"clip_norm": -1.0},
        {"warmup_epochs": -1.0}, {"workers": -1}, {"devices": 0}, {"power": 0.0}, {"items_per_class": 3},
    ],
)  # fmt: skip
def test_impossible_recipes(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Recipe(**wrong)


def test_refusals_before_training(images: ImageSet, base: Release, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-device"):
        Recipe(accelerator="no-such-device").build_fabric()
    with pytest.raises(ConfigError, match="seed=-1"):
        replace(BASE, seed=-1)
    with pytest.raises(ConfigError, match="stay random"):
        replace(BASE, freeze_backbone=True)
    with pytest.raises(ConfigError, match="no statistics to keep"):
        replace(BASE, recipe=replace(BASE.recipe, freeze_batch_norm=True))
    with pytest.raises(DataError, match="1 class"):
        train_release(images[images.labels == 0], BASE, tmp_path)
    with pytest.raises(ConfigError, match="needs a predecessor"):
        train_release(images, replace(BASE, method="bct"), tmp_path)
    wide = replace(BASE, method="bct", model=BASE.model.model_copy(update={"dim": 9}))
    with pytest.raises(SpaceMismatchError, match="--dim 8"):
        train_release(images, wide, tmp_path, old=base)
    assert not any(tmp_path.iterdir())


def test_a_loss_that_is_not_finite_is_never_saved(
    every_epoch_kept: None, images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Explodes(CompatibilityMethod):
        needs_old = False

        def forward(self, step: Any) -> dict[str, torch.Tensor]:
            loss = step.head.loss(step.new, step.labels)
            return {"task": loss * (float("nan") if step.epoch == 1 else 1.0)}

    from limpet.methods import METHODS

    monkeypatch.setitem(METHODS, "explodes", Explodes)
    with pytest.raises(DataError, match="in epoch 2"):
        train_release(images, replace(BASE, method="explodes"), tmp_path)
    from safetensors.torch import load_file

    state = load_file(tmp_path / "checkpoint.safetensors")
    assert all(torch.isfinite(value).all() for value in state.values() if value.is_floating_point())


def test_published_weights_are_part_of_the_run(tmp_path: Path) -> None:
    import transformers

    from limpet.models.seeding import seeded

    for seed in (0, 1):
        with seeded(seed):
            config = transformers.ResNetConfig(
                num_channels=3, embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2],
                layer_type="basic",
            )  # fmt: skip
            transformers.ResNetModel(config).save_pretrained(tmp_path / f"weights{seed}")
    rng, labels = np.random.default_rng(0), np.arange(8) % 2
    pixels = rng.integers(0, 256, (8, 3, 32, 32)).astype(np.uint8)
    images = ImageSet(ArrayImages(pixels), labels, ("a", "b"), [str(row) for row in range(8)])
    recipe = replace(BASE.recipe, epochs=1, batch_size=4)
    experiment = Experiment(
        model=EncoderSpec(backbone="resnet18", dim=8),
        recipe=recipe,
        weights=tmp_path / "weights0",
        freeze_backbone=True,
    )
    release = train_release(images, experiment, tmp_path / "out")
    record = load_release(tmp_path / "out").record
    assert record.frozen_backbone and record.initial_weights.startswith("weights0, sha256 ")
    published = transformers.ResNetModel.from_pretrained(tmp_path / "weights0").state_dict()
    assert torch.equal(release.encoder.backbone.body.model.state_dict()["embedder.embedder.convolution.weight"],
                       published["embedder.embedder.convolution.weight"])  # fmt: skip
    assert train_release(images, experiment, tmp_path / "out").fingerprint == release.fingerprint
    with pytest.raises(ConfigError, match="initial_weights differ"):
        train_release(images, replace(experiment, weights=tmp_path / "weights1"), tmp_path / "out")
    kept = replace(experiment, freeze_backbone=False, recipe=replace(recipe, freeze_batch_norm=True))
    release = train_release(images, kept, tmp_path / "kept")
    trained = release.encoder.backbone.body.model.state_dict()
    statistics = [name for name in published if "running" in name]
    assert statistics and all(torch.equal(trained[name], published[name]) for name in statistics)
    assert not torch.equal(trained["embedder.embedder.convolution.weight"],
                           published["embedder.embedder.convolution.weight"])  # fmt: skip
    assert release.record.recipe["freeze_batch_norm"] is True
    with pytest.raises(ConfigError, match="recipe differ"):
        train_release(images, replace(kept, recipe=recipe), tmp_path / "kept")


def test_the_old_models_own_data_is_part_of_the_run(images: ImageSet, base: Release, tmp_path: Path) -> None:
    experiment = replace(BASE, method="advbct", recipe=replace(BASE.recipe, epochs=1))
    train_release(images, experiment, tmp_path, old=base, old_images=images)
    fewer = images[np.arange(16)]
    with pytest.raises(ConfigError, match="data differ"):
        train_release(images, experiment, tmp_path, old=base, old_images=fewer)
