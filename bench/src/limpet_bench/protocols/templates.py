"""Templates: one vector for a set of images of one person, as in IJB-C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, SpaceMismatchError, shown
from limpet.geometry import Hypersphere

COLUMNS = ("template", "media", "detector_score")

_IMAGES_AT_ONCE = 8192  # bounds memory: 64 MB of float64 at 1024 dimensions


@dataclass(frozen=True, eq=False)
class TemplateVectors:
    """Vectors of templates.

    Args:
        numbers: The number of every template, int64 (T,), ascending, without repetition.
        vectors: Unit vector of every template, float64 (T, D).
    """

    numbers: NDArray[np.int64]
    vectors: NDArray[np.float64]


def rows_of_numbers(numbers: NDArray[np.int64], wanted: NDArray[np.int64], side: str) -> NDArray[np.int64]:
    """Return the rows of template numbers (N,) in the ascending numbers of one side, int64 (N,).

    Raises:
        DataError: A number is missing.
    """
    rows = np.searchsorted(numbers, wanted).clip(max=max(len(numbers) - 1, 0))
    absent = np.unique(wanted[numbers[rows] != wanted]) if len(numbers) else np.unique(wanted)
    if len(absent):
        raise DataError(
            f"{len(absent)} templates of the ground truth are not among the {len(numbers)} of the {side}: "
            f"{shown((str(number) for number in absent[:3]), len(absent))}.",
            expected="an embedding of every image of every template that is compared",
            to_do="embed the whole image list, and give the ground truth that belongs to it.",
        )
    return rows


def templates_of(embeddings: EmbeddingSet, wanted: NDArray[np.int64], side: str) -> TemplateVectors:
    """Build templates from embedded images.

    Vectors are not normalised first. As published, they should be features before normalisation, whose lengths express
    the certainty of the model.

    Args:
        embeddings: Images, with the columns "template", "media" and "detector_score".
        wanted: Numbers of the templates to build, in any order; repetitions are allowed.
        side: "queries" or "gallery", for messages.

    Raises:
        DataError: A column is missing or has the wrong type, or a template is missing or is the zero vector.
        SpaceMismatchError: The space is not the hypersphere; in other spaces, vectors cannot be averaged.
    """
    if not isinstance(embeddings.space, Hypersphere):
        raise SpaceMismatchError(
            f"Templates of the {side} on the {embeddings.space}.",
            expected="the hypersphere: a template is a mean of vectors",
            to_do="evaluate a model of the hypersphere, or one template per image by the protocol 'labels'.",
        )
    template, media, score = (_column(embeddings, name, side) for name in COLUMNS)
    numbers = np.unique(wanted)
    rows_of_numbers(np.unique(template), numbers, side)
    rows = np.flatnonzero(np.isin(template, numbers))
    vectors = template_vectors(embeddings.vectors, template[rows], media[rows], score[rows], rows)
    zero = np.flatnonzero(~vectors.any(axis=1))
    if len(zero):
        named = shown((str(numbers[row]) for row in zero[:3]), len(zero))
        raise DataError(
            f"{len(zero)} templates of the {side} have no direction: {named}.",
            expected="images whose weighted features do not cancel, with a detector score above 0",
        )
    return TemplateVectors(numbers, vectors)


def template_vectors(
    features: NDArray[np.floating],
    template: NDArray[np.int64],
    media: NDArray[np.int64],
    score: NDArray[np.floating],
    rows: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Return the unit vectors of templates, float64 (T, D), by ascending number; zero vectors if images cancel out.

    A medium is an image, or all frames of one video. The vector of a medium is the mean of its image features, each
    multiplied by the detector score of its image. A template is the L2-normalised sum of the vectors of its media.

    Args:
        features: Features of images (M, D); may be memory-mapped, because they are read in blocks.
        template: Template number of each image (N,).
        media: Number of the medium of each image (N,).
        score: Detector score of each image (N,).
        rows: Row of each image in the features (N,). Default: its position.

    Two frames (2, 0) and (4, 0) of one video count as one medium (3, 0), beside the photograph (0, 4):

    >>> one = np.zeros(3, np.int64)
    >>> template_vectors(np.array([[2.0, 0], [4, 0], [0, 4]]), one, np.array([7, 7, 8]), np.ones(3)).tolist()
    [[0.6, 0.8]]

    Paper: Maze et al., IARPA Janus Benchmark C, ICB 2018; aggregation as in the evaluation of MixBCT.
    """
    order = np.lexsort((media, template))
    rows = order if rows is None else rows[order]
    template, media, score = template[order], media[order], score[order]
    firsts = np.flatnonzero(np.diff(template, prepend=template[:1] - 1))
    sums = np.empty((len(firsts), features.shape[1]))
    stops = np.append(firsts[1:], len(rows))
    start = 0
    while start < len(firsts):
        stop = max(start + 1, int(np.searchsorted(stops, firsts[start] + _IMAGES_AT_ONCE, "right")))
        part = slice(firsts[start], stops[stop - 1])
        weighted = features[rows[part]].astype(np.float64) * score[part, None]
        sums[start:stop] = _sums_of_means(weighted, template[part], media[part])
        start = stop
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    unit: NDArray[np.float64] = sums / np.where(lengths > 0, lengths, 1)
    return unit


def _sums_of_means(
    weighted: NDArray[np.float64], template: NDArray[np.int64], media: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Average the rows of each medium, and sum the averages of each template; rows are sorted by both."""
    another = np.diff(template, prepend=template[:1] - 1) != 0
    media_starts = np.flatnonzero(another | (np.diff(media, prepend=media[:1]) != 0))
    counts = np.diff(np.append(media_starts, len(template)))
    means = np.add.reduceat(weighted, media_starts) / counts[:, None]
    sums: NDArray[np.float64] = np.add.reduceat(means, np.flatnonzero(another[media_starts]))
    return sums


def first_labels(embeddings: EmbeddingSet, wanted: NDArray[np.int64], side: str) -> NDArray[np.int64] | None:
    """Return the class of the first image of every template in ``wanted`` (N,); None if images have no classes."""
    if embeddings.labels is None:
        return None
    numbers, first = np.unique(_column(embeddings, "template", side), return_index=True)
    return embeddings.labels[first[rows_of_numbers(numbers, wanted, side)]]


def _column(embeddings: EmbeddingSet, name: str, side: str) -> NDArray[Any]:
    column = embeddings.columns.get(name)
    kinds = "iuf" if name == "detector_score" else "iu"
    if column is None or column.ndim != 1 or column.dtype.kind not in kinds:
        found = "no such column" if column is None else f"{column.dtype} of shape {column.shape}"
        raise DataError(
            f"Templates need the column '{name}' of the {side}, and found {found}.",
            expected="the columns template and media, whole numbers, and detector_score, a number, for every image",
            to_do="embed a data set of templates, such as ijb-c, with --flip --form features.",
        )
    return column
