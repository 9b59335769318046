"""What a reader returns, where there is nothing to train on or the labels mean nothing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from limpet.data import ArrayImages, ImageSet, RetrievalData
from limpet.errors import DataError
from limpet_bench.sessions.closed_set import closed_set


def build(image_set: ImageSet, **changes: Any) -> RetrievalData:
    values = {"train": None, "query": image_set, "gallery": image_set, "leave_one_out": True, "validation": None}
    return RetrievalData(name="made", description="", **{**values, **changes})


def other_shape(images: ImageSet) -> ImageSet:
    return replace(images, images=ArrayImages(np.zeros((len(images), 1, 5, 4), np.uint8)))


def test_without_training_images_training_is_refused_and_evaluation_is_not(image_set: ImageSet) -> None:
    data = build(image_set)
    assert list(data.parts()) == ["query", "gallery"]
    with pytest.raises(DataError, match=r"'made' has nothing to train on(.|\n)*limpet embed"):
        data.to_train_on()
    with pytest.raises(DataError, match="'made' has nothing to train on"):
        closed_set(data)
    trained = build(image_set, train=image_set, validation=image_set)
    assert trained.to_train_on() is image_set and list(trained.parts()) == ["train", "query", "gallery", "validation"]


def test_one_class_is_enough_only_where_labels_mean_nothing(image_set: ImageSet) -> None:
    alone = image_set[[0, 1]]
    with pytest.raises(DataError, match="query images of 'made' have 1 class"):
        build(alone, gallery=alone)
    assert build(alone, gallery=alone, labelled=False).labelled is False
    with pytest.raises(DataError, match="train images of 'made' have 1 class"):
        build(alone, gallery=alone, labelled=False, train=alone)


@pytest.mark.parametrize("part", ["train", "gallery", "validation"])
def test_every_part_has_one_shape(image_set: ImageSet, part: str) -> None:
    with pytest.raises(DataError, match=r"images have shape \(1, [45], 4\), the \w+ images \(1, [45], 4\)"):
        build(image_set, **{part: other_shape(image_set)}, **({"leave_one_out": False} if part == "gallery" else {}))
