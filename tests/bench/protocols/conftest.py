"""Fixtures of the tests of protocols."""

from ...evaluation.protocols.conftest import make_items, make_rankings

__all__ = ["make_items", "make_rankings"]
