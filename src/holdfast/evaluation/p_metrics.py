"""P_up, P_comp and P_1 as papers print them: per test set, then averaged; and for chains of models.

A P metric of averaged scores is another number, and so is a P_1 of averaged P metrics: the average comes last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import DataError
from holdfast.evaluation.compatibility import Variant, p_comp, p_score, p_up, square

Array = NDArray[np.float64]
Baseline = Literal["own", "independent"]


class SelfAndCross(NamedTuple):
    """What one upgrade scores on one test set, in one metric and one unit: fractions or percentages."""

    old_self: float
    independent_self: float
    new_self: float
    cross: float


@dataclass(frozen=True)
class PMetrics:
    """P metrics of one upgrade over test sets.

    Args:
        p_up: Mean of P_up over test sets; NaN where it is NaN for any of them.
        p_comp: The same of P_comp.
        p_score: The same of P_1; None in the raw variant, which has none.
        of_sets: "p_up", "p_comp" and, in the sigmoid variant, "p_score" of every test set.
    """

    p_up: float
    p_comp: float
    p_score: float | None
    of_sets: Mapping[str, Mapping[str, float]]


def p_metrics(scores: Mapping[str, SelfAndCross], variant: Variant = "sigmoid") -> PMetrics:
    """Return P metrics per test set and their averages (AdvBCT, NDPP: "sigmoid"; HBCT: "raw").

    Args:
        scores: What the upgrade scores, by the name of the test set.
        variant: "raw" or "sigmoid"; see `compatibility.p_up`.

    Returns:
        Fractions. Where P_up or P_comp of one test set is not defined, a warning names the set and the mean is NaN.

    Raises:
        ConfigError: An unknown variant.
        DataError: There is no test set.

    >>> found = p_metrics({"a": SelfAndCross(0.25, 0.75, 0.75, 0.5), "b": SelfAndCross(0.5, 1, 1, 0.5)}, "raw")
    >>> found.p_up, found.p_comp, found.of_sets["p_comp"]
    (0.0, 0.25, {'a': 0.5, 'b': 0.0})
    """
    _check_any(scores)
    old, independent, new, cross = (np.array(column, np.float64) for column in zip(*scores.values(), strict=True))
    columns = _columns(old, independent, new, cross, variant, list(scores))
    means = {name: float(column.mean()) for name, column in columns.items()}
    of_sets = {name: dict(zip(scores, column.tolist(), strict=True)) for name, column in columns.items()}
    return PMetrics(means["p_up"], means["p_comp"], means.get("p_score"), of_sets)


class Chain(NamedTuple):
    """What a chain of T models scores on one test set.

    Args:
        matrix: (T, T) compatibility matrix: queries of model i on the gallery of model j; only j <= i is read.
        independent_self: (T,) self score of every model's recipe trained without alignment. That of the first model
            is its own.
    """

    matrix: ArrayLike
    independent_self: ArrayLike


@dataclass(frozen=True, eq=False)
class ChainMetrics:
    """P metrics of a chain of T models, averaged over test sets.

    Args:
        p_up: (T,) of every model.
        p_comp: (T, T): of queries of model i on the gallery of model j, for j < i; NaN elsewhere.
        p_score: (T, T): P_1 of these; None in the raw variant.
    """

    p_up: Array
    p_comp: Array
    p_score: Array | None


def chain_metrics(test_sets: Mapping[str, Chain], variant: Variant = "raw") -> dict[Baseline, ChainMetrics]:
    """Return P metrics of all pairs of a chain, under both readings of "the old model" j.

    P_comp(i, j) compares model i's queries on the gallery of model j with old and independent self-tests, and the
    independent one is that of model i. For the old one, "own" takes model j of the chain itself, whose gallery is
    searched (HBCT, Fig. 5, whose P_comp of chains is raw); "independent" takes the independently trained model j, as
    Table IV of NDPP does for its second step. The two are the same for the first model, and may judge later pairs
    differently: a chain whose models are worse than independent ones looks better against its own.

    Args:
        test_sets: What the chain scores, by the name of the test set; P metrics are computed per set, then averaged.
        variant: "raw" or "sigmoid".

    Returns:
        Both, by the name of the baseline. NaN, with a warning that names test set and models, where model i trained
        independently is not better than the old model.

    Raises:
        ConfigError: An unknown variant.
        DataError: No test set, or scores of different numbers of models.

    >>> both = chain_metrics({"a": Chain([[0.25, 0], [0.5, 0.75]], [0.25, 0.75])})
    >>> both["own"].p_comp.tolist(), both["own"].p_up.tolist()
    ([[nan, nan], [0.5, nan]], [0.0, 0.0])
    """
    _check_any(test_sets)
    matrices = [square(chain.matrix) for chain in test_sets.values()]
    selves = [np.asarray(chain.independent_self, np.float64) for chain in test_sets.values()]
    size = len(matrices[0])
    for name, matrix, own in zip(test_sets, matrices, selves, strict=True):
        if own.shape != (size,) or len(matrix) != size:
            raise DataError(
                f"Test set '{name}': a matrix of {len(matrix)} models and independent scores {own.shape}.",
                expected=f"{size} models in all, each with one independent score",
            )
    readings = {"own": [np.diag(matrix) for matrix in matrices], "independent": selves}
    return {
        baseline: _chain(matrices, selves, readings[baseline], variant, list(test_sets))
        for baseline in get_args(Baseline)
    }


def _chain(
    matrices: Sequence[Array], independent: Sequence[Array], old: Sequence[Array], variant: Variant, names: list[str]
) -> ChainMetrics:
    size = len(matrices[0])
    i, j = np.tril_indices(size, -1)
    sets = [
        _columns(
            before[j], alone[i], matrix[i, i], matrix[i, j], variant,
            [f"{name} (model {new + 1} on {prior + 1})" for new, prior in zip(i.tolist(), j.tolist(), strict=True)],
        )
        for name, matrix, alone, before in zip(names, matrices, independent, old, strict=True)
    ]  # fmt: skip
    every = [
        p_up(np.diag(matrix), alone, variant, test_sets=[f"{name} (model {new + 1})" for new in range(size)])
        for name, matrix, alone in zip(names, matrices, independent, strict=True)
    ]

    def triangle(name: str) -> Array:
        filled = np.full((size, size), np.nan)
        filled[i, j] = np.mean([columns[name] for columns in sets], axis=0)
        return filled

    score = triangle("p_score") if variant == "sigmoid" else None
    return ChainMetrics(np.asarray(np.mean(every, axis=0)), triangle("p_comp"), score)


def _columns(
    old: Array, independent: Array, new: Array, cross: Array, variant: Variant, names: list[str]
) -> dict[str, Array]:
    """Return the P metrics of every entry (n,), by name; `p_score` in the sigmoid variant only."""
    up = np.asarray(p_up(new, independent, variant, test_sets=names))
    comp = np.asarray(p_comp(cross, old, independent, variant, test_sets=names))
    both = {"p_up": up, "p_comp": comp}
    return both | {"p_score": np.asarray(p_score(comp, up))} if variant == "sigmoid" else both


def _check_any(test_sets: Mapping[str, object]) -> None:
    if not test_sets:
        raise DataError("No test set.", expected="scores of at least one")
