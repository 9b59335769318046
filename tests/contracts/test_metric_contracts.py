"""What every metric promises, run over all of `METRICS` and `FAMILIES`; and that a broken one is found out."""

from __future__ import annotations

import numpy as np
import pytest

from limpet.evaluation.metrics import FAMILIES, METRICS
from limpet.evaluation.ranking.engine import Ranked
from limpet.testing import failures, metric_contract

NAMES = [*METRICS, *(family.replace("@k", f"@{k}") for family in FAMILIES for k in (1, 3, 20))]


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_keeps_its_promises(name: str, subtests: pytest.Subtests) -> None:
    for check in metric_contract(name):
        with subtests.test(str(check)):
            check()


def test_a_broken_metric_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_rank(ranked: Ranked) -> np.ndarray:
        return np.array([float(ranked.ranks[start]) for start in ranked.offsets[:-1]])

    monkeypatch.setitem(METRICS, "first-rank", first_rank)
    broken = {failure.check.promise for failure in failures(metric_contract("first-rank"))}
    assert {"one value per query from 0 to 1", "relevant items at the top are worth 1"} <= broken
    assert "a relevant item that moves up never lowers it" in broken


def _without_answer(ranked: Ranked) -> np.ndarray:
    return np.nan_to_num(METRICS["map"](ranked))


def _beside_the_best(ranked: Ranked) -> np.ndarray:
    found = METRICS["map"](ranked)
    return found / np.max(found, initial=0, where=~np.isnan(found)) if (found > 0).any() else found


def _later_is_better(ranked: Ranked) -> np.ndarray:
    return 1 - METRICS["map"](ranked) / 2


def _without_ties(ranked: Ranked) -> np.ndarray:
    found = np.full(len(ranked), np.nan)
    found[ranked.relevant > 0] = 1 / (1 + ranked.ranks[ranked.offsets[:-1][ranked.relevant > 0]])
    return found


@pytest.mark.parametrize(
    ("metric", "promise"),
    [
        (_without_ties, "tied items are worth the mean over their orders"),
        (_without_answer, "a query without relevant items has no value"),
        (_beside_the_best, "a query is judged alike alone and in company"),
        (_later_is_better, "a relevant item that moves up never lowers it"),
    ],
)
def test_other_faults_of_metrics_are_found_out(metric: object, promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "on-trial", metric)
    assert promise in {failure.check.promise for failure in failures(metric_contract("on-trial"))}
