"""What every metric promises of the values that it gives queries."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np

from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.ranking.engine import Ranked
from limpet.testing.contract import Check, Contract

CONTRACT = Contract()
GALLERY = 9
CASES: tuple[list[int], ...] = ([0], [8], [0, 1, 2], [3, 7], [], [0, 4, 8], [1, 2, 3, 4], list(range(9)))
"""Ranks of the relevant items of one query each, among nine."""


TIES: tuple[tuple[tuple[int, int, int], ...], ...] = (
    ((0, 2, 1),),
    ((0, 9, 1),),
    ((0, 9, 4),),
    ((3, 4, 2),),
    ((1, 3, 3), (6, 1, 1)),
    ((0, 1, 1), (1, 4, 2), (7, 2, 1)),
    ((0, 3, 2), (5, 4, 1)),
)
"""Groups of tied items of one query each: the first place, how many tie, and how many of these are relevant."""


def metric_contract(name: str) -> list[Check]:
    """Return what a metric promises, by its name with a number for k, as checks.

    Raises:
        ConfigError: There is no such metric.
    """
    metrics_named([name])
    return CONTRACT.checks(name=name)


def values(name: str, cases: list[list[int]]) -> list[float]:
    """Return what a metric gives queries with these ranks of relevant items."""
    found = metrics_named([name])[name](Ranked.of(cases, [GALLERY] * len(cases)))
    assert found.shape == (len(cases),), f"{len(cases)} queries get values of shape {found.shape}"
    assert found.dtype == np.float64, f"the values are {found.dtype}"
    return [float(value) for value in found]


@CONTRACT.promise()
def one_value_per_query_from_0_to_1(name: str) -> None:
    found = values(name, [case for case in CASES if case])
    assert all(0 <= value <= 1 for value in found), f"{found} are not all in [0, 1]"


@CONTRACT.promise()
def a_query_without_relevant_items_has_no_value(name: str) -> None:
    found = values(name, [[0], [], [3]])
    assert [value != value for value in found] == [False, True, False], f"{found}: NaN was expected in the middle alone"


@CONTRACT.promise()
def no_query_at_all_will_do(name: str) -> None:
    assert values(name, []) == []


@CONTRACT.promise()
def relevant_items_at_the_top_are_worth_1(name: str) -> None:
    found = values(name, [list(range(count)) for count in range(1, GALLERY + 1)])
    assert np.allclose(found, 1), f"{found} for rankings that cannot be better"


@CONTRACT.promise()
def a_query_is_judged_alike_alone_and_in_company(name: str) -> None:
    together = values(name, [*CASES])
    for case, value in zip(CASES, together, strict=True):
        (alone,) = values(name, [case])
        assert alone == value or alone != alone, f"{case} gets {alone} alone and {value} among others"


@CONTRACT.promise()
def a_relevant_item_that_moves_up_never_lowers_it(name: str) -> None:
    for case in CASES:
        for place, rank in enumerate(case):
            if rank and rank - 1 not in case:
                moved = sorted([*case[:place], rank - 1, *case[place + 1 :]])
                before, after = values(name, [case, moved])
                assert after >= before, f"{before} at ranks {case}, but {after} at {moved}"


@CONTRACT.promise()
def tied_items_are_worth_the_mean_over_their_orders(name: str) -> None:
    for groups in TIES:
        placed = (combinations(range(rank, rank + tied), relevant) for rank, tied, relevant in groups)
        orders = [sorted(sum(places, ())) for places in product(*placed)]
        each = [(rank, tied) for rank, tied, relevant in groups for _ in range(relevant)]
        ranked = Ranked.of([[rank for rank, _ in each]], [GALLERY], [[tied for _, tied in each]])
        (found,), expected = metrics_named([name])[name](ranked).tolist(), float(np.mean(values(name, orders)))
        assert np.isclose(found, expected), f"{found} for ties {groups}, whose orders are worth {expected} on average"
