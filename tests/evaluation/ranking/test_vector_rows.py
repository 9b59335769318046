from __future__ import annotations

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.embeddings.forms import Form
from limpet.evaluation.ranking.vector_rows import EmbeddingRows
from limpet.evaluation.retrieval import top_k
from limpet.geometry import Hypersphere, Lorentz, Side, Space
from limpet.geometry.flat import Euclidean, InnerProduct

SPACES = [Hypersphere, Lorentz, Euclidean, InnerProduct]


def repeated(space: Space, form: Form) -> tuple[EmbeddingSet, np.ndarray]:
    """A set of 101 items with four different vectors, and which of them each item has."""
    rng = np.random.default_rng(space.dim)
    distinct = (rng.normal(size=(4, space.dim)) / np.sqrt(space.dim)).astype(np.float32)
    origin = rng.integers(4, size=101)
    ids = [f"i{row}" for row in range(101)]
    return EmbeddingSet(distinct[origin], ids, "declared:test", space, form=form, labels=origin % 2), origin


@pytest.mark.parametrize("side", ["query", "gallery"])
@pytest.mark.parametrize("form", ["points", "features"])
@pytest.mark.parametrize("dim", [3, 64, 129])
@pytest.mark.parametrize("kind", SPACES)
def test_a_row_is_the_same_whatever_rows_are_beside_it(kind: type[Space], dim: int, form: Form, side: Side) -> None:
    embeddings, origin = repeated(kind(dim), form)  # type: ignore[call-arg]
    rows = EmbeddingRows(embeddings, side)
    whole = rows.block(0, 101)
    assert whole.shape == (101, rows.dim)
    assert whole.dtype == np.float32
    for row in range(101):
        np.testing.assert_array_equal(whole[row], whole[origin == origin[row]][0])
        np.testing.assert_array_equal(whole[row], rows.take(np.array([row]))[0])
    parts = [rows.block(start, min(start + 7, 101)) for start in range(0, 101, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("kind", SPACES)
def test_equal_features_come_in_the_order_of_rows(kind: type[Space]) -> None:
    embeddings, origin = repeated(kind(129), "features")  # type: ignore[call-arg]
    found = top_k(embeddings[[0]], embeddings, 101).rows[0]
    for item in range(4):
        same = np.flatnonzero(origin == item)
        assert found[np.isin(found, same)].tolist() == same.tolist()
