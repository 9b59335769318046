"""Checks of all stores: valid ids and vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError, LastingStoreError, StoreError


def checked_queries(queries: NDArray[np.float32], width: int, k: int) -> NDArray[np.float32]:
    """Return queries in the form in which a store compares them.

    Args:
        queries: float32 (Q, width).
        width: Width of the vectors that they are compared with.
        k: Hits per query.

    Raises:
        DataError: The shape or type is wrong, values are not finite, or k is below 1.
    """
    if k < 1:
        raise DataError(f"A search for {k} hits.", expected="1 or more")
    plain = isinstance(queries, np.ndarray) and queries.dtype == np.float32 and queries.ndim == 2
    if not (plain and np.isfinite(queries).all()):
        refuse_wrong_vectors(queries, [str(row) for row in range(len(queries))], "queries")
    if queries.shape[1] != width:
        raise DataError(
            f"Queries of {queries.shape[1]} numbers.",
            expected=f"{width}, as long as the vectors that they are compared with",
            to_do="search with queries of the model that this generation belongs to.",
        )
    return queries


OF_GALLERIES = "look at the rest with `limpet doctor`; restore the gallery from a copy. It is as it was."


def damaged(what: str, why: str, to_do: str = OF_GALLERIES) -> StoreError:
    """Build the error for a damaged record."""
    return LastingStoreError(f"{what} is damaged: {why}.", to_do=to_do)


def refuse_wrong_ids(ids: Sequence[str], what: str) -> None:
    """Refuse ids that are no text, that a database cannot keep, or that appear twice."""
    wrong = [] if _all_storable(ids) else [identifier for identifier in ids if not storable(identifier)]
    refuse_ids(wrong, f"cannot be ids of {what}", "texts of at least one character, without the character 0")
    if len(set(ids)) < len(ids):
        twice = [identifier for identifier, count in Counter(ids).items() if count > 1]
        refuse_ids(twice, f"appear more than once among the {what}", "every id once")


def _all_storable(ids: Sequence[str]) -> bool:
    """Check all ids at once, which is faster than one by one."""
    try:
        return all(ids) and "\0".join(ids).encode().count(0) == max(0, len(ids) - 1)
    except (TypeError, UnicodeEncodeError):
        return False


def storable(text: object) -> bool:
    r"""Say whether this is a text that every database can keep.

    >>> [storable(text) for text in ("Zoë's", "", "\0", "\ud800", 5)]
    [True, False, False, False, False]
    """
    if not isinstance(text, str) or not text or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_wrong_vectors(vectors: NDArray[np.float32], ids: Sequence[str], what: str) -> None:
    """Refuse anything but finite float32 rows, one per id."""
    if not isinstance(vectors, np.ndarray) or vectors.dtype != np.float32 or vectors.ndim != 2:
        found = f"{vectors.dtype}, shape {vectors.shape}" if isinstance(vectors, np.ndarray) else type(vectors).__name__
        raise DataError(f"The {what} are {found}.", expected="a float32 array of two dimensions")
    if len(vectors) != len(ids):
        raise DataError(f"{len(vectors)} {what} for {len(ids)} ids.", expected="one row per id")
    wrong = [ids[row] for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()]
    refuse_ids(wrong, f"have {what} that are not finite", "numbers, neither NaN nor infinite")


def refuse_ids(ids: Collection[str], what: str, expected: str) -> None:
    """Refuse ids, if there are any; the message names the first of them."""
    if ids:
        names = ", ".join(repr(identifier) for identifier in sorted(ids, key=str)[:5])
        more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
        raise DataError(f"{names}{more} {what}.", expected=expected, intact="Nothing was written.")
