"""What is finished: a folder per cell, by its content address."""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.bench.cells import Cell, in_order
from holdfast.embeddings.storage import write_atomically
from holdfast.errors import DataError

RECORD, FAILURE, LOCKS = "cell.json", "failure.json", ".locks"
RECORDED = ("address", "kind", "settings", "work", "seconds", "machine", "values")
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of a file system that knows none: nobody is kept out


class CellCache:
    """A folder of cells that suites share.

    A cell's folder holds what it made and, written last, its record; without the record it is unfinished, and whoever
    runs it again finds there what it had, such as a checkpoint.

    Args:
        root: The folder; made when first written to.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, cell: Cell) -> Path:
        """Return where a cell's products are or will be."""
        return self.root / cell.kind / cell.address[:24]

    def record(self, cell: Cell) -> dict[str, Any] | None:
        """Return the record of a finished cell: "values", "seconds" and what it is; None if it is not finished."""
        found = self._read(self.folder(cell) / RECORD, *RECORDED)
        if found is not None and found["address"] != cell.address:
            raise DataError(
                f"The folder '{self.folder(cell)}' is of another step, {found['address'][:24]}.",
                expected="folders as the bench made them",
                to_do="remove it; it will be made again.",
            )
        return found

    def failure(self, cell: Cell) -> str | None:
        """Return why a cell failed when it was last run; None if it did not."""
        found = self._read(self.folder(cell) / FAILURE, "reason")
        return None if found is None else str(found["reason"])

    def finish(self, cell: Cell, values: Mapping[str, Any], seconds: float, machine: str = "") -> None:
        """Mark a cell as finished."""
        record = {
            "address": cell.address,
            **cell.identity(),
            "label": cell.label,
            "work": cell.work,
            "seconds": round(seconds, 3),
            "machine": machine,
            "values": dict(values),
        }
        self._write(self.folder(cell) / RECORD, record)
        (self.folder(cell) / FAILURE).unlink(missing_ok=True)

    def fail(self, cell: Cell, reason: str, traceback: str = "") -> None:
        """Note why a cell failed.

        Args:
            cell: The cell.
            reason: One line for boards.
            traceback: Where in the code, for whoever looks into it.
        """
        content = {"address": cell.address, "label": cell.label, "reason": reason, "traceback": traceback}
        self._write(self.folder(cell) / FAILURE, content)

    @contextmanager
    def held(self, cell: Cell) -> Iterator[None]:
        """Keep all other processes out of the folder of a cell: two benches may share a cache.

        It waits while another process holds the cell, and the hold ends with its process, however that dies. Whoever
        has waited looks again whether the cell is finished.

        Raises:
            DataError: The folder cannot be made or written.
        """
        path = self._lock(cell)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = path.open("ab")
        except OSError as error:
            raise _out_of_reach("write", path, error) from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise _out_of_reach("lock", path, error) from error
            try:
                yield
            finally:  # closing is not enough: a process that this one forked may have the file open still
                with suppress(OSError):
                    fcntl.flock(handle, fcntl.LOCK_UN)

    def is_held(self, cell: Cell) -> bool:
        """Return whether another process, or another part of this one, holds the folder of a cell now."""
        try:
            with self._lock(cell).open("rb") as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # nobody has begun it, or nobody can
            return False
        return False

    def _lock(self, cell: Cell) -> Path:
        """Return the file that is locked: not in the folder of the cell, which people may remove to run it again."""
        return self.root / LOCKS / f"{cell.kind}-{cell.address[:24]}"

    def forget_failures(self, cells: Iterable[Cell]) -> int:
        """Let those of these cells, and of all that they need, that failed be run again; return how many there were.

        Failures of other cells stay: suites share a cache, and to know that a training fails may have taken hours.
        """
        found = [path for cell in in_order(cells) if (path := self.folder(cell) / FAILURE).exists()]
        for path in found:
            path.unlink(missing_ok=True)
        return len(found)

    def remove(self, cell: Cell) -> None:
        """Forget a cell and what it made."""
        shutil.rmtree(self.folder(cell), ignore_errors=True)

    def records(self) -> list[dict[str, Any]]:
        """Return the records of all finished cells, of whatever suite, for estimates."""
        found = (self._read(path, *RECORDED) for path in sorted(self.root.glob(f"*/*/{RECORD}")))
        return [record for record in found if record is not None]

    def _read(self, path: Path, *names: str) -> dict[str, Any] | None:
        try:
            found = dict(json.loads(path.read_text(encoding="utf-8")))
            if not found.keys() >= set(names):
                raise ValueError(f"it does not hold {', '.join(names)}")
            return found
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _out_of_reach("read", path, error) from error
        except (ValueError, TypeError) as error:
            raise DataError(
                f"Cannot read '{path}': {error}.",
                expected="a record as the bench wrote it",
                to_do=f"remove the folder '{path.parent}'; the step will be run again.",
            ) from error

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=1, sort_keys=True) + "\n"
        write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def _out_of_reach(what: str, path: Path, error: OSError) -> DataError:
    return DataError(
        f"Cannot {what} '{path}': {error.strerror or error}.",
        expected="a folder of finished steps that can be read and written, with room for what they make",
        to_do="make it so, or choose another: --cache FOLDER; steps that are finished are kept.",
    )
