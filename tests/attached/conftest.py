"""Shops, one after the other in a database of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crash.evidence import evaluation
from crash.server import Server
from crash.shop import Shop, lasting_shop


@pytest.fixture(scope="module")
def make_shop(postgres_server: Server) -> Iterator[Callable[..., Shop]]:
    """Make a shop, with a table of goods of one's own if its statements are given; the one before is gone then."""
    with lasting_shop(postgres_server) as shop:
        yield shop.renew


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    """A shop with a table of goods."""
    return make_shop()


@pytest.fixture(scope="module", params=["two columns", "one column"])
def how(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How a table is attached: vectors of both models in columns of their own, or in the application's."""
    return {"mixing": evaluation()} if request.param == "one column" else {}
