"""Budget and rate limits of models behind an API: tokens, cost, and requests per minute."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from limpet.errors import refuse
from limpet.support.ranges import Positive, PositiveInt, checked

TOKENS_PER_CHARACTER = 1 / 3
"""Estimate that is used until a server has returned a number of tokens."""


@dataclass(frozen=True)
class Clock:
    """Time functions, which tests replace.

    Args:
        now: Monotonic time in seconds.
        wall: Seconds since 1970.
        sleep: Waits for the given number of seconds.
    """

    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


@checked
@dataclass(frozen=True)
class Limits:
    """Budget and rate limits.

    Args:
        price: Price per million tokens, in any currency.
        max_tokens: Stop before spending more tokens than this.
        max_cost: Stop before spending more than this; requires a price.
        requests_per_minute: Maximum number of requests per minute, evenly spaced.
        tokens_per_minute: Maximum number of tokens per minute, evenly spaced.

    Raises:
        ConfigError: A number is out of range, or a cost was given without a price.
    """

    price: Positive | None = None
    max_tokens: PositiveInt | None = None
    max_cost: Positive | None = None
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None

    def __post_init__(self) -> None:
        refuse(self.max_cost is not None and self.price is None, "--api.max-cost without a price.",
               "--api.price, that of a million tokens, too")  # fmt: skip

    @property
    def tokens(self) -> int | None:
        """Maximum number of tokens, from the limits on tokens and cost; None without a limit.

        >>> Limits(price=0.02, max_cost=0.5).tokens, Limits(max_tokens=10).tokens, Limits().tokens
        (25000000, 10, None)
        """
        by_cost = None if self.max_cost is None or self.price is None else math.floor(1e6 * self.max_cost / self.price)
        return min((one for one in (self.max_tokens, by_cost) if one is not None), default=None)

    def cost(self, tokens: float) -> float | None:
        """Return the cost of `tokens` tokens; None without a price."""
        return None if self.price is None else tokens * self.price / 1e6


class Meter:
    """Counts requests to models behind APIs, and enforces their limits; models and threads may share one.

    Before a request is sent, an estimate of its tokens is reserved: its characters times the tokens per character that
    servers have counted so far. So spending can exceed a limit only by the error of the estimate of one request per
    thread.

    Args:
        limits: Budget and rate limits. Default: no limits.
        clock: Time functions, for tests.
    """

    def __init__(self, limits: Limits | None = None, clock: Clock | None = None) -> None:
        self.limits, self.clock = limits or Limits(), clock or Clock()
        self.requests = self.tokens = self.texts = self.characters = self.cached = 0
        self._reserved = 0
        self._counted = (0, 0)  # tokens that servers counted, and the characters of those requests
        self._free = -math.inf  # monotonic time at which the next request may be sent
        self._lock = threading.Lock()

    def asked(self, texts: int, characters: int, cached: int) -> None:
        """Count texts to embed, their characters, and how many of the texts were in a cache."""
        with self._lock:
            self.texts, self.characters, self.cached = (
                self.texts + texts, self.characters + characters, self.cached + cached
            )  # fmt: skip

    @property
    def tokens_per_character(self) -> float:
        """Tokens per character that servers have counted so far; `TOKENS_PER_CHARACTER` before the first count."""
        tokens, characters = self._counted
        return tokens / characters if tokens else TOKENS_PER_CHARACTER

    @property
    def tokens_per_text(self) -> float | None:
        """Estimated tokens per text, over sent and cached texts; None before the first text."""
        return self.characters / self.texts * self.tokens_per_character if self.texts else None

    @property
    def cost(self) -> float | None:
        """Cost of the tokens spent; None without a price."""
        return self.limits.cost(self.tokens)

    def reserve(self, characters: int) -> int | None:
        """Reserve and return the estimated tokens of `characters` characters; None if the limit does not allow them."""
        with self._lock:
            estimate = max(1, math.ceil(characters * self.tokens_per_character))
            limit = self.limits.tokens
            if limit is not None and self.tokens + self._reserved + estimate > limit:
                return None
            self._reserved += estimate
            return estimate

    def wait(self, estimate: int) -> None:
        """Wait until the rate limits allow a request of about `estimate` tokens."""
        rates = ((1, self.limits.requests_per_minute), (estimate, self.limits.tokens_per_minute))
        gap = max((60 * amount / rate for amount, rate in rates if rate is not None), default=0.0)
        with self._lock:
            now = self.clock.now()
            start = max(now, self._free)
            self._free = start + gap
        if start > now:
            self.clock.sleep(start - now)

    def settle(self, estimate: int, characters: int, counted: int | None) -> None:
        """Replace the reservation of a successful request by its tokens.

        Args:
            estimate: Tokens that were reserved.
            characters: Characters of the request.
            counted: Tokens that the server counted; None charges the estimate.
        """
        with self._lock:
            self._reserved -= estimate
            self.requests += 1
            self.tokens += estimate if counted is None else counted
            if counted:
                self._counted = self._counted[0] + counted, self._counted[1] + characters

    def release(self, estimate: int, *, charged: bool) -> None:
        """Release the reserved tokens of a failed request; charge them if the server may have embedded the texts."""
        with self._lock:
            self._reserved -= estimate
            self.tokens += estimate * charged

    def __str__(self) -> str:
        cost = "" if self.cost is None else f", which cost {self.cost:,.4g}"
        known = f"; {self.cached:,} of {self.texts:,} texts were in the cache" if self.cached else ""
        return f"{self.tokens:,} tokens in {self.requests:,} requests{cost}{known}"
