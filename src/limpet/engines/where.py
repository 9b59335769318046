"""Filters as users type them: ``category IN ('a', 'b') AND NOT price > 10 AND exists(colour)``.

::

    filter     = all ("OR" all)*
    all        = one ("AND" one)*
    one        = "NOT" one | "(" filter ")" | "EXISTS" "(" column ")"
               | column ("=" | "!=" | "<" | "<=" | ">" | ">=") value
               | column "NOT"? "IN" "(" value ("," value)* ")" | column "NOT"? "BETWEEN" value "AND" value
    column     = a name, in JSON with keys: attributes.colour, attributes."max speed"
    value      = 'a text, in which a quote stands twice', or a word or number without signs and spaces

A text that is no such filter but starts with a column and a comparison is that one condition, with the rest as its
value: ``colour=dark red``. It is refused if the rest looks like a further part of a filter: ``title=war and peace`` has
to be ``title='war and peace'``. A quoted value is a text, never a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from limpet.engines.filters import (
    COMPARISONS,
    And,
    Condition,
    Conditions,
    Exists,
    Filter,
    In,
    Not,
    Or,
    between,
    checked,
    kind_of,
)
from limpet.errors import ConfigError, refuse

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<sign><=|>=|!=|<>|==|[=<>(),])|(?P<word>(?:[^\s(),'"<>=!]|"(?:[^"\\]|\\.)*")+))"""
)
_TEXT = re.compile(r"'(?:[^']|'')*'")
_GOES_ON = re.compile(r"(?:^|\s)(?:AND|OR)(?:\s|$)", re.IGNORECASE)
_FURTHER = re.compile(r"\s([^\s()'\"<>=!.]+)[^\s()'<>=!]*\s*(?:[<>=!]|(?:NOT\s+)?(?:IN\s*\(|BETWEEN\s))", re.IGNORECASE)
_SAME = {"<>": "!="}
_ORDERED = ("<", "<=", ">", ">=")
_DEEPEST = 40
_PLAIN = "COLUMN, one of = != <= >= < >, and a value, such as price<10"


class _Token(NamedTuple):
    kind: str
    text: str


_END = _Token("end", "its end")


class _UnreadableError(Exception):
    """Unreadable filter; the message states the expected and the actual text."""


def read_filter(words: Sequence[str], columns: Mapping[str, str]) -> Filter | None:
    """Parse filters that all have to hold; None for none.

    Args:
        words: Filters such as ``price<10``, ``colour=dark red`` or ``price BETWEEN 1 AND 3 OR exists(label)``.
        columns: Types of the existing columns, by name.

    Raises:
        ConfigError: A filter cannot be parsed, names an unknown column, or a value is of another type.

    >>> read_filter(["price<=10 OR NOT exists(price)"], {"price": "integer"})
    Or(parts=(Condition(column='price', comparison='<=', value=10), Not(part=Exists(column='price'))))
    """
    return checked(tuple(_read(word, columns) for word in words), columns)


def read_conditions(words: Sequence[str], columns: Mapping[str, str]) -> Conditions:
    """Parse comparisons such as ``price<10`` or ``colour=red``, one per word; see `read_filter`.

    >>> read_conditions(["price<=10"], {"price": "integer"})
    (Condition(column='price', comparison='<=', value=10),)
    """
    return tuple(_condition(word, columns) for word in words)


def _read(word: str, columns: Mapping[str, str]) -> Filter:
    try:
        return _Reader(word, columns).read()
    except _UnreadableError as error:
        name, sign, text = _split(word)
        if sign and name in columns and not _goes_on(text, columns):
            return _condition(word, columns)
        raise ConfigError(
            f"The filter '{word}' cannot be read: {error}.",
            expected=f"{_PLAIN}; several of them with AND, OR, NOT and parentheses, IN ('a', 'b'), BETWEEN 1 AND 3, "
            "exists(COLUMN)",
            to_do="put texts in single quotes.",
        ) from None


def _split(word: str) -> tuple[str, str, str]:
    places = [(word.find(sign), -len(sign), sign) for sign in COMPARISONS if sign in word]
    sign = min(places)[2] if places else ""
    name, _, text = word.partition(sign) if sign else (word, "", "")
    return name.strip(), sign, text.strip()


def _condition(word: str, columns: Mapping[str, str]) -> Condition:
    name, sign, text = _split(word)
    refuse(not sign, f"The condition '{word}'.", _PLAIN)
    twice = text.startswith("=" if sign in ("=", "!=") else tuple("<>=!"))
    refuse(twice, f"The condition '{word}' has more than one comparison.", _PLAIN)
    refuse(_goes_on(text, columns), f"The condition '{word}' seems to be several.",
           f"{_PLAIN}; a text of several words in single quotes: {name}{sign}'TEXT'")  # fmt: skip
    token = _Token("text", _unquoted(text)) if _TEXT.fullmatch(text) else _Token("word", text)
    found = checked(Condition(name, sign, _value(token, name, sign, columns)), columns)
    assert isinstance(found, Condition)
    return found


