from __future__ import annotations

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError
from limpet.evaluation.protocols import PROTOCOLS
from limpet.evaluation.protocols.base import Lists, RankingProtocol
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.geometry import Hypersphere
from limpet_bench.pictures.answered_classes import with_answered_classes


class Listed(RankingProtocol):
    """Answers as they are written: rows of the gallery by query."""

    name, description = "listed", "lists"
    lists_of: tuple[tuple[int, ...], ...] = ()

    def answers(self, query: EmbeddingSet, gallery: EmbeddingSet) -> Lists:
        return Lists(RowLists.of([list(rows) for rows in self.lists_of]), RowLists.of([[] for _ in self.lists_of]))


def unlabelled(ids: list[str]) -> EmbeddingSet:
    rows = np.eye(len(ids), dtype=np.float32)
    return EmbeddingSet(rows, ids, "declared:model", Hypersphere(len(ids)))


def listed(*rows: tuple[int, ...]) -> Listed:
    protocol = Listed()
    object.__setattr__(protocol, "lists_of", rows)
    return protocol


QUERIES = unlabelled(["paris_eiffel_000013", "paris_louvre_01", "paris_eiffel_000057", "paris_louvre_2", "other"])
GALLERY = unlabelled([f"g{row}" for row in range(7)])


def test_items_that_answer_the_same_queries_are_of_one_class() -> None:
    found = with_answered_classes(GALLERY, QUERIES, listed((4, 0), (1,), (0, 5), (1, 3), ()))
    names = [found.class_names[row] for row in found.labels]
    assert dict(zip(found.ids, names, strict=True)) == {
        "g0": "paris_eiffel", "g4": "paris_eiffel", "g5": "paris_eiffel", "g1": "paris_louvre", "g3": "paris_louvre",
    }  # fmt: skip
    assert found.vectors.tolist() == GALLERY.vectors[[0, 1, 3, 4, 5]].tolist()


def test_two_landmarks_of_one_name_are_told_apart() -> None:
    found = with_answered_classes(GALLERY, QUERIES, listed((0,), (1,), (2,), (3,), (4,)))
    assert list(found.class_names) == [
        "paris_eiffel (1)", "paris_louvre (2)", "paris_eiffel (3)", "paris_louvre (4)", "other",
    ]  # fmt: skip
    assert found.labels.tolist() == [0, 1, 2, 3, 4]


def test_labels_are_kept_and_nothing_is_invented() -> None:
    labelled = GALLERY.replace(labels=np.zeros(7, np.int64), class_names=["a"])
    assert with_answered_classes(labelled, QUERIES, listed()) is labelled
    with pytest.raises(DataError, match="No item of the gallery answers"):
        with_answered_classes(GALLERY, QUERIES, listed((), (), (), (), ()))
    with pytest.raises(DataError, match="'labels' gives them none"):
        with_answered_classes(GALLERY, QUERIES, PROTOCOLS["labels"].opened(None))
