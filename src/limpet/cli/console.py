"""What people see while a command runs; results for machines go to standard output, everything else beside it."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.table import Table
from rich.text import Text

from limpet.errors import ConfigError, LimpetError, printable
from limpet.reports.formats import plain_text
from limpet.support.progress import Bar, RichBar

if TYPE_CHECKING:
    from rich.progress import Task

    from limpet.models.long_texts import LongTextsRecord
    from limpet.support.source_code import Standing

FIRST = os.environ.get("LOCAL_RANK", "0") == "0"  # of several training processes, one talks


EVERY = 30.0
"""Seconds between two lines of progress in a log."""


class _Work(NamedTuple):
    """Something that may take long.

    Args:
        name: What is done.
        started: When it began.
        state: Says how far it is; nothing where that is not known.
    """

    name: str
    started: float
    state: Callable[[], str]


_under_way: list[_Work] = []


@contextmanager
def at_work(name: str, state: Callable[[], str] = str) -> Iterator[None]:
    """Name what is done meanwhile, for those who read a log; an empty name says that it speaks for itself."""
    work = _Work(name, time.monotonic(), state)
    _under_way.append(work)
    try:
        yield
    finally:
        _under_way.remove(work)


@contextmanager
def heartbeat(name: str) -> Iterator[None]:
    """Write a line every half minute that says what goes on, where standard error is no terminal.

    Args:
        name: What to say where nothing says it more exactly, see `at_work`.
    """
    if console.is_terminal:
        yield
        return
    with at_work(name), repeated(_tell_of_work, EVERY):
        yield


def _tell_of_work() -> None:
    for work in _under_way[-1:]:
        if work.name:
            state = work.state()
            took = in_words(time.monotonic() - work.started)
            console.print(f"{work.name}, {took}{f': {state}' if state else ''}")


@contextmanager
def repeated(action: Callable[[], None], every: float) -> Iterator[None]:
    """Call a function every `every` seconds in a thread while a block runs."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every):
            action()

    beside = threading.Thread(target=repeat, daemon=True)
    beside.start()
    try:
        yield
    finally:
        ended.set()
        beside.join()


def in_words(seconds: float) -> str:
    """Write a time.

    >>> in_words(42), in_words(60), in_words(200), in_words(9000)
    ('42 seconds', '1 minute', '3 minutes', '2.5 hours')
    """
    if seconds < 60:
        return f"{seconds:.0f} second{'' if round(seconds) == 1 else 's'}"
    if seconds < 3600:
        minutes = round(seconds / 60)
        return f"{minutes} minute{'' if minutes == 1 else 's'}"
    return f"{seconds / 3600:.1f} hours"


class _Status(Status):
    """A spinner that also writes to the log."""

    def __enter__(self) -> Status:
        self._work = at_work(str(self.status))
        self._work.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._work.__exit__(*error)


