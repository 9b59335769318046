"""Reading NumPy archives without trusting them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings.imports import NPZ_ERRORS
from holdfast.errors import DataError


def read_npz(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Return the named arrays of an ``.npz`` file; objects are refused, because reading them could run code.

    Raises:
        DataError: The file is missing or damaged, or lacks a required array.
    """
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError(f"{path} holds a single array.", expected=f"an .npz with {', '.join(required)}")
            return _named(archive, path, required, optional)
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.", expected="an .npz file") from error
    except DataError:
        raise
    except NPZ_ERRORS as error:
        raise DataError(
            f"Cannot read {path}: {error or type(error).__name__}.",
            expected="an .npz file of plain arrays, without Python objects",
            to_do="write it again with numpy.savez.",
        ) from error


def _named(
    archive: Mapping[str, NDArray[Any]], path: Path, required: Sequence[str], optional: Sequence[str]
) -> dict[str, NDArray[Any]]:
    if not set(required) <= set(archive):
        raise DataError(
            f"{path} holds {', '.join(archive) or 'nothing'}.",
            expected=f"arrays named {', '.join(required)}",
            to_do=f"numpy.savez('{path.name}', {', '.join(f'{name}=...' for name in required)})",
        )
    return {name: np.asarray(archive[name]) for name in (*required, *optional) if name in archive}
