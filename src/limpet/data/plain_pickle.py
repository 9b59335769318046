"""Reading pickles of plain values without running anything that they name.

A pickle is a program for a small machine, and some of its instructions call whatever function they name. Python's own
`Unpickler` with a ``find_class`` that refuses everything would call nothing either, but leaves three ways to stop a
process: a memo of a few bytes that claims billions of places, the hash of a tuple nested a million times, which
overruns the stack in C, and lists that hold one another so that whoever walks through them never ends. So this is a
machine of its own over `pickletools.genops`, which only takes instructions apart. It

- knows the instructions that build None, booleans, numbers, texts, bytes, lists, tuples, sets and dicts, and no others;
- refuses a name where it stands, before any use; the names in `CONSTRUCTORS` are never looked up: what they would have
  made (arrays and scalars of numbers by NumPy, bytes and sets as older protocols write them) is made by code of ours;
- keeps the memo in a dict, takes only texts, bytes, numbers and None as keys and members of sets, and rebuilds the
  result as a tree of limited depth and size, so that nothing holds itself;
- refuses files above a size, and files that are cut off or damaged.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from limpet.errors import DataError

PLAIN = (type(None), bool, int, float, str, bytes)
"""Types of values that hold no others."""
_NUMBER_CODE = re.compile(r"[biuf][1248]")


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
    # Python 2 wrote bytes as texts
    plain = content.encode("latin-1") if isinstance(content, str) else bytes(memoryview(content))
    flat = np.frombuffer(plain, numbers.dtype())
    if len(flat) != math.prod(shape):
        raise ValueError(f"an array of shape {shape} with {len(flat)} numbers")
    return flat.reshape(shape, order="C" if order == "C" else "F")


def _number_type(code: Any, *_: Any) -> NumberType:
    if not isinstance(code, str) or not _NUMBER_CODE.fullmatch(code):
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


def set_of(members: Any = ()) -> set[Any]:
    """Return a set of plain members."""
    if not isinstance(members, list | tuple):
        raise TypeError("a set of something that is no list")
    return {key_of(member) for member in members}


CONSTRUCTORS: Mapping[str, Callable[..., Any]] = {
    "__builtin__.bytes": lambda: b"",
    "builtins.bytes": lambda: b"",
    "_codecs.encode": _encoded,
    **{f"{module}.{kind}": set_of for module in ("builtins", "__builtin__") for kind in ("set", "frozenset")},
    "numpy.dtype": _number_type,
    "numpy.ndarray": lambda *_: PickledArray(),
    **{
        f"{core}.{name}": make
        for core in ("numpy.core", "numpy._core")
        for name, make in (
            ("multiarray._reconstruct", lambda *_: PickledArray()),
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


SIZE_LIMIT = 64 * 1024**2
"""Bytes of the largest file that is read by default; the ground truths of image search have less than one million."""
_DEPTH_LIMIT = 32
_VALUE_LIMIT = 2_000_000


def read_plain_pickle(path: Path, *, size_limit: int = SIZE_LIMIT) -> Any:
    """Return the plain value in a pickle file.

    Args:
        path: The file, of any pickle protocol.
        size_limit: Refuse larger files.

    Returns:
        None, booleans, numbers, texts, bytes, read-only arrays of numbers, and lists, tuples, sets and dicts of them.
        Texts of Python 2 are decoded as Latin-1 (those of protocol 0 must be ASCII).

    Raises:
        DataError: The file is missing, too large, cut off, damaged, or asks for anything that is not plain.
    """
    if not path.is_file():
        raise DataError(f"There is no file {path}.", expected="a pickle of plain values")
    if path.stat().st_size > size_limit:
        raise DataError(f"{path} has {path.stat().st_size} bytes.", expected=f"at most {size_limit} bytes")
    return plain_value(path.read_bytes(), str(path))


def plain_value(content: bytes, name: str = "the pickle") -> Any:
    r"""Return the plain value that a pickle holds.

    Args:
        content: The pickle.
        name: What to call it in messages.

    Raises:
        DataError: It is cut off or damaged, or asks for anything that is not plain.

    >>> import pickle
    >>> plain_value(pickle.dumps({"easy": [3, 1]}))
    {'easy': [3, 1]}
    >>> plain_value(b"cos\nsystem\n(S'echo hello'\ntR.")
    Traceback (most recent call last):
    ...
    limpet.errors.DataError: the pickle asks for 'os.system', which is no plain value. Nothing was run.
    Expected: None, numbers, texts, bytes, arrays of numbers, and lists, tuples, sets and dicts of them
    Next: do not open it with other programs unless you trust its source.
    """
    try:
        return _Tree().of(_Machine().run(content), 0)
    except NotPlainError as refused:
        raise DataError(
            f"{name} asks for {refused}, which is no plain value. Nothing was run.",
            expected="None, numbers, texts, bytes, arrays of numbers, and lists, tuples, sets and dicts of them",
            to_do="do not open it with other programs unless you trust its source.",
        ) from None
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        raise DataError(
            f"{name} is cut off, damaged or no pickle: {shortened(str(error)) or type(error).__name__}.",
            expected="a complete pickle file",
            to_do="fetch it again from its source.",
        ) from error


class _Machine:
    """The stack, the stacks set aside at marks, and the memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        """Run all instructions and return what is left."""
        for instruction, argument, _ in pickletools.genops(content):
            name = instruction.name
            if name in _VALUES:
                self.stack.append(argument)
            elif name in _STEPS:
                _STEPS[name](self, argument)
            elif name == "STOP":
                return self.stack.pop()
            else:
                raise NotPlainError(_asked_for(name, argument))
        raise ValueError("no end")

    def push(self, value: Any) -> None:
        """Lay a value on the stack."""
        self.stack.append(value)

    def above_mark(self) -> list[Any]:
        """Take what was pushed since the last mark."""
        items, self.stack = self.stack, self.marked.pop()
        return items

    def mark(self, _: Any) -> None:
        """Begin a stack of its own."""
        self.marked.append(self.stack)
        self.stack = []

    def taken(self, count: int) -> tuple[Any, ...]:
        """Take the upper values of the stack."""
        if len(self.stack) < count:
            raise IndexError("a value is missing")
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        return items

    def extend(self, items: list[Any]) -> None:
        """Append to the list below."""
        exactly(list, self.stack[-1]).extend(items)

    def fill(self, items: list[Any]) -> None:
        """Set keys and values of the dict below."""
        exactly(dict, self.stack[-1]).update(_dict(items))

    def add(self, items: list[Any]) -> None:
        """Add members to the set below."""
        exactly(set, self.stack[-1]).update(set_of(items))

    def remember(self, place: int) -> None:
        """Keep the upper value under a number."""
        self.memo[place] = self.stack[-1]

    def name(self, full: str) -> None:
        """Push one of the known names, or refuse."""
        if full not in CONSTRUCTORS:
            raise NotPlainError(f"'{shortened(full)}'")
        self.stack.append(Name(full))

    def reduce(self, _: Any) -> None:
        """Make what one of the known names would have made."""
        called, arguments = self.taken(2)
        self.stack.append(CONSTRUCTORS[exactly(Name, called).name](*exactly(tuple, arguments)))

    def build(self, _: Any) -> None:
        """Complete an array or a type of numbers."""
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, PickledArray | NumberType):
            raise NotPlainError(f"a state of a {type(target).__name__}")
        target.state(exactly(tuple, state))

    def pop(self, _: Any) -> None:
        """Drop the upper value, or the last mark where nothing lies above it."""
        if self.stack:
            self.stack.pop()
        else:
            self.above_mark()


