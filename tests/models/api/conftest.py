"""A stand-in server, and time that passes when it is asked to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from api_server import ApiServer, serving
from limpet.models.api.meter import Clock, Limits, Meter
from limpet.models.api.settings import ApiSettings


@dataclass
class Hours:
    """Time that passes only while somebody sleeps."""

    seconds: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: self.seconds, wall=lambda: self.seconds, sleep=self.sleep)


@pytest.fixture(autouse=True)
def no_key_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with serving() as api:
        yield api


@pytest.fixture
def hours() -> Hours:
    return Hours()


@pytest.fixture
def settings(hours: Hours) -> Callable[..., ApiSettings]:
    """Build settings whose time passes only while somebody sleeps; limits are given by name."""

    def build(**given: Any) -> ApiSettings:
        names = Limits.__dataclass_fields__
        limits = Limits(**{name: value for name, value in given.items() if name in names})
        others = {name: value for name, value in given.items() if name not in names}
        return ApiSettings(meter=Meter(limits, hours.clock), **others)

    return build
