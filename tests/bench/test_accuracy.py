from __future__ import annotations

import numpy as np
import pytest
import torch

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError
from limpet.geometry import Hypersphere, Lorentz, Space
from limpet.methods.base import Head, View
from limpet.models.heads import HEADS, build_head
from limpet_bench.accuracy import accuracy

CLASSES = ("cat", "dog", "emu")
CASES = [
    pytest.param(name, space, id=f"{name}-{space.name}")
    for name in sorted(HEADS)
    for space in (Hypersphere(2), Lorentz(2), Lorentz(2, 0.5))
    if space.name in HEADS[name].spaces
]


def features(
    vectors: list[list[float]], names: list[str], space: Space | None = None, **values: object
) -> EmbeddingSet:
    known = sorted(set(names))
    return EmbeddingSet(
        ids=[f"item {row}" for row in range(len(names))],
        vectors=np.array(vectors, np.float32),
        fingerprint="declared:a",
        space=space or Hypersphere(2),
        labels=np.array([known.index(name) for name in names]),
        class_names=known,
        **{"form": "features", **values},
    )


def head_of(name: str, rows: list[list[float]], **options: object) -> Head:
    head = build_head(name, len(rows), len(rows[0]), dict(options))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        head.weight.copy_(torch.tensor(rows))
    return head


@pytest.mark.parametrize(("name", "space"), CASES)
def test_the_nearest_direction_names_the_class(name: str, space: Space) -> None:
    head = head_of(name, [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    items = features([[0.5, 0.1], [0.1, 0.5], [-0.4, 0.1], [0.6, 0.2]], ["cat", "dog", "emu", "dog"], space)
    assert accuracy(head, CLASSES, space, items) == 0.75


@pytest.mark.parametrize(("name", "space"), CASES)
def test_it_is_a_slow_loop_over_items_and_no_order_of_classes_matters(name: str, space: Space) -> None:
    rng = np.random.default_rng(0)
    head = build_head(name, 3, 2, {})
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=tuple(parameter.shape))))
    items = features(rng.normal(size=(1500, 2)).tolist(), rng.choice([*CLASSES, "fox"], 1500).tolist(), space)
    assert items.class_names is not None and items.labels is not None
    right = 0
    for vector, label in zip(items.vectors, items.labels, strict=True):
        logits = head.logits(View.of(torch.from_numpy(vector[None]), space))[0].tolist()
        right += CLASSES[logits.index(max(logits))] == items.class_names[label]
    assert accuracy(head, CLASSES, space, items) == right / 1500
    turned = build_head(name, 3, 2, {})
    for parameter, own in zip(turned.parameters(), head.parameters(), strict=True):
        parameter.data = own.data.flip(0)
    assert accuracy(turned, CLASSES[::-1], space, items) == right / 1500


def test_a_softmax_head_reads_lengths_and_a_normalised_one_does_not() -> None:
    rows, item = [[1.0, 0.0], [0.0, 3.0]], features([[2.0, 1.0]], ["cat"])
    assert accuracy(head_of("softmax", rows), CLASSES[:2], item.space, item) == 0.0  # 2 < 3
    assert accuracy(head_of("normalised", rows), CLASSES[:2], item.space, item) == 1.0  # 2/√5 > 1/√5


def test_an_old_classifier_reads_new_features_in_its_own_space() -> None:
    head = head_of("normalised", [[1.0, 0.0], [0.0, 1.0]])
    items = features([[0.9, 0.1], [0.1, 0.9]], ["cat", "dog"], Lorentz(2))
    assert accuracy(head, CLASSES[:2], Hypersphere(2), items) == 1.0


def test_classes_that_a_classifier_does_not_know_count_as_wrong() -> None:
    head = head_of("normalised", [[1.0, 0.0], [0.0, 1.0]])
    items = features([[1, 0], [0, 1], [-1, 0], [0, -1]], ["cat", "dog", "emu", "fox"])
    assert accuracy(head, CLASSES[:2], items.space, items) == 0.5


def test_it_is_not_defined_where_no_class_is_known() -> None:
    items = features([[1, 0]], ["fox"]).replace(class_names=["fox", "cat"])  # a name without an item is no item
    assert accuracy(head_of("normalised", [[1.0, 0.0]]), ["cat"], items.space, items) is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"form": "points"}, "points with class names"),
        ({"class_names": None}, "without class names"),
        ({"labels": None, "class_names": None}, "without class names"),
        ({"vectors": np.ones((1, 1), np.float32), "space": Hypersphere(1)}, "dimension 2 was to read features of dim"),
    ],
)
def test_what_a_classifier_cannot_read_is_refused(wrong: dict[str, object], words: str) -> None:
    items = features([[1, 0]], ["cat"]).replace(**wrong)
    with pytest.raises(DataError, match=words):
        accuracy(head_of("normalised", [[1.0, 0.0]]), ["cat"], Hypersphere(2), items)


def test_a_classifier_of_fewer_dimensions_reads_the_first_values() -> None:
    head = head_of("softmax", [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    wide = features([[0.5, 0.1, 9.0], [0.1, 0.5, -9.0]], ["cat", "emu"], Hypersphere(3))
    assert accuracy(head, CLASSES, Hypersphere(2), wide) == 0.5
