"""Which options a command has."""

from __future__ import annotations

from limpet.cli import app
from limpet.cli.commands import all_functions, function_of
from limpet.cli.config import known_options


def commands() -> list[str]:
    """Return all commands, those that Cyclopts reads and others."""
    return list(dict.fromkeys([*app.COMMANDS, *all_functions()]))


def option_names(command: str) -> set[str]:
    """Return the names of a command's options, as Python writes them."""
    if command in app.COMMANDS:
        return {name.removeprefix("--").replace("-", "_") for name in app.options_of(command)}
    return set(known_options(function_of(command)))
