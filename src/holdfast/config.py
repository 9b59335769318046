"""Validation of settings that people write: files and command lines, bound to the signature they configure."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from pydantic import BaseModel

from holdfast import documents
from holdfast.errors import ConfigError, brief, nearest


class Options:
    """Options that several commands share: a frozen dataclass, which a command takes as one argument."""


class Settings(str):
    """All settings of a command as YAML text, every default resolved, for commands that take it; no option."""


def known_options(target: Callable[..., Any], prefix: str = "") -> dict[str, Any]:
    """Return every option of a signature with its type, nested settings by dotted names, those of groups as its own.

    An option of a mapping type takes any names below it; whoever receives the mapping checks those.

    >>> def run(seed: int, extra: dict[str, int]) -> None: ...
    >>> list(known_options(run))
    ['seed', 'extra']
    """
    hints = get_type_hints(target if not inspect.isclass(target) else target.__init__)
    if inspect.isclass(target) and (dataclasses.is_dataclass(target) or issubclass(target, BaseModel)):
        hints = get_type_hints(target)
    options: dict[str, Any] = {}
    for name in inspect.signature(target).parameters:
        kind = hints.get(name, Any)
        if inspect.isclass(kind) and issubclass(kind, Options):
            options |= known_options(kind, prefix)
            continue
        if kind is Settings:
            continue
        options[prefix + name] = kind
        if inspect.isclass(kind) and (dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel)):
            options |= known_options(kind, f"{prefix}{name}.")
    return options


def refuse_unknown(given: Iterable[str], known: Mapping[str, Any], where: str, dashes: str = "") -> None:
    """Refuse the first option that no signature has, and suggest the nearest one.

    Args:
        given: Dotted names.
        known: What `known_options` returned.
        where: Where the names were written, for the message.
        dashes: What people write before a name there, such as ``--``.

    Raises:
        ConfigError: A name is unknown.
    """
    for name in given:
        if name in known or _inside_mapping(name, known):
            continue
        level = name.rpartition(".")[0]
        siblings = [option for option in known if option.rpartition(".")[0] == level] or list(known)
        raise ConfigError(
            f"Unknown option '{dashes}{name}' {where}.{nearest(dashes + name, [dashes + option for option in known])}",
            expected=f"one of {', '.join(dashes + option for option in siblings)}",
            to_do="correct or remove it; nothing was started.",
        )


def _inside_mapping(name: str, known: Mapping[str, Any]) -> bool:
    parts = name.split(".")
    parents = (".".join(parts[:length]) for length in range(1, len(parts)))
    return any(get_origin(known.get(parent)) in (dict, Mapping) for parent in parents)


def read_yaml(path: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """Read a file of settings and refuse names that are not options.

    Raises:
        ConfigError: The file cannot be read, is no YAML mapping, has a key twice or an unknown name.
    """
    content = documents.read_yaml(path, "a YAML mapping of settings, such as 'method: bct'")
    for name, value in leaves(content, known):
        refuse_unknown([name], known, f"in '{path}'")
        if any(option.startswith(f"{name}.") for option in known):
            raise ConfigError(
                f"'{name}' in '{path}' is {brief(value)}.",
                expected=f"settings of their own below it, such as {name}: {{...}}",
            )
    return content


def leaves(content: Mapping[Any, Any], known: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every setting; a mapping that is one option stays whole.

    >>> list(leaves({"recipe": {"epochs": 3}}, {"recipe": object, "recipe.epochs": int}))
    [('recipe.epochs', 3)]
    """
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and any(option.startswith(f"{name}.") for option in known):
            yield from leaves(value, known, f"{name}.")
        else:
            yield name, value
