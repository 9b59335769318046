"""Safe parsing of untrusted JSON and YAML to plain values."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from yaml.composer import Composer

from limpet.errors import ConfigError, brief
from limpet.support.disk import read_text

DEPTH_LIMIT = 50
"""Maximum nesting depth of a YAML document."""
VALUE_LIMIT = 100_000
"""Maximum number of values of a YAML document, with repetitions by aliases."""
SIZE_LIMIT = 2**20
"""Maximum characters of a YAML document; parsing takes seconds per megabyte."""

_MERGE = "tag:yaml.org,2002:merge"
_PYTHON_ERRORS = (ValueError, LookupError, AttributeError, TypeError, OverflowError)
"""Exceptions of PyYAML constructors for invalid scalars."""


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The text is not JSON, or contains NaN or a number outside 64 bits; the message tells which.
    """
    return parsed_json(read_text(path))


def parsed_json(text: str | bytes) -> Any:
    """Return the contents of a JSON document.

    Raises:
        ValueError: The text is not JSON, or contains NaN or a number outside 64 bits; the message tells which.

    >>> parsed_json('{"k": 5}')
    {'k': 5}
    >>> parsed_json("1e999")
    Traceback (most recent call last):
    ...
    ValueError: 1e999 is no number of 64 bits
    """
    try:
        return json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _whole(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**64:
        raise ValueError(f"{_cut(text)} is no number of 64 bits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{_cut(text)} is no number of 64 bits")
    return number


def _cut(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:20]}..."


def read_yaml(path: Path, expected: str) -> dict[Any, Any]:
    """Read a YAML file that holds a mapping.

    Args:
        path: The file.
        expected: What it should be, for messages.

    Raises:
        ConfigError: The file cannot be read, is not YAML, not a mapping, too large or too deep, or repeats a key.
    """
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise ConfigError(f"'{path}' has {path.stat().st_size:,} bytes.", expected=f"{expected}, of at most 1 MiB")
        text = read_text(path)
    except OSError as error:
        raise ConfigError(f"Cannot read '{path}': {error.strerror}.", expected=expected) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is no text in UTF-8.", expected=expected) from error
    content = parsed_yaml(text, f"'{path}'", expected)
    if not isinstance(content, dict):
        raise ConfigError(f"'{path}' holds {type(content).__name__}.", expected=expected)
    return content


def parsed_yaml(text: str, where: str, expected: str) -> Any:
    """Return the contents of a YAML document as plain values; duplicate keys are refused.

    Raises:
        ConfigError: The document is not YAML, too large or too deep, or repeats a key.
    """
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _Walk(where).over(node, (), ())
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise _no_yaml(where, error.problem or error.context or "", error.problem_mark, expected) from error
    except yaml.YAMLError as error:
        raise _no_yaml(where, str(error).splitlines()[0], None, expected) from error
    except RecursionError as error:
        raise _too_much(where) from error


def _no_yaml(where: str, problem: str, mark: yaml.Mark | None, expected: str) -> ConfigError:
    place = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
    return ConfigError(f"{where} is no valid YAML{place}: {problem}.", expected=expected)


if TYPE_CHECKING or not yaml.__with_libyaml__:
    _Base = yaml.SafeLoader
else:

    class _Base(Composer, yaml.CSafeLoader):
        """libyaml reads what is written, in a fraction of the time, and Python puts it together.

        libyaml's own way of that ends the process where values are in one another without end.
        """

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            Composer.__init__(self)


class _Loader(_Base):
    """Loader of plain values whose errors give the position of an invalid value."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except _PYTHON_ERRORS as error:
            raise _wrong(node, node.tag.rpartition(":")[2]) from error
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise _wrong(node, "whole number of 64 bits")
        return value


def _wrong(node: yaml.Node, kind: str) -> yaml.MarkedYAMLError:
    given = brief(node.value) if isinstance(node, yaml.ScalarNode) else "it"
    return yaml.MarkedYAMLError(problem=f"{given} is no {kind}", problem_mark=node.start_mark)


class _Walk:
    """Traversal of all values of a document, with repetitions by aliases.

    Args:
        where: Name of the document, for messages.
    """

    def __init__(self, where: str) -> None:
        self.where, self.left = where, VALUE_LIMIT

    def over(self, node: yaml.Node, place: tuple[str, ...], above: tuple[yaml.Node, ...]) -> None:
        """Refuse duplicate keys in a mapping, and infinite recursion; keys merged by `<<` may be overridden."""
        self.left -= 1
        if self.left < 0 or len(above) > DEPTH_LIMIT or any(node is one for one in above):
            raise _too_much(self.where)
        inside = (*above, node)
        if isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                self.over(value, (*place, str(number)), inside)
        if not isinstance(node, yaml.MappingNode):
            return
        lines: dict[tuple[str, str], int] = {}
        for key, value in node.value:
            plain = isinstance(key, yaml.ScalarNode)
            name, line = key.value if plain else "?", key.start_mark.line + 1
            if plain and key.tag != _MERGE:
                if (key.tag, name) in lines:
                    raise self._repeated((*place, name), lines[key.tag, name], line)
                lines[key.tag, name] = line
            self.over(key, (*place, name), inside)
            self.over(value, (*place, name), inside)

    def _repeated(self, place: tuple[str, ...], first: int, again: int) -> ConfigError:
        lines = f"both in line {first}" if first == again else f"in lines {first} and {again}"
        return ConfigError(
            f"The key '{'.'.join(place)}' stands twice in {self.where}, {lines}.",
            expected="every key once: of two, only the last would count",
            to_do="leave one out.",
        )


def _too_much(where: str) -> ConfigError:
    return ConfigError(
        f"{where} holds itself, or too much: values in one another without end.",
        expected=f"at most {DEPTH_LIMIT} lists and mappings in one another, and {VALUE_LIMIT:,} values",
        to_do="write it out without aliases (&name, *name).",
        intact="Nothing was run.",
    )
