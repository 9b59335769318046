"""Settings that several commands share, from words to values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from limpet.errors import ConfigError, refuse

if TYPE_CHECKING:
    from limpet.support.options import Keywords


def user_cache() -> Path:
    """Return the folder of what is kept for all commands of a user: limpet, where their other caches are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "limpet"


def options_by_method(names: Sequence[str], options: Mapping[str, object], what: str = "method") -> dict[str, Keywords]:
    """Return the options of every method, or adapter: of one they are given as they are, of several by its name.

    Raises:
        ConfigError: A method is named twice, or the options of several are not given by name.
    """
    refuse(len(set(names)) < len(names), f"The {what}s {', '.join(names)}.", f"each {what} once")
    if len(names) == 1:
        return {names[0]: dict(options)}
    by_name: dict[str, Keywords] = {name: {} for name in names}
    for name, own in options.items():
        if name not in names or not isinstance(own, dict):
            raise ConfigError(
                f"With the {what}s {', '.join(names)}, --{what}-options has '{name}'.",
                expected=f"a mapping of {what} names to their options",
                to_do=f"write --{what}-options.{names[0]}.OPTION VALUE.",
            )
        by_name[name] = own
    return by_name
