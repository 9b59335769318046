"""Validation of settings that people write: files and command lines, bound to the signature they configure."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel

from limpet.cli.parameters import Options
from limpet.errors import ConfigError, brief, nearest
from limpet.support import documents


class Settings(str):
    """All settings of a command as YAML text, every default resolved, for commands that take it; no option."""

    def resolved(self, **values: object) -> Settings:
        r"""Return the settings with values that were left open and are decided now.

        >>> Settings("data: photos").resolved(head="softmax")
        'data: photos\nhead: softmax\n'
        """
        return Settings(yaml.safe_dump({**yaml.safe_load(self), **values}, sort_keys=False, allow_unicode=True))


class Typed(str):
    """A command as it was typed, for commands that write it down; no option."""


def known_options(target: Callable[..., Any], prefix: str = "") -> dict[str, object]:
    """Return every option of a signature with its type, nested settings by dotted names, those of groups as its own.

    An option of a mapping type takes any names below it; whoever receives the mapping checks those.

    >>> def run(seed: int, extra: dict[str, int]) -> None: ...
    >>> list(known_options(run))
    ['seed', 'extra']
    """
    found: Any = _known_options  # what is asked for has a hash, whatever its annotations say
    return dict(found(target, prefix))


@lru_cache(512)
def _known_options(target: Any, prefix: str) -> dict[str, object]:
    hints = get_type_hints(target if not inspect.isclass(target) else target.__init__)
    if inspect.isclass(target) and (dataclasses.is_dataclass(target) or issubclass(target, BaseModel)):
        hints = get_type_hints(target)
    options: dict[str, object] = {}
    for name in inspect.signature(target).parameters:
        kind = hints.get(name, Any)
        if inspect.isclass(kind) and issubclass(kind, Options):
            options |= known_options(kind, prefix)
            continue
        if kind in (Settings, Typed):
            continue
        options[prefix + name] = kind
        for group in (kind, *optional_groups(kind)):
            if inspect.isclass(group) and (dataclasses.is_dataclass(group) or issubclass(group, BaseModel)):
                options |= known_options(group, f"{prefix}{name}.")
    return options


def optional_groups(kind: Any) -> list[Any]:
    """Return the classes of nested settings that may be left out, such as ``Crop | None``."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    return [one for one in members if dataclasses.is_dataclass(one)] if NoneType in members else []


def refuse_unknown(
    given: Iterable[str], known: Mapping[str, object], where: str, written: Callable[[str], str] = str
) -> None:
    """Refuse the first option that no signature has, and suggest the nearest one.

    Args:
        given: Dotted names.
        known: What `known_options` returned.
        where: Where the names were written, for the message.
        written: How people write a name there, such as `as_typed`.

    Raises:
        ConfigError: A name is unknown.
    """
    for name in given:
        parts = name.split(".")
        parents = (".".join(parts[:length]) for length in range(1, len(parts)))
        if name in known or any(get_origin(known.get(parent)) in (dict, Mapping) for parent in parents):
            continue
        level = name.rpartition(".")[0]
        siblings = [option for option in known if option.rpartition(".")[0] == level] or list(known)
        raise ConfigError(
            f"Unknown option '{written(name)}' {where}.{nearest(written(name), map(written, known))}",
            expected=f"one of {', '.join(map(written, siblings))}",
            to_do="correct or remove it.",
            intact="Nothing was started.",
        )


def read_yaml(path: Path, known: Mapping[str, object]) -> dict[str, object]:
    """Read a file of settings and refuse names that are not options.

    Raises:
        ConfigError: The file cannot be read, is no YAML mapping, has a key twice or an unknown name.
    """
    content = documents.read_yaml(path, "a YAML mapping of settings, such as 'method: bct'")
    for name, value in leaves(content, known):
        refuse_unknown([name], known, f"in '{path}'")
        empty = not value and optional_groups(known.get(name))
        if not empty and any(option.startswith(f"{name}.") for option in known):
            raise ConfigError(
                f"'{name}' in '{path}' is {brief(value)}.",
                expected=f"settings of their own below it, such as {name}: {{...}}",
            )
    return content


def leaves(content: Mapping[Any, Any], known: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every setting; a mapping that is one option stays whole.

    >>> list(leaves({"recipe": {"epochs": 3}}, {"recipe": object, "recipe.epochs": int}))
    [('recipe.epochs', 3)]
    """
    for key, value in content.items():
        name = f"{prefix}{key}"
        whole = not value and optional_groups(known.get(name))
        if isinstance(value, Mapping) and not whole and any(option.startswith(f"{name}.") for option in known):
            yield from leaves(value, known, f"{name}.")
        else:
            yield name, value
