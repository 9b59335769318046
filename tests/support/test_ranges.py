"""Ranges in annotations are checked at the call, whoever makes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pytest
from annotated_types import Ge

from limpet.errors import ConfigError
from limpet.support.ranges import NonNegative, Positive, PositiveInt, Seed, Share, checked

if TYPE_CHECKING:
    from nowhere import Unknown


@checked
@dataclass(frozen=True)
class Settings:
    share: Share = 0.5
    seed: Seed = 0


@checked
@dataclass(frozen=True)
class More(Settings):
    weights: tuple[NonNegative, ...] = ()


@checked
def search(
    items: Unknown, k: PositiveInt, *, sign: Literal["+", "-"] = "+", wait: Positive | None = None, free: int = 0
) -> tuple[Any, ...]:
    return k, sign, wait, free


class Model:
    def __init__(self, depth: Annotated[int, Ge(2)] = 2) -> None:
        self.depth = depth


checked(Model)


@pytest.mark.parametrize(
    ("call", "given", "expected"),
    [
        (lambda: Settings(share=1.5), "Settings was given share=1.5.", "at most 1"),
        (lambda: Settings(share=math.nan), "Settings was given share=nan.", "at most 1"),
        (lambda: Settings(seed=2**63), f"Settings was given seed={2**63}.", f"below {2**63}"),
        (lambda: replace(Settings(), seed=-1), "Settings was given seed=-1.", "at least 0"),
        (lambda: More(share=-1), "More was given share=-1.", "at least 0"),
        (lambda: More(weights=(1.0, -2.0)), "More was given weights=(1.0, -2.0).", "at least 0"),
        (lambda: search(None, 0), "search was given k=0.", "at least 1"),
        (lambda: search(None, True), "search was given k=True.", "a whole number"),
        (lambda: search(None, "5"), "search was given k='5'.", "a whole number"),
        (lambda: search(None, 1, sign="*"), "search was given sign='*'.", "'+' or '-'"),
        (lambda: search(None, 1, wait=0), "search was given wait=0.", "above 0"),
        (lambda: search(None, 1, wait=math.inf), "search was given wait=inf.", "a finite number"),
        (lambda: Model(1), "Model was given depth=1.", "at least 2"),
    ],
)
def test_checked_refuses_a_value_out_of_range(call: Any, given: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    assert (caught.value.given, caught.value.expected) == (given, expected)


def test_checked_passes_values_on_as_they_are() -> None:
    k = np.int64(3)
    found = search(None, k, wait=np.float32(0.5), free=-1)
    assert found[0] is k and found[1:] == ("+", np.float32(0.5), -1)
    assert More(0.0, 1, weights=(0.5,)).weights == (0.5,) and Model().depth == 2
    with pytest.raises(TypeError, match="search"):
        search()  # type: ignore[call-arg]
