from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from limpet.evaluation.ranking.side_by_side import side_by_side


def threads_of_products() -> list[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return [int(library["num_threads"]) for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Products have as many threads as before, and no worker is left."""
    with threadpool_limits(2, "blas"):
        before, workers = threads_of_products(), threading.active_count()
        yield
        assert threads_of_products() == before
        assert threading.active_count() == workers


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_order(workers: int) -> None:
    def slower_first(number: int) -> int:
        time.sleep(0.002 * (5 - number % 5))
        return number * number

    assert list(side_by_side(slower_first, range(12), workers)) == [number * number for number in range(12)]


def test_an_error_comes_out_and_stops_the_rest() -> None:
    begun: list[int] = []

    def fail_at_three(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise ValueError("three")
        return number

    with pytest.raises(ValueError, match="three"):
        list(side_by_side(fail_at_three, range(1000), 2))
    assert len(begun) < 10


def test_an_error_of_what_is_given_comes_out() -> None:
    def things() -> Iterator[int]:
        yield 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(side_by_side(int, things(), 2))


def test_who_stops_asking_stops_the_work() -> None:
    begun: list[int] = []
    results = side_by_side(begun.append, range(1000), 2)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(begun) < 10


def test_no_more_waits_than_is_worked_on() -> None:
    given: list[int] = []

    def things() -> Iterator[int]:
        for number in range(1000):
            given.append(number)
            yield number

    results = side_by_side(int, things(), 2)
    next(results)
    assert len(given) == 3
    results.close()  # type: ignore[attr-defined]
