"""Reads images from an untrusted NumPy archive (.npz)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from limpet.data.held_out import hold_out
from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.data.retrieval_data import RetrievalData
from limpet.embeddings import StringArray
from limpet.embeddings.conversion import int64_labels
from limpet.embeddings.imports import NPZ_ERRORS
from limpet.embeddings.numpy_files import NumpyFile
from limpet.errors import ConfigError, DataError, reason

_Layout = Literal["NHW", "NHWC", "NCHW"]


def arrays(path: Path, *, layout: _Layout | None = None, held_out: float = 0.2, seed: int = 0) -> RetrievalData:
    """Your own images, in an .npz file with ``images`` and ``labels``.

    Args:
        path: The file: ``images`` uint8, ``labels`` integers (N,), optionally ``class_names`` (one text per label from
            0) and ``ids`` (one text per image).
        layout: Order of the axes of ``images``: "NHW" for grey images, "NHWC" or "NCHW". Required unless there are
            three axes.
        held_out: Share of every class to hold out for leave-one-out evaluation.
        seed: Random seed that selects the held-out images.

    Raises:
        ConfigError: The layout does not fit the images.
        DataError: The file cannot be read, lacks an array, or its parts do not fit together.
    """
    found = read_npz(path, ("images", "labels"), ("class_names", "ids"))
    images = channels_second(found["images"], layout)
    labels, names = _numbered(found)
    ids = found["ids"].tolist() if "ids" in found else [f"{row:08d}" for row in range(len(images))]
    whole = ImageSet(ArrayImages(images), labels, names, StringArray.of(ids)).compact()
    return hold_out(path.stem, whole, held_out, seed)


def channels_second(images: NDArray[Any], layout: _Layout | None) -> NDArray[np.uint8]:
    """Return images as (N, channels, height, width).

    Raises:
        ConfigError: The layout is unknown, does not fit the number of axes, or is missing for four axes.

    >>> channels_second(np.zeros((2, 8, 9, 3), np.uint8), "NHWC").shape
    (2, 3, 8, 9)
    """
    layout = "NHW" if layout is None and images.ndim == 3 else layout
    if layout not in get_args(_Layout) or len(layout or "") != images.ndim:
        raise ConfigError(
            f"Images have shape {images.shape}, their layout is {layout}.",
            expected="layout 'NHW' for three axes, 'NHWC' (channels last) or 'NCHW' (channels second) for four",
            to_do="pass layout='NHWC' or layout='NCHW'; from its shape alone the order would be a guess.",
        )
    moved: NDArray[np.uint8] = np.moveaxis(images, -1, 1) if layout == "NHWC" else images
    return moved[:, None] if layout == "NHW" else np.ascontiguousarray(moved)


def _numbered(found: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels from 0 and the class names; without names, a class is named after its number in the file."""
    labels = found["labels"]
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"Labels are {labels.dtype} of shape {labels.shape}.", expected="whole numbers (images,)")
    if "class_names" in found:
        return int64_labels(labels, "Labels"), tuple(str(name) for name in found["class_names"].tolist())
    values, numbers = np.unique(labels, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(value) for value in values)


def read_npz(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Return the named arrays of an ``.npz`` file; object arrays are refused, because reading them could run code.

    Raises:
        DataError: The file is missing or damaged, or lacks a required array.
    """
    try:
        file = NumpyFile(path)
        if not file.archive:
            raise DataError(f"{path} holds a single array.", expected=f"an .npz with {', '.join(required)}")
        if not set(required) <= set(file.names):
            raise DataError(
                f"{path} holds {', '.join(file.names) or 'nothing'}.",
                expected=f"arrays named {', '.join(required)}",
                to_do=f"numpy.savez('{path.name}', {', '.join(f'{name}=...' for name in required)})",
            )
        return {name: file.array(name) for name in (*required, *optional) if name in file.names}
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.", expected="an .npz file") from error
    except DataError:
        raise
    except NPZ_ERRORS as error:
        raise DataError(
            f"Cannot read {path}: {reason(error)}.",
            to_do="write it again with numpy.savez.",
        ) from error
