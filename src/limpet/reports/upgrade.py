"""The status of an upgrade in words and tables."""

from __future__ import annotations

from typing import Any

from limpet.engines.sides import SIDES
from limpet.reports.markdown import Table, in_markdown, markdown_table
from limpet.upgrade.status import UpgradeStatus, next_lines


def status_words(found: UpgradeStatus) -> list[str]:
    """Return the status and the next commands, line by line."""
    return [*found.lines(), *next_lines(found.next, "URL")]


def status_table(found: UpgradeStatus) -> Table:
    """Return columns and rows: the serving model, the writing model, and the number of items that lack its vector."""
    rows = [
        [one["side"], one["model"], *("yes" if one[name] else "no" for name in ("serving", "writes")),
         f"{one['lacking']:,}"]
        for one in status_records(found)
    ]  # fmt: skip
    return ["side", "model", "serves queries", "written with", "items without a vector"], rows


def status_records(found: UpgradeStatus) -> list[dict[str, Any]]:
    """Return the status unrounded, one row per model."""
    return [
        {
            "side": side,
            "model": found.model(side).called,
            "phase": found.phase,
            "serving": found.serving == side,
            "writes": found.writes == side,
            "items": found.items,
            "lacking": found.lacking.get(side, 0),
        }
        for side in SIDES
    ]


def status_markdown(found: UpgradeStatus) -> str:
    """Return the status in Markdown."""
    return "\n\n".join([*map(in_markdown, status_words(found)), markdown_table(*status_table(found))])
