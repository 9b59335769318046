from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet, StringArray
from holdfast.errors import ConfigError, DataError
from holdfast.evaluation import (
    average_compatibility,
    compatibility_matrix,
    compatible,
    negative_flip_rate,
    p_comp,
    p_score,
    p_up,
    rank_metrics,
    verdict,
)
from holdfast.geometry import Hypersphere

TABLES = json.loads((Path(__file__).parents[1] / "golden" / "paper_tables.json").read_text())


def label(row: dict[str, Any]) -> str:
    return "-".join(
        str(row[key]) for key in ("paper", "table", "scenario", "method", "metric", "test_sets") if key in row
    )


@pytest.mark.parametrize("row", TABLES["consistent_sigmoid"], ids=label)
def test_published_sigmoid_rows(row: dict[str, Any]) -> None:
    up = p_up(row["new_self"], row["indep_self"], "sigmoid")
    comp = p_comp(row["cross"], row["old_self"], row["indep_self"], "sigmoid")
    found = {"P_up": np.mean(up), "P_comp": np.mean(comp), "P_1": np.mean(p_score(comp, up))}
    printed = {name: value for name, value in row["printed"].items() if value is not None}
    assert printed
    for name, value in printed.items():
        assert abs(100 * found[name] - value) <= 0.011
        assert abs(100 * found[name] - row["recomputed"][name]) <= 5.1e-5


@pytest.mark.parametrize("row", TABLES["consistent_raw"], ids=label)
def test_published_raw_entries(row: dict[str, Any]) -> None:
    found = {
        "P_up": float(np.mean(p_up(row["new_self"], row["indep_self"], "raw"))),
        "P_comp": float(np.mean(p_comp(row["cross"], row["old_self"], row["indep_self"], "raw"))),
    }
    printed = {name: value for name, value in row["printed"].items() if value is not None}
    assert printed
    for name, value in printed.items():
        low, high = row["interval"][name]
        assert low <= value + 0.0005 and value - 0.0005 <= high
        assert low <= found[name] <= high
        assert abs(found[name] - row["recomputed"][name]) <= 5.1e-6


def test_the_tables_are_there() -> None:
    assert (len(TABLES["consistent_sigmoid"]), len(TABLES["consistent_raw"])) == (25, 71)


def test_table_of_ndpp_by_hand() -> None:
    # Table II, extended data, NDPP: test sets RParis, ROxford, GLDv2-test.
    old, independent = [67.31, 41.82, 7.30], [75.08, 55.77, 12.08]
    up = p_up([76.21, 58.02, 12.67], independent, "sigmoid")
    comp = p_comp([71.10, 46.42, 8.88], old, independent, "sigmoid")
    assert [round(100 * float(np.mean(x)), 4) for x in (up, comp, p_score(comp, up))] == [50.8685, 59.4391, 54.8025]


def test_numbers_give_numbers_and_arrays_arrays() -> None:
    assert isinstance(p_up(0.9, 0.6), float)
    assert np.shape(p_comp([0.5, 0.6], [0.4, 0.4], 0.8)) == (2,)
    assert float(p_comp(0.4, 0.4, 0.8, "sigmoid")) == 0.5
    assert float(p_comp(0.8, 0.4, 0.8)) == 1.0


def test_an_independent_model_that_is_no_better_gives_nan_and_names_the_test_set() -> None:
    with pytest.warns(
        RuntimeWarning, match="P_comp is not defined on second, third: the independent model is not better"
    ):
        found = p_comp([0.5, 0.5, 0.5], [0.4, 0.6, 0.7], [0.6, 0.6, 0.6], test_sets=("first", "second", "third"))
    assert np.isnan(found).tolist() == [False, True, True]
    assert math.isnan(np.mean(found))
    with pytest.warns(RuntimeWarning, match="P_up is not defined: the independent model scores 0"):
        assert math.isnan(p_up(0.5, 0.0, "sigmoid"))


