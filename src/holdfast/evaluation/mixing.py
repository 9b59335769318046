"""Ranks in a gallery that is partly old and partly new, at many shares and in many orders at once.

A column of the gallery counts with its old score until the share at which it is re-embedded, and with its new score
from then on. So the number of items above a score is a sum of two histograms over (share of change, place among the
scores asked for), one of old and one of new scores: filled once per order, summed up over the shares. Scores are
sorted once per query, whatever the number of shares and orders.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from holdfast.evaluation.ranking import Ranked, hide, tied_ranks
from holdfast.evaluation.row_lists import RowLists
from holdfast.evaluation.scores import block_size, score_blocks
from holdfast.evaluation.side_by_side import available_cores

Places = tuple[NDArray[np.int64], NDArray[np.int64]]


def rank_mixed(
    query: NDArray[np.float32],
    old_gallery: NDArray[np.float32],
    new_gallery: NDArray[np.float32],
    changed: NDArray[np.int64],
    shares: int,
    relevant: RowLists,
    ignore: RowLists,
    *,
    block: int | None = None,
) -> Iterator[list[list[Ranked]]]:
    """Rank a block of queries after another in mixed galleries.

    Args:
        query: float32 (Q, D), in index form.
        old_gallery: float32 (N, D), in index form.
        new_gallery: The same items embedded anew, float32 (N, D).
        changed: The number of the first share at which each item is new, per order, int64 (O, N); at most ``shares``.
        shares: The number S of shares.
        relevant: Gallery rows that answer each query.
        ignore: Gallery rows to leave out for each query.
        block: Queries per block; see `score_blocks`.

    Yields:
        Rankings [order][share] of the queries of the block, those of `rank_blocks` on the mixed gallery.
    """
    size = block_size(len(old_gallery), block)
    old_blocks, new_blocks = (score_blocks(query, side, block=size) for side in (old_gallery, new_gallery))
    with ThreadPoolExecutor(available_cores()) as pool:
        for (start, old), (_, new) in zip(old_blocks, new_blocks, strict=True):
            stop = start + len(old)
            left_out = ignore.part(start, stop)
            owner, items = hide(old, relevant.part(start, stop), left_out)
            hide(new, relevant.part(start, stop), left_out)
            offsets = np.append(0, np.cumsum(np.bincount(owner, minlength=len(old))))
            wanted = np.split(items, offsets[1:-1])
            tables = list(pool.map(partial(mixed_ranks, changed=changed, shares=shares), old, new, wanted))
            ranks, sizes = np.concatenate(tables, axis=2), len(old_gallery) - left_out.counts
            yield [[Ranked(of_share, offsets, sizes) for of_share in of_order] for of_order in ranks]


def mixed_ranks(
    old: NDArray[np.float32],
    new: NDArray[np.float32],
    items: NDArray[np.int64],
    changed: NDArray[np.int64],
    shares: int,
) -> NDArray[np.int64]:
    """Return the ranks of some items in one row of mixed scores, for every order and share.

    Args:
        old: Scores of the old gallery (N,).
        new: Scores of the new gallery (N,).
        items: Gallery rows (R,).
        changed: First share at which each item is new, per order (O, N).
        shares: The number S of shares.

    Returns:
        int64 (O, S, R), ascending along the last axis.
    """
    asked = np.unique(np.append(old[items], new[items]))
    if not len(items):
        return np.empty((len(changed), shares, 0), np.int64)
    old_places, new_places = _places(old, asked), _places(new, asked)
    own_old, own_new = (2 * asked.searchsorted(scores[items]) for scores in (old, new))
    result = np.empty((len(changed), shares, len(items)), np.int64)
    for ranks, first in zip(result, changed, strict=True):
        counts = _histogram(new_places, first, shares, 2 * len(asked), new=True)
        counts += _histogram(old_places, first, shares, 2 * len(asked), new=False)
        is_new = first[items] <= np.arange(shares)[:, None]
        own = np.where(is_new, own_new, own_old)
        not_below = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
        equal = np.take_along_axis(counts, own, axis=1)
        ranks[:] = np.take_along_axis(not_below, own, axis=1) - equal
        for share in np.flatnonzero((equal > 1).any(axis=1)).tolist():
            ranks[share] = tied_ranks(np.where(first <= share, new, old), items)
        ranks.sort(axis=1)
    return result


def _places(scores: NDArray[np.float32], asked: NDArray[np.float32]) -> Places:
    """Place scores (N,) among ascending ones asked for (A,); those below all of them are left out.

    Returns:
        Columns (M,), and where each falls (M,): 2 i equals number i, 2 i + 1 lies between it and the next.
    """
    columns = np.flatnonzero(scores >= asked[0])
    reached = scores[columns]
    order = np.argsort(reached)
    ordered = reached[order]
    begins = np.stack([ordered.searchsorted(asked, side) for side in ("left", "right")], axis=1).ravel()
    return columns[order], np.repeat(np.arange(2 * len(asked)), np.diff(begins, append=len(columns)))


def _histogram(places: Places, first: NDArray[np.int64], shares: int, size: int, *, new: bool) -> NDArray[np.int64]:
    """Count per share (S, size) the columns in each place that are new by then, or those that are not yet."""
    columns, where = places
    table = np.bincount(first[columns] * size + where, minlength=(shares + 1) * size).reshape(shares + 1, size)
    until = np.cumsum(table, axis=0)
    counts: NDArray[np.int64] = until[:-1] if new else until[-1] - until[:-1]
    return counts
