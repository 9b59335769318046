"""Agreement of the results of two systems without labels, as usual in production.

Agreement is not quality: a better model changes results, and so does a worse one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError
from limpet.evaluation.intervals import Draws
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.retrieval import RelevantRows, top_k
from limpet.evaluation.sides import MatchedModels
from limpet.results import NumberInterval, Part
from limpet.support.ranges import Fraction, checked

_Floats = NDArray[np.float64]
_Lists = NDArray[np.int64]

AGREEMENT_AT = 10  # first items compared
PERSISTENCE = 0.9  # the first 10 items then weigh 86 % of rank-biased overlap
_MEASURES = ("overlap", "rank_biased_overlap", "first_changed")

_PAIRS_AT_ONCE = 8_000_000  # bounds memory


class MeanAgreement(Part):
    """A mean over queries and its interval."""

    mean: float
    interval: NumberInterval


class Alike(Part):
    """Similarity of a system's results to those of old queries on the old gallery.

    Args:
        overlap: See `compared`.
        first_changed: Share of queries with another first item.
    """

    overlap: MeanAgreement
    rank_biased_overlap: MeanAgreement
    first_changed: MeanAgreement


class Agreement(Part):
    """Similarity of results to those of old queries on the old gallery.

    Args:
        persistence: See `compared`.
        cross: Similarity of new queries on the old gallery.
        self_new: Similarity of new queries on the new gallery.
    """

    k: int
    persistence: float
    queries: int
    cross: Alike
    self_new: Alike


def agreement_of(
    models: MatchedModels,
    *,
    exclude_same_id: bool = False,
    ignore: RelevantRows | RowLists | None = None,
    draws: Draws,
    k: int = AGREEMENT_AT,
) -> Agreement:
    """Compare current results with those after the swap and after re-embedding."""
    k = min(k, len(models.old[1]))
    options: dict[str, Any] = {"ignore": ignore, "exclude_same_id": exclude_same_id}
    today = top_k(*models.old, k, **options).rows
    columns = {
        (system, measure): values
        for system, sides in (("cross", models.linked()), ("self_new", models.new))
        for measure, values in compared(today, top_k(*sides, k, **options).rows).items()
    }
    intervals = draws.intervals(columns)

    def alike(system: str) -> Alike:
        means = {name: float(np.nanmean(columns[system, name])) for name in _MEASURES}
        return Alike(
            **{name: MeanAgreement(mean=mean, interval=intervals[system, name]) for name, mean in means.items()}
        )

    queries = int((today[:, 0] >= 0).sum())
    return Agreement(k=k, persistence=PERSISTENCE, queries=queries, cross=alike("cross"), self_new=alike("self_new"))


@checked
def compared(first: _Lists, second: _Lists, persistence: Fraction = PERSISTENCE) -> dict[str, _Floats]:
    """Compare two rankings of every query.

    "overlap" is the share of common items, relative to the longer list. "rank_biased_overlap" is a similarity weighted
    to the top (Webber, Moffat and Zobel, 2010: RBO_ext, Eq. 32): a user reads both lists from the top and continues to
    the next item with probability p; RBO is the expected share of common items seen. Lists are truncated, so the
    agreement at their end is extrapolated. "first_changed" is 1 or 0.

    Args:
        first: Gallery rows, best first, int64 (Q, k); -1 after the end of a list. Rows are unique.
        second: Gallery rows of the other system, likewise.
        persistence: p, between 0 and 1.

    Returns:
        The three by name, one value per query within [0, 1] (Q,); NaN if both lists are empty.

    Raises:
        ConfigError: p is not between 0 and 1.
        DataError: The lists have different shapes.

    Of the first item none is common, of the first two both; with p = 1/2 that is (1/2) (0) + (1/4) 1 + (1/4) 1:

    >>> {name: values.tolist() for name, values in compared(np.array([[4, 7]]), np.array([[7, 4]]), 0.5).items()}
    {'overlap': [1.0], 'rank_biased_overlap': [0.5], 'first_changed': [1.0]}
    """
    if first.shape != second.shape or first.ndim != 2 or first.shape[1] == 0:
        raise DataError(
            f"Rankings of shapes {first.shape} and {second.shape}.", expected="the same (queries, items), at least one"
        )
    lengths = np.stack([(first >= 0).sum(axis=1), (second >= 0).sum(axis=1)])
    shared = _shared(first, second)
    longer = lengths.max(axis=0)
    nothing = longer == 0
    changed = (first[:, 0] != second[:, 0]).astype(np.float64)
    return {
        "overlap": np.where(nothing, np.nan, shared[:, -1] / np.maximum(longer, 1)),
        "rank_biased_overlap": _extrapolated(shared, lengths, persistence),
        "first_changed": np.where(nothing, np.nan, changed),
    }


def _shared(first: _Lists, second: _Lists) -> _Floats:
    """Return how many items the first d of both lists share, for every depth d from 1 to k: X_d (Q, k)."""
    queries, k = first.shape
    places = np.arange(k)
    depth = np.maximum(places[:, None], places).ravel()  # from here on a pair of places is within both lists
    within = (depth[:, None] <= places).astype(np.float32)
    shared = np.empty((queries, k))
    for start in range(0, queries, step := max(1, _PAIRS_AT_ONCE // k**2)):
        a, b = first[start : start + step, :, None], second[start : start + step, None, :]
        equal = ((a == b) & (a >= 0)).reshape(-1, k * k)
        shared[start : start + step] = equal.astype(np.float32) @ within
    return shared


def _extrapolated(shared: _Floats, lengths: _Lists, persistence: float) -> _Floats:
    """Return RBO_ext of lists whose first d share X_d items (Q, k)."""
    depths = np.arange(1, shared.shape[1] + 1)
    short, long = lengths.min(axis=0)[:, None], lengths.max(axis=0)[:, None]
    at_short = np.take_along_axis(shared, np.maximum(short, 1) - 1, axis=1)
    rate = at_short / np.maximum(short, 1)  # of the shorter list, taken to go on behind its end
    behind = np.where(depths > short, rate * (depths - short) / depths, 0)
    weight = np.where(depths <= long, persistence**depths, 0)
    seen = ((shared / depths + behind) * weight).sum(axis=1) * (1 - persistence) / persistence
    end = (shared[:, -1:] - at_short) / np.maximum(long, 1) + rate
    found = seen + (end * persistence**long)[:, 0]
    return np.where(long[:, 0] == 0, np.nan, found)
