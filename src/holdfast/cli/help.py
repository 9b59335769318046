"""The help of a command: what people type, with dashes, bare flags and defaults, in the groups of its options."""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

COLUMN = 28
"""Where the descriptions of options begin."""

HIDDEN = ("help", "print_shtab", "print_config")


def help_of(parser: Any, function: Callable[..., Any], command: str, first: str = "") -> str:
    """Return the help of a command.

    Args:
        parser: Its parser, with a group of actions for the command itself and one for each group of options.
        function: The command; its docstring is what the help begins with.
        command: Its name.
        first: The option that words before all options belong to.
    """
    about = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:")[0].partition("\nRaises:")[0].strip()
    groups = [(group.title, [one for one in group._group_actions if _is_shown(one)]) for group in parser._action_groups]
    actions = {_name(action): action for _, shown in groups for action in shown}
    value = "" if first not in actions else f" {first.replace('_', '-').upper()}"
    lines = [f"usage: holdfast {command}{value} [--option value ...]", "", *_wrapped(about)]
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
        lines.append(f"Words before all options are --{first.replace('_', '-')}.")
    return "\n".join([*lines, "Dashes and underscores in names are the same; lists take several words."])


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
    return bool(action.option_strings) and action.dest not in HIDDEN and type(action).__name__ != "_ActionConfigLoad"


def _name(action: Any) -> str:
    return str(action.dest)


def _option(action: Any) -> Iterator[str]:
    hint = getattr(action, "_typehint", None) or action.type
    name, value = f"--{action.dest.replace('_', '-')}", _value_of(hint, action.dest)
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
    kinds = {Path: "PATH", int: "NUMBER", float: "NUMBER"}
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
