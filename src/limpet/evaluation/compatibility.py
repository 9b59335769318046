"""Compatibility of a new model with an old one, and its cost: P metrics, matrix, flips, verdict.

*self* is the quality of a model's queries on its own gallery, *cross* that of new queries on the old gallery,
*independent* the new recipe trained without any alignment. All are fractions in [0, 1]; larger is better.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError
from limpet.evaluation.retrieval import rank_metrics
from limpet.results import Number, Part
from limpet.support.ranges import checked

Variant = Literal["raw", "sigmoid"]
Verdict = Literal["compatible", "mixed", "inconclusive", "not compatible", "not held out", "unlabelled"]
Baseline = Literal["own", "independent"]
_Scores = np.float64 | NDArray[np.float64]  # a number for numbers, an array for arrays


@checked
def p_up(new_self: ArrayLike, independent_self: ArrayLike, variant: Variant = "raw") -> _Scores:
    """Gain or loss of the new model on its own gallery due to the alignment.

    x = (new_self - independent_self) / independent_self. "raw" returns x (HBCT, whose Eq. 15 prints the cross score
    where its tables use the self score); "sigmoid" returns 1 / (1 + exp(-x)) (AdvBCT, NDPP), where 1/2 is no change.

    Args:
        new_self: Self score of the new model.
        independent_self: Self score of the independent model.
        variant: "raw" or "sigmoid".

    Returns:
        One value per pair of scores; NaN if the independent model scores 0, see `undefined_p_metrics`.

    >>> float(p_up(0.75, 0.5))
    0.5
    """
    new, independent = _floats(new_self), _floats(independent_self)
    return _ratio(new - independent, independent, variant)


@checked
def p_comp(cross: ArrayLike, old_self: ArrayLike, independent_self: ArrayLike, variant: Variant = "raw") -> _Scores:
    """Share of the possible improvement that is reached without re-embedding the gallery.

    x = (cross - old_self) / (independent_self - old_self): 0 is the old system, 1 the independent new one. "raw"
    returns x; "sigmoid" returns 1 / (1 + exp(-x)), where 1/2 is the old system.

    Args:
        cross: Score of new queries on the old gallery.
        old_self: Self score of the old model.
        independent_self: Self score of the independent model.
        variant: "raw" or "sigmoid".

    Returns:
        One value per triple; NaN if the independent model is not better than the old one, see `undefined_p_metrics`.
        Means over test sets must keep that NaN.

    >>> float(p_comp(0.5, 0.25, 0.75))
    0.5
    """
    reached, old, independent = _floats(cross), _floats(old_self), _floats(independent_self)
    return _ratio(reached - old, independent - old, variant)


def undefined_p_metrics(old_self: float | None, independent_self: float | None) -> dict[str, str]:
    """Return why "p_up" or "p_comp" is not defined, by name; defined ones are omitted.

    >>> undefined_p_metrics(0.5, 0.25)
    {'p_comp': 'the independent model is not better than the old one (0.25 against 0.5)'}
    """
    if old_self is None or independent_self is None:
        return dict.fromkeys(("p_up", "p_comp"), "no independent model was evaluated")
    found = {"p_up": "the independent model scores 0"} if independent_self <= 0 else {}
    if independent_self <= old_self:
        scores = f"({independent_self:.4g} against {old_self:.4g})"
        found["p_comp"] = f"the independent model is not better than the old one {scores}"
    return found


def p_score(p_comp: ArrayLike, p_up: ArrayLike, beta: float = 1.0) -> _Scores:
    """Weighted harmonic mean (1 + beta^2) P_comp P_up / (beta^2 P_comp + P_up), for the sigmoid variant only.

    Args:
        p_comp: P_comp in the sigmoid variant, within [0, 1].
        p_up: P_up in the sigmoid variant, within [0, 1].
        beta: Weight; above 1 favours P_up.

    Returns:
        One value in [0, 1] per pair; NaN if either is NaN or both are 0.

    Raises:
        ConfigError: Values outside [0, 1], such as those of the raw variant or percentages.

    >>> float(p_score(0.6, 0.4))
    0.48
    """
    compatible, upgraded = _floats(p_comp), _floats(p_up)
    values = np.append(compatible, upgraded)
    outside = values[(values < 0) | (values > 1)]
    if len(outside):
        raise ConfigError(
            f"P_score of {outside[0]:g}.",
            expected="values of the sigmoid variant, in [0, 1]",
            to_do="compute P_comp and P_up with variant='sigmoid'; the raw variant has no P_score.",
        )
    with np.errstate(invalid="ignore"):
        score = (1 + beta**2) * compatible * upgraded / (beta**2 * compatible + upgraded)
    return _number(score)


def _ratio(difference: NDArray[np.float64], reference: NDArray[np.float64], variant: str) -> _Scores:
    x = difference / np.where(reference <= 0, np.nan, reference)
    return _number(x if variant == "raw" else 1 / (1 + np.exp(-x)))


def _floats(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, np.float64)


def _number(values: NDArray[np.float64]) -> _Scores:
    result: _Scores = values[()]
    return result


class SelfAndCross(NamedTuple):
    """Scores of one upgrade on one test set, in one metric, as fractions or percentages; NaN if unknown."""

    old_self: float
    independent_self: float
    new_self: float
    cross: float


class PMetrics(Part):
    """P metrics of one upgrade by variant, "raw" and "sigmoid"; None if undefined.

    Args:
        p_up: See `p_up`.
        p_comp: See `p_comp`.
        p_score: P_1 of both, see `p_score`; only for the sigmoid variant.
    """

    p_up: dict[Variant, Number]
    p_comp: dict[Variant, Number]
    p_score: Number

    @classmethod
    def of(cls, scores: SelfAndCross) -> PMetrics:
        """Return the P metrics of one test set.

        >>> PMetrics.of(SelfAndCross(0.25, 0.75, 0.75, 0.5)).p_comp["raw"]
        0.5
        """
        old, independent, new, cross = scores
        up = {variant: float(p_up(new, independent, variant)) for variant in get_args(Variant)}
        comp = {variant: float(p_comp(cross, old, independent, variant)) for variant in get_args(Variant)}
        return PMetrics(p_up=up, p_comp=comp, p_score=float(p_score(comp["sigmoid"], up["sigmoid"])))

    @classmethod
    def mean(cls, of_sets: Sequence[PMetrics]) -> PMetrics:
        """Average each over test sets, as in papers; None if it is undefined for any set.

        Raises:
            DataError: No test set is given.

        >>> first, second = SelfAndCross(0.25, 0.75, 0.75, 0.5), SelfAndCross(0.5, 1, 1, 0.5)
        >>> PMetrics.mean([PMetrics.of(first), PMetrics.of(second)]).p_comp["raw"]
        0.25
        """
        if not of_sets:
            raise DataError("No test set.", expected="scores of at least one")
        return PMetrics(
            p_up={variant: mean_of(one.p_up.get(variant) for one in of_sets) for variant in get_args(Variant)},
            p_comp={variant: mean_of(one.p_comp.get(variant) for one in of_sets) for variant in get_args(Variant)},
            p_score=mean_of(one.p_score for one in of_sets),
        )

    def variants(self) -> Iterator[tuple[tuple[str, Variant], float | None]]:
        """Yield every P metric with its name and variant; P_score has only the sigmoid variant."""
        for name, values in (("p_up", self.p_up), ("p_comp", self.p_comp)):
            for variant, value in values.items():
                yield (name, variant), value
        yield ("p_score", "sigmoid"), self.p_score


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if any value is undefined."""
    found = list(values)
    given = [value for value in found if value is not None]
    return float(np.mean(given)) if len(given) == len(found) else None


