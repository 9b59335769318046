"""How many rows are taken at a time, by how long they took."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from limpet.engines.collection import AT_ONCE, Pace


def taken(pace: Pace, seconds: Callable[[int], float], times: int = 12) -> int:
    for _ in range(times):
        pace.took(pace.rows, seconds(pace.rows))
    return pace.rows


def test_pace_grows_while_more_rows_at_a_time_are_faster() -> None:
    assert taken(Pace(8), lambda rows: 0.3) > 8_192
    assert taken(Pace(8), lambda rows: 0.3 + rows * 1e-4) > 4 * AT_ONCE
    assert taken(Pace(8), lambda rows: rows * 1e-3) == 4 * AT_ONCE, "one try that did not help"


def test_pace_takes_no_more_than_fits_a_message_or_than_takes_long() -> None:
    assert taken(Pace(3072), lambda rows: 0.3) == AT_ONCE
    assert AT_ONCE < taken(Pace(384), lambda rows: 0.3) <= 2**24 // (24 * 384)
    assert taken(Pace(8), lambda rows: 5.0) == AT_ONCE


@pytest.mark.parametrize("busy", [1, 2])
def test_pace_is_not_misled_by_one_busy_moment(busy: int) -> None:
    pace = Pace(8)
    pace.took(pace.rows, 0.3)
    for _ in range(busy):
        pace.took(pace.rows, 9.0)
    assert (taken(pace, lambda rows: 0.3) > 4 * AT_ONCE) == (busy == 1)


def test_pace_learns_nothing_of_the_last_rows() -> None:
    pace = Pace(8)
    pace.took(10, 60.0)
    assert taken(pace, lambda rows: 0.3, 1) == 4 * AT_ONCE
