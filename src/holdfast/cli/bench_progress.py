"""What people see while a bench runs, and how long it has worked in all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.console import EVERY, at_work, console, in_words, repeated
from holdfast.embeddings.storage import write_atomically
from holdfast.errors import DataError

if TYPE_CHECKING:
    from holdfast.bench.executor import Progress

_CLOCK = "worked.json"
ON_A_TERMINAL = 1.0
SHOWN = 2  # running steps that are named


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
            to_do="remove it; the time is counted from now on, and no step is lost.",
        ) from error


@contextmanager
def worked_before(folder: Path) -> Iterator[Clock]:
    """Open the clock of a bench; runs that find everything finished do not count."""
    clock = Clock(folder / _CLOCK)
    yield clock


@contextmanager
def steps_progress(title: str, every: float = EVERY) -> Iterator[Callable[[Progress], None]]:
    """Show how many steps are done and which run now, and say at once what failed.

    Where standard error is no terminal, that is a line at the beginning, one every so many seconds, and one at the end.

    Args:
        title: Of the suite.
        every: Seconds between lines.
    """
    started = time.monotonic()
    last: Progress | None = None

    def words() -> str:
        return f"{title}: {progress_words(last, time.monotonic() - started)}"

    def tell(progress: Progress) -> None:
        nonlocal last
        begins, last = last is None, progress
        if begins or console.is_terminal:
            show(words())
        if progress.task is not None and progress.failure is not None:
            console.print(f"failed: {progress.task.label}: {progress.failure}", highlight=False)

    try:
        often = ON_A_TERMINAL if console.is_terminal else every
        with _display(title) as show, at_work(""), repeated(lambda: show(words()), often):
            yield tell
    finally:
        if last is not None:
            _line(words())


def progress_words(progress: Progress | None, seconds: float) -> str:
    """Write how far a bench is.

    >>> from holdfast.bench.tasks import Task
    >>> from holdfast.bench.executor import Progress
    >>> tasks = tuple(Task("train", {}, label=name) for name in ("bct (omniglot)", "p2s (omniglot)", "lce (omniglot)"))
    >>> progress_words(Progress(None, 12, 250, running=tasks[:1]), 180), progress_words(None, 90)
    ('12 of 250 steps, 3 minutes: bct (omniglot)', 'reading data, 2 minutes')
    >>> progress_words(Progress(None, 0, 10, running=tasks), 0)
    '0 of 10 steps, 0 seconds: bct (omniglot); p2s (omniglot) and 1 more'
    """
    if progress is None:
        return f"reading data, {in_words(seconds)}"
    names = [task.label or task.kind for task in progress.running]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    now = f": {'; '.join(names[:SHOWN])}{more}" if names else ""
    return f"{progress.done} of {progress.total} steps, {in_words(seconds)}{now}"


@contextmanager
def _display(title: str) -> Iterator[Callable[[str], None]]:
    """Yield what shows words: in one place of a terminal, else on lines."""
    if not console.is_terminal:
        yield _line
        return
    with console.status(title) as status:
        yield status.update


def _line(words: str) -> None:
    console.print(words, highlight=False)
