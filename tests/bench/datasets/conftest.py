"""Fixtures of the tests of data."""

from ...data.conftest import brightness, data_root, glyph_data, image_set, paint

__all__ = ["brightness", "data_root", "glyph_data", "image_set", "paint"]
