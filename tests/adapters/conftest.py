"""Embeddings of the same items by two models, planted or drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.testing import adapters


@pytest.fixture(scope="session")
def make_set() -> Callable[..., EmbeddingSet]:
    """Build a set of points named i0, i1, ... by their rows, or by the ids given."""
    return adapters.make_set


@pytest.fixture(scope="session")
def related() -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Draw unit rows of the same items under two models, from common causes of unequal weight."""
    return adapters.related


@pytest.fixture(scope="session")
def rotation() -> Callable[..., np.ndarray]:
    """Draw a matrix with orthonormal rows, or columns where it has fewer of those."""
    return adapters.rotation
