"""Re-identification: the same person seen by another camera answers, as in Market-1501."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.embeddings.same_items import labels_as_in
from limpet.errors import DataError, EmptyOverlapError
from limpet.evaluation.protocols.base import Lists, RankingProtocol
from limpet.evaluation.ranking.row_lists import RowLists
from limpet.evaluation.sides import relevant_by_label

_COLUMN = "camera"
JUNK = "-1"


@dataclass(frozen=True, eq=False, kw_only=True)
class ByCamera(RankingProtocol):
    """Rank the gallery without junk images and without images of the query's person by the query's own camera.

    Cameras are the column "camera". Junk images, parts of bodies or bad detections, have the class name "-1", or the
    label -1 if classes have no names. Distractors are ordinary images that are relevant to no query.

    Paper: Zheng et al., Scalable Person Re-identification: A Benchmark, ICCV 2015.

    Use it for re-identification, where an image by the query's own camera is too easy a match.

    Args:
        leave_one_out: Ignore the gallery item with the id of the query.
        no_relevant: Score of a query without any relevant item.

    >>> import numpy as np
    >>> from limpet import EmbeddingSet, evaluate
    >>> persons, columns = np.arange(6) % 2, {"camera": np.arange(6) // 2}
    >>> vectors = np.eye(6, dtype=np.float32) + 0.5
    >>> v1, v2 = (EmbeddingSet(vectors, model=name, labels=persons, columns=columns) for name in ("v1", "v2"))
    >>> evaluate(v1, v2, protocol=ByCamera(leave_one_out=True)).protocol.name
    'market1501'
    """

    name: ClassVar[str] = "market1501"
    description: ClassVar[str] = "the same person by another camera answers (Market-1501, re-identification)"
    metrics: ClassVar[tuple[str, ...]] = ("cmc@1", "cmc@5", "cmc@10", "map")
    needs_labels: ClassVar[bool] = True

    def searched(self, gallery: EmbeddingSet) -> NDArray[np.bool_] | None:
        """Return which images are not junk."""
        junk = _junk(gallery)
        return ~junk if junk.any() else None

    def answers(self, query: EmbeddingSet, gallery: EmbeddingSet) -> Lists:
        """Return the rows of every query's person; those by its own camera and junk are ignored.

        Raises:
            DataError: A side has no camera column.
            EmptyOverlapError: Queries have relevant items, and all of these are from the query's own camera.
        """
        relevant = relevant_by_label(query, gallery)
        persons, person = _numbered(labels_as_in(gallery, query), labels_as_in(gallery, gallery))
        cameras, camera = _numbered(_cameras(query, "queries"), _cameras(gallery, "gallery"))
        count = 1 + max(cameras.max(initial=0), camera.max(initial=0))
        same = RowLists.by_label(persons * count + cameras, person * count + camera)
        if relevant.counts.any() and np.array_equal(relevant.counts, same.counts):  # `same` is a part of `relevant`
            raise EmptyOverlapError(
                f"Every relevant item of the {len(query)} queries is from the query's own camera. The protocol "
                f"'{self.name}' leaves such items out: it asks whether another camera finds the person.",
                expected="persons that at least two cameras have seen",
                to_do=f"look at the values of the column '{_COLUMN}'; or evaluate with another protocol, such as "
                "--protocol labels.",
            )
        junk = np.flatnonzero(_junk(gallery))
        if len(junk):
            same = same.union(RowLists(junk, np.zeros(len(query), np.int64), np.full(len(query), len(junk))))
        return Lists(relevant, same)


def _numbered(first: NDArray[np.int64], second: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the same values, counted from 0, so that pairs of them can be written as one number."""
    _, numbers = np.unique(np.concatenate([first, second]), return_inverse=True)
    return numbers[: len(first)], numbers[len(first) :]


def _junk(gallery: EmbeddingSet) -> NDArray[np.bool_]:
    if gallery.labels is None:
        return np.zeros(len(gallery), np.bool_)
    label = -1 if gallery.class_names is None else gallery.class_names.find([JUNK])[0]
    junk: NDArray[np.bool_] = gallery.labels == label  # with names, -1 says that no class has this one
    return junk


def _cameras(embeddings: EmbeddingSet, side: str) -> NDArray[np.int64]:
    column = embeddings.columns.get(_COLUMN)
    if column is None or column.ndim != 1 or column.dtype.kind not in "iu":
        found = "no such column" if column is None else f"{column.dtype} of shape {column.shape}"
        raise DataError(
            f"The protocol '{ByCamera.name}' needs the column '{_COLUMN}' of the {side}, and found {found}.",
            expected="the number of the camera that took each image, a whole number",
            to_do="embed a data set that knows its cameras, such as market-1501, or write the column 'camera' into the "
            "file that is imported.",
        )
    return column.astype(np.int64)
