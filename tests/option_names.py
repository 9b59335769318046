"""Which options a command has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limpet.cli import app
from limpet.cli.program import COMMANDS


def commands() -> list[str]:
    """Return all commands."""
    return list(COMMANDS)


def option_names(command: str) -> set[str]:
    """Return the names of a command's options, as Python writes them."""
    return {name.removeprefix("--").replace("-", "_") for name in app.options_of(command)}


def parsed(command: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments that a command is called with for some words."""
    typed = [*command.split(), *words]
    function, bound, _ = app.app_for(command).parse_args(typed, exit_on_error=False, print_error=False)
    assert function is app.function_of(command)
    bound.apply_defaults()
    return dict(bound.arguments)
