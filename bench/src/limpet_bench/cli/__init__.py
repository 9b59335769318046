"""The command line of the bench: `limpet-bench`."""

from __future__ import annotations

from collections.abc import Sequence

from limpet.cli import run_program

ABOUT = "Compare compatibility methods over data sets, scenarios and seeds."
COMMANDS = {
    "run": ("bench:run", "Run a suite and write its leaderboard."),
    "plan": ("bench:plan", "List the steps that a suite would run, and estimate how long they take."),
    "suites": ("bench:suites", "List the built-in suites."),
    "sessions": ("sessions:sessions", "Train incrementally over sessions of data; each gallery is embedded once."),
}
"""By what people type: module and function, and what the help says about it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 success, 1 a step failed, 2 wrong use or bad input."""
    summaries = {name: said for name, (_, said) in COMMANDS.items()}
    return run_program("limpet-bench", ABOUT, summaries, _run_command, arguments)


def _run_command(words: list[str]) -> int:
    from limpet.cli.toolkit import Program, run_command

    return run_command(words, Program("limpet-bench", ABOUT, "limpet_bench.cli", COMMANDS, table="bench"))
