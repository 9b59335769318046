"""Options by name, validated against the signature of their target."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import lru_cache, partial
from typing import Any, get_type_hints

from limpet.errors import ConfigError, nearest
from limpet.support.ranges import wanted

Keywords = dict[str, Any]
"""Options by name, with the types of the target's signature."""


def bound(target: Callable[..., Any], options: Mapping[str, object], what: str, *, listing: str = "") -> Keywords:
    """Return the options with values of the annotated types, or refuse the first that does not fit.

    Only optional parameters with an annotation count as options; those that a `functools.partial` has fixed do not.

    Args:
        target: A class or function, or a partial of one.
        options: Values by name.
        what: Name of the target, such as ``"method 'p2s'"``.
        listing: A command that lists the options, if there is one.

    Raises:
        ConfigError: An option is unknown, and the nearest known one is suggested; or its value has another type.

    >>> def smooth(values: list[float], width: int = 3) -> None: ...
    >>> bound(smooth, {"width": 5}, "filter 'smooth'")
    {'width': 5}
    """
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # lazy: help pages do not need it

    types: Mapping[str, Any] = option_types(target)
    for name, value in options.items():
        if name not in types:
            raise ConfigError(
                f"The {what} has no option '{name}'.{nearest(name, types)}",
                expected=f"one of {', '.join(types)}" if types else "no options at all",
                to_do=f"`{listing}` lists them." if listing else "",
            )
        try:
            TypeAdapter[Any](types[name], config=ConfigDict(strict=True)).validate_python(value)
            if isinstance(value, float) and math.isnan(value):
                raise ConfigError(f"The option '{name}' of the {what} is not a number (nan).", expected="a number")
        except ValidationError as error:
            raise ConfigError(f"The option '{name}' of the {what} is {value!r}.", wanted(error.errors())) from error
    return dict(options)


def option_types(target: Callable[..., Any]) -> dict[str, object]:
    """Return the annotated type of every option of a class, a function, or a partial of one."""
    fixed = set(target.keywords) if isinstance(target, partial) else set()
    inner = target.func if isinstance(target, partial) else target
    # inherited fields of a dataclass may have types that its own module does not import
    written = inner.__init__ if inspect.isclass(inner) and not is_dataclass(inner) else inner
    hints = _hints(written)
    return {
        parameter.name: hints.get(parameter.name, Any)
        for parameter in inspect.signature(inner).parameters.values()
        if parameter.default is not parameter.empty and parameter.name not in fixed
    }


@lru_cache(maxsize=1024)
def _hints(target: Callable[..., Any]) -> Mapping[str, object]:
    """Return annotations as types, the slowest part of reading a signature."""
    return get_type_hints(target, include_extras=True)
