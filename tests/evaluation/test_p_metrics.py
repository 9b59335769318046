from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import ConfigError, DataError
from holdfast.evaluation.compatibility import Chain, SelfAndCross, chain_metrics, p_metrics

TABLES = json.loads((Path(__file__).parents[1] / "golden" / "paper_tables.json").read_text())


def label(row: dict[str, Any]) -> str:
    keys = ("paper", "table", "scenario", "method", "metric", "geometry", "test_sets")
    return "-".join(str(row[key]) for key in keys if key in row)


def scores(row: dict[str, Any]) -> dict[str, SelfAndCross]:
    columns = (row[key] for key in ("old_self", "indep_self", "new_self", "cross"))
    return {
        name: SelfAndCross(*values) for name, values in zip(row["test_sets"], zip(*columns, strict=True), strict=True)
    }


@pytest.mark.parametrize("row", TABLES["consistent_sigmoid"], ids=label)
def test_published_rows_over_several_test_sets(row: dict[str, Any]) -> None:
    found = p_metrics(scores(row), row["variant"])
    means = {"P_up": found.p_up, "P_comp": found.p_comp, "P_1": found.p_score}
    for name, printed in row["printed"].items():
        if printed is not None:
            assert means[name] is not None
            assert abs(100 * means[name] - printed) <= 0.011
            assert abs(100 * means[name] - row["recomputed"][name]) <= 5.1e-5


@pytest.mark.parametrize("row", TABLES["consistent_raw"], ids=label)
def test_published_raw_entries(row: dict[str, Any]) -> None:
    found = p_metrics(scores(row), row["variant"])
    assert found.p_score is None
    for name, value in {"P_up": found.p_up, "P_comp": found.p_comp}.items():
        printed, (low, high) = row["printed"].get(name), row["interval"][name]
        assert printed is None or low - 0.0005 <= printed <= high + 0.0005
        assert printed is None or low <= value <= high
        assert printed is None or abs(value - row["recomputed"][name]) <= 5.1e-6


def test_the_inconsistent_rows_do_not_follow_from_their_scores() -> None:
    for row in TABLES["known_inconsistent_do_not_test"]:
        found = p_metrics(scores(row), row["variant"])
        means = {"P_up": found.p_up, "P_comp": found.p_comp, "P_1": found.p_score}
        factor = 100 if row["variant"] == "sigmoid" else 1
        off = [abs(factor * means[name] - printed) for name, printed in row["printed"].items() if means[name]]
        assert max(off) > (0.05 if factor == 100 else 0.005)


def test_the_average_comes_last() -> None:
    row = next(r for r in TABLES["consistent_sigmoid"] if r["scenario"] == "extended-class" and r["method"] == "BCT")
    found = p_metrics(scores(row))
    assert found.p_up == pytest.approx(np.mean(list(found.of_sets["p_up"].values())))
    assert list(found.of_sets["p_score"]) == row["test_sets"]
    of_means = 2 * found.p_up * found.p_comp / (found.p_up + found.p_comp)
    assert abs(of_means - found.p_score) > 3e-4
    averaged = SelfAndCross(*np.mean([list(of_set) for of_set in scores(row).values()], axis=0))
    assert abs(p_metrics({"all": averaged}).p_comp - found.p_comp) > 1e-3


def test_one_undefined_test_set_makes_the_averages_nan_and_is_named() -> None:
    good, bad = SelfAndCross(0.4, 0.6, 0.6, 0.5), SelfAndCross(0.7, 0.6, 0.65, 0.5)
    with pytest.warns(RuntimeWarning, match="P_comp is not defined on second: the independent model is not better"):
        found = p_metrics({"first": good, "second": bad})
    assert math.isnan(found.p_comp) and math.isnan(found.p_score)
    assert not math.isnan(found.p_up)
    assert not math.isnan(found.of_sets["p_comp"]["first"])
    with pytest.warns(RuntimeWarning, match="on second"):
        assert math.isnan(p_metrics({"first": good, "second": bad}, "raw").p_comp)


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


def sequence(method: str) -> dict[str, Chain]:
    return {
        name: Chain([[INDEPENDENT[name][0], 0, 0], [m21, m22, 0], [m31, m32, m33]], INDEPENDENT[name])
        for name, (m22, m33, m21, m31, m32) in SEQUENTIAL[method][0].items()
    }


@pytest.mark.parametrize("method", SEQUENTIAL)
def test_the_published_chains_compare_with_independent_old_models(method: str) -> None:
    _, ups, pairs = SEQUENTIAL[method]
    found = chain_metrics(sequence(method), "sigmoid")["independent"]
    assert found.p_score is not None
    assert 100 * found.p_up[1:] == pytest.approx(ups, abs=0.011)
    for (i, j), (comp, score) in pairs.items():
        assert 100 * found.p_comp[i, j] == pytest.approx(comp, abs=0.011)
        assert 100 * found.p_score[i, j] == pytest.approx(score, abs=0.011)
    assert np.isnan(found.p_comp[np.triu_indices(3)]).all()


def test_own_old_models_tell_another_story() -> None:
    both = chain_metrics(sequence("BCT"), "sigmoid")
    assert 100 * both["own"].p_comp[2, 1] == pytest.approx(54.9, abs=0.06)
    assert 100 * both["independent"].p_comp[2, 1] == pytest.approx(43.31, abs=0.011)
    np.testing.assert_array_equal(both["own"].p_comp[:, 0], both["independent"].p_comp[:, 0])
    np.testing.assert_array_equal(both["own"].p_up, both["independent"].p_up)


def test_a_chain_by_hand() -> None:
    chain = Chain([[0.2, 9, 9], [0.3, 0.4, 9], [0.5, 0.5, 0.6]], [0.2, 0.5, 0.8])
    found = chain_metrics({"test": chain})
    own, independent = found["own"], found["independent"]
    assert own.p_score is None
    np.testing.assert_allclose(own.p_up, [0, -0.2, -0.25])
    expected = [[np.nan] * 3, [0.1 / 0.3, np.nan, np.nan], [0.3 / 0.6, 0.1 / 0.4, np.nan]]
    np.testing.assert_allclose(own.p_comp, expected)
    assert independent.p_comp[2, 1] == pytest.approx(0.0 / 0.3)
    for i, j in ((1, 0), (2, 0), (2, 1)):  # the same as for a single upgrade
        single = SelfAndCross(chain.matrix[j][j], chain.independent_self[i], chain.matrix[i][i], chain.matrix[i][j])
        assert own.p_comp[i, j] == pytest.approx(p_metrics({"test": single}, "raw").p_comp)


def test_a_pair_without_room_for_improvement_is_named() -> None:
    chain = Chain([[0.2, 0], [0.3, 0.4]], [0.2, 0.1])
    with pytest.warns(RuntimeWarning, match=r"P_comp is not defined on CIFAR \(model 2 on 1\)"):
        found = chain_metrics({"CIFAR": chain})
    assert math.isnan(found["own"].p_comp[1, 0])


def test_wrong_input_is_refused() -> None:
    with pytest.raises(DataError, match="No test set"):
        p_metrics({})
    with pytest.raises(DataError, match="No test set"):
        chain_metrics({})
    with pytest.raises(ConfigError, match="variant"):
        p_metrics({"a": SelfAndCross(0.1, 0.2, 0.2, 0.2)}, "other")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="Test set 'b'"):
        chain_metrics({"a": Chain([[0.5]], [0.5]), "b": Chain([[0.5]], [0.5, 0.6])})
    with pytest.raises(DataError, match="matrix of shape"):
        chain_metrics({"a": Chain([0.5], [0.5])})