def _goes_on(text: str, columns: Mapping[str, str]) -> bool:
    """Say whether a value looks like one followed by a mistyped part of a filter."""
    if _TEXT.fullmatch(text):
        return False
    further = any(found[1] in columns for found in _FURTHER.finditer(text))
    unpaired = text.startswith("'") or text.count("(") != text.count(")")
    return further or unpaired or bool(_GOES_ON.search(text))


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


class _Reader:
    """Parser of one filter, from left to right.

    Args:
        columns: Types of the existing columns, by name.
    """

    def __init__(self, word: str, columns: Mapping[str, str]) -> None:
        self._columns, self._tokens, self._place, end = columns, list[_Token](), 0, 0
        while word[end:].strip():
            found = _TOKEN.match(word, end)
            if found is None:
                raise _UnreadableError(f"nothing goes on with {word[end:].strip()[:20]!r}")
            end = found.end()
            kind = str(found.lastgroup)
            text = found[kind]
            self._tokens.append(_Token(kind, _unquoted(text) if kind == "text" else text))

    def read(self) -> Filter:
        found = self._any(_DEEPEST)
        if self._next() is not _END:
            raise self._unexpected("AND or OR")
        return found

    def _next(self, further: int = 0) -> _Token:
        place = self._place + further
        return self._tokens[place] if place < len(self._tokens) else _END

    def _take(self, *texts: str, after: str = "") -> bool:
        token = self._next()
        there = token.kind in ("word", "sign") and token.text.upper() in texts
        there = there and (not after or self._next(1).text.upper() == after)
        self._place += there * (2 if after else 1)
        return there

    def _need(self, *texts: str) -> None:
        if not self._take(*texts):
            raise self._unexpected(" or ".join(texts))

    def _unexpected(self, wanted: str) -> _UnreadableError:
        return _UnreadableError(f"{wanted} was expected, not {self._next().text!r:.40}")

    def _any(self, depth: int) -> Filter:
        parts = [self._all(depth)]
        while self._take("OR"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self, depth: int) -> Filter:
        parts = [self._one(depth)]
        while self._take("AND"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _one(self, depth: int) -> Filter:
        refuse(not depth, "A filter with too many parts within parts.", f"at most {_DEEPEST} levels")
        named = self._next(1).kind == "sign" and self._next(1).text != "("
        if not named and self._take("NOT"):
            return Not(self._one(depth - 1))
        if self._take("("):
            found = self._any(depth - 1)
            self._need(")")
            return found
        if self._take("EXISTS", after="("):
            column = self._name()
            self._need(")")
            return Exists(column)
        return self._compared(self._name())

    def _compared(self, column: str) -> Filter:
        negated = self._take("NOT")
        if self._take("IN"):
            found: Filter = In(column, self._values(column))
        elif self._take("BETWEEN"):
            least = self._value(column, ">=")
            self._need("AND")
            found = between(column, least, self._value(column, "<="))
        else:
            sign = _SAME.get(self._next().text, self._next().text)
            if negated or self._next().kind != "sign" or sign not in COMPARISONS:
                raise self._unexpected("IN or BETWEEN" if negated else "a comparison, IN or BETWEEN")
            self._place += 1
            found = Condition(column, sign, self._value(column, sign))
        return Not(found) if negated else found

    def _name(self) -> str:
        token = self._next()
        if token.kind != "word":
            raise self._unexpected("a column")
        self._place += 1
        return token.text

    def _values(self, column: str) -> tuple[str | int | float | bool, ...]:
        self._need("(")
        values = [self._value(column, "=")]
        while self._take(","):
            values.append(self._value(column, "="))
        self._need(")")
        return tuple(values)

    def _value(self, column: str, comparison: str) -> str | int | float | bool:
        token = self._next()
        if token.kind not in ("text", "word") or '"' in token.text * (token.kind == "word"):
            raise self._unexpected("a value")
        self._place += 1
        return _value(token, column, comparison, self._columns)


def _value(token: _Token, column: str, comparison: str, columns: Mapping[str, str]) -> str | int | float | bool:
    text, kind = token.text, kind_of(column, columns)
    if kind == "text" and comparison in _ORDERED and _is_number(text):
        raise ConfigError(
            f"The condition '{column}{comparison}{text}' compares texts, among which '10' comes before '3': the column "
            f"'{column}' holds texts.",
            expected="= or != and the text, or a column of numbers",
            to_do="keep such values as numbers where the items are added.",
        )
    if kind == "text" or (kind == "json" and token.kind == "text"):
        return text
    if token.kind == "text":
        raise ConfigError(
            f"The condition '{column}{comparison}'{text}'' compares with a text, in quotes.",
            expected=f"a value of the column's type, {kind}",
            to_do=f"leave the quotes out: {column}{comparison}{text}.",
        )
    for reader in _READERS[kind] if text.isascii() and "_" not in text else ():  # Python parses 1_0 as 10
        with suppress(ValueError):
            return reader(text)
    return text


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_READERS: dict[str, tuple[Callable[[str], bool | int | float], ...]] = {
    "truth": (_truth,), "integer": (int,), "number": (float,), "json": (_truth, int, float),
}  # fmt: skip


def _is_number(text: str) -> bool:
    """Say whether a text is a number that sorts differently as text: no year or code, which have one length."""
    if text.isdecimal() and (len(text) >= 4 or text.startswith("0")):
        return False
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
