"""How help looks: names to the left, descriptions to the right, and no boxes, so that most pages fit a screen."""

from __future__ import annotations

import math
import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter, _convert

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

COLUMN = 26
"""Where descriptions begin."""

SHOW_ALL = False
"""Whether options that few people need are listed, too: where ``--help-all`` was given."""


class Columns:
    """A formatter of Cyclopts.

    Args:
        rare: Whether it is for options that are only counted until ``--help-all`` asks for them.
    """

    def __init__(self, rare: bool = False) -> None:
        self.rare = rare

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print a group of options or commands."""
        if self.rare and not SHOW_ALL:
            print(f"\n{len(panel.entries)} more options: --help-all lists them.")
        elif panel.entries:
            print("\n".join(["", f"{panel.title}:", *(line for one in panel.entries for line in _lines(one))]))

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print how the command is called."""
        print(f"Usage: {' '.join(str(usage).split())}")

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """Print what the command does."""
        for paragraph in _plain(description).strip().split("\n\n"):
            print("\n" + textwrap.fill(" ".join(paragraph.replace("``", "`").split()), _width()))


def _lines(entry: HelpEntry) -> list[str]:
    names = (entry.positional_label,) if entry.positional_label else entry.display_labels_with_metavar
    choices = "|".join(entry.choices or ())
    left = "  " + " ".join(names).replace("CHOICE", choices or "CHOICE")
    notes = [f"(default: {entry.default})"] if entry.default is not None else ["(required)"] if entry.required else []
    notes += [f"(or {name} in the environment)" for name in entry.env_var or ()]
    said = textwrap.wrap(" ".join([*_plain(entry.description).split(), *notes]), _width() - COLUMN) or [""]
    if len(left) + 2 > COLUMN:
        return [left, *(" " * COLUMN + line for line in said)]
    return [f"{left:<{COLUMN}}{said[0]}", *(" " * COLUMN + line for line in said[1:])]


def _plain(text: Any) -> str:
    inner = getattr(text, "primary_renderable", text)
    return str(getattr(inner, "plain", inner) or "")


def _width() -> int:
    return min(shutil.get_terminal_size((100, 24)).columns, 110)


def shown_default(value: object) -> str | None:
    """Return a default as people write it; None where it says nothing."""
    if value is None or value is False or value in ("", [], (), {}):
        return None
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _finite(kind: Any, value: Any) -> None:
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, float) and not math.isfinite(one):
            raise ValueError(f"a finite number is needed, not {one}")


def _whole(word: str) -> int:
    return int(word)


_convert._converters[int] = _whole  # Cyclopts itself makes 2 of 2.5, unsaid; a test notices if this has no effect

LISTS_AND_FLAGS = Parameter(
    validator=_finite,
    negative=(),  # no --no-json beside --json
    consume_multiple=1,  # --model a b, not --model a --model b
    allow_repeating=True,  # the last word counts
    show_default=shown_default,
)
