"""What a contract is: promises, and the checks that they become for one thing."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from limpet.errors import ConfigError, reason

Function = TypeVar("Function", bound=Callable[..., None])
Error = TypeVar("Error", bound=Exception)


@dataclass(frozen=True)
class Check:
    """One promise, about one thing, under one choice of circumstances; calling it raises where it is broken.

    Args:
        promise: What is promised, in words.
        circumstances: Of this check, such as "lorentz, float32, one row".
        meaning: Why it is promised, or what to do where it is not kept; "" where its words say it.
        run: The check itself.
    """

    promise: str
    circumstances: str
    run: Callable[[], None] = field(repr=False)
    meaning: str = ""

    def __call__(self) -> None:
        """Run the check.

        Raises:
            AssertionError: The promise is not kept.
        """
        self.run()

    def __str__(self) -> str:
        return f"{self.promise} ({self.circumstances})" if self.circumstances else self.promise


@dataclass(frozen=True)
class Failure:
    """A promise that was not kept.

    Args:
        check: Which.
        found: What was found, on one line.
        line: Where in the code of the thing itself, as "steady.py, line 31: ..."; "" where no line of it is known.
    """

    check: Check
    found: str
    line: str = ""


def failures(checks: Iterable[Check], code: str = "") -> Iterator[Failure]:
    """Run checks, and yield those that fail, with what was found.

    Args:
        checks: What is to be checked.
        code: The file with the code of the thing that is checked, whose lines are named.

    Raises:
        ConfigError: Python runs without assertions.
    """
    if not __debug__:
        raise ConfigError(
            "Python runs without assertions, so no check can fail.",
            expected="assertions",
            to_do="leave out `python -O`, and unset PYTHONOPTIMIZE.",
        )
    for check in checks:
        try:
            check()
        except Exception as error:  # whatever a method of others raises
            yield Failure(check, _found(error), _line(error, code))


def together(broken: Iterable[Failure]) -> list[tuple[Failure, list[str]]]:
    """Return the first failure of every promise that was broken in one way, with all circumstances of it."""
    first: dict[tuple[str, str], tuple[Failure, list[str]]] = {}
    for failure in broken:
        key = failure.check.promise, failure.line or failure.found
        first.setdefault(key, (failure, []))[1].append(failure.check.circumstances)
    return list(first.values())


class AtLineError(AssertionError):
    """A promise that is broken at a known line of the thing's own code."""

    def __init__(self, said: str, line: str) -> None:
        super().__init__(said)
        self.line = line


def _line(error: Exception, code: str) -> str:
    if isinstance(error, AtLineError):
        return error.line
    places = [place for place in traceback.extract_tb(error.__traceback__) if place.filename == code]
    return line_note(places[-1].filename, places[-1].lineno or 0) if places else ""


def line_note(file: str, number: int) -> str:
    """Return a line of a file for people: its name, number and text."""
    return f"{Path(file).name}, line {number}: {linecache.getline(file, number).strip()}"


def _found(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    if not isinstance(error, AssertionError):
        return f"{type(error).__name__} in {place.name}: {reason(error)}"
    said = " ".join(str(error).split())
    return said or f"not so: {(place.line or '').removeprefix('assert ')}"


class Contract:
    """Promises that all things of one kind keep."""

    def __init__(self) -> None:
        self._promises: list[tuple[Callable[..., None], list[dict[str, Any]]]] = []

    def promise(self, **choices: Iterable[Any]) -> Callable[[Function], Function]:
        """Add a function that asserts what is promised, by its name; it is run under each choice of its arguments."""
        combined = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]

        def add(function: Function) -> Function:
            self._promises.append((function, combined))
            return function

        return add

    def checks(self, circumstances: str = "", **thing: Any) -> list[Check]:
        """Return the checks of one thing.

        Args:
            circumstances: What all of them have in common, such as a space.
            thing: What is checked: the arguments that all promises take.
        """
        return [
            Check(
                function.__name__.replace("_", " "),
                ", ".join(filter(None, [circumstances, *map(_word, chosen.values())])),
                partial(function, **thing, **chosen),
                " ".join((function.__doc__ or "").split()),
            )
            for function, combined in self._promises
            for chosen in combined
        ]


def _word(value: Any) -> str:
    return str(value).removeprefix("torch.")


def refused(action: Callable[[], object], *errors: type[Error], words: str = "", why: str = "") -> Error:
    """Return the error that an action ends with, which must be one of these, and whose message has these words.

    Args:
        action: What has to be refused.
        errors: Kinds of errors.
        words: A regular expression that the message must hold.
        why: What to say where nothing is refused.
    """
    try:
        action()
    except errors as error:
        assert re.search(words, str(error)), f"the refusal says {str(error)!r}, and should say {words!r}"
        return error
    raise AssertionError(why or f"nothing was refused, where {errors[0].__name__} was expected")
