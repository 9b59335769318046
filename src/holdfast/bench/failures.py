"""Why a step of a bench failed, in words for its board."""

from __future__ import annotations

import errno
import os
import traceback
from pathlib import Path

from holdfast.bench.cache import CellCache
from holdfast.bench.cells import Cell
from holdfast.errors import DataError, HoldfastError


def reason_of(error: Exception) -> str:
    """Return why a cell failed on one line: all that holdfast says, or what another error says first, and where."""
    if isinstance(error, HoldfastError):
        return " ".join(_sentence(line) for line in str(error).splitlines() if line.strip()) or type(error).__name__
    first = next(iter(str(error).splitlines()), "no word on why")
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {first} ({Path(last.filename).name}:{last.lineno})"


def _sentence(line: str) -> str:
    """Return a line with a full stop, so that another can follow it.

    >>> _sentence("Expected: at least 1"), _sentence("It is 0. ")
    ('Expected: at least 1.', 'It is 0.')
    """
    text = line.strip()
    return text if text.endswith((".", "!", "?", ":", ";", ",")) else f"{text}."


def refuse_full_disk(error: BaseException, cell: Cell, cache: CellCache) -> None:
    """Stop where there is no room left: it is no fault of the cell, which would count as failed from now on."""
    cause: BaseException | None = error
    while cause is not None:
        full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or os.strerror(errno.ENOSPC) in str(cause):  # packages that write by other means say it in words
            raise DataError(
                f"There is no room left for '{cell.label or cell.kind}' in '{cache.folder(cell)}'.",
                expected="space for models and embeddings",
                to_do="free some, and type the same command again; finished steps are kept.",
            ) from error
        cause = cause.__cause__ or cause.__context__
