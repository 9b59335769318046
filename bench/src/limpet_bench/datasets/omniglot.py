"""Omniglot: handwritten characters of fifty alphabets (Lake, Salakhutdinov and Tenenbaum, Science 2015)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from limpet.data import (
    ArrayImages,
    Dataset,
    ImageSet,
    RetrievalData,
    SquareSize,
    generator_of,
    read_npz,
    readable_sides,
)
from limpet.embeddings import StringArray
from limpet.errors import ConfigError, DataError, refuse

QUERY_DRAWINGS = 5
"""Number of queries per evaluation class: drawings 0 to 4; the other drawings are the gallery."""
_CLASSES_AT_ONCE = 32


def omniglot(
    root: Path,
    *,
    image_size: SquareSize = 28,
    class_share: float = 1.0,
    validation_fraction: float = 0.0,
    seed: int = 0,
) -> RetrievalData:
    """Handwritten characters: training on 964 background classes, search among 659 evaluation classes.

    Args:
        root: Folder with ``images_background.npz`` and ``images_evaluation.npz``, each with ``images`` bool
            (classes, 20, 105, 105), True for paper and False for ink, and ``labels`` int64 (classes, 20).
        image_size: Pixels per side; ink is averaged over the area of each pixel.
        class_share: Share of the classes to keep in both parts, for a smaller task; at least two are kept.
        validation_fraction: Share of the kept background classes to hold out for validation.
        seed: Random seed that selects these classes.
    """
    side, _ = readable_sides(image_size)
    refuse(not 0 < class_share <= 1, f"class_share = {class_share}.", "above 0 and at most 1")
    refuse(not 0 <= validation_fraction < 1, f"validation_fraction = {validation_fraction}.", "at least 0 and below 1")
    background = _read_part(root / "images_background.npz", "background", side)
    evaluation = _read_part(root / "images_evaluation.npz", "evaluation", side)
    draws = generator_of(seed).spawn(2)  # independent of the draw of the validation classes
    background, evaluation = (
        _keep(part, class_share, draw) for part, draw in zip((background, evaluation), draws, strict=True)
    )
    drawing = np.concatenate([np.arange(count) for count in np.bincount(evaluation.labels)])
    train, validation = _set_apart(background, validation_fraction, seed)
    return RetrievalData(
        name="omniglot",
        train=train,
        query=evaluation[drawing < QUERY_DRAWINGS],
        gallery=evaluation[drawing >= QUERY_DRAWINGS],
        leave_one_out=False,
        validation=validation,
        description=f"handwritten characters: {len(train.class_names)} classes to train on, "
        f"{len(evaluation.class_names)} to search; drawings 0-4 are queries",
    )


def _read_part(path: Path, part: str, image_size: int) -> ImageSet:
    arrays = read_npz(path, ("images", "labels"))
    images, labels = arrays["images"], arrays["labels"]
    if images.dtype != np.bool_ or images.ndim != 4 or labels.shape != images.shape[:2]:
        raise DataError(
            f"{path} holds images {images.dtype} {images.shape} and labels {labels.shape}.",
            expected="images bool (classes, drawings, height, width) and labels (classes, drawings)",
            to_do="write the file again from the official Omniglot images.",
        )
    classes, drawings = labels.shape
    ids = [f"{part}/{label:04d}/{drawing:02d}" for label in range(classes) for drawing in range(drawings)]
    names = tuple(f"{part}/{label:04d}" for label in range(classes))
    numbers = np.repeat(np.arange(classes), drawings)
    return ImageSet(ArrayImages(shrunk_ink(images, image_size)), numbers, names, StringArray.of(ids))


def shrunk_ink(paper: NDArray[np.bool_], size: int) -> NDArray[np.uint8]:
    """Downscale drawings: return the share of ink in the area of every pixel, scaled to 0..255.

    Args:
        paper: bool (classes, drawings, height, width), True for paper.
        size: Height and width of the result in pixels.

    Returns:
        uint8 (classes * drawings, 1, size, size).

    >>> shrunk_ink(np.array([[[[True, False], [False, False]]]]), 1)
    array([[[[191]]]], dtype=uint8)
    """
    down, across = area_weights(paper.shape[2], size), area_weights(paper.shape[3], size)
    result = np.empty((*paper.shape[:2], size, size), np.uint8)
    for start in range(0, len(paper), _CLASSES_AT_ONCE):
        ink = (~paper[start : start + _CLASSES_AT_ONCE]).astype(np.float32)
        result[start : start + _CLASSES_AT_ONCE] = np.rint(255 * (down @ ink @ across.T))
    return result.reshape(-1, 1, size, size)


def area_weights(source: int, target: int) -> NDArray[np.float32]:
    """Return the matrix (target, source) that averages ``source`` pixels over ``target`` equal intervals.

    >>> area_weights(3, 2)
    array([[0.6666667 , 0.33333334, 0.        ],
           [0.        , 0.33333334, 0.6666667 ]], dtype=float32)
    """
    edges = np.arange(target + 1) * source / target
    pixels = np.arange(source)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights: NDArray[np.float32] = (overlap.clip(min=0) * target / source).astype(np.float32)
    return weights


def _keep(part: ImageSet, share: float, generator: np.random.Generator) -> ImageSet:
    if share == 1:
        return part
    count = max(2, round(share * len(part.class_names)))
    return part.select_classes(generator.permutation(len(part.class_names))[:count]).compact()


def _set_apart(background: ImageSet, fraction: float, seed: int) -> tuple[ImageSet, ImageSet | None]:
    count = int(fraction * len(background.class_names))
    if fraction == 0:
        return background, None
    if count < 2:
        raise ConfigError(
            f"validation_fraction = {fraction} of {len(background.class_names)} classes is {count}.",
            expected="at least two classes to search among",
            to_do="give a larger fraction, or 0 for no validation.",
        )
    chosen = generator_of(seed).permutation(len(background.class_names))[:count]
    aside = np.isin(background.labels, chosen)
    return background[~aside].compact(), background[aside].compact()


OMNIGLOT = Dataset(omniglot, "handwritten characters, 964 classes to train on and 659 to search", "omniglot")