def compatible(cross: ArrayLike, old_self: ArrayLike) -> NDArray[np.bool_]:
    """Whether cross > old_self, strictly: the criterion of the papers. A tie is not compatible.

    >>> compatible([0.5, 0.4], [0.4, 0.4]).tolist()
    [True, False]
    """
    return np.asarray(_floats(cross) > _floats(old_self))


TRAINED_SHARE = 0.05
"""Largest share of the queries that the new model may have been trained on in a verdict "compatible".

Below it, such queries move a mean by 0.05 at most, even if each of them rises from 0 to 1.
"""


def verdict(
    interval: tuple[float, float] | Sequence[float],
    worse: Collection[str] = (),
    min_effect: float = 0.0,
    trained_share: float = 0.0,
) -> Verdict:
    """Return the verdict on an interval of cross - old_self: entirely above 0, nowhere above 0, or neither.

    Args:
        interval: Interval of the gate metric.
        worse: Metrics that are clearly worse than before, see `clearly_worse`: the verdict "compatible" becomes
            "mixed".
        min_effect: Smallest gain that is called compatible, in place of 0.
        trained_share: Share of the queries that the new model was trained on. Above `TRAINED_SHARE`, "compatible"
            becomes "not held out".

    >>> verdict((0.01, 0.03)), verdict((-0.01, 0.03)), verdict((-0.03, 0.0)), verdict((0.01, 0.03), ["recall@1"])
    ('compatible', 'inconclusive', 'not compatible', 'mixed')
    >>> verdict((0.01, 0.03), min_effect=0.02), verdict((0.01, 0.03), min_effect=0.05)
    ('inconclusive', 'not compatible')
    >>> verdict((0.01, 0.03), trained_share=0.5)
    'not held out'
    """
    low, high = interval
    if low > min_effect:
        return "mixed" if worse else "compatible" if trained_share <= TRAINED_SHARE else "not held out"
    return "not compatible" if high <= min_effect else "inconclusive"