def _dict(items: list[Any]) -> dict[Any, Any]:
    return {key_of(key): value for key, value in zip(items[::2], items[1::2], strict=True)}


def _asked_for(name: str, argument: Any) -> str:
    if name == "INST":  # the name and the call in one
        return f"'{shortened(str(argument).replace(' ', '.', 1))}'"
    return f"the instruction {name}" + ("" if argument is None else f" ({shortened(repr(argument))})")


_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_TEXTS = ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8")
_VALUES = frozenset((*_NUMBERS, *_TEXTS, *_BYTES))
"""Instructions that push their argument."""
_STEPS: Mapping[str, Callable[[_Machine, Any], object]] = {
    "PROTO": lambda machine, argument: None,
    "FRAME": lambda machine, argument: None,
    "NONE": lambda machine, argument: machine.push(None),
    "NEWTRUE": lambda machine, argument: machine.push(True),
    "NEWFALSE": lambda machine, argument: machine.push(False),
    "EMPTY_LIST": lambda machine, argument: machine.push([]),
    "EMPTY_TUPLE": lambda machine, argument: machine.push(()),
    "EMPTY_DICT": lambda machine, argument: machine.push({}),
    "EMPTY_SET": lambda machine, argument: machine.push(set()),
    "MARK": _Machine.mark,
    "LIST": lambda machine, argument: machine.push(machine.above_mark()),
    "TUPLE": lambda machine, argument: machine.push(tuple(machine.above_mark())),
    "TUPLE1": lambda machine, argument: machine.push(machine.taken(1)),
    "TUPLE2": lambda machine, argument: machine.push(machine.taken(2)),
    "TUPLE3": lambda machine, argument: machine.push(machine.taken(3)),
    "DICT": lambda machine, argument: machine.push(_dict(machine.above_mark())),
    "FROZENSET": lambda machine, argument: machine.push(set_of(machine.above_mark())),
    "APPEND": lambda machine, argument: machine.extend([machine.stack.pop()]),
    "APPENDS": lambda machine, argument: machine.extend(machine.above_mark()),
    "SETITEM": lambda machine, argument: machine.fill(list(machine.taken(2))),
    "SETITEMS": lambda machine, argument: machine.fill(machine.above_mark()),
    "ADDITEMS": lambda machine, argument: machine.add(machine.above_mark()),
    "POP": _Machine.pop,
    "POP_MARK": lambda machine, argument: machine.above_mark(),
    "DUP": lambda machine, argument: machine.push(machine.stack[-1]),
    "MEMOIZE": lambda machine, argument: machine.remember(len(machine.memo)),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, argument: machine.push(machine.memo[argument])),
    "GLOBAL": lambda machine, argument: machine.name(argument.replace(" ", ".", 1)),
    "STACK_GLOBAL": lambda machine, argument: machine.name(".".join(exactly(str, part) for part in machine.taken(2))),
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}


class _Tree:
    """Rebuilds a value as a tree, counting what it holds, so that shared parts cannot multiply without end."""

    def __init__(self) -> None:
        self.left = _VALUE_LIMIT

    def of(self, value: Any, depth: int) -> Any:
        """Return the value with every container made anew."""
        self.left -= 1
        if depth > _DEPTH_LIMIT or self.left < 0:
            raise NotPlainError(f"more than {_DEPTH_LIMIT} containers in one another or {_VALUE_LIMIT} values")
        if isinstance(value, list | tuple | set):
            return type(value)(self.of(item, depth + 1) for item in value)
        if isinstance(value, dict):
            return {key: self.of(item, depth + 1) for key, item in value.items()}
        if isinstance(value, PickledArray) and value.value is not None:
            return value.value
        if isinstance(value, bytearray):
            return bytes(value)
        if type(value) in PLAIN or isinstance(value, np.ndarray):
            return value
        raise NotPlainError(f"'{value.name}' itself" if isinstance(value, Name) else "an unfinished NumPy value")
