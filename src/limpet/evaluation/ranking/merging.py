"""One list of results from a gallery of two generations, whose scores cannot be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from limpet.adapters.score_map import MappedScores
from limpet.errors import DataError, refuse
from limpet.support.ranges import NonNegative, checked

_Hits = tuple[Sequence[Any] | NDArray[Any], Sequence[float] | NDArray[np.floating]]
"""What one generation found for one query: ids (n,) and their scores (n,), larger is better, in any order."""
Merged = tuple[NDArray[Any], NDArray[np.float64]]
"""Ids, each once, and their merged scores, best first."""


class ScoreScale(Protocol):
    """What takes the scores of one query on one generation to a common scale, and never turns their order."""

    def apply(self, scores: NDArray[np.float64], /) -> MappedScores: ...  # noqa: D102


@checked
def reciprocal_rank_merge(lists: Sequence[_Hits], k: NonNegative = 60, sizes: Sequence[int] | None = None) -> Merged:
    """Merge by rank: an item scores 1 / (k + r), with r its best rank in any list, counted from 1.

    Where the sizes of the generations are known, r is the rank to expect among all items: (r' - 1/2) / share + 1/2,
    with r' the rank in the item's own list and its generation's share of all items. Without, a generation of a few
    items would take every other place.

    After reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009), which adds up an item's terms over systems
    that all rank all items. Generations rank different items: one that is found twice, because its old row is still
    there, gets no second vote.

    Items of a list with equal scores keep their order. Of items that merge with equal scores, those of the earlier list
    come first; put first the generation that is trusted more.

    Args:
        lists: One per generation.
        k: At least 0. It has no say in the order where every item has one best rank; it sets the scale of the scores.
        sizes: How many items each generation has, at least 1; all alike when left out.

    Raises:
        ConfigError: k is below 0, or there is not one size of at least 1 per list.
        DataError: Ids and scores of a list differ in number, or a score is not a number.

    >>> ids, scores = reciprocal_rank_merge([(["a", "b"], [0.9, 0.8]), (["c", "a"], [31.0, 30.0])], k=1)
    >>> ids.tolist(), scores.tolist()
    (['a', 'c', 'b'], [0.5, 0.5, 0.3333333333333333])
    >>> reciprocal_rank_merge([(["a"], [0.9]), (["c", "d", "e"], [0.8, 0.7, 0.6])], sizes=[10, 90])[0].tolist()
    ['c', 'd', 'e', 'a']
    """
    refuse(sizes is not None and (len(sizes) != len(lists) or min(sizes, default=1) < 1), f"sizes={sizes}",
           f"{len(lists)} numbers of at least 1, one per list")  # fmt: skip
    ordered = [_best_first(*hits) for hits in lists]
    shares = [1.0] * len(lists) if sizes is None else [size / sum(sizes) for size in sizes]
    return _joined([
        (ids, 1 / (k + 0.5 + (np.arange(len(ids)) + 0.5) / share))
        for (ids, _), share in zip(ordered, shares, strict=True)
    ])  # fmt: skip


def calibrated_merge(hits: Sequence[_Hits], maps: Sequence[ScoreScale | None]) -> Merged:
    """Merge by scores on one scale: those of every generation as its map gives them.

    Where a map is level or clips, items of one list keep their order; of items of different lists that merge with equal
    scores, those of the earlier list come first. An item that is found twice keeps its higher score.

    Args:
        hits: One list per generation.
        maps: The score map of every generation, or the line that a cohort gives this query; None where its scores are
            on the common scale already.

    Raises:
        DataError: There is not one map per list, ids and scores of a list differ in number, or a score is not finite.

    >>> from limpet.adapters import ScoreMap
    >>> to_new = ScoreMap.fit([0.0, 1.0], [0.5, 0.7])
    >>> ids, scores = calibrated_merge([(["a", "b"], [0.9, 0.1]), (["c"], [0.6])], [to_new, None])
    >>> ids.tolist(), scores.round(2).tolist()
    (['a', 'c', 'b'], [0.68, 0.6, 0.52])
    """
    if len(hits) != len(maps):
        raise DataError(f"{len(maps)} score maps for {len(hits)} lists.", expected="one per list, or None in its place")
    ordered = [_best_first(*one) for one in hits]
    return _joined([
        (ids, scores if score_map is None else on_the_common_scale(scores, score_map))
        for (ids, scores), score_map in zip(ordered, maps, strict=True)
    ])  # fmt: skip


def on_the_common_scale(scores: NDArray[np.float64], score_map: ScoreScale) -> NDArray[np.float64]:
    """Map scores that never rise (n,) so that the outcome never rises; rounding between two knots can exceed a knot.

    Raises:
        DataError: A score is not finite.
    """
    mapped: NDArray[np.float64] = np.minimum.accumulate(score_map.apply(scores).values)
    return mapped


def _best_first(ids: Any, scores: Any) -> Merged:
    names, given = _names(ids), np.asarray(scores)
    if given.size and given.dtype.kind not in "fiu":
        raise DataError(f"Scores of type {given.dtype}.", expected="numbers, larger is better")
    values = given.astype(np.float64)
    if names.ndim != 1 or names.shape != values.shape:
        raise DataError(
            f"Ids of shape {names.shape} and scores of shape {values.shape}.", expected="(hits,) for both, of one query"
        )
    if not np.isfinite(values).all():
        raise DataError(
            f"{int((~np.isfinite(values)).sum())} of {len(values)} scores are not finite.",
            to_do="leave out empty places of a result, where there is no item.",
        )
    order = np.argsort(-values, kind="stable")
    return names[order], values[order]


def _names(ids: Any) -> NDArray[Any]:
    """Return ids as texts or as whole numbers; NumPy would turn a mixture of them into texts unseen."""
    names = np.asarray(ids)
    texts = names.dtype.kind in "UO" and all(isinstance(name, str) for name in np.ravel(np.asarray(ids, object)))
    if names.size and not texts and names.dtype.kind not in "iu":
        raise DataError(
            f"Ids of type {names.dtype}, first: {names.ravel()[0]!r}.",
            expected="texts only, or whole numbers only",
            to_do="write all ids in one way, such as str(id); others could be taken for one another.",
        )
    return names.astype(np.str_) if texts else names


def _joined(parts: Sequence[Merged]) -> Merged:
    """Order all items by score, equal ones as they come, and keep the first occurrence of every id."""
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return np.empty(0, np.str_), np.empty(0)
    types = {part[0].dtype.kind: part[0].dtype for part in parts}
    if len(types) > 1:
        raise DataError(
            f"Lists with ids of the types {' and '.join(map(str, types.values()))}.",
            expected="ids of one type in all lists, so that an item has one id",
            to_do="write all ids in one way, such as str(id).",
        )
    ids, scores = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    order = np.argsort(-scores, kind="stable")
    first = np.sort(np.unique(ids[order], return_index=True)[1])
    return ids[order][first], scores[order][first]
