"""What a command says of results that it kept, and other code made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.cli.console import console
from holdfast.source_code import Standing

MADE_BY: dict[Standing, str] = {
    "other": "made by other code than that of today",
    "unknown": "made before it was recorded which code made it",
}
"""What is said of what the code of today did not make."""


def tell_kept(standings: Mapping[Path, Standing]) -> None:
    """Print which folders the code of today did not make, and how to have them made anew.

    Args:
        standings: How the code that made what is in a folder stands to that of today.
    """
    for standing, said in MADE_BY.items():
        kept = [folder for folder, found in standings.items() if found == standing]
        if kept:
            console.print(f"Kept as it was, {said}: {', '.join(map(str, kept))}.", markup=False)
    others = [folder for folder, found in standings.items() if found != "same"]
    if others:
        console.print(
            "Next: the same command with --again makes that anew; what is there stays, as "
            f"{others[0].name}.before-1 or the like.",
            markup=False,
        )
