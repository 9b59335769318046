"""Results and their parts, like others but for what a test is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from limpet.results import Part, Results

Kind = TypeVar("Kind", bound=Part)
Change = Callable[[dict[str, Any]], Any]


def changed(part: Kind, change: Change) -> Kind:
    """Return a part, or whole results, whose values as they are written were changed and read again."""
    values = part.to_dict()
    change(values)
    kind = type(part)
    return kind.parse(values) if issubclass(kind, Results) else kind.model_validate(values)
