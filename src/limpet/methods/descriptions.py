"""Descriptions of methods, read from their source without importing torch."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from limpet.geometry.spaces import SPACES
from limpet.support.source_code import definition_at

_ATTRIBUTES = ("spaces", "needs_old", "sessions_only")
_BASE = "limpet.methods.base:CompatibilityMethod"


class Description(NamedTuple):
    """Description of a method, available without training.

    Args:
        documentation: Its docstring.
        options: Defaults by name.
        needs_old: Whether training refuses to start without a predecessor.
        sessions_only: Whether it makes sense only in a sequence of sessions.
        spaces: Names of the supported spaces.
    """

    documentation: str
    options: dict[str, Any]
    needs_old: bool
    sessions_only: bool
    spaces: frozenset[str]


def from_class(method: Any) -> Description:
    """Return what the class of a method says."""
    options = {option.name: option.default for option in inspect.signature(method).parameters.values()}
    return Description(
        inspect.cleandoc(method.__doc__ or ""), options, **{name: getattr(method, name) for name in _ATTRIBUTES}
    )


def from_source(place: str) -> Description:
    """Return the description of a method from its source, without importing it.

    Raises:
        ValueError: The source does not state it: a value is no literal, or the class inherits from another method.
        OSError: The source file does not exist.
    """
    own = definition_at(place)
    if not isinstance(own, ast.ClassDef) or [ast.unparse(base) for base in own.bases] != [_BASE.partition(":")[2]]:
        raise ValueError(f"{place} inherits from something else")
    attributes = dict(_attributes(definition_at(_BASE))) | dict(_attributes(own))
    return Description(ast.get_docstring(own) or "", dict(_options(own)), **attributes)


def _attributes(node: ast.ClassDef | ast.FunctionDef) -> Iterator[tuple[str, Any]]:
    for line in node.body:
        if isinstance(line, ast.Assign | ast.AnnAssign):
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            names = (target.id for target in targets if isinstance(target, ast.Name))
            yield from ((name, _value(line.value)) for name in names if name in _ATTRIBUTES)


def _options(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    for line in node.body:
        if isinstance(line, ast.FunctionDef) and line.name == "__init__":
            given = line.args
            names = [option.arg for option in (*given.args[1:], *given.kwonlyargs)]
            yield from zip(names, map(_value, (*given.defaults, *given.kw_defaults)), strict=True)


def _value(node: ast.expr | None) -> Any:
    if isinstance(node, ast.Name) and node.id == "EVERY_SPACE":
        return frozenset(SPACES)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "frozenset":
        return frozenset(ast.literal_eval(node.args[0]))
    return ast.literal_eval(node or ast.Constant(None))
