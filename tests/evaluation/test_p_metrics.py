from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.errors import ConfigError, DataError
from limpet.evaluation.compatibility import ChainMetrics, PMetrics, SelfAndCross, chain_metrics, undefined_p_metrics

TABLES = json.loads((Path(__file__).parents[1] / "golden" / "paper_tables.json").read_text())


def label(row: dict[str, Any]) -> str:
    keys = ("paper", "table", "scenario", "method", "metric", "geometry", "test_sets")
    return "-".join(str(row[key]) for key in keys if key in row)


def scores(row: dict[str, Any]) -> dict[str, SelfAndCross]:
    columns = (row[key] for key in ("old_self", "indep_self", "new_self", "cross"))
    return {
        name: SelfAndCross(*values) for name, values in zip(row["test_sets"], zip(*columns, strict=True), strict=True)
    }


def means_of(row: dict[str, Any]) -> dict[str, float | None]:
    found = PMetrics.mean([PMetrics.of(of_set) for of_set in scores(row).values()])
    variant = row["variant"]
    p_score = found.p_score if variant == "sigmoid" else None
    return {"P_up": found.p_up[variant], "P_comp": found.p_comp[variant], "P_1": p_score}


@pytest.mark.parametrize("row", TABLES["consistent_sigmoid"], ids=label)
def test_published_rows_over_several_test_sets(row: dict[str, Any]) -> None:
    means = means_of(row)
    for name, printed in row["printed"].items():
        if printed is not None:
            assert means[name] is not None
            assert abs(100 * means[name] - printed) <= 0.011
            assert abs(100 * means[name] - row["recomputed"][name]) <= 5.1e-5


@pytest.mark.parametrize("row", TABLES["consistent_raw"], ids=label)
def test_published_raw_entries(row: dict[str, Any]) -> None:
    means = means_of(row)
    for name in ("P_up", "P_comp"):
        value = means[name]
        printed, (low, high) = row["printed"].get(name), row["interval"][name]
        assert printed is None or low - 0.0005 <= printed <= high + 0.0005
        assert printed is None or low <= value <= high
        assert printed is None or abs(value - row["recomputed"][name]) <= 5.1e-6


def test_the_inconsistent_rows_do_not_follow_from_their_scores() -> None:
    for row in TABLES["known_inconsistent_do_not_test"]:
        means = means_of(row)
        factor = 100 if row["variant"] == "sigmoid" else 1
        off = [abs(factor * means[name] - printed) for name, printed in row["printed"].items() if means[name]]
        assert max(off) > (0.05 if factor == 100 else 0.005)


def test_the_average_comes_last() -> None:
    row = next(r for r in TABLES["consistent_sigmoid"] if r["scenario"] == "extended-class" and r["method"] == "BCT")
    of_sets = [PMetrics.of(of_set) for of_set in scores(row).values()]
    found = PMetrics.mean(of_sets)
    up, comp = found.p_up["sigmoid"], found.p_comp["sigmoid"]
    assert up == pytest.approx(np.mean([one.p_up["sigmoid"] for one in of_sets]))
    assert found.p_score == pytest.approx(np.mean([one.p_score for one in of_sets]))
    assert abs(2 * up * comp / (up + comp) - found.p_score) > 3e-4
    averaged = SelfAndCross(*np.mean([list(of_set) for of_set in scores(row).values()], axis=0))
    assert abs(PMetrics.of(averaged).p_comp["sigmoid"] - comp) > 1e-3


def test_one_undefined_test_set_leaves_the_averages_undefined_and_says_why() -> None:
    good, bad = PMetrics.of(SelfAndCross(0.4, 0.6, 0.6, 0.5)), PMetrics.of(SelfAndCross(0.7, 0.6, 0.65, 0.5))
    found = PMetrics.mean([good, bad])
    assert found.p_comp == {"raw": None, "sigmoid": None} and found.p_score is None
    assert found.p_up["raw"] is not None and good.p_comp["raw"] is not None
    reason = "the independent model is not better than the old one (0.6 against 0.7)"
    assert undefined_p_metrics(0.7, 0.6) == {"p_comp": reason} and undefined_p_metrics(0.4, 0.6) == {}


