"""An old model, and new ones that are trained over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from limpet.data.image_set import ImageSet
from limpet.data.scenarios import extended_classes
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Experiment, Recipe
from limpet.training.train import train_upgrade


def test_train_upgrade_trains_every_model_on_its_side_of_the_split(
    make_images: Callable[..., ImageSet], tmp_path: Path
) -> None:
    images = make_images(32, 4)
    split = extended_classes(images.labels, old_fraction=0.5, order="first")
    experiment = Experiment(
        model=EncoderSpec(dim=4, channels=1, image_size=16, backbone_options={"filters": 2}),
        recipe=Recipe(epochs=1, batch_size=8, accelerator="cpu"),
        method="p2s",
    )
    releases = train_upgrade(images, split, experiment, {"new": experiment}, tmp_path)
    old, new = releases["old"], releases["new"]
    assert old.classes == tuple(images.class_names[:2]) and new.classes == tuple(images.class_names)
    assert (old.record.method, new.record.method) == ("independent", "p2s")
    assert old.record.compatible_with is None and new.record.compatible_with == old.fingerprint
