"""What is finished: a folder per cell, by its content address."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.bench.cells import Cell
from holdfast.embeddings.storage import write_atomically
from holdfast.errors import DataError

RECORD, FAILURE = "cell.json", "failure.json"
RECORDED = ("address", "kind", "settings", "work", "seconds", "machine", "values")


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
                f"The folder '{self.folder(cell)}' is of another cell, {found['address'][:24]}.",
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

    def fail(self, cell: Cell, reason: str) -> None:
        """Note why a cell failed."""
        self._write(self.folder(cell) / FAILURE, {"address": cell.address, "label": cell.label, "reason": reason})

    def forget_failures(self) -> int:
        """Let all failed cells be run again; return how many there were."""
        found = list(self.root.glob(f"*/*/{FAILURE}"))
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
        except (OSError, ValueError, TypeError) as error:
            raise DataError(
                f"Cannot read '{path}': {error}.",
                expected="a record as the bench wrote it",
                to_do=f"remove the folder '{path.parent}'; the cell will be run again.",
            ) from error

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=1, sort_keys=True) + "\n"
        write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))
