"""Results as Markdown, for papers, READMEs and pull requests: findings and tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from limpet.reports.formats import plain_text

if TYPE_CHECKING:
    from limpet.reports.words import Finding

__all__ = ["Table", "in_markdown", "markdown_of", "markdown_table"]

Table = tuple[list[str], list[list[str]]]
"""Columns, and rows of as many cells."""

_NUMBER = re.compile(r"((\[?[-+−]?\d|–).*|yes|no|)", re.DOTALL)


def markdown_of(title: str, findings: Sequence[Finding], tables: Mapping[str, Table], notes: Sequence[str] = ()) -> str:
    """Return results in Markdown, ending with a line break.

    Args:
        title: Title of the results.
        findings: Findings; the first is on the whole, each other one on the part that it names.
        tables: Tables by title; those without rows are left out.
        notes: Notes below the tables.
    """
    first, *others = findings
    parts = [f"# {in_markdown(title)}", f"**{in_markdown(first.headline)}**", *map(in_markdown, first.lines)]
    for finding in others:
        line, *rest = finding.lines
        about = ": ".join(filter(None, (finding.name, finding.headline)))
        parts += [f"**{in_markdown(about)}.** {in_markdown(line)}", *map(in_markdown, rest)]
    for caption, (columns, rows) in tables.items():
        if rows:
            parts += [f"## {in_markdown(caption)}", markdown_table(columns, rows).rstrip("\n")]
    return "\n\n".join([*parts, *map(in_markdown, notes)]) + "\n"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Return a table in Markdown, ending with a line break; numbers are right-aligned and special characters escaped.

    >>> print(markdown_table(["model", "mAP"], [["a|b", "0.413"]]), end="")
    | model | mAP |
    | --- | ---: |
    | a\|b | 0.413 |
    """
    head, *lines = [
        [" ".join(plain_text(words).replace("\\", "\\\\").replace("|", "\\|").split()) for words in row]
        for row in (columns, *rows)
    ]
    sides = ["---:" if all(_NUMBER.fullmatch(row[place]) for row in rows) else "---" for place in range(len(columns))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---", *sides[1:]], *lines))


def in_markdown(words: str) -> str:
    r"""Escape text for Markdown, on one line.

    >>> in_markdown("a_b [1, 2]")
    'a\\_b \\[1, 2]'
    """
    for sign in "\\|*_`<[":
        words = words.replace(sign, f"\\{sign}")
    return " ".join(plain_text(words).split())
