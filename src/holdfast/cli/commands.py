"""Which function is which command: its signature says what people can type."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

FUNCTIONS = {
    "demo": "demo:demo",
    "data list": "data:listed",
    "data describe": "data:described",
    "data check": "data:described",
    "methods": "methods:methods",
    "methods check": "methods:check",
    "recommend": "recommend:recommend",
    "train": "train:train",
    "embed": "embed:embed",
    "sessions": "sessions:sessions",
    "adapt": "adapt:adapt",
    "evaluate": "evaluate:evaluate",
    "evaluate combine": "evaluate_combine:combine",
    "evaluate chain": "evaluate_chain:chain",
    "bench": "bench:bench",
    "completion": "completion:completion",
}
"""By command, without those of a gallery: module and function."""

FIRST = {
    "data describe": "data",
    "data check": "data",
    "methods": "method",
    "methods check": "method",
    "train": "data",
    "embed": "data",
    "sessions": "data",
    "evaluate combine": "results",
    "evaluate chain": "embeddings",
    "bench": "suite",
    "completion": "shell",
    "gallery backup": "dest",
    "gallery restore": "backup",
}
"""The option that words before all options belong to, by command; of the others of a gallery it is the gallery."""


def first_of(command: str) -> str:
    """Return the option that words before all options belong to; empty where no command has one.

    >>> first_of("train"), first_of("gallery search"), first_of("adapt")
    ('data', 'gallery', '')
    """
    return FIRST.get(command, "gallery" if command.startswith("gallery ") else "")


def function_of(command: str) -> Callable[..., object]:
    """Return the function of a command, such as "gallery search".

    Raises:
        KeyError: There is no such command.
    """
    module, _, function = all_functions()[command].partition(":")
    found: Callable[..., object] = getattr(import_module(f"holdfast.cli.{module}"), function)
    return found


def all_functions() -> dict[str, str]:
    """Return module and function of every command, those of a gallery too."""
    from holdfast.cli.gallery import SUBCOMMANDS

    return FUNCTIONS | {f"gallery {name}": place for name, (place, _) in SUBCOMMANDS.items()}
