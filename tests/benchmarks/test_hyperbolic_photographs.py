"""The scores on the page of HBCT on photographs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PLACE = "ζ = 1"


def test_scores_are_means_of_seeds_that_every_row_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two classes; P_up (.6 − .8) / .8 = −.25, P_comp (.5 − .4) / (.8 − .4) = .25; seed 1 lacks a row."""
    rows = {
        f"{PLACE} | old": {"0": {"self": [[0.3, 0.5]]}, "1": {"self": [[1.0, 1.0]]}},
        f"{PLACE} | independent": {"0": {"self": [[0.7, 0.9]], "cross": [[0.1, 0.1]]}},
        f"{PLACE} | hbct": {
            "0": {"self": [[0.5, 0.7]], "cross": [[0.5, 0.5]]},
            "1": {"self": [[1.0, 1.0]], "cross": [[1.0, 1.0]]},
        },
    }
    monkeypatch.syspath_prepend(BENCHMARKS)
    scores = import_module("hyperbolic_photographs").Scores({"rows": rows}, 0)
    hbct = (PLACE, "hbct")
    up, comp = scores.p(hbct, scores.seeds(hbct))
    assert scores.seeds(hbct) == ["0"] and scores.seeds(hbct, (PLACE, "bct")) == []
    assert (up[0], comp[0]) == pytest.approx((-0.25, 0.25))
    assert sorted(set(up[1:].round(6))) == pytest.approx([-0.2 / 0.7, -0.25, -0.2 / 0.9], abs=1e-6)
    assert scores.difference((PLACE, "independent"), hbct)[0] == pytest.approx((0.1 - 0.4) / 0.4 - 0.25)
