"""What may search what."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import SpaceMismatchError
from limpet.evaluation.sides import check_sides
from limpet.geometry import Euclidean, Hypersphere, Lorentz, Space

SPACES = (Hypersphere(3), Euclidean(3), Lorentz(3), Lorentz(3, curvature=2.0), Hypersphere(4))


def embedded(space: Space) -> EmbeddingSet:
    return EmbeddingSet(np.ones((2, space.dim), np.float32), ["a", "b"], "declared:m", space, form="features")


@pytest.mark.parametrize(("query", "gallery"), list(permutations(SPACES, 2)), ids=str)
def test_sides_on_different_spaces_are_refused_though_they_have_as_many_numbers(query: Space, gallery: Space) -> None:
    check_sides(embedded(query), embedded(query))
    with pytest.raises(SpaceMismatchError):
        check_sides(embedded(query), embedded(gallery))
