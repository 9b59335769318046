"""The page of a command, which needs an extra: no result and no exit code waits for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from limpet.cli.console import console
from limpet.errors import ConfigError

Report = Literal["html", "none"]


def check_report(asked: str | None, name: str = "--report") -> None:
    """Refuse, before anything is computed, a page that was asked for and cannot be written.

    Raises:
        ConfigError: Its packages are not installed.
    """
    from limpet.reports.page import EXTRA, pages_can_be_written

    if asked == "html" and not pages_can_be_written():
        raise ConfigError(
            f"{name} html was given, and Jinja2, which writes the page, is not installed.",
            expected="Jinja2, or no page",
            to_do=f"{EXTRA}; or {name} none. Nothing was computed or changed.",
        )


def page_written(asked: str | None, write: Callable[[], Path]) -> Path | None:
    """Write a page, unless none was asked for or its packages are not installed.

    Args:
        asked: "html", "none", or None for a page wherever one can be written.
        write: Draws and writes it, and returns its path.
    """
    from limpet.reports.page import pages_can_be_written

    if asked == "none" or not pages_can_be_written():
        return None
    with console.status("writing the report"):
        return write()


def page_line(asked: str | None, page: Path | None, label: str = "report") -> str:
    """Return the line that says where the page is, or how to get one; empty where none was asked for."""
    from limpet.reports.page import EXTRA

    start = f"\n{label:<9}"
    if page is not None:
        return f"{start}{page}  (open it in a browser)"
    if asked == "none":
        return ""
    return f"{start}not written: Jinja2 is not installed. Run {EXTRA} in the checkout of limpet and repeat the command"
