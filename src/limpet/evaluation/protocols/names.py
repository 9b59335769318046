"""Finding the items that a ground truth names among those that were embedded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import DataError, EmptyOverlapError, shown
from limpet.evaluation.ranking.row_lists import RowLists

_FOLDERS = r"^.*[/\\]"
_EXTENSION = r"\.[A-Za-z][A-Za-z0-9]{1,4}$"  # no ".2": a number belongs to the name


def rows_named(names: Sequence[str], embeddings: EmbeddingSet) -> NDArray[np.int64]:
    """Return the row of every name (N,), or -1 where no item has it.

    A name is an id as it is written, else an id without folders and extension on either side.

    Raises:
        DataError: A name stands for more than one item.

    >>> items = EmbeddingSet(np.eye(2, dtype=np.float32), ["jpg/oxford_1.jpg", "b"], model="x")
    >>> rows_named(["oxford_1", "c", "b"], items).tolist()
    [0, -1, 1]
    """
    rows = embeddings.ids.find(names)
    absent = np.flatnonzero(rows < 0)
    if len(absent):
        wanted, short = short_names(StringArray.of(names)[absent]), short_names(embeddings.ids)
        rows[absent] = short.find(wanted)
        ambiguous = StringArray.of(short.duplicates).find(wanted[rows[absent] >= 0]) >= 0
        if ambiguous.any():
            name = wanted[rows[absent] >= 0][int(np.flatnonzero(ambiguous)[0])]
            alike = embeddings.ids[np.flatnonzero(pc.equal(short.arrow(), name).to_numpy(zero_copy_only=False))]
            raise DataError(
                f"'{name}' of the ground truth could be any of {len(alike)} embedded items: {shown(alike)}.",
                to_do="give the items ids as the ground truth writes them.",
            )
    return rows


def rows_of_all(names: Sequence[str], embeddings: EmbeddingSet, side: str) -> NDArray[np.int64]:
    """Return the row of every name (N,), or refuse names that no item has.

    Raises:
        DataError: A name has no item, or more than one.
        EmptyOverlapError: No name has an item.
    """
    rows = rows_named(names, embeddings)
    missing = np.flatnonzero(rows < 0)
    if len(missing):
        kind = EmptyOverlapError if len(missing) == len(rows) else DataError
        raise kind(
            f"{len(missing)} of the {len(rows)} {side} that the ground truth names are not among the "
            f"{len(embeddings)} embedded items: {shown((names[int(row)] for row in missing[:3]), len(missing))}; "
            f"the embedded ones are {shown(embeddings.ids[:3], len(embeddings))}.",
            expected="an embedding of every image of the ground truth, whose id is its name there",
            to_do="embed the missing images too, or give the ground truth of the data set that was embedded.",
        )
    return rows


def short_names(names: StringArray) -> StringArray:
    """Return names without folders and extension.

    >>> list(short_names(StringArray.of(["a/b.c/d.jpg", "e.JPEG", "release 1.2"])))
    ['d', 'e', 'release 1.2']
    """
    bare = pc.replace_substring_regex(names.arrow(), _FOLDERS, "")
    return StringArray.from_arrow(pc.replace_substring_regex(bare, _EXTENSION, ""))


def lists_of_pairs(
    owner: NDArray[np.int64], rows: NDArray[np.int64], queries: int, gains: NDArray[np.float64] | None = None
) -> RowLists:
    """Return one list of gallery rows per query from pairs of a query (M,) and a gallery row (M,), and their gains.

    >>> lists_of_pairs(np.array([2, 0, 2]), np.array([7, 5, 1]), 3).flat()
    (array([0, 2, 2]), array([5, 7, 1]))
    """
    order = np.argsort(owner, kind="stable")
    stops = np.cumsum(np.bincount(owner, minlength=queries))
    return RowLists(rows[order], np.append(0, stops[:-1]), stops, None if gains is None else gains[order])