INDEPENDENT = {"RParis": (67.31, 75.08, 81.13), "ROxford": (41.82, 55.77, 62.38), "GLDv2": (7.30, 12.08, 15.83)}
SEQUENTIAL = {  # NDPP, Table IV: per test set self of models 2, 3 and cross of 2 on 1, 3 on 1, 3 on 2; then as printed
    "BCT": (
        {"RParis": (71.52, 78.11, 68.37, 70.24, 74.21), "ROxford": (51.16, 59.38, 44.75, 46.68, 52.34),
         "GLDv2": (10.38, 14.15, 8.72, 8.67, 11.51)},
        (47.75, 48.41), {(1, 0): (55.34, 51.23), (2, 0): (55.06, 51.52), (2, 1): (43.31, 45.59)},
    ),
    "NDPP": (
        {"RParis": (76.21, 80.61, 71.10, 70.69, 76.25), "ROxford": (58.02, 61.62, 46.42, 46.88, 54.50),
         "GLDv2": (12.67, 16.85, 8.88, 9.40, 13.71)},
        (50.87, 50.38), {(1, 0): (59.44, 54.80), (2, 0): (56.11, 53.09), (2, 1): (53.58, 51.78)},
    ),
}  # fmt: skip


def sequence(method: str, baseline: str) -> ChainMetrics:
    """P metrics of every pair in the sigmoid variant, averaged over test sets."""
    of_sets = [
        chain_metrics([[INDEPENDENT[name][0], 0, 0], [m21, m22, 0], [m31, m32, m33]], INDEPENDENT[name], "sigmoid")
        for name, (m22, m33, m21, m31, m32) in SEQUENTIAL[method][0].items()
    ]
    columns = (np.mean([getattr(one[baseline], name) for one in of_sets], axis=0)
               for name in ("p_up", "p_comp", "p_score"))  # fmt: skip
    return ChainMetrics(*columns, undefined={})


@pytest.mark.parametrize("method", SEQUENTIAL)
def test_the_published_chains_compare_with_independent_old_models(method: str) -> None:
    _, ups, pairs = SEQUENTIAL[method]
    found = sequence(method, "independent")
    assert 100 * found.p_up[1:] == pytest.approx(ups, abs=0.011)
    for (i, j), (comp, score) in pairs.items():
        assert 100 * found.p_comp[i, j] == pytest.approx(comp, abs=0.011)
        assert 100 * found.p_score[i, j] == pytest.approx(score, abs=0.011)
    assert np.isnan(found.p_comp[np.triu_indices(3)]).all()


def test_own_old_models_tell_another_story() -> None:
    both = {baseline: sequence("BCT", baseline) for baseline in ("own", "independent")}
    assert 100 * both["own"].p_comp[2, 1] == pytest.approx(54.9, abs=0.06)
    assert 100 * both["independent"].p_comp[2, 1] == pytest.approx(43.31, abs=0.011)
    np.testing.assert_array_equal(both["own"].p_comp[:, 0], both["independent"].p_comp[:, 0])
    np.testing.assert_array_equal(both["own"].p_up, both["independent"].p_up)


def test_a_chain_by_hand() -> None:
    matrix, alone = [[0.2, 9, 9], [0.3, 0.4, 9], [0.5, 0.5, 0.6]], [0.2, 0.5, 0.8]
    found = chain_metrics(matrix, alone)
    own, independent = found["own"], found["independent"]
    assert own.p_score is None
    np.testing.assert_allclose(own.p_up, [0, -0.2, -0.25])
    expected = [[np.nan] * 3, [0.1 / 0.3, np.nan, np.nan], [0.3 / 0.6, 0.1 / 0.4, np.nan]]
    np.testing.assert_allclose(own.p_comp, expected)
    assert independent.p_comp[2, 1] == pytest.approx(0.0 / 0.3)
    for i, j in ((1, 0), (2, 0), (2, 1)):  # the same as for a single upgrade
        single = SelfAndCross(matrix[j][j], alone[i], matrix[i][i], matrix[i][j])
        assert own.p_comp[i, j] == pytest.approx(PMetrics.of(single).p_comp["raw"])


def test_a_pair_without_room_for_improvement_is_named() -> None:
    found = chain_metrics([[0.2, 0], [0.3, 0.4]], [0.2, 0.1])
    assert math.isnan(found["own"].p_comp[1, 0])
    assert found["own"].undefined == {(1, 0): "the independent model is not better than the old one (0.1 against 0.2)"}


def test_wrong_input_is_refused() -> None:
    with pytest.raises(DataError, match="No test set"):
        PMetrics.mean([])
    with pytest.raises(ConfigError, match="variant"):
        chain_metrics([[0.5]], [0.5], "other")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"A matrix of 1 models and independent scores \(2,\)"):
        chain_metrics([[0.5]], [0.5, 0.6])
    with pytest.raises(DataError, match="matrix of shape"):
        chain_metrics([0.5], [0.5])
