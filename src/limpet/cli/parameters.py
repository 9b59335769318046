"""What signatures of commands are made of: shared groups of options, options by name, options that few people need."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_type_hints

from cyclopts import Group, Parameter, Token

from limpet.cli.layout import Columns
from limpet.errors import ConfigError
from limpet.support.options import Keywords


@Parameter(name="*")
class Options:
    """Options that several commands share: a frozen dataclass, which a command takes as one argument."""

    def __init_subclass__(cls) -> None:
        """Read annotations where they were written: a subclass elsewhere need not import their names."""
        hints = get_type_hints(cls, include_extras=True)
        cls.__annotations__ = {name: hints[name] for name in inspect.get_annotations(cls)}

    @property
    def changed(self) -> set[str]:
        """The names of the options that are not as they are when nothing is given."""
        of_group: Any = self
        usual = {
            one.name: one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
            for one in dataclasses.fields(of_group)
        }
        return {name for name, value in usual.items() if getattr(self, name) != value}


RARE = Parameter(group=Group("More options", help_formatter=Columns(rare=True), sort_key=2))
"""Marks an option that only ``--help-all`` shows: ``resamples: Annotated[int, RARE] = 2000``."""


def as_typed(name: str) -> str:
    """Return an option as people type it.

    >>> as_typed("recipe.batch_size")
    '--recipe.batch-size'
    """
    return f"--{name.replace('_', '-')}"


def by_name(kind: Any, tokens: Any) -> Keywords:
    """Read values by name, as YAML does: 0.5 is a number, true a truth value, [1, 2] a list; other words are texts."""
    if not isinstance(tokens, Mapping):
        raise ValueError("options by name are needed: a name after a dot, then a value")
    return {str(name).replace("-", "_"): _read(inner) for name, inner in tokens.items()}


def _read(tokens: Any) -> Any:
    return by_name(None, tokens) if isinstance(tokens, Mapping) else _value(tokens[-1].value)


def _value(word: str) -> Any:
    from limpet.support.documents import parsed_yaml

    if _NUMBER.fullmatch(word):  # which YAML does not see in 1e-4
        return float(word)
    try:
        value = parsed_yaml(word, f"'{word}'", "a value") if word else word
    except ConfigError:
        return word
    collected = isinstance(value, dict | list) and not word.startswith(("{", "["))  # such as the prefix "query: "
    plain = isinstance(value, str) and not word.startswith(("'", '"'))
    return word if collected or plain else value


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")


Named = Annotated[Keywords, Parameter(converter=by_name, accepts_keys=True, n_tokens=1)]
"""Options by name, such as ``--method-options.weight 0.5``; the receiver checks them."""


def of_one_word(kind: Callable[[str], Any], tokens: Sequence[Token]) -> Any:
    """Make a value of a class from the one word that was typed; a converter of Cyclopts."""
    return kind(tokens[0].value)
