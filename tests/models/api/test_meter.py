"""Limits of tokens, money and speed, in time that the test makes pass."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from limpet.errors import ConfigError
from limpet.models.api.meter import Limits, Meter


def test_requests_are_spaced_evenly(hours: Any) -> None:
    meter = Meter(Limits(requests_per_minute=30), hours.clock)
    for _ in range(4):
        meter.wait(1)
    assert hours.slept == [2, 2, 2]
    hours.seconds += 10
    meter.wait(1)
    assert len(hours.slept) == 3, "time that passed anyway is not waited for again"


def test_tokens_per_minute_count_what_a_request_holds(hours: Any) -> None:
    meter = Meter(Limits(tokens_per_minute=600, requests_per_minute=600), hours.clock)
    for tokens in (100, 20, 1):
        meter.wait(tokens)
    assert hours.slept == [10, 2]


def test_estimates_follow_what_the_server_counts() -> None:
    meter = Meter()
    assert meter.reserve(300) == 100
    meter.settle(100, 300, 50)
    assert meter.reserve(300) == 50 and meter.tokens == 50
    meter.settle(50, 300, None)
    assert meter.tokens == 100, "where the server does not say, the estimate stands"


def test_a_limit_is_not_passed_by_requests_under_way() -> None:
    meter = Meter(Limits(max_tokens=250))
    with ThreadPoolExecutor(8) as threads:
        reserved = list(threads.map(lambda _: meter.reserve(300), range(8)))
    assert sorted(reserved, key=str) == [100, 100, *[None] * 6]
    meter.release(100, charged=False)
    assert meter.reserve(300) == 100
    meter.release(100, charged=True)
    assert meter.reserve(300) is None and meter.tokens == 100


def test_money_is_tokens_by_their_price() -> None:
    meter = Meter(Limits(price=0.5, max_cost=0.001, max_tokens=5000))
    assert meter.limits.tokens == 2000
    meter.settle(meter.reserve(300) or 0, 300, 1000)
    assert meter.cost == pytest.approx(0.0005) and "1,000 tokens in 1 requests, which cost 0.0005" in str(meter)


def test_tokens_of_a_text_count_cached_ones_too() -> None:
    meter = Meter()
    assert meter.tokens_per_text is None
    meter.asked(10, 400, cached=9)
    meter.settle(meter.reserve(40) or 0, 40, 10)
    assert meter.tokens_per_text == 10, "400 characters of 10 texts, a quarter of a token each"


@pytest.mark.parametrize("wrong", [{"price": 0}, {"max_tokens": -1}, {"requests_per_minute": float("nan")}])
def test_numbers_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Limits(**wrong)
    with pytest.raises(ConfigError, match=r"--api\.price"):
        Limits(max_cost=1)