def test_p_score_weighs_and_refuses_raw_values() -> None:
    assert float(p_score(0.5, 0.5)) == 0.5
    assert float(p_score(0.8, 0.4, beta=2)) == pytest.approx(5 * 0.32 / (4 * 0.8 + 0.4))
    assert math.isnan(p_score(np.nan, 0.5))
    assert math.isnan(p_score(0.0, 0.0))
    for bad in (-0.01, 58.7):
        with pytest.raises(ConfigError, match="sigmoid variant"):
            p_score(bad, 0.5)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Unknown variant 'sigmoidal'\. Did you mean 'sigmoid'"):
        p_up(0.5, 0.5, "sigmoidal")  # type: ignore[arg-type]


def test_the_criterion_is_strict() -> None:
    assert compatible([0.5, 0.5, 0.5], [0.4, 0.5, 0.6]).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((0.01, 0.02), "compatible"),
        ((0.0, 0.02), "inconclusive"),
        ((-0.01, 0.02), "inconclusive"),
        ((-0.02, 0.0), "not compatible"),
        ((0.0, 0.0), "not compatible"),
        ((np.nan, np.nan), "inconclusive"),
    ],
)
def test_verdicts(interval: tuple[float, float], expected: str) -> None:
    assert verdict(interval) == expected


def test_golden_average_compatibility(golden: Callable[[str], dict[str, NDArray[Any]]]) -> None:
    reference = golden("average_compatibility")
    found = average_compatibility(reference["M"])
    np.testing.assert_allclose([found.ac, found.am], [reference["AC"], reference["AM"]], atol=1e-7)
    only_lower = np.where(np.tri(5, dtype=bool), reference["M"], np.nan)
    assert average_compatibility(only_lower) == found


def test_average_compatibility_at_its_edges() -> None:
    single = average_compatibility([[0.5]])
    assert (math.isnan(single.ac), single.am) == (True, 0.5)
    assert math.isnan(average_compatibility([[0.5, 0], [np.nan, 0.5]]).ac)
    for bad in (np.zeros((0, 0)), np.zeros((2, 3)), [0.5]):
        with pytest.raises(DataError, match="matrix of shape"):
            average_compatibility(bad)


def generation(seed: int) -> tuple[EmbeddingSet, EmbeddingSet]:
    rng = np.random.default_rng(seed)
    labels = np.arange(40) % 5
    vectors = (np.eye(5)[labels] + rng.normal(size=(40, 5)) / (1 + seed)).astype(np.float32)
    items = EmbeddingSet(
        ids=StringArray.of(map(str, range(40))),
        vectors=vectors,
        fingerprint=f"declared:{seed}",
        space=Hypersphere(5),
        labels=labels,
    )
    return items, items


def test_compatibility_matrix_scores_later_queries_on_earlier_galleries() -> None:
    generations = {f"v{seed}": generation(seed) for seed in range(3)}
    matrix = compatibility_matrix(generations, "recall@1", exclude_same_id=True)
    for i in range(3):
        for j in range(3):
            sides = generations[f"v{i}"][0], generations[f"v{j}"][1]
            values = rank_metrics(*sides, ("recall@1",), exclude_same_id=True)["recall@1"]
            np.testing.assert_equal(matrix[i, j], values.mean() if j <= i else np.nan)
    np.testing.assert_array_equal(
        matrix, compatibility_matrix(list(generations.values()), "recall@1", exclude_same_id=True)
    )
    with pytest.raises(DataError, match="No generation"):
        compatibility_matrix({})


def test_negative_flips() -> None:
    assert negative_flip_rate([True, True, False, False], [True, False, True, False]) == 0.25
    assert negative_flip_rate([1, 1, np.nan, 0], [0, np.nan, 0, 0]) == 0.5
    assert math.isnan(negative_flip_rate([np.nan], [1]))
    with pytest.raises(DataError, match="shapes"):
        negative_flip_rate([1, 0], [1])
    with pytest.raises(DataError, match="0 or 1"):
        negative_flip_rate([0.5], [1])
