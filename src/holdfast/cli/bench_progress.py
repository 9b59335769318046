"""What people see while a bench runs, and how long it has worked in all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.console import console
from holdfast.embeddings.storage import write_atomically
from holdfast.errors import DataError

if TYPE_CHECKING:
    from holdfast.bench.pool import Progress

_CLOCK = "worked.json"


class Clock:
    """How long a bench has worked, interruptions left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = _seconds_in(path) if path.exists() else 0.0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds of this run and of those before."""
        return self._before + time.monotonic() - self._started

    def note(self) -> None:
        """Write it down."""
        text = json.dumps({"seconds": round(self.seconds, 1)}) + "\n"
        write_atomically(self._path, lambda part: part.write_text(text, encoding="utf-8"))


def _seconds_in(path: Path) -> float:
    try:
        return float(json.loads(path.read_text(encoding="utf-8"))["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"'{path}' does not say how long this bench has worked: {error}.",
            expected="the file as `holdfast bench` wrote it",
            to_do="remove it; the time is counted from now on, and no cell is lost.",
        ) from error


@contextmanager
def worked_before(folder: Path) -> Iterator[Clock]:
    """Open the clock of a bench; runs that find everything finished do not count."""
    clock = Clock(folder / _CLOCK)
    yield clock


@contextmanager
def cells_progress(title: str) -> Iterator[Callable[[Progress], None]]:
    """Show how many cells are done, and say at once what failed."""
    with console.status(title) as status:

        def show(progress: Progress) -> None:
            done = f"{progress.done} of {progress.total} cells"
            status.update(f"{title}: {done}; {progress.cell.label} took {progress.seconds:.0f} s")
            if progress.failure is not None:
                console.print(f"failed: {progress.cell.label}: {progress.failure}", highlight=False)

        yield show
