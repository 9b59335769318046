"""Value ranges as annotations, checked when a class or function is called."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from annotated_types import BaseMetadata, Ge, Gt, Le, Lt

from limpet.errors import ConfigError, brief, nearest

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

Positive = Annotated[float, Gt(0), Lt(math.inf)]
NonNegative = Annotated[float, Ge(0), Lt(math.inf)]
Share = Annotated[float, Ge(0), Le(1)]
Fraction = Annotated[float, Gt(0), Lt(1)]
"""A share in (0, 1)."""
PositiveInt = Annotated[int, Ge(1)]
Count = Annotated[int, Ge(0)]
Seed = Annotated[int, Ge(0), Lt(2**63)]

_Called = TypeVar("_Called", bound=Callable[..., Any])


def checked(target: _Called) -> _Called:
    """Check arguments against the ranges and choices of their annotations before a function runs.

    Annotations such as `Positive`, ``Annotated[int, Ge(2)]`` and ``Literal["a", "b"]`` are checked, also within
    ``| None``. Other types are left to the function. Pydantic and Cyclopts read the same annotations.

    Args:
        target: A function, or a class whose ``__init__`` takes annotated arguments or which is a dataclass.

    Raises:
        ConfigError: At the call, if a value is out of range.

    >>> @checked
    ... def smooth(width: PositiveInt = 3) -> int:
    ...     return width
    >>> smooth(0)
    Traceback (most recent call last):
    ...
    limpet.errors.ConfigError: smooth was given width=0.
    Expected: at least 1
    """
    if isinstance(target, type):
        kind: Any = target
        kind.__init__ = _checked(kind.__init__, kind if "__dataclass_fields__" in vars(kind) else kind.__init__)
        return target
    made: _Called = _checked(target, target)
    return made


def _checked(function: Any, annotated: Any) -> Any:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        try:
            given = signature.bind(*values, **named).arguments
        except TypeError:
            return function(*values, **named)  # its own error names the function
        for name, rule in rules().items():
            if name in given:
                _check(rule, given[name], name, type(values[0]) if function.__name__ == "__init__" else function)
        return function(*values, **named)

    @functools.cache
    def rules() -> Mapping[str, TypeAdapter[Any]]:
        """Return the validators, built at the first call, when the names in annotations are defined."""
        from pydantic import ConfigDict, TypeAdapter

        config = ConfigDict(strict=True, arbitrary_types_allowed=True)
        hints = {name: hint for name, hint in _hints(annotated).items() if name in signature.parameters}
        return {name: TypeAdapter(hint, config=config) for name, hint in hints.items() if _has_range(hint)}

    return call


def _check(rule: TypeAdapter[Any], value: Any, name: str, owner: Any) -> None:
    import numpy as np
    from pydantic import ValidationError

    try:
        rule.validate_python(value.item() if isinstance(value, np.generic) else value)
    except ValidationError as error:
        expected = wanted(error.errors())
        meant = nearest(value, re.findall(r"'([^']*)'", expected)) if isinstance(value, str) else ""
        raise ConfigError(f"{owner.__name__} was given {name}={brief(value)}.{meant}", expected) from None


def _hints(annotated: Any) -> dict[str, Any]:
    """Return the annotations that can be resolved; names imported for type checkers only have no range."""
    found: dict[str, Any] = {}
    for one in reversed(annotated.__mro__) if isinstance(annotated, type) else (inspect.unwrap(annotated),):
        names = one.__globals__ if inspect.isfunction(one) else vars(sys.modules[one.__module__])
        for name, hint in inspect.get_annotations(one).items():
            try:
                alone = type("", (), {"__annotations__": {name: hint}})
                found.update(get_type_hints(alone, names, include_extras=True))
            except NameError:
                found.pop(name, None)
    return found


def _has_range(hint: Any) -> bool:
    return (
        isinstance(hint, BaseMetadata)
        or get_origin(hint) is Literal
        or (get_origin(hint) is not Callable and any(_has_range(part) for part in get_args(hint)))
    )


_WORDS = {
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "int_type": "a whole number",
    "float_type": "a number",
}


def wanted(errors: Sequence[ErrorDetails]) -> str:
    """Describe the values that pydantic would have accepted, each type once."""
    return ", or ".join(dict.fromkeys(map(_wanted, errors)))


def _wanted(error: ErrorDetails) -> str:
    values = {name: f"{one:g}" if isinstance(one, float) else one for name, one in error.get("ctx", {}).items()}
    if values.get("lt") == "inf":
        return "a finite number"
    if error["type"] in _WORDS:
        return _WORDS[error["type"]].format(**values)
    said = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return said[:1].lower() + said[1:]
