"""Recall in a gallery of several parts, against a slow loop over the whole of it."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.geometry import Hypersphere
from limpet_bench.sessions.runner import hits


def items(vectors, labels, names=None, prefix="i") -> EmbeddingSet:
    vectors = np.asarray(vectors, np.float32)
    return EmbeddingSet(
        vectors,
        [f"{prefix}{row}" for row in range(len(vectors))],
        "declared:test",
        Hypersphere(vectors.shape[1]),
        labels=None if labels is None else np.asarray(labels, np.int64),
        class_names=names,
    )


def slow(query: EmbeddingSet, parts: list[EmbeddingSet], k: int) -> list[float]:
    """Put all parts one after another, order them by similarity, and look at the first k; chance decides ties."""
    gallery = [(vector, label) for part in parts for vector, label in zip(part.vectors, part.labels, strict=True)]
    found = []
    for vector, label in zip(query.vectors, query.labels, strict=True):
        scores = [float(item @ vector) for item, _ in gallery]
        missed, left = 1.0, k
        for score in sorted(set(scores), reverse=True):
            group = [own == label for (_, own), one in zip(gallery, scores, strict=True) if one == score]
            drawn = min(left, len(group))
            missed *= comb(len(group) - sum(group), drawn) / comb(len(group), drawn)
            left -= drawn
        found.append(1 - missed)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_hits_agree_with_a_slow_loop_with_ties_and_small_parts(seed: int) -> None:
    generator = np.random.default_rng(seed)

    def drawn(count: int) -> np.ndarray:  # few directions, exactly: many ties
        return np.eye(4)[generator.integers(0, 4, count)] * generator.choice([-1.0, 1.0], (count, 1))

    parts = [items(drawn(n), generator.integers(0, 5, n), prefix=f"p{n}-") for n in (1, 7, 3, 12)]
    query = items(drawn(15), generator.integers(0, 6, 15), prefix="q")
    found = hits(query, parts, (1, 2, 4, 40))
    for k, values in found.items():
        np.testing.assert_allclose(values, slow(query, parts, k), rtol=0, atol=1e-12)


def test_equal_items_of_two_parts_are_as_likely_first() -> None:
    one, other = items([[1, 0]], [0]), items([[1, 0]], [1])
    query = items([[1, 0]], [0])
    assert hits(query, [one, other], (1,))[1].tolist() == [0.5]
    assert hits(query, [other, one], (1,))[1].tolist() == [0.5]


def test_classes_match_by_name_and_a_class_without_a_gallery_fails() -> None:
    part = items([[1, 0], [0, 1]], [0, 1], ["cat", "dog"])
    query = items([[1, 0], [1, 0], [0, 1]], [2, 0, 1], ["dog", "cow", "cat"])
    found = hits(query, [part], (1, 2))
    assert found[1].tolist() == [True, False, False]
    assert found[2].tolist() == [True, True, False]


def test_sides_that_cannot_be_compared_are_refused() -> None:
    query = items([[1, 0]], [0])
    with pytest.raises(DataError, match="no part"):
        hits(query, [], (1,))
    with pytest.raises(DataError, match="no labels"):
        hits(items([[1, 0]], None), [query], (1,))
    with pytest.raises(SpaceMismatchError):
        hits(query, [items([[1, 0, 0]], [0])], (1,))
    for ks in ((), (0,)):
        with pytest.raises(ConfigError, match="at least 1"):
            hits(query, [query], ks)
