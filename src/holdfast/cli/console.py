"""What people see while a command runs; results for machines go to standard output, everything else beside it."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from holdfast.errors import HoldfastError, printable

FIRST = os.environ.get("LOCAL_RANK", "0") == "0"  # of several training processes, one talks


class _Screen(Console):
    """Where people read: nothing that is printed steers their terminal, whatever ids and names hold."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render texts, tables and progress; what Rich itself sends to the terminal is in segments of its own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text, keep="\n"))


console = _Screen(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True, quiet=not FIRST)
logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # its greetings say nothing about the run
logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
WIDE = 140  # columns of a table that goes to a file


def print_json(document: dict[str, Any]) -> None:
    """Write the one JSON document of a command to standard output."""
    if not FIRST:
        return
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def print_error(command: str, error: HoldfastError, *, as_json: bool) -> None:
    """Write an error for people, and for machines if they asked for JSON."""
    console.print(Text.assemble((printable(f"holdfast {command}: "), "bold red"), printable(error.given)))
    if error.expected:
        console.print(Text.assemble(("Expected: ", "bold"), printable(error.expected)))
    if error.to_do:
        console.print(Text.assemble(("Next: ", "bold"), printable(error.to_do)))
    if as_json:
        print_json(
            {"error": {"type": type(error).__name__, "given": error.given, "expected": error.expected,
                       "to_do": error.to_do}}
        )  # fmt: skip


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table for people: text to the left, numbers to the right; turned on its side where it is too wide."""
    title, columns, rows = printable(title), [*map(printable, columns)], [[*map(printable, row)] for row in rows]
    width = console.width if console.is_terminal else WIDE
    console.width = width
    if len(rows) < len(columns) - 1 and _width(columns, rows) > width:
        columns, *rows = (list(line) for line in zip(columns, *rows, strict=True))
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    for position, column in enumerate(columns):
        cells = [row[position] for row in rows]
        numeric = bool(cells) and all(cell[:1] in "+-0123456789.–" for cell in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, cells)) + 2 for cells in zip(columns, *rows, strict=True))


def _progress(*columns: Any) -> Progress:
    return Progress(
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(bar_width=24),
        *columns,
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


@contextmanager
def training_progress(name: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show epochs, loss terms and images per second of one run; yields what `fit` tells its events to."""
    started, images = time.monotonic(), 0
    with _progress(TextColumn("{task.fields[state]}", markup=False)) as progress:
        task = progress.add_task(name, total=None, state="")
        shown = 0.0

        def on_step(event: dict[str, Any]) -> None:
            nonlocal images, shown
            images += event["images"]
            now = time.monotonic()
            if now - shown < 0.25:
                return
            shown = now
            terms = "  ".join(f"{key} {float(value):.3f}" for key, value in event["terms"].items())
            state = f"epoch {event['epoch'] + 1}/{event['epochs']}  {terms}  {images / (now - started):,.0f} images/s"
            done = event["epoch"] * event["steps"] + event["step"] + 1
            progress.update(task, total=event["epochs"] * event["steps"], completed=done, state=state)

        yield on_step
    console.print(Text.assemble((name, "bold"), f"  {time.monotonic() - started:.1f} s"))


@contextmanager
def rate_progress(name: str, total: int | None, *, unit: str = "items") -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show how much is done, how much a second, and the time left.

    Args:
        name: Of the work.
        total: Of all, where it is known before.
        unit: What is counted.

    Yields:
        A function that takes an event with "done" and perhaps "total" and "state", a word or two.
    """
    rate = TextColumn("{task.fields[rate]} {task.fields[state]}", markup=False)
    started = time.monotonic()
    with _progress(MofNCompleteColumn(), rate) as progress:
        task = progress.add_task(name, total=total, rate="", state="")

        def on_step(event: dict[str, Any]) -> None:
            per_second = event["done"] / max(time.monotonic() - started, 1e-3)
            changes = {"total": event["total"]} if "total" in event else {}
            state, rate = event.get("state", ""), f"{per_second:,.0f} {unit}/s"
            progress.update(task, completed=event["done"], rate=rate, state=state, **changes)

        yield on_step


@contextmanager
def counting_progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many items are done; yields a function that takes the number of finished items."""
    with _progress(MofNCompleteColumn()) as progress:
        task = progress.add_task(name, total=total)
        yield lambda count: progress.update(task, advance=count)
