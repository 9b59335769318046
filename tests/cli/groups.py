"""Which group of commands a word belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from limpet.cli.program import COMMANDS


def group_of(words: Sequence[object]) -> str:
    """Return "upgrade" for steps of an upgrade, and "gallery" for what galleries have by themselves.

    >>> group_of(["swap", "live"]), group_of(["status", "live"]), group_of(["serch"])
    ('upgrade', 'gallery', 'gallery')
    """
    return "gallery" if f"gallery {words[0]}" in COMMANDS or f"upgrade {words[0]}" not in COMMANDS else "upgrade"


def grouped(words: Sequence[object]) -> list[str]:
    """Return the words of a command with its group before them, unless they begin with "upgrade" or "doctor"."""
    return [*([] if words[0] in ("upgrade", "doctor") else [group_of(words)]), *map(str, words)]
