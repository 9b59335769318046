"""The command line of the bench: `limpet-bench`."""

from __future__ import annotations

from collections.abc import Sequence

from limpet.cli import run_program
from limpet.cli.toolkit import Program

BENCH = Program(
    "limpet-bench",
    "Compare compatibility methods over data sets, scenarios and seeds.",
    "limpet_bench.cli",
    {
        "run": ("bench:run", "Run a suite and write its leaderboard."),
        "plan": ("bench:plan", "List the steps that a suite would run, and estimate how long they take."),
        "suites": ("bench:suites", "List the built-in suites."),
        "sessions": ("sessions:sessions", "Train incrementally over sessions of data; each gallery is embedded once."),
    },
    table="bench",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 success, 1 a step failed, 2 wrong use or bad input."""
    return run_program(BENCH, arguments)
