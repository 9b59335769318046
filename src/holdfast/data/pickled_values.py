"""What a pickle may name: bytes, sets and NumPy's arrays and scalars of numbers, made here and never looked up."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

PLAIN = (type(None), bool, int, float, str, bytes)
"""Types of values that hold no others."""
_NUMBERS = re.compile(r"[biuf][1248]")


class NotPlainError(Exception):
    """Something that is no plain value; the text says what."""


@dataclass
class Name:
    """A name of `CONSTRUCTORS` that stands on the stack; nothing was looked up."""

    name: str


@dataclass
class NumberType:
    """A NumPy type of numbers that is being described."""

    code: str
    order: str = "="

    def state(self, state: Any) -> None:
        """Take the byte order out of the description that `numpy.dtype` pickles."""
        if state[1] not in ("<", ">", "|", "="):
            raise ValueError("byte order of numbers")
        self.order = state[1]

    def dtype(self) -> np.dtype[Any]:
        """Return the type."""
        return np.dtype(self.order + self.code)


@dataclass
class PickledArray:
    """A NumPy array that is being described."""

    value: Any = None

    def state(self, state: Any) -> None:
        """Take shape, type, order and bytes."""
        _, shape, numbers, by_column, content = state
        self.value = _array(content, numbers, shape, "F" if by_column else "C")


def _array(content: Any, numbers: Any, shape: Any, order: str = "C") -> Any:
    """Return a read-only array of numbers over the bytes of a pickle."""
    if not isinstance(numbers, NumberType) or order not in ("C", "F"):
        raise NotPlainError("an array of something else than numbers")
    if type(shape) is not tuple or any(type(length) is not int or length < 0 for length in shape):
        raise TypeError("the shape of an array is no tuple of lengths")
    flat = np.frombuffer(_bytes(content), numbers.dtype())
    if len(flat) != math.prod(shape):
        raise ValueError(f"an array of shape {shape} with {len(flat)} numbers")
    return flat.reshape(shape, order="C" if order == "C" else "F")


def _number_type(code: Any, *_: Any) -> NumberType:
    if not isinstance(code, str) or not _NUMBERS.fullmatch(code):
        raise NotPlainError(
            f"NumPy values of type '{shortened(code) if isinstance(code, str) else type(code).__name__}'"
        )
    np.dtype(code)
    return NumberType(code)


def _scalar(numbers: Any, content: Any) -> Any:
    return _array(content, numbers, (1,)).item()


def _encoded(text: str, encoding: Any = None) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise NotPlainError("bytes written as something else than Latin-1")
    return text.encode("latin-1")


def _bytes(content: Any) -> bytes:
    """Return bytes; Python 2 wrote them as texts."""
    return content.encode("latin-1") if isinstance(content, str) else bytes(memoryview(content))


def set_of(members: Any = ()) -> set[Any]:
    """Return a set of plain members."""
    if not isinstance(members, list | tuple):
        raise TypeError("a set of something that is no list")
    return {key_of(member) for member in members}


def _empty_array(*_: Any) -> PickledArray:
    return PickledArray()


def _empty_bytes() -> bytes:
    return b""


CONSTRUCTORS: Mapping[str, Callable[..., Any]] = {
    "__builtin__.bytes": _empty_bytes,
    "builtins.bytes": _empty_bytes,
    "_codecs.encode": _encoded,
    **{f"{module}.{kind}": set_of for module in ("builtins", "__builtin__") for kind in ("set", "frozenset")},
    "numpy.dtype": _number_type,
    "numpy.ndarray": _empty_array,
    **{
        f"{core}.{name}": make
        for core in ("numpy.core", "numpy._core")
        for name, make in (
            ("multiarray._reconstruct", _empty_array),
            ("multiarray.scalar", _scalar),
            ("numeric._frombuffer", _array),
        )
    },
}
"""Names that a plain pickle may hold, and what makes their value here instead of them."""


def exactly(kind: type[Any], value: Any) -> Any:
    """Return the value if it is of the type, and of no subtype."""
    if type(value) is not kind:
        raise TypeError(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def key_of(value: Any) -> Any:
    """Return the value if it may be a key: a tuple nested a million times would overrun the stack when hashed."""
    if type(value) not in PLAIN:
        raise NotPlainError(f"a {type(value).__name__} as a key of a dict or a member of a set")
    return value


def shortened(text: str) -> str:
    """Return the beginning of a long text."""
    return text if len(text) <= 100 else f"{text[:100]}..."
