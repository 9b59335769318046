from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.data import ArrayImages, ImageSet, RetrievalData, load_dataset
from limpet.errors import ConfigError, DataError
from limpet_bench.sessions.closed_set import ClosedSet, closed_set

TRAINED = ("ape", "bee", "cat", "dog")
ASKED = ("dog", "cow", "ape", "cat", "bee")  # the same but for the cow, in another order


def make(prefix: str, names: tuple[str, ...], labels: list[int], side: int = 8) -> ImageSet:
    """Images whose pixels are their row number."""
    pixels = np.broadcast_to(np.arange(len(labels), dtype=np.uint8)[:, None, None, None], (len(labels), 1, side, side))
    return ImageSet(
        ArrayImages(pixels.copy()), np.array(labels), names, [f"{prefix}{row}" for row in range(len(labels))]
    )


def made(train: list[int] | None = None, query: list[int] | None = None) -> RetrievalData:
    """By default 4, 6, 5 and 3 training images, shuffled, and queries of all four classes."""
    labels = [2, 0, 1, 1, 3, 0, 2, 1, 1, 2, 3, 0, 1, 3, 2, 0, 1, 2] if train is None else train
    evaluation = make("query", ASKED, [0, 0, 2, 3, 4, 4, 2] if query is None else query)
    return RetrievalData("animals", make("train", TRAINED, labels), evaluation, evaluation, True, None, "made up")


def by_class(images: ImageSet) -> dict[str, list[str]]:
    return {
        name: [images.ids[row] for row in np.flatnonzero(images.labels == label)]
        for label, name in enumerate(images.class_names)
    }


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_own_queries_are_numbered_in_the_classes_of_training() -> None:
    data = made()
    found = closed_set(data)
    assert found.name == "animals" and found.train.class_names == found.test.class_names == TRAINED
    assert by_class(found.test) == {
        "ape": ["query2", "query6"], "bee": ["query4", "query5"], "cat": ["query3"], "dog": ["query0", "query1"],
    }  # fmt: skip
    assert by_class(found.train) == by_class(data.train)
    assert found.test.read(np.array([3])).max() == 3
    assert found.description == "18 images of 4 classes to train on; 7 test queries: its own"


def test_the_first_images_of_every_class_become_queries() -> None:
    found = closed_set(made(), test_images=1)
    assert by_class(found.test) == {"ape": ["train1"], "bee": ["train2"], "cat": ["train0"], "dog": ["train4"]}
    assert by_class(found.train) == {
        "ape": ["train5", "train11", "train15"],
        "bee": ["train3", "train7", "train8", "train12", "train16"],
        "cat": ["train6", "train9", "train14", "train17"],
        "dog": ["train10", "train13"],
    }
    assert found.description == "14 images of 4 classes to train on; 4 test queries: the first 1 of every class"


@pytest.mark.parametrize("test_images", [None, 2])
def test_the_first_classes_are_kept_in_both_parts(test_images: int | None) -> None:
    everything = closed_set(made([0, 1, 2, 3] * 4), test_images=test_images)
    kept = closed_set(made([0, 1, 2, 3] * 4), test_images=test_images, classes=3)
    for part, whole in ((kept.train, everything.train), (kept.test, everything.test)):
        assert part.class_names == TRAINED[:3]
        assert by_class(part) == {name: ids for name, ids in by_class(whole).items() if name != "dog"}


def test_a_small_class_that_is_not_kept_is_no_obstacle() -> None:
    assert len(closed_set(made(), test_images=2, classes=3).test) == 6
    with pytest.raises(ConfigError, match="'dog'"):
        closed_set(made(), test_images=2)


def test_classes_without_a_training_image_do_not_count() -> None:
    without = made([0, 0, 0, 3, 3, 3, 2, 2, 2], query=[0, 2, 3])
    found = closed_set(without)
    assert found.train.class_names == found.test.class_names == ("ape", "cat", "dog")
    assert by_class(found.test) == {"ape": ["query1"], "cat": ["query2"], "dog": ["query0"]}
    assert closed_set(without, test_images=1).train.class_names == ("ape", "cat", "dog")
    with pytest.raises(ConfigError, match=r"classes = 4 of 'animals', which has 3 to train on"):
        closed_set(without, classes=4)


# --- refusals --------------------------------------------------------------------------------------------------------


def test_queries_of_other_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'animals' searches other classes(.|\n)*1 of .*'cow'(.|\n)*--test-images 4"):
        closed_set(made(query=[0, 1, 2]))
    assert len(closed_set(made(query=[0, 1, 2]), test_images=1).test) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_images": 0}, r"test_images = 0\.(.|\n)*at least 1"),
        ({"test_images": -1}, "test_images = -1"),
        (
            {"test_images": 2},
            r"'dog' of 'animals' has only 3 images(.|\n)*leaves 2 images(.|\n)*--test-images 1 or less",
        ),
        ({"classes": 1}, r"classes = 1 of 'animals', which has 4 to train on\.\nExpected: from 2 to 4"),
        ({"classes": 5}, "classes = 5"),
        ({"classes": 0}, "classes = 0"),
        ({"classes": -2, "test_images": 1}, "classes = -2"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        closed_set(made(), **options)


def test_a_class_that_cannot_spare_any_is_named_with_another_way_out() -> None:
    with pytest.raises(ConfigError, match=r"'cat' .* has only 2 images(.|\n)*add images to that class"):
        closed_set(made([0] * 4 + [1] * 4 + [2] * 2 + [3] * 4), test_images=1)


def test_parts_that_do_not_fit_are_refused() -> None:
    train, test = make("a", TRAINED, [0, 1, 2]), make("b", TRAINED, [0, 1])
    ClosedSet("animals", train, test, "fine")
    for wrong, message in [
        (make("b", TRAINED[::-1], [0, 1]), "other class names"),
        (make("b", TRAINED, [0, 1], side=9), r"shape \(1, 8, 8\), the test queries \(1, 9, 9\)"),
        (test[[]], "'animals' has no test query"),
        (replace(test, ids=["b0", "a1"]), "1 test queries of 'animals' are training images too, first: 'a1'"),
    ]:
        with pytest.raises(DataError, match=message):
            ClosedSet("animals", train, wrong, "wrong")


def test_a_data_set_that_asks_for_what_it_trains_on_is_refused() -> None:
    data = made()
    with pytest.raises(DataError, match=r"18 test queries of 'animals' are training images too"):
        closed_set(replace(data, query=data.train, gallery=data.train))


# --- real data -------------------------------------------------------------------------------------------------------


def test_omniglot_asks_for_drawings_0_to_3(data_root: Path) -> None:
    data = load_dataset("omniglot", data_root)
    with pytest.raises(ConfigError, match="--test-images 4"):
        closed_set(data)
    found = closed_set(data, test_images=4, classes=960)
    assert (len(found.train), len(found.test)) == (960 * 16, 960 * 4)
    assert {id_.rsplit("/", 1)[1] for id_ in found.test.ids} == {"00", "01", "02", "03"}


def test_tiny_imagenet_asks_for_its_val_images(data_root: Path) -> None:
    data = load_dataset("tiny-imagenet-32", data_root)
    found = closed_set(data)
    assert (len(found.train), len(found.test)) == (100_000, 10_000)
    assert np.bincount(found.test.labels).tolist() == [50] * 200
    few = closed_set(data, classes=20)
    assert (len(few.train), len(few.test)) == (10_000, 1_000)
    assert few.train.class_names == data.train.class_names[:20]
