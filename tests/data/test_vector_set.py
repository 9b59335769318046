from __future__ import annotations

import numpy as np
import pytest

from limpet.data.vector_set import VectorSet
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import DataError
from limpet.geometry import Hypersphere


def made(labels: list[int] | None = None, names: list[str] | None = None) -> EmbeddingSet:
    vectors = np.eye(4, dtype=np.float32)[[0, 1, 2]]
    found = None if labels is None else np.array(labels)
    return EmbeddingSet(vectors, ["x", "y", "z"], "declared:m", Hypersphere(4), labels=found, class_names=names)


def test_unused_classes_are_dropped_and_the_others_keep_their_order() -> None:
    items = VectorSet.of(made([3, 0, 3], ["ape", "bee", "cat", "dog"]))
    assert items.labels.tolist() == [1, 0, 1] and items.class_names == ("ape", "dog")
    assert len(items) == 3 and list(items.ids) == ["x", "y", "z"] and items.kind == "vectors"
    np.testing.assert_array_equal(items.read(np.array([2, 0])), np.eye(4, dtype=np.float32)[[2, 0]])


def test_classes_without_names_are_named_by_their_numbers() -> None:
    assert VectorSet.of(made([7, 5, 7])).class_names == ("5", "7")


def test_other_vectors_labels_or_names_have_another_digest() -> None:
    first = VectorSet.of(made([0, 1, 1], ["ape", "bee"]))
    moved = VectorSet(first.embeddings.replace(vectors=first.embeddings.vectors[::-1].copy()))
    others = [moved, VectorSet.of(made([0, 1, 0], ["ape", "bee"])), VectorSet.of(made([0, 1, 1], ["ape", "cow"]))]
    assert len({first.digest(), *(other.digest() for other in others)}) == 4
    assert VectorSet.of(made([0, 1, 1], ["ape", "bee"])).digest() == first.digest()


def test_what_cannot_be_trained_on_is_refused() -> None:
    with pytest.raises(DataError, match="These 3 embeddings have no labels"):
        VectorSet.of(made())
    with pytest.raises(DataError, match="1 of 3 classes have no item"):
        VectorSet(made([0, 1, 1], ["ape", "bee", "cat"]))
    with pytest.raises(DataError, match="with 0 class names"):
        VectorSet(made([0, 1, 1]))


def test_items_without_a_class_follow_with_the_label_minus_one() -> None:
    others = EmbeddingSet(np.eye(4, dtype=np.float32)[[3, 0]], ["u", "v"], "declared:m", Hypersphere(4))
    items = VectorSet.of(made([0, 1, 1], ["ape", "bee"]), others)
    assert items.labels.tolist() == [0, 1, 1, -1, -1] and list(items.ids) == ["x", "y", "z", "u", "v"]
    np.testing.assert_array_equal(items.read(np.array([4, 1])), np.eye(4, dtype=np.float32)[[0, 1]])
    assert len(items) == 5 and items.all.labels is None and items.embeddings.labels is not None
    assert items.digest() != VectorSet.of(made([0, 1, 1], ["ape", "bee"])).digest()
    with pytest.raises(DataError, match="x"):
        VectorSet.of(made([0, 1, 1], ["ape", "bee"]), others.replace(ids=StringArray.of(["x", "v"])))