def clearly_worse(intervals: Mapping[str, Sequence[float | None] | None]) -> tuple[str, ...]:
    """Return the metrics whose whole interval of cross - old_self is below 0, in their order.

    >>> clearly_worse({"recall@1": (-0.03, -0.01), "map": (-0.03, 0.0), "map@r": None})
    ('recall@1',)
    """
    highs = {metric: None if interval is None else interval[1] for metric, interval in intervals.items()}
    return tuple(metric for metric, high in highs.items() if high is not None and high < 0)


_Generation = tuple[EmbeddingSet, EmbeddingSet]  # queries and gallery of one model


def compatibility_matrix(
    generations: Mapping[str, _Generation] | Sequence[_Generation], metric: str = "map", **options: Any
) -> NDArray[np.float64]:
    """Score the queries of every generation on its own and every earlier gallery.

    Args:
        generations: Queries and gallery of each model, oldest first; the keys of a mapping are names for the caller.
        metric: A name that `rank_metrics` knows.
        options: Further options of `rank_metrics`, such as ``exclude_same_id``.

    Returns:
        (T, T): M[i, j] is the mean of queries of model i on the gallery of model j, for j <= i; NaN above.

    Raises:
        DataError: No generation is given.
    """
    models = list(generations.values() if isinstance(generations, Mapping) else generations)
    if not models:
        raise DataError("No generation.", expected="queries and gallery of at least one model")
    matrix = np.full((len(models), len(models)), np.nan)
    for i, j in zip(*np.tril_indices(len(models)), strict=True):
        matrix[i, j] = np.nanmean(rank_metrics(models[i][0], models[j][1], (metric,), **options)[metric])
    return matrix


class AverageCompatibility(NamedTuple):
    """Summary of a compatibility matrix: the share of compatible pairs, and the mean of the triangle."""

    ac: float
    am: float


def average_compatibility(matrix: ArrayLike) -> AverageCompatibility:
    """Summarise a compatibility matrix; only the lower triangle is read.

    AC is the share of pairs i > j with M[i, j] > M[j, j] (a tie is a violation), AM the mean of the triangle with its
    diagonal. AC of a single model, and anything over unmeasured entries, is NaN.

    Raises:
        DataError: The matrix is not square or empty.

    >>> average_compatibility([[0.5, 0.0], [0.5, 0.8]])
    AverageCompatibility(ac=0.0, am=0.6)
    """
    scores = square(matrix)
    newer, older = np.tril_indices(len(scores), -1)
    gains = scores[newer, older] - scores[older, older]
    measured = len(gains) and not np.isnan(gains).any()
    triangle = scores[np.tril_indices(len(scores))]
    return AverageCompatibility(ac=float((gains > 0).mean()) if measured else np.nan, am=float(triangle.mean()))


def violations(matrix: ArrayLike, min_effect: float = 0.0) -> NDArray[np.bool_]:
    """Mark the pairs i > j of a compatibility matrix where queries of model i are not better than those of model j.

    Returns:
        (T, T): whether M[i, j] - M[j, j] <= ``min_effect``, for i > j; a tie is a violation, an unmeasured entry is
        not.

    Raises:
        DataError: The matrix is not square or empty.

    >>> violations([[0.5, 0.0], [0.5, 0.8]]).tolist()
    [[False, False], [True, False]]
    """
    scores = square(matrix)
    return np.tril(scores - np.diag(scores) <= min_effect, -1)


def square(matrix: ArrayLike) -> NDArray[np.float64]:
    """Return a compatibility matrix as an array, or raise an error if it is invalid."""
    scores = _floats(matrix)
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1] or scores.size == 0:
        raise DataError(f"A matrix of shape {scores.shape}.", expected="(models, models), at least one")
    return scores


@dataclass(frozen=True, eq=False)
class ChainMetrics:
    """P metrics of a chain of T models on one test set.

    Args:
        p_up: P_up of every model (T,).
        p_comp: P_comp (T, T) of queries of model i on the gallery of model j, for j < i; NaN elsewhere.
        p_score: (T, T): P_1 of these; None in the raw variant.
        undefined: Reason why P_comp is undefined, by (i, j).
    """

    p_up: NDArray[np.float64]
    p_comp: NDArray[np.float64]
    p_score: NDArray[np.float64] | None
    undefined: Mapping[tuple[int, int], str]


