"""Shops, each in a database of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from attached.shop import GOODS, Shop
from crash.server import Server


@pytest.fixture
def make_shop(postgres_server: Server) -> Iterator[Callable[..., Shop]]:
    """Make a shop, with a table of goods of one's own if its statements are given."""
    names: list[str] = []

    def make(made: str = GOODS) -> Shop:
        names.append(f"shop_{uuid.uuid4().hex}")
        return Shop(postgres_server, names[-1], made)

    yield make
    for name in names:
        postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    """A shop with a table of goods."""
    return make_shop()
