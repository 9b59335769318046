"""Spaces and their mathematics."""

from limpet.geometry.flat import Euclidean, InnerProduct
from limpet.geometry.space import Side, Space, SpaceRecord
from limpet.geometry.spaces import SEARCH_SPACES, SPACES, Hypersphere, Lorentz, space_from_record

__all__ = [
    "SEARCH_SPACES",
    "SPACES",
    "Euclidean",
    "Hypersphere",
    "InnerProduct",
    "Lorentz",
    "Side",
    "Space",
    "SpaceRecord",
    "space_from_record",
]
