"""Reading NumPy archives without trusting them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from holdfast.embeddings.imports import NPZ_ERRORS
from holdfast.embeddings.numpy_files import NumpyFile
from holdfast.errors import DataError, reason


def read_npz(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Return the named arrays of an ``.npz`` file; objects are refused, because reading them could run code.

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
            expected="an .npz file of plain arrays, without Python objects",
            to_do="write it again with numpy.savez.",
        ) from error
