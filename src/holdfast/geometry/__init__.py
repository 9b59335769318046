"""Spaces and their mathematics."""

from holdfast.geometry.space import Side, Space
from holdfast.geometry.spaces import SPACES, Hypersphere, Lorentz, space_from_record

__all__ = ["SPACES", "Hypersphere", "Lorentz", "Side", "Space", "space_from_record"]
