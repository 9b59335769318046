"""How well queries find their class in a gallery that several models embedded, session after session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.continual.results import SessionScores
from holdfast.continual.setting import Setting
from holdfast.embeddings import EmbeddingSet
from holdfast.embeddings.same_items import labels_as_in
from holdfast.errors import DataError, refuse
from holdfast.evaluation.ranking.engine import nearest_rows
from holdfast.evaluation.sides import check_sides, vectors_for


def hits(query: EmbeddingSet, parts: Iterable[EmbeddingSet], ks: Sequence[int]) -> dict[int, NDArray[np.bool_]]:
    """Tell for every query whether an item of its class is among the first K of the whole gallery (CVS's recall@K).

    The parts are searched one after another, and only the first K of each are kept. The order is by similarity; of
    equal ones the earlier part comes first, then the earlier row. A query whose class is not in the gallery fails.

    Args:
        query: Labelled queries (Q), embedded by the newest model.
        parts: Labelled gallery parts of one space, whoever embedded them; classes match by name where both sides have
            names. Each is asked for when the one before is done with, so that one at a time need be open.
        ks: Values of K, at least 1.

    Returns:
        For every K an array (Q,).

    Raises:
        DataError: There is no part, or a side is empty or has no labels.
        SpaceMismatchError: A part is of another space than the queries.

    >>> from holdfast.geometry import Hypersphere
    >>> def items(names, vectors, labels):
    ...     return EmbeddingSet(names, np.array(vectors, np.float32), "declared:example", Hypersphere(2),
    ...                         labels=np.array(labels))
    >>> old, new = items(["a"], [[1, 0]], [0]), items(["b", "c"], [[0, 1], [0.8, 0.6]], [1, 1])
    >>> hits(items(["q", "r"], [[0.6, 0.8], [1, 0]], [0, 0]), [old, new], (1, 3))
    {1: array([False,  True]), 3: array([ True,  True])}
    """
    refuse(not ks or min(ks) < 1, f"Recall at K = {', '.join(map(str, ks)) or 'nothing'}.", "values of at least 1")
    nearest = list(_nearest(query, parts, max(ks)))
    if not nearest:
        raise DataError("The gallery has no part.", expected="what at least one session embedded")
    scores, labels = (np.concatenate(found, axis=1) for found in zip(*nearest, strict=True))
    order = np.argsort(-scores, axis=1, kind="stable")
    right = np.take_along_axis(labels, order, axis=1) == _wanted(query)[:, None]
    return {k: right[:, :k].any(axis=1) for k in ks}


def _nearest(
    query: EmbeddingSet, parts: Iterable[EmbeddingSet], k: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Yield scores and labels (Q, min(k, N)) of the first k rows of every part, in the query's class numbers."""
    vectors = vectors_for(query, "query")
    for part in parts:
        check_sides(query, part)
        rows, scores = nearest_rows(vectors, vectors_for(part, "gallery"), k)
        yield scores, labels_as_in(query, part)[rows]


def _wanted(query: EmbeddingSet) -> NDArray[np.int64]:
    if query.labels is None:
        raise DataError("The queries have no labels.", expected="a class for every query")
    return query.labels


def scores_of(found: Mapping[int, NDArray[np.bool_]], labels: NDArray[np.int64], setting: Setting) -> SessionScores:
    """Return recall by K, and recall@1 by the session that introduced the class of the query.

    Args:
        found: For every K whether each query succeeded (Q,).
        labels: Class of every query, int64 (Q,).
        setting: Whose classes they are.
    """
    homes, sessions = setting.home[labels], setting.plan.sessions
    asked = np.bincount(homes, minlength=sessions)
    right = np.bincount(homes, weights=found[1], minlength=sessions)
    return SessionScores(
        recall={str(k): float(values.mean()) for k, values in found.items()},
        recall_by_home=[float(r / n) if n else None for r, n in zip(right, asked, strict=True)],
        queries=len(labels),
        queries_by_home=asked.tolist(),
    )
