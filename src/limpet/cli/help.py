"""The help of a command: what people type, with dashes, bare flags and defaults, in the groups of its options."""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from limpet.cli.commands import below, function_of
from limpet.cli.parameters import as_typed
from limpet.cli.places import Place

COLUMN = 28
"""Where the descriptions of options begin."""

HIDDEN = ("help", "print_shtab", "print_config")


def help_of(parser: Any, function: Callable[..., Any], command: str, first: str = "") -> str:
    """Return the help of a command.

    Args:
        parser: Its parser, with a group of actions for the command itself and one for each group of options.
        function: The command; its docstring is what the help begins with.
        first: The option that words before all options belong to.
    """
    groups = [(group.title, [one for one in group._group_actions if _is_shown(one)]) for group in parser._action_groups]
    actions = {str(action.dest): action for _, shown in groups for action in shown}
    value = "" if first not in actions else f" {first.replace('_', '-').upper()}"
    inner = " [SUBCOMMAND]" if below(command) else ""
    lines = [f"usage: limpet {command}{inner}{value} [--option value ...]", "", *_wrapped(_about(function))]
    lines += _subcommands(command)
    general: list[Any] = []
    for title, shown in groups:
        if title in ("positional arguments", "options"):
            general += shown
            continue
        if shown:
            own = title == parser_title(function)
            lines += ["", "Options:" if own else f"{title.rstrip('.')}:"]
            for action in shown:
                lines += _option(action)
    lines += ["", "General:", *(line for action in general for line in _option(action))]
    lines += [*_entry("-h, --help", "Print this."), ""]
    if first:
        lines.append(f"Words before all options are {as_typed(first)}.")
    lines.append("Dashes and underscores in names are the same; lists take several words.")
    return "\n".join([*lines, *_examples(examples_of(function))])


def help_of_group(command: str) -> str:
    """Return the help of a command that is nothing without a further word: its subcommands, with an example each."""
    functions = [function_of(f"{command} {name}") for name in below(command)]
    about = inspect.cleandoc(import_module(functions[0].__module__).__doc__ or "").partition(": ")[2]
    lines = [f"usage: limpet {command} SUBCOMMAND [--option value ...]", "", *_wrapped(about[:1].upper() + about[1:])]
    lines += [*_subcommands(command), ""]
    lines.append(f"`limpet {command} SUBCOMMAND --help` lists the options; every one takes --json.")
    return "\n".join([*lines, *_examples([examples_of(function)[0] for function in functions])])


def examples_of(function: Callable[..., Any]) -> list[str]:
    """Return the commands in the examples of a docstring, those on several lines as one.

    >>> def run() -> None:
    ...     '''Run.
    ...
    ...     Examples:
    ...         limpet run --data photos
    ...             --out there
    ...     '''
    >>> examples_of(run)
    ['limpet run --data photos --out there']
    """
    _, _, said = inspect.cleandoc(function.__doc__ or "").partition("\nExamples:\n")
    lines = said.partition("\n\n")[0].splitlines()
    joined = "".join(f"\n{line}" if line.startswith("    limpet ") else f" {line.strip()}" for line in lines)
    return [line.strip() for line in joined.splitlines() if line.strip()]


def _examples(commands: Sequence[str]) -> list[str]:
    return ["", "Examples:", *(f"  {command}" for command in commands)] if commands else []


def _about(function: Callable[..., Any]) -> str:
    """Return what a docstring says before its sections."""
    return re.split(r"\n(?:Args|Raises|Examples):\n", inspect.cleandoc(function.__doc__ or ""))[0].strip()


def _subcommands(command: str) -> list[str]:
    """Return a line for each subcommand with the first sentence about it, if there are any."""
    names = below(command)
    width = max(map(len, names), default=0) + 2
    told = [(name, _about(function_of(f"{command} {name}")).partition("\n")[0].rstrip(".")) for name in names]
    return ["", *(f"  {name:<{width}}{text[:1].lower()}{text[1:]}" for name, text in told)] if told else []


def parser_title(function: Callable[..., Any]) -> str:
    """Return what the parser calls the options of the command itself: the first line of its docstring."""
    return inspect.cleandoc(function.__doc__ or "").splitlines()[0].rstrip(".") if function.__doc__ else ""


def choices_of(hint: Any) -> tuple[str, ...]:
    """Return the words that an option takes, if it takes words out of a few.

    >>> choices_of(Literal["a", "b"] | None), choices_of(int)
    (('a', 'b'), ())
    """
    if get_origin(hint) is Literal:
        return tuple(map(str, get_args(hint)))
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return tuple(member.name for member in hint)
    if get_origin(hint) in (Union, UnionType, list, tuple):
        return tuple(choice for inner in get_args(hint) for choice in choices_of(inner))
    return ()


def _is_shown(action: Any) -> bool:
    """Return whether an option is one that people type; files of nested options are given by --config."""
    return (
        bool(action.option_strings)
        and action.dest.rpartition(".")[2] not in HIDDEN
        and type(action).__name__ != "_ActionConfigLoad"
    )


def _option(action: Any) -> Iterator[str]:
    hint = getattr(action, "_typehint", None) or action.type
    name, value = as_typed(action.dest), _value_of(hint, action.dest)
    if get_origin(hint) is dict:
        name, value = f"{name}.OPTION", "VALUE"
    default = "required" if action.required else _default(action.default)
    described = " ".join((action.help or "").replace("%%", "%").split())
    return iter(_entry(f"{name} {value}".rstrip(), f"{described}{f' ({default})' if default else ''}"))


def _entry(left: str, right: str) -> list[str]:
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)
    said = textwrap.wrap(right, max(40, width - COLUMN)) or [""]
    if len(left) + 4 > COLUMN:
        return [f"  {left}", *(" " * COLUMN + line for line in said)]
    return [f"  {left:<{COLUMN - 2}}{said[0]}", *(" " * COLUMN + line for line in said[1:])]


def _wrapped(text: str) -> list[str]:
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    return "\n\n".join("\n".join(textwrap.wrap(paragraph, width)) for paragraph in paragraphs).split("\n")


def _value_of(hint: Any, name: str) -> str:
    """Return what people write for a value of a type.

    >>> _value_of(bool, "json"), _value_of(list[Path], "release"), _value_of(Literal["a", "b"] | None, "curve")
    ('', 'PATH ...', 'a|b')
    """
    choices = choices_of(hint)
    several = " ..." if get_origin(hint) in (list, tuple) else ""
    if choices:
        return "|".join(choices) + several
    if hint is bool or _only(hint) is bool:
        return ""
    inner = _only(get_args(hint)[0] if several else hint)
    kinds = {Path: "PATH", Place: "PATH_OR_URL", int: "NUMBER", float: "NUMBER"}
    return kinds.get(inner, re.split(r"[._]", name)[-1].upper()) + several


def _only(hint: Any) -> Any:
    """Return the one type of an option that may also be left out."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        return kinds[0] if len(kinds) == 1 else hint
    return hint


def _default(value: Any) -> str:
    """Return the default as people write it; nothing where it says nothing."""
    if value is None or value is False or value in ("", [], {}, ()) or str(value) == "==SUPPRESS==":
        return ""
    if isinstance(value, list | tuple):
        return f"default: {' '.join(map(str, value))}"
    return f"default: {str(value).lower() if isinstance(value, bool) else value}"
