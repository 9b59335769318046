"""Spaces and their mathematics."""

from holdfast.geometry.space import SPACES, Hypersphere, Side, Space, space_from_record

__all__ = ["SPACES", "Hypersphere", "Side", "Space", "space_from_record"]
