"""Runs that must not begin, or must not go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from limpet.data.image_set import ImageSet
from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError
from limpet.geometry import Hypersphere
from limpet.methods import METHODS
from limpet.methods.base import OldModel
from limpet.models.heads import build_head
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Experiment, Recipe
from limpet.training.objective import RunPosition, refuse_mismatch, seed_at
from limpet.training.train import train_release

EXPERIMENT = Experiment(
    model=EncoderSpec(dim=4, channels=1, image_size=16, backbone_options={"filters": 2}),
    recipe=Recipe(epochs=2, batch_size=8, accelerator="cpu"),
)


@pytest.fixture
def images(make_images: Callable[..., ImageSet]) -> ImageSet:
    return make_images(32, 4)


def test_a_loss_that_is_not_finite_ends_the_run_without_a_release(images: ImageSet, tmp_path: Path) -> None:
    """One term is enough, in one step: it is the method's, and that of the task is a number still."""
    old = train_release(images, EXPERIMENT, tmp_path / "old")
    recipe = replace(EXPERIMENT.recipe, epochs=1, batch_size=len(images))
    diverging = replace(EXPERIMENT, method="bct", method_options={"weight": 3.4e38}, recipe=recipe)
    with pytest.raises(DataError, match=r"The loss became inf in epoch 1; .*'task': [0-9.]+[,}]"):
        train_release(images, diverging, tmp_path / "new", old=old)
    assert not (tmp_path / "new" / "release.json").exists()


def test_no_two_places_draw_with_the_same_seed() -> None:
    places = [RunPosition(epoch, 4, step) for epoch, step in product(range(3), range(5))]
    assert len({seed_at(place, 7) for place in places}) == len(places)


def test_old_embeddings_of_classes_in_another_order_are_refused(images: ImageSet) -> None:
    names, sphere = images.class_names, Hypersphere(4)
    vectors = np.eye(4, dtype=np.float32)[images.labels]
    head = build_head("softmax", 4, 4, {})
    for given in (names, names[::-1]):
        embeddings = EmbeddingSet(
            vectors, images.ids, "declared:old", sphere, form="features", labels=images.labels, class_names=given
        )
        arguments = (METHODS["bct"](), head, sphere, OldModel(embeddings, names, head), len(images), names)
        if given is names:
            refuse_mismatch(*arguments)
        else:
            with pytest.raises(DataError, match="in another order than the training set's"):
                refuse_mismatch(*arguments)