class _Screen(Console):
    """Where people read: nothing that is printed steers their terminal, whatever ids and names hold."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render texts, tables and progress; what Rich itself sends to the terminal is in segments of its own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text, keep="\n"))

    def status(self, status: RenderableType, **options: Any) -> Status:
        """Show that something is done, see `rich.console.Console.status`."""
        return _Status(status, console=self, **options)


console = _Screen(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True, quiet=not FIRST)
logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # its greetings say nothing about the run
logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
WIDE = 140  # columns of a table that goes to a file


JSON = True
"""Whether `print_json` prints: where ``--json`` was given."""

AT_END: list[Callable[[], LongTextsRecord | None]] = []
"""What every text model of a command did not read whole; None where that is nothing."""


def long_texts() -> list[LongTextsRecord]:
    """Return what the text models of a command have not read whole so far."""
    return [found for told in AT_END if (found := told()) is not None]


def tell_at_end() -> None:
    """Print what the text models of a command did not read whole, and forget it."""
    for found in long_texts():
        console.print(found.sentence)
    AT_END.clear()


def as_json() -> bool:
    """Return whether ``--json`` was given."""
    return JSON


def exit_code(passed: bool, *, told: bool) -> int:
    """Return 0 for a verdict that passed, 1 for one that failed, and 3 where it cannot be told.

    >>> exit_code(True, told=True), exit_code(False, told=True), exit_code(False, told=False)
    (0, 1, 3)
    """
    return 3 if not told else 0 if passed else 1


def print_json(document: Mapping[str, object]) -> None:
    """Write the one JSON document of a command to standard output, where ``--json`` asked for it."""
    if not FIRST or not JSON:
        return
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def print_error(command: str, error: LimpetError, *, as_json: bool, program: str = "limpet") -> None:
    """Write an error for people, and for machines if they asked for JSON."""
    console.quiet = not FIRST  # whatever --quiet said
    console.print(Text.assemble((printable(f"{program} {command}: "), "bold red"), printable(error.given)))
    if error.expected:
        console.print(Text.assemble(("Expected: ", "bold"), printable(error.expected)))
    if error.to_do:
        console.print(Text.assemble(("Next: ", "bold"), printable(error.to_do)))
    intact = error.intact or "Nothing was changed." * isinstance(error, ConfigError)  # which comes before any work
    if intact:
        console.print(printable(intact))
    if as_json:
        print_json(
            {"error": {"type": type(error).__name__, "given": error.given, "expected": error.expected,
                       "to_do": error.to_do, "intact": intact}}
        )  # fmt: skip


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table for people: text to the left, numbers to the right; turned on its side where it is too wide."""
    title, columns = printable(title), [printable(plain_text(column)) for column in columns]
    rows = [[printable(name), *(printable(plain_text(cell)) for cell in cells)] for name, *cells in rows]
    width = console.width if console.is_terminal else WIDE
    console.width = width
    needed = sum(max(map(len, cells)) + 2 for cells in zip(columns, *rows, strict=True))
    if len(rows) < len(columns) - 1 and needed > width:
        columns, *rows = (list(line) for line in zip(columns, *rows, strict=True))
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    for position, column in enumerate(columns):
        cells = [row[position] for row in rows]
        numeric = bool(cells) and all(cell[:1] in "+-0123456789.–" for cell in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


@contextmanager
def progress_bar(name: str, total: float | None = None, *, unit: str = "items") -> Iterator[Bar]:
    """Show a bar where people read, and tell a log; yields what takes the events, see `limpet.support.progress.Told`.

    Args:
        name: What is done.
        total: Of all, where it is known before.
        unit: What is counted.
    """
    terminal = console.is_terminal
    bar = RichBar(name, unit, total=total, console=console, transient=True, disable=not terminal)
    with at_work(name, lambda: bar_words(bar.task)), bar:
        yield bar


def bar_words(task: Task) -> str:
    """Write what a bar shows: how much is done, what else is known, and the time left at the rate so far."""
    done, total, elapsed = task.completed, task.total, task.elapsed or 0.0
    counted = "" if not done else f"{done:,.0f}" if total is None else f"{done:,.0f} of {total:,.0f}"
    left = "" if not done or total is None or done >= total else f"{in_words(elapsed * (total - done) / done)} left"
    return ", ".join(part for part in (counted, *map(str, task.fields.values()), left) if part)


@contextmanager
def training_progress(name: str) -> Iterator[Bar]:
    """Show epochs, loss terms and items per second of one run or several, and print how long it took."""
    started = time.monotonic()
    with progress_bar(name) as bar:
        yield bar
    console.print(Text.assemble((name, "bold"), f"  {time.monotonic() - started:.1f} s"))


@contextmanager
def counting_progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many items are done; yields a function that takes the number of finished items."""
    done = 0
    with progress_bar(name, total) as bar:

        def count(finished: int) -> None:
            nonlocal done
            done += finished
            bar({"done": done, "total": total})

        yield count


OTHER_CODE = "made by other code than that of today"
"""What is said of what the installed code did not make."""


def tell_kept(standings: Mapping[Path, Standing]) -> None:
    """Print which folders other code made, and how to make them again.

    Args:
        standings: Which code made what is in a folder.
    """
    others = [folder for folder, found in standings.items() if found != "same"]
    if others:
        console.print(f"Kept as it was, {OTHER_CODE}: {', '.join(map(str, others))}.")
        console.print(
            "Next: the same command with --again makes that anew; what is there stays, as "
            f"{others[0].name}.before-1 or the like."
        )
