from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, DataError
from limpet.evaluation.compatibility import (
    average_compatibility,
    compatibility_matrix,
    compatible,
    negative_flip_rate,
    p_comp,
    p_score,
    p_up,
    positive_flip_rate,
    undefined_p_metrics,
    verdict,
    violations,
)
from limpet.evaluation.retrieval import rank_metrics
from limpet.geometry import Hypersphere

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


def sigmoid_scores(
    old: list[float], independent: list[float], new: list[float], cross: list[float]
) -> tuple[NDArray[np.float64], ...]:
    """P_up, P_comp and P_1 in percent, one per test set."""
    up, comp = p_up(new, independent, "sigmoid"), p_comp(cross, old, independent, "sigmoid")
    return tuple(100 * np.asarray(values) for values in (up, comp, p_score(comp, up)))


WORKED = {  # old self, independent self, new self, cross; P_up, P_comp, P_1 as printed and to four digits
    "NDPP, Table II, extended data: NDPP": (
        [67.31, 41.82, 7.30], [75.08, 55.77, 12.08], [76.21, 58.02, 12.67], [71.10, 46.42, 8.88],
        (50.87, 59.44, 54.80), (50.8685, 59.4391, 54.8025),
    ),
    "NDPP, Table II, enlarged backbone: ODPP": (
        [67.31, 41.82, 7.30], [81.41, 63.59, 15.40], [79.55, 62.46, 15.10], [71.96, 49.40, 10.06],
        (49.50, 58.41, 53.59), (49.4992, 58.4085, 53.5860),
    ),
    "NDPP, Table III, In-shop, extended data: NDPP": (
        [53.26], [71.24], [67.55], [56.32], (48.71, 54.24, 51.33), (48.7054, 54.2445, 51.3259),
    ),
    "AdvBCT, Table 3, extended data: AdvBCT": (
        [75.45, 49.15, 10.03], [81.15, 63.85, 16.48], [82.78, 62.13, 15.71], [78.55, 52.31, 11.49],
        (49.55, 58.09, 53.45), (49.5536, 58.0865, 53.4495),
    ),
    "AdvBCT, Table 3, extended classes: BCT": (
        [74.29, 54.34, 11.43], [81.15, 63.85, 16.48], [79.45, 58.94, 14.79], [76.13, 53.43, 12.26],
        (48.33, 52.79, 50.41), (48.3311, 52.7916, 50.4070),
    ),
    "AdvBCT, Table 3, enlarged backbone (data): UniBCT": (
        [75.45, 49.15, 10.03], [87.66, 76.56, 22.12], [84.37, 67.42, 21.57], [78.91, 56.18, 13.42],
        (48.48, 56.80, 52.31), (48.4864, 56.7929, 52.3084),
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", WORKED)
def test_published_rows_by_hand(row: str) -> None:
    *scores, printed, digits = WORKED[row]
    means = [float(np.mean(values)) for values in sigmoid_scores(*scores)]
    assert means == pytest.approx(printed, abs=0.011)
    assert means == pytest.approx(digits, abs=5.1e-5)


def test_published_p_1_is_the_mean_over_test_sets_not_of_the_means() -> None:
    *scores, printed, _ = WORKED["AdvBCT, Table 3, extended classes: BCT"]
    up, comp, _ = sigmoid_scores(*scores)
    assert abs(100 * float(p_score(np.mean(comp) / 100, np.mean(up) / 100)) - printed[2]) > 0.03


OLD_FACES = (0.6358, 0.4280)  # MixBCT, Table 2, open classes, 128 dimensions: self, 1:1 and 1:N
NEW_FACES = {  # cross and self 1:1, cross and self 1:N
    "BCT": (0.6263, 0.9553, 0.4251, 0.9288),
    "UniBCT": (0.7430, 0.9483, 0.5839, 0.9190),
    "NCCL": (0.7565, 0.9446, 0.5702, 0.9153),
    "AdvBCT": (0.7515, 0.9456, 0.5933, 0.9149),
    "L2": (0.8094, 0.9362, 0.6747, 0.8959),
    "MixBCT": (0.8305, 0.9525, 0.6973, 0.9224),
}


def test_bct_between_open_classes_is_not_compatible() -> None:
    found = {name: compatible(row[::2], OLD_FACES).tolist() for name, row in NEW_FACES.items()}
    assert found == {"BCT": [False, False], **{name: [True, True] for name in list(NEW_FACES)[1:]}}


def test_published_averages_and_gains_of_mixbct() -> None:
    averages = [np.mean(row) for row in (NEW_FACES["MixBCT"], NEW_FACES["L2"], (0.9003, 0.9517, 0.8271, 0.9238))]
    assert averages == pytest.approx([0.85068, 0.82905, 0.90073], abs=6e-6)
    assert averages == pytest.approx([0.8507, 0.8291, 0.9007], abs=6e-5)
    others = np.array([row for name, row in NEW_FACES.items() if name not in ("L2", "MixBCT")])
    gains = 100 * (np.array(NEW_FACES["MixBCT"]) - others.max(axis=0))[::2]
    assert gains == pytest.approx([7.40, 10.40], abs=1e-9)


def test_numbers_give_numbers_and_arrays_arrays() -> None:
    assert isinstance(p_up(0.9, 0.6), float)
    assert np.shape(p_comp([0.5, 0.6], [0.4, 0.4], 0.8)) == (2,)
    assert float(p_comp(0.4, 0.4, 0.8, "sigmoid")) == 0.5
    assert float(p_comp(0.8, 0.4, 0.8)) == 1.0


def test_an_independent_model_that_is_no_better_gives_nan_and_a_reason() -> None:
    found = p_comp([0.5, 0.5, 0.5], [0.4, 0.6, 0.7], [0.6, 0.6, 0.6])
    assert np.isnan(found).tolist() == [False, True, True]
    assert math.isnan(np.mean(found))
    reasons = [undefined_p_metrics(old, 0.6) for old in (0.4, 0.6, 0.7)]
    assert [list(reason) for reason in reasons] == [[], ["p_comp"], ["p_comp"]]
    assert math.isnan(p_up(0.5, 0.0, "sigmoid"))
    assert undefined_p_metrics(0.5, 0.0)["p_up"] == "the independent model scores 0"


def test_p_score_weighs_and_refuses_raw_values() -> None:
    assert float(p_score(0.5, 0.5)) == 0.5
    assert float(p_score(0.8, 0.4, beta=2)) == pytest.approx(5 * 0.32 / (4 * 0.8 + 0.4))
    assert math.isnan(p_score(np.nan, 0.5))
    assert math.isnan(p_score(0.0, 0.0))
    for bad in (-0.01, 58.7):
        with pytest.raises(ConfigError, match="sigmoid variant"):
            p_score(bad, 0.5)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"variant='sigmoidal'\. Did you mean 'sigmoid'"):
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


def test_a_verdict_on_training_items_is_not_compatible() -> None:
    assert verdict((0.1, 0.2), trained_share=0.05) == "compatible"
    assert verdict((0.1, 0.2), trained_share=0.051) == "not held out"
    assert verdict((0.1, 0.2), worse=("recall@1",), trained_share=0.051) == "mixed"
    assert verdict((-0.2, -0.1), trained_share=1.0) == "not compatible"


def test_golden_average_compatibility(golden: Callable[[str], dict[str, NDArray[Any]]]) -> None:
    reference = golden("average_compatibility")
    found = average_compatibility(reference["M"])
    np.testing.assert_allclose([found.ac, found.am], [reference["AC"], reference["AM"]], atol=1e-7)
    only_lower = np.where(np.tri(5, dtype=bool), reference["M"], np.nan)
    assert average_compatibility(only_lower) == found
    assert 100 * found.am == pytest.approx(float(reference["AM_percent"]), abs=1e-7)
    for matrix in (reference["M"], only_lower):
        np.testing.assert_array_equal(violations(matrix), reference["violation"])
    pairs = np.tri(5, k=-1, dtype=bool)
    assert found.ac == 1 - reference["violation"][pairs].mean()


def test_average_compatibility_at_its_edges() -> None:
    single = average_compatibility([[0.5]])
    assert (math.isnan(single.ac), single.am) == (True, 0.5)
    assert math.isnan(average_compatibility([[0.5, 0], [np.nan, 0.5]]).ac)
    for bad in (np.zeros((0, 0)), np.zeros((2, 3)), [0.5]):
        with pytest.raises(DataError, match="matrix of shape"):
            average_compatibility(bad)
        with pytest.raises(DataError, match="matrix of shape"):
            violations(bad)


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
    with pytest.raises(DataError, match="above 1"):
        negative_flip_rate([1.5], [1])


def test_flips_of_answers_that_hang_on_ties_count_by_their_probability() -> None:
    """An item that ties for the first place in both systems flips nothing; one that falls into a tie may."""
    assert (negative_flip_rate([0.5], [0.5]), positive_flip_rate([0.5], [0.5])) == (0, 0)
    assert (negative_flip_rate([1, 1], [0.25, 1]), positive_flip_rate([1, 1], [0.25, 1])) == (0.375, 0)


def test_positive_flips_and_what_both_flips_add_up_to() -> None:
    rng = np.random.default_rng(0)
    old, new = rng.integers(0, 2, size=(2, 50)).astype(float)
    flips = positive_flip_rate(old, new), negative_flip_rate(old, new)
    assert flips == (np.mean([a < b for a, b in zip(old, new, strict=True)]), np.mean(old > new))
    assert flips[0] - flips[1] == pytest.approx(new.mean() - old.mean())
    assert positive_flip_rate(old, new) == negative_flip_rate(new, old)
    assert positive_flip_rate([0, np.nan, 0], [1, 1, 0]) == 0.5
    assert math.isnan(positive_flip_rate([], []))
    with pytest.raises(DataError, match="below 0"):
        positive_flip_rate([-0.5], [1])