def chain_metrics(
    matrix: ArrayLike, independent_self: ArrayLike, variant: Variant = "raw"
) -> dict[Baseline, ChainMetrics]:
    """Return P metrics of all pairs of a chain, under both readings of "the old model" j.

    P_comp(i, j) compares model i's queries on the gallery of model j with old and independent self-tests, and the
    independent one is that of model i. As the old model, "own" uses model j of the chain itself, whose gallery is
    searched (HBCT, Fig. 5, whose P_comp of chains is raw); "independent" uses the independently trained model j, as in
    Table IV of NDPP for its second step. Both are the same for the first model, but can differ for later pairs: a chain
    with models worse than independent ones looks better against its own models.

    Args:
        matrix: (T, T) compatibility matrix: queries of model i on the gallery of model j; only j <= i is read.
        independent_self: (T,) self score of every model's recipe trained without alignment. That of the first model
            is its own.
        variant: "raw" or "sigmoid".

    Returns:
        Both, by the name of the baseline. NaN if the independently trained model i is not better than the old model.

    Raises:
        ConfigError: The variant is unknown.
        DataError: The numbers of models differ.

    >>> both = chain_metrics([[0.25, 0], [0.5, 0.75]], [0.25, 0.75])
    >>> both["own"].p_comp.tolist(), both["own"].p_up.tolist()
    ([[nan, nan], [0.5, nan]], [0.0, 0.0])
    """
    scores, independent = square(matrix), _floats(independent_self)
    if independent.shape != scores.shape[:1]:
        raise DataError(
            f"A matrix of {len(scores)} models and independent scores {independent.shape}.",
            expected="one independent score for each model",
        )
    own = np.diag(scores)
    up = np.asarray(p_up(own, independent, variant))
    i, j = np.tril_indices(len(scores), -1)

    def against(old: NDArray[np.float64]) -> ChainMetrics:
        def triangle(values: _Scores) -> NDArray[np.float64]:
            filled = np.full(scores.shape, np.nan)
            filled[i, j] = values
            return filled

        comp = p_comp(scores[i, j], old[j], independent[i], variant)
        reasons = {
            (new, prior): undefined_p_metrics(float(old[prior]), float(independent[new])).get("p_comp")
            for new, prior in zip(i.tolist(), j.tolist(), strict=True)
        }
        return ChainMetrics(
            up,
            triangle(comp),
            triangle(p_score(comp, up[i])) if variant == "sigmoid" else None,
            {pair: reason for pair, reason in reasons.items() if reason is not None},
        )

    return {"own": against(own), "independent": against(independent)}


def negative_flip_rate(old_right: ArrayLike, new_right: ArrayLike) -> float:
    """Share of queries that the old system answers correctly and the new one incorrectly.

    If items tie for the first place, an answer is correct with a probability between 0 and 1. Such a query contributes
    the decrease of that probability: the minimum number of flips over all orders of the tied items, and none if both
    systems have the same items in the same tie.

    Args:
        old_right: Whether each query finds a relevant item first (recall@1), with old queries on the old gallery.
        new_right: Whether each new query finds a relevant item first, on the old or the new gallery. NaN in either
            excludes the query.

    Returns:
        A fraction of all queries included; NaN if there are none.

    Raises:
        DataError: The lengths differ, or values are neither NaN nor in [0, 1].

    >>> negative_flip_rate([1, 1, 0, 0], [1, 0, 1, 0]), negative_flip_rate([1, 0.5], [0.5, 0.5])
    (0.25, 0.25)
    """
    old, new = _counted_answers(old_right, new_right)
    return float(np.maximum(old - new, 0).mean()) if len(old) else np.nan


def positive_flip_rate(old_right: ArrayLike, new_right: ArrayLike) -> float:
    """Share of queries that the old system answers incorrectly and the new one correctly; see `negative_flip_rate`.

    The difference of the two rates is the gain in the share of correct answers.

    >>> positive_flip_rate([1, 1, 0, 0], [1, 0, 1, 1])
    0.5
    """
    old, new = _counted_answers(old_right, new_right)
    return float(np.maximum(new - old, 0).mean()) if len(old) else np.nan


def _counted_answers(old_right: ArrayLike, new_right: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    old, new = _floats(old_right), _floats(new_right)
    if old.shape != new.shape or old.ndim != 1:
        raise DataError(f"Answers of shapes {old.shape} and {new.shape}.", expected="one per query, the same queries")
    counted = ~(np.isnan(old) | np.isnan(new))
    old, new = old[counted], new[counted]
    if not ((np.append(old, new) >= 0) & (np.append(old, new) <= 1)).all():
        raise DataError("Answers below 0 or above 1.", expected="a number from 0 to 1 per query, as recall@1 gives")
    return old, new
