"""Which function is which command: its signature says what people can type, its docstring what they read."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

FUNCTIONS = {
    "attach": "attach:start",
    "attach start": "attach:start",
    "attach status": "attach:status",
    "attach backfill": "attach:backfill",
    "attach index": "attach:index",
    "attach swap": "attach:swap",
    "attach rollback": "attach:rollback",
    "attach writes": "attach:writes",
    "attach verify": "attach:verify",
    "attach complete": "attach:complete",
    "attach detach": "attach:detach",
    "attach journal": "attach:journal",
}
"""By command, without those of a gallery: module and function."""

OWN_WORDS = {"gallery": "gallery:main"}
"""Commands that do something with the words before they are options: module and function."""

FIRST = {
    "attach": "url",
    "gallery backup": "dest",
    "gallery restore": "backup",
}
"""The option that words before all options belong to, by command."""

OF_GROUP = {"gallery": "gallery", "attach": "url"}
"""The same of all commands of a group that are not in `FIRST`."""


def first_of(command: str) -> str:
    """Return the option that words before all options belong to; empty where no command has one.

    >>> first_of("attach status"), first_of("gallery search")
    ('url', 'gallery')
    """
    return FIRST.get(command, OF_GROUP.get(command.partition(" ")[0], "") if " " in command else "")


def function_of(command: str) -> Callable[..., Any]:
    """Return the function of a command, such as "gallery search".

    Raises:
        KeyError: There is no such command.
    """
    return _at(all_functions()[command])


def reader_of_words(command: str) -> Callable[[list[str]], int] | None:
    """Return what runs a command that does something with its words first; None for all others."""
    return _at(OWN_WORDS[command]) if command in OWN_WORDS else None


def _at(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"limpet.cli.{module}"), function)
    return found


def all_functions() -> dict[str, str]:
    """Return module and function of every command, those of a gallery too."""
    from limpet.cli.gallery import SUBCOMMANDS

    return FUNCTIONS | {f"gallery {name}": place for name, (place, _) in SUBCOMMANDS.items()}


def below(command: str) -> list[str]:
    """Return the last words of the commands that begin with the words of another one.

    >>> below("attach")[:2], below("completion")
    (['start', 'status'], [])
    """
    return [name.removeprefix(f"{command} ") for name in all_functions() if name.startswith(f"{command} ")]
